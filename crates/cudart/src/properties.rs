//! `cudaDeviceProp`: what a device is, in the layouts of releases 12 and 13.

use std::ffi::{c_char, c_int, c_void};

use crate::contexts::{check, count};
use crate::driver::cu;
use crate::outcome::{Error, Outcome, api, write};

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

/// Writes the device that has most of the properties of a structure (`cudaDeviceProp` of release
/// 13): those that are at least as large there. The first of several devices is chosen.
pub unsafe extern "C" fn cudaChooseDevice(to: *mut c_int, wanted: *const c_void) -> c_int {
    // SAFETY: the caller promises a structure of that layout.
    api(|| unsafe { choose(to, wanted, Layout::Release13) })
}

/// Writes the device that has most of the properties of a structure (`cudaDeviceProp` of release
/// 12).
pub unsafe extern "C" fn cudaChooseDevice_12(to: *mut c_int, wanted: *const c_void) -> c_int {
    // SAFETY: the caller promises a structure of that layout.
    api(|| unsafe { choose(to, wanted, Layout::Release12) })
}

/// Writes the device that fits best.
///
/// # Safety
/// Places that are not null are writable, or readable in the layout.
unsafe fn choose(to: *mut c_int, wanted: *const c_void, layout: Layout) -> Outcome {
    if to.is_null() || wanted.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let mut bytes = vec![0_u8; layout as usize];
    // SAFETY: the caller promises that the structure is readable in the layout.
    unsafe { wanted.cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    let mut best = (0, 0);
    for device in 0..count()? {
        let found = properties(device, layout)?;
        let fits = numbers(&found, layout).zip(numbers(&bytes, layout));
        let score = fits.filter(|(found, wanted)| found >= wanted).count();
        if score > best.0 {
            best = (score, device);
        }
    }
    // SAFETY: the caller promises that the place is writable.
    unsafe { write(to, best.1) }
}

/// The numbers of a structure, in the order of the table.
fn numbers(bytes: &[u8], layout: Layout) -> impl Iterator<Item = i64> {
    PROPERTIES.iter().flat_map(move |property| {
        let place = property.at[usize::from(matches!(layout, Layout::Release13))];
        let width = property.bytes.checked_div(property.attributes.len()).unwrap_or(0);
        let number = move |index: usize| {
            let start = place?.checked_add(index.checked_mul(width)?)?;
            let bytes = bytes.get(start..start.checked_add(width)?)?;
            match bytes.try_into() {
                Ok(wide) => Some(i64::from_ne_bytes(wide)),
                Err(_) => bytes.try_into().ok().map(|narrow| c_int::from_ne_bytes(narrow).into()),
            }
        };
        (0..property.attributes.len()).filter_map(number)
    })
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
