//! Attributes of addresses: `cudaPointerAttributes`.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::contexts::with_context;
use crate::driver::cu;
use crate::outcome::{Outcome, write};

/// `cudaPointerAttributes` of release 12.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerAttributes12 {
    /// 0 memory that the driver does not know, 1 host, 2 device, 3 managed.
    pub kind: c_int,
    /// The ordinal of the device that the memory belongs to; -2 if it belongs to none.
    pub device: c_int,
    /// The address for the device, or null.
    pub device_pointer: *mut c_void,
    /// The address for the host, or null.
    pub host_pointer: *mut c_void,
}

/// `cudaPointerAttributes` of release 13.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerAttributes {
    /// The members that release 12 has too.
    pub known: PointerAttributes12,
    /// Zeros.
    pub reserved: [u64; 8],
}

/// `CU_POINTER_ATTRIBUTE_` MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, IS_MANAGED, DEVICE_ORDINAL.
const ATTRIBUTES: [c_int; 5] = [2, 3, 4, 8, 9];

/// No device, `cudaInvalidDeviceId`.
const NO_DEVICE: c_int = -2;

/// Writes what an address is. Memory that the driver does not know has kind 0.
pub unsafe extern "C" fn cudaPointerGetAttributes(
    to: *mut PointerAttributes,
    address: *const c_void,
) -> c_int {
    with_context(|| {
        let attributes = PointerAttributes { known: attributes(address)?, reserved: [0; 8] };
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, attributes) }
    })
}

/// Writes what an address is, in the layout of release 12.
pub unsafe extern "C" fn cudaPointerGetAttributes_12(
    to: *mut PointerAttributes12,
    address: *const c_void,
) -> c_int {
    with_context(|| {
        let attributes = attributes(address)?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, attributes) }
    })
}

fn attributes(address: *const c_void) -> Outcome<PointerAttributes12> {
    let (mut kind, mut managed): (c_uint, c_uint) = (0, 0);
    let mut device = NO_DEVICE;
    let (mut device_pointer, mut host_pointer): (*mut c_void, *mut c_void) =
        (null_mut(), null_mut());
    let mut places: [*mut c_void; 5] = [
        (&raw mut kind).cast(),
        (&raw mut device_pointer).cast(),
        (&raw mut host_pointer).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
    ];
    let mut asked = ATTRIBUTES;
    // SAFETY: there is a writable place of the attribute's type for each attribute.
    unsafe {
        cu!("cuPointerGetAttributes" @ 7000, 5_u32, asked.as_mut_ptr(), places.as_mut_ptr(), address)
    }?;
    let kind = match kind {
        0 => 0,
        _ if managed != 0 => 3,
        1 => 1,
        _ => 2,
    };
    match kind {
        // The driver does not know the memory, so it is the host's own.
        0 => (device, device_pointer, host_pointer) = (NO_DEVICE, null_mut(), address.cast_mut()),
        2 => host_pointer = null_mut(),
        _ => {}
    }
    Ok(PointerAttributes12 { kind, device, device_pointer, host_pointer })
}
