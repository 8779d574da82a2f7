//! Entry points for start-up and devices.

use std::ffi::{CStr, c_char, c_int, c_uint};

use pagewise_hal::{Backend, Code, DeviceAttribute, DeviceId};

use crate::attributes::attribute_of;
use crate::driver::{
    Driver, Outcome, answer, any_time, has_place, start, started, started_after, store,
};

/// `cuInit`
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> c_int {
    any_time("cuInit", |driver| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        match start(driver) {
            Code::SUCCESS => Ok(()),
            code => Err(code),
        }
    })
}

/// `cuDriverGetVersion`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    any_time("cuDriverGetVersion", |driver| unsafe { store(version, driver.options.version().0) })
}

/// `cuDeviceGetCount`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    started("cuDeviceGetCount", |driver| {
        let devices = answer(driver.sim.device_count())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(count, devices.cast_signed()) }
    })
}

fn check(driver: &Driver, device: c_int) -> Result<(), c_int> {
    // Any attribute tells whether the device exists.
    let attribute = DeviceAttribute::UNIFIED_ADDRESSING;
    answer(driver.sim.device_attribute(DeviceId(device), attribute)).map(|_| ())
}

/// `cuDeviceGet`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    started("cuDeviceGet", |driver| {
        has_place(device)?;
        check(driver, ordinal)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(device, ordinal) }
    })
}

/// `cuDeviceGetName`: cut, if there is too little room.
///
/// # Safety
/// `name` must be null or valid for writing `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) -> c_int {
    started("cuDeviceGetName", |driver| {
        has_place(name)?;
        check(driver, device)?;
        let room = usize::try_from(bytes).ok().and_then(|room| room.checked_sub(1));
        let text = format!("simulated {}", driver.options.gpu_name());
        let kept = text.len().min(room.ok_or(Code::INVALID_VALUE)?);
        let text: Vec<u8> = text.bytes().take(kept).chain([0]).collect();
        // SAFETY: the caller promises that `bytes` bytes can be written at `name`, which is not
        // null, and the text is at most so long.
        unsafe { write_text(name, &text) };
        Ok(())
    })
}

/// Writes bytes to a place of the caller.
///
/// # Safety
/// `to` must be valid for writing as many bytes as `text` has.
unsafe fn write_text(to: *mut c_char, text: &[u8]) {
    // SAFETY: by this function's contract the place has room for the text, which is memory of this
    // library, so the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len()) };
}

/// `cuDeviceTotalMem`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    started("cuDeviceTotalMem_v2", |driver| {
        has_place(bytes)?;
        let info = answer(driver.sim.memory_info(DeviceId(device)))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(bytes, info.total_bytes as usize) }
    })
}

/// `cuDeviceGetAttribute`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> c_int {
    started_after("cuDeviceGetAttribute", has_place(value), |driver| {
        let answered = attribute_of(driver, device, attribute)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(value, answered) }
    })
}

/// The place of a device on the PCI, as text with its NUL: 13 bytes.
fn pci_bus_id(driver: &Driver, device: c_int) -> Outcome<Vec<u8>> {
    let part = |attribute| answer(driver.sim.device_attribute(DeviceId(device), attribute));
    let domain = part(DeviceAttribute::PCI_DOMAIN_ID)?;
    let (bus, slot) = (part(DeviceAttribute::PCI_BUS_ID)?, part(DeviceAttribute::PCI_DEVICE_ID)?);
    Ok(format!("{domain:04X}:{bus:02X}:{slot:02X}.0\0").into_bytes())
}

