//! `cudaDeviceProp`: what a device is, in the layouts of releases 12 and 13.

use std::ffi::{c_char, c_int, c_void};

use crate::contexts::check;
use crate::driver::cu;
use crate::outcome::{Error, Outcome, api};

/// A member that holds attributes of the device.
struct Property {
    /// Its place in the layouts of releases 12 and 13, in bytes.
    at: [Option<usize>; 2],
    /// Its size. It is as wide as an integer of the C types `int` or `size_t` for each attribute.
    bytes: usize,
    /// The numbers of the attributes.
    attributes: &'static [c_int],
}

static PROPERTIES: &[Property] = include!(concat!(env!("OUT_DIR"), "/properties.rs"));

/// The layouts of `cudaDeviceProp`, with the bytes that are written: all but the reserved ones at
/// the end.
#[derive(Clone, Copy)]
enum Layout {
    Release12 = 780,
    Release13 = 784,
}

/// The places of the members that are no attributes; both layouts have the same.
const NAME: usize = 0;
const NAME_BYTES: c_int = 256;
const UUID: usize = 256;
const MEMORY: usize = 288;

/// Writes what a device is (`cudaDeviceProp` of release 13).
pub unsafe extern "C" fn cudaGetDeviceProperties(to: *mut c_void, device: c_int) -> c_int {
    // SAFETY: the caller promises a structure of that layout.
    api(|| unsafe { write_properties(to, device, Layout::Release13) })
}

/// Writes what a device is (`cudaDeviceProp` of release 12).
pub unsafe extern "C" fn cudaGetDeviceProperties_12(to: *mut c_void, device: c_int) -> c_int {
    // SAFETY: the caller promises a structure of that layout.
    api(|| unsafe { write_properties(to, device, Layout::Release12) })
}

/// Fills the caller's structure once all of it is known.
///
/// # Safety
/// A place that is not null has room for the layout.
unsafe fn write_properties(to: *mut c_void, device: c_int, layout: Layout) -> Outcome {
    check(device)?;
    if to.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let bytes = properties(device, layout)?;
    // SAFETY: the caller promises the room.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

fn properties(device: c_int, layout: Layout) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0_u8; layout as usize];
    let mut memory: usize = 0;
    // SAFETY: the buffer has room for a name of that size and for an id of 16 bytes, and the place
    // of the size is writable.
    unsafe {
        let name = bytes.as_mut_ptr().add(NAME).cast::<c_char>();
        cu!("cuDeviceGetName" @ 2000, name, NAME_BYTES, device)?;
        cu!("cuDeviceGetUuid" @ 11040, bytes.as_mut_ptr().add(UUID), device)?;
        cu!("cuDeviceTotalMem" @ 3020, &raw mut memory, device)?;
    }
    put(&mut bytes, MEMORY, &memory.to_ne_bytes());
    for property in PROPERTIES {
        let Some(at) = property.at[usize::from(matches!(layout, Layout::Release13))] else {
            continue;
        };
        let width = property.bytes.checked_div(property.attributes.len()).unwrap_or(0);
        for (index, attribute) in property.attributes.iter().enumerate() {
            let value = attribute_of(device, *attribute)?;
            let wide = i64::from(value).to_ne_bytes();
            let narrow = value.to_ne_bytes();
            let value: &[u8] = if width == wide.len() { &wide } else { &narrow };
            put(&mut bytes, at.saturating_add(index.saturating_mul(width)), value);
        }
    }
    Ok(bytes)
}

/// An attribute, or 0 if the driver is too old to have it.
fn attribute_of(device: c_int, attribute: c_int) -> Outcome<c_int> {
    let mut value: c_int = 0;
    // SAFETY: the place is writable.
    match unsafe { cu!("cuDeviceGetAttribute" @ 2000, &raw mut value, attribute, device) } {
        Err(Error::INVALID_VALUE) => Ok(0),
        result => result.map(|()| value),
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let end = at.saturating_add(value.len());
    if let Some(place) = bytes.get_mut(at..end) {
        place.copy_from_slice(value);
    }
}
