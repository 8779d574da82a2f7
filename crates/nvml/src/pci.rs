//! Devices by their places on the PCI.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::device::{Device, find, handle, ordinal};
use crate::driver::Driver;
use crate::library::started;
use crate::outcome::{Error, Outcome, api, write};

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciInfo {
    /// The place as text, with a domain of four digits.
    pub bus_id_legacy: [u8; 16],
    /// The domain.
    pub domain: c_uint,
    /// The bus.
    pub bus: c_uint,
    /// The device on the bus.
    pub device: c_uint,
    /// The maker's number of the device, above the maker's own.
    pub pci_device_id: c_uint,
    /// The same of the board.
    pub pci_sub_system_id: c_uint,
    /// The place as text, with a domain of eight digits.
    pub bus_id: [u8; 32],
}

/// `nvmlPciInfo_v2_t`, which earlier forms of the call write.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciInfoV2 {
    /// The place as text.
    pub bus_id: [u8; 16],
    /// The domain.
    pub domain: c_uint,
    /// The bus.
    pub bus: c_uint,
    /// The device on the bus.
    pub device: c_uint,
    /// The maker's number of the device, above the maker's own.
    pub pci_device_id: c_uint,
    /// The same of the board.
    pub pci_sub_system_id: c_uint,
    /// Zeros.
    pub reserved: [c_uint; 4],
}

/// `CU_DEVICE_ATTRIBUTE_` PCI_DOMAIN_ID, PCI_BUS_ID, PCI_DEVICE_ID.
const PLACE: [c_int; 3] = [50, 33, 34];

/// `CU_DEVICE_ATTRIBUTE_` GPU_PCI_DEVICE_ID, GPU_PCI_SUBSYSTEM_ID.
const IDS: [c_int; 2] = [139, 140];

/// Writes the place of a device on the PCI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Device, to: *mut PciInfo) -> c_int {
    api(|| {
        let driver = started()?;
        let info = info(driver, ordinal(driver, device)?)?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, info) }
    })
}

/// Writes the place of a device on the PCI, in the older structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v2(device: Device, to: *mut PciInfoV2) -> c_int {
    api(|| {
        let driver = started()?;
        let PciInfo {
            bus_id_legacy, domain, bus, device, pci_device_id, pci_sub_system_id, ..
        } = info(driver, ordinal(driver, device)?)?;
        let (bus_id, reserved) = (bus_id_legacy, [0; 4]);
        let info =
            PciInfoV2 { bus_id, domain, bus, device, pci_device_id, pci_sub_system_id, reserved };
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, info) }
    })
}

/// Does what [`nvmlDeviceGetPciInfo_v2`] does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo(device: Device, to: *mut PciInfoV2) -> c_int {
    // SAFETY: the caller promises that the place is writable.
    unsafe { nvmlDeviceGetPciInfo_v2(device, to) }
}

/// Writes the handle of a device by its place, such as `0000:01:00.0`. Returns 6
/// (`NVML_ERROR_NOT_FOUND`) if no device is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    place: *const c_char,
    to: *mut Device,
) -> c_int {
    api(|| {
        let driver = started()?;
        if place.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises a C string.
        let text =
            unsafe { CStr::from_ptr(place) }.to_str().map_err(|_| Error::INVALID_ARGUMENT)?;
        let wanted = parse(text).ok_or(Error::INVALID_ARGUMENT)?;
        let found = find(driver, |device| Ok(place_of(driver, device)? == wanted))?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, handle(found)) }
    })
}

/// Does what [`nvmlDeviceGetHandleByPciBusId_v2`] does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId(
    place: *const c_char,
    to: *mut Device,
) -> c_int {
    // SAFETY: the caller promises a C string and a writable place.
    unsafe { nvmlDeviceGetHandleByPciBusId_v2(place, to) }
}

/// The domain, the bus and the device of a place: `DDDD:BB:SS.F`, or the same without the domain.
fn parse(text: &str) -> Option<[c_uint; 3]> {
    let number = |text| c_uint::from_str_radix(text, 16).ok();
    let (place, function) = text.split_once('.').unwrap_or((text, "0"));
    number(function)?;
    let parts: Vec<&str> = place.split(':').collect();
    match parts[..] {
        [domain, bus, device] => Some([number(domain)?, number(bus)?, number(device)?]),
        [bus, device] => Some([0, number(bus)?, number(device)?]),
        _ => None,
    }
}

fn place_of(driver: &Driver, device: c_int) -> Outcome<[c_uint; 3]> {
    let mut place = [0; 3];
    for (number, attribute) in place.iter_mut().zip(PLACE) {
        let value = driver.attribute(attribute, device)?;
        *number = c_uint::try_from(value).map_err(|_| Error::UNKNOWN)?;
    }
    Ok(place)
}

fn info(driver: &Driver, ordinal: c_int) -> Outcome<PciInfo> {
    let [domain, bus, device] = place_of(driver, ordinal)?;
    // Drivers before CUDA 12.8 do not tell the makers' numbers.
    let [pci_device_id, pci_sub_system_id] =
        IDS.map(|id| driver.attribute(id, ordinal).unwrap_or(0).cast_unsigned());
    Ok(PciInfo {
        bus_id_legacy: text(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
        domain,
        bus,
        device,
        pci_device_id,
        pci_sub_system_id,
        bus_id: text(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
    })
}

/// A text in a member of a fixed size, which ends in a null byte.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
        *to = from;
    }
    bytes
}
