//! Entry points of the memory of graphs.

use std::ffi::{c_int, c_void};

use pagewise_hal::{Code, DeviceId};

use crate::driver::{has_place, load, started, store};
use crate::graph_memory;

/// `CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT`. Memory that a graph has counts as used until it is
/// trimmed, as an H200 with driver 580 says.
const USED: c_int = 0;
/// `CU_GRAPH_MEM_ATTR_USED_MEM_HIGH`
const USED_HIGH: c_int = 1;
/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`
const RESERVED: c_int = 2;
/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH`
const RESERVED_HIGH: c_int = 3;

/// `cuDeviceGetGraphMemAttribute`
///
/// # Safety
/// `value` must be null or valid for writing 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetGraphMemAttribute(
    device: c_int,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    started("cuDeviceGetGraphMemAttribute", |driver| {
        driver.handle_of(device)?;
        has_place(value)?;
        let (graphs, device) = (driver.graphs(), DeviceId(device));
        let bytes = match attribute {
            USED | RESERVED => graphs.memory.mapped_bytes(device),
            USED_HIGH | RESERVED_HIGH => {
                graphs.memory.peak_bytes(device, attribute == RESERVED_HIGH)
            }
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(value.cast(), bytes) }
    })
}

/// `cuDeviceSetGraphMemAttribute`: sets a peak back, with 0.
///
/// # Safety
/// `value` must be null or valid for reading 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceSetGraphMemAttribute(
    device: c_int,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    started("cuDeviceSetGraphMemAttribute", |driver| {
        driver.handle_of(device)?;
        // SAFETY: the caller promises that the place is null or valid for reading.
        let value: u64 = unsafe { load(value.cast::<u64>().cast_const()) }?;
        if value != 0 || ![USED_HIGH, RESERVED_HIGH].contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        driver.graphs().memory.reset_peak(DeviceId(device), attribute == RESERVED_HIGH);
        Ok(())
    })
}

/// `cuDeviceGraphMemTrim`
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGraphMemTrim(device: c_int) -> c_int {
    started("cuDeviceGraphMemTrim", |driver| {
        driver.handle_of(device)?;
        graph_memory::trim(driver, DeviceId(device));
        Ok(())
    })
}