/// `cuDeviceGetPCIBusId`: 13 bytes. With less room it writes what fits, and refuses: so does driver
/// 580.
///
/// # Safety
/// `text` must be null or valid for writing `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(
    text: *mut c_char,
    bytes: c_int,
    device: c_int,
) -> c_int {
    started("cuDeviceGetPCIBusId", |driver| {
        has_place(text)?;
        check(driver, device)?;
        let whole = pci_bus_id(driver, device)?;
        let room = usize::try_from(bytes).ok().and_then(|room| room.checked_sub(1));
        let kept = room.ok_or(Code::INVALID_VALUE)?.min(whole.len().saturating_sub(1));
        let cut: Vec<u8> = whole.iter().copied().take(kept).chain([0]).collect();
        // SAFETY: the caller promises that `bytes` bytes can be written at `text`, which is not
        // null, and the text is at most so long.
        unsafe { write_text(text, &cut) };
        if cut.len() == whole.len() { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}

/// `cuDeviceGetByPCIBusId`: `domain:bus:device.function`, in hexadecimal, without the domain or the
/// function as well.
///
/// # Safety
/// `text` must be null or NUL-terminated; `device` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> c_int {
    started("cuDeviceGetByPCIBusId", |driver| {
        has_place(device)?;
        has_place(text)?;
        // SAFETY: `text` is not null, so the caller promises that it is NUL-terminated. The text is
        // used within this call only.
        let text = unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Code::INVALID_VALUE)?;
        let wanted = place_on_pci(text).ok_or(Code::INVALID_VALUE)?;
        let mut devices = driver.options.ordinals();
        let is_there = |&ordinal: &c_int| {
            let id = pci_bus_id(driver, ordinal).ok();
            let id = id.and_then(|id| String::from_utf8(id).ok());
            id.is_some_and(|id| place_on_pci(id.trim_end_matches('\0')) == Some(wanted))
        };
        let found = devices.find(is_there).ok_or(Code::INVALID_DEVICE)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(device, found) }
    })
}

/// Domain, bus and device of a place on the PCI.
fn place_on_pci(text: &str) -> Option<[u32; 3]> {
    let text = text.split_once('.').map_or(text, |(place, _)| place);
    let numbers: Option<Vec<u32>> =
        text.split(':').map(|part| u32::from_str_radix(part, 16).ok()).collect();
    match numbers?[..] {
        [domain, bus, device] => Some([domain, bus, device]),
        [bus, device] => Some([0, bus, device]),
        _ => None,
    }
}

/// Stores the id of a device: made from the profile's name and the ordinal, the same on every
/// machine. No GPU has it.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn uuid(symbol: &str, out: *mut [u8; 16], device: c_int) -> c_int {
    started(symbol, |driver| {
        has_place(out)?;
        check(driver, device)?;
        // FNV-1a
        let hash =
            driver.options.gpu_name().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
        let mut id = [0; 16];
        id[..4].copy_from_slice(b"PAGE");
        id[4..12].copy_from_slice(&hash.to_be_bytes());
        id[12..].copy_from_slice(&device.to_be_bytes());
        // SAFETY: by this function's contract `out` is null or valid for writing.
        unsafe { store(out, id) }
    })
}

/// `cuDeviceGetUuid`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(out: *mut [u8; 16], device: c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { uuid("cuDeviceGetUuid", out, device) }
}

/// `cuDeviceGetUuid`, the form of CUDA 11.4: the same without parts of GPUs.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(out: *mut [u8; 16], device: c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { uuid("cuDeviceGetUuid_v2", out, device) }
}

/// `cuDeviceComputeCapability`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceComputeCapability(
    major: *mut c_int,
    minor: *mut c_int,
    device: c_int,
) -> c_int {
    started("cuDeviceComputeCapability", |driver| {
        has_place(major)?;
        has_place(minor)?;
        check(driver, device)?;
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            store(major, attribute_of(driver, device, 75)?)?;
            store(minor, attribute_of(driver, device, 76)?)
        }
    })
}

/// `cuDeviceGetP2PAttribute`: all devices are linked alike. Arrays are not accessed over the link.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
    peer: c_int,
) -> c_int {
    started("cuDeviceGetP2PAttribute", |driver| {
        has_place(value)?;
        let answered = answer(driver.sim.can_access_peer(DeviceId(device), DeviceId(peer)))?;
        let answered = match attribute {
            _ if device == peer => return Err(Code::INVALID_DEVICE),
            1 | 4 => 0,
            2 | 3 => c_int::from(answered),
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(value, answered) }
    })
}

/// `cuDeviceCanAccessPeer`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(
    can: *mut c_int,
    device: c_int,
    peer: c_int,
) -> c_int {
    started("cuDeviceCanAccessPeer", |driver| {
        has_place(can)?;
        let answered = answer(driver.sim.can_access_peer(DeviceId(device), DeviceId(peer)))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(can, c_int::from(answered)) }
    })
}
