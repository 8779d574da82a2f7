//! Images in memory of a program, which pass no length.

use std::ffi::{CStr, c_void};

use super::fatbin;

/// The first bytes of an ELF file.
const ELF: [u8; 4] = [0x7F, b'E', b'L', b'F'];

/// Bytes of the header of a 64-bit ELF file.
const ELF_HEADER_BYTES: usize = 64;

/// The version of a wrapper around a program that nvcc linked of objects (`-rdc=true`).
const LINKED: i32 = 2;

/// An image that a program passes.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// Text, a container or an ELF file.
    pub(crate) bytes: &'a [u8],
    /// The containers of its objects, if nvcc linked it of some.
    pub(crate) objects: Option<Vec<&'a [u8]>>,
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, objects: None }
    }
}

/// Reads an image in memory, with the objects that it was linked of.
///
/// # Safety
/// As [`bytes`] says. The list of objects must be there, up to its null address, and they must be
/// whole containers.
pub(crate) unsafe fn read<'a>(image: *const c_void) -> Source<'a> {
    let place = image.cast::<u8>();
    // SAFETY: by this function's contract the image is whole, or NUL-terminated text.
    let bytes = unsafe { bytes(image) };
    // SAFETY: by this function's contract the image is whole, or NUL-terminated text.
    let is_wrapper = unsafe { magic(place) }.map(u32::from_le_bytes) == Some(fatbin::WRAPPER_MAGIC);
    // SAFETY: the header of a wrapper is there, in which the version is at byte 4.
    if !is_wrapper || unsafe { place.wrapping_add(4).cast::<i32>().read_unaligned() } != LINKED {
        return bytes.into();
    }
    // SAFETY: the address of the list is at byte 16 of such a wrapper.
    let list = unsafe { place.wrapping_add(16).cast::<*const *const u8>().read_unaligned() };
    let mut objects = Vec::new();
    for index in 0.. {
        if list.is_null() {
            break;
        }
        // SAFETY: by this function's contract the list goes on up to its null address.
        let object = unsafe { list.wrapping_add(index).read_unaligned() };
        if object.is_null() {
            break;
        }
        // SAFETY: by this function's contract each object is a whole container.
        objects.push(unsafe { of_container(object) });
    }
    Source { bytes, objects: Some(objects) }
}

/// The bytes of an image. Text ends at its NUL; a container and an ELF file say their length.
///
/// # Safety
/// `image` must point to a whole image, or to NUL-terminated text, which no code changes while the
/// answer is used. If the first bytes are those of a fat binary or an ELF file, its header must be
/// there, and as many bytes as it says.
unsafe fn bytes<'a>(image: *const c_void) -> &'a [u8] {
    let place = image.cast::<u8>();
    // SAFETY: text ends at its NUL, so of a shorter text no byte after that is read.
    match unsafe { magic(place) } {
        Some(magic) if u32::from_le_bytes(magic) == fatbin::WRAPPER_MAGIC => {
            // SAFETY: by this function's contract the header of the wrapper is there, in which the
            // address of the container is at byte 8.
            let container = unsafe { place.wrapping_add(8).cast::<*const u8>().read_unaligned() };
            if container.is_null() {
                return &[];
            }
            // SAFETY: by this function's contract the container is there, as in a whole image.
            unsafe { of_container(container) }
        }
        Some(magic) if u32::from_le_bytes(magic) == fatbin::MAGIC => {
            // SAFETY: by this function's contract the container is there.
            unsafe { of_container(place) }
        }
        Some(ELF) => {
            // SAFETY: by this function's contract the ELF file is there.
            unsafe { of_elf(place) }
        }
        _ => {
            // SAFETY: by this function's contract anything else is NUL-terminated text.
            unsafe { CStr::from_ptr(place.cast()) }.to_bytes()
        }
    }
}

/// The first four bytes, unless one of them is 0.
///
/// # Safety
/// The bytes up to the first 0, or four of them, must be readable.
unsafe fn magic(place: *const u8) -> Option<[u8; 4]> {
    let mut bytes = [0; 4];
    for (index, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: no byte before this one was 0, so by this function's contract it is readable.
        *byte = unsafe { place.wrapping_add(index).read() };
        if *byte == 0 {
            return None;
        }
    }
    Some(bytes)
}

/// The bytes of a container.
///
/// # Safety
/// The header must be readable, and as many bytes as it says, while the answer is used.
unsafe fn of_container<'a>(place: *const u8) -> &'a [u8] {
    // SAFETY: by this function's contract the header is readable.
    let header = unsafe { std::slice::from_raw_parts(place, fatbin::HEADER_BYTES) };
    let Some(bytes) = fatbin::container_bytes(header) else { return header };
    // SAFETY: by this function's contract the container is as long as its header says.
    unsafe { std::slice::from_raw_parts(place, bytes) }
}

/// The bytes of an ELF file: up to the end of its tables, and of the sections that they list.
///
/// # Safety
/// The header must be readable, and as many bytes as it and its tables say, while the answer is
/// used.
unsafe fn of_elf<'a>(place: *const u8) -> &'a [u8] {
    // SAFETY: by this function's contract the header is readable.
    let header = unsafe { std::slice::from_raw_parts(place, ELF_HEADER_BYTES) };
    let number = |bytes: &[u8], offset: usize, length: usize| {
        let bytes = bytes.get(offset..offset.saturating_add(length)).unwrap_or_default();
        bytes.iter().rev().fold(0_usize, |all, byte| all << 8 | usize::from(*byte))
    };
    // Only files with 64 bits are images.
    if header.get(4) != Some(&2) {
        return header;
    }
    let table = |offset, entry, count| {
        let bytes = number(header, entry, 2).saturating_mul(number(header, count, 2));
        number(header, offset, 8).saturating_add(bytes)
    };
    let tables = table(32, 54, 56).max(table(40, 58, 60)).max(ELF_HEADER_BYTES);
    if isize::try_from(tables).is_err() {
        return header;
    }
    // SAFETY: by this function's contract the tables are readable where the header says.
    let with_tables = unsafe { std::slice::from_raw_parts(place, tables) };
    let sections = with_tables.get(number(header, 40, 8)..).unwrap_or_default();
    let entry_bytes = number(header, 58, 2).max(1);
    let mut end = tables;
    for section in sections.chunks_exact(entry_bytes).take(number(header, 60, 2)) {
        // Sections without contents (`SHT_NOBITS`) are not in the file.
        if number(section, 4, 4) != 8 {
            end = end.max(number(section, 24, 8).saturating_add(number(section, 32, 8)));
        }
    }
    if isize::try_from(end).is_err() {
        return header;
    }
    // SAFETY: by this function's contract the sections are readable where the table says.
    unsafe { std::slice::from_raw_parts(place, end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_its_nul_and_a_container_where_its_header_says() {
        let read = |image: &[u8]| {
            // SAFETY: each image below is NUL-terminated text or whole.
            unsafe { bytes(image.as_ptr().cast()) }.len()
        };
        assert_eq!((read(b"\0"), read(b"abc\0def\0"), read(b"\x7FEL\0")), (0, 3, 3));
        let mut container = vec![0_u8; 40];
        container[..8].copy_from_slice(&[0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0]);
        container[8] = 24;
        assert_eq!(read(&container), 40);
        let mut elf = vec![0_u8; 64];
        elf[..4].copy_from_slice(&ELF);
        assert_eq!(read(&elf), 64);
    }
}
