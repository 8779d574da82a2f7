//! Entry points for physical memory of other processes. They need no context, as those of virtual
//! memory management. A trace holds none of it.

use std::ffi::{c_int, c_void};

use pagewise_hal::{Code, HandleTypes, MemoryHandle, ShareableHandle};

use crate::driver::{answer, has_place, started, store};

/// `cuMemExportToShareableHandle`
///
/// # Safety
/// `shared` must be null or valid for writing an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemExportToShareableHandle(
    shared: *mut c_void,
    handle: u64,
    kind: c_int,
    flags: u64,
) -> c_int {
    started("cuMemExportToShareableHandle", |driver| {
        has_place(shared)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kind = HandleTypes::from_bits_retain(kind.cast_unsigned());
        let memory = MemoryHandle::checked(handle);
        let made = answer(driver.machine.simulator.memory_export(memory, kind))?;
        // SAFETY: the caller promises that `shared` is null or valid for writing an `int`, and the
        // simulator refuses every type of handle but descriptors, which are of that type.
        unsafe { store(shared.cast::<c_int>(), made.0) }
    })
}

/// `cuMemImportFromShareableHandle`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemImportFromShareableHandle(
    out: *mut u64,
    shared: *mut c_void,
    kind: c_int,
) -> c_int {
    started("cuMemImportFromShareableHandle", |driver| {
        has_place(out)?;
        let kind = HandleTypes::from_bits_retain(kind.cast_unsigned());
        let shared = ShareableHandle(shared.addr() as c_int);
        let made = answer(driver.machine.simulator.memory_import(shared, kind))?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, made.as_raw()) }
    })
}
