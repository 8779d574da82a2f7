//! Fat binaries: several forms of one program in a container.
//!
//! The wrapper is that of `fatbinary_section.h`. The container is known from public descriptions
//! and from files that nvcc 13.0 wrote: a header of 16 bytes, then entries, each with a header and
//! its contents. Contents may be compressed with LZ4 or Zstandard.

use std::io::Read as _;

use super::parts::Target;

/// The first four bytes of `__fatBinC_Wrapper_t`.
pub(crate) const WRAPPER_MAGIC: u32 = 0x4662_43B1;
/// The first four bytes of a container.
pub(crate) const MAGIC: u32 = 0xBA55_ED50;
/// Bytes of a container's header.
pub(crate) const HEADER_BYTES: usize = 16;

/// The most bytes that an entry may decompress to.
const CONTENTS_MAX: u64 = 1 << 30;

/// Bytes of an entry's header that every version has.
const ENTRY_BYTES: usize = 64;

/// `flags`: the contents are compressed with LZ4.
const LZ4: u64 = 0x2000;
/// `flags`: the contents are compressed with Zstandard.
const ZSTANDARD: u64 = 0x8000;

/// The form of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// Machine code in an ELF file.
    Cubin,
    /// PTX text. The greater of both: text can be executed here, machine code cannot.
    Ptx,
}

/// One form of the program of a container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) form: Form,
    pub(crate) target: Target,
    flags: u64,
    contents: &'a [u8],
    bytes_after: u64,
}

/// Bytes at an offset, as a number.
fn number(bytes: &[u8], offset: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

/// Bytes of a whole container, of which the header is there; `None` if it is none.
pub(crate) fn container_bytes(header: &[u8]) -> Option<usize> {
    let is_container = number(header, 0, 4)? == u64::from(MAGIC) && number(header, 4, 2)? == 1;
    let (header_bytes, contents) = (number(header, 6, 2)?, number(header, 8, 8)?);
    let bytes = usize::try_from(header_bytes.checked_add(contents)?).ok()?;
    (is_container && header_bytes as usize >= HEADER_BYTES && isize::try_from(bytes).is_ok())
        .then_some(bytes)
}

/// The entries of a container that are PTX or machine code. A wrong entry ends the list.
pub(crate) fn entries(container: &[u8]) -> Vec<Entry<'_>> {
    let mut found = Vec::new();
    let header = number(container, 6, 2).unwrap_or_default() as usize;
    let mut rest = container.get(header..).unwrap_or_default();
    while let Some((entry, after)) = entry(rest) {
        found.extend(entry);
        rest = after;
    }
    found
}

/// The first entry, unless it is of another form, and the bytes behind it.
fn entry(bytes: &[u8]) -> Option<(Option<Entry<'_>>, &[u8])> {
    let header_bytes = number(bytes, 4, 4)? as usize;
    let contents_bytes = usize::try_from(number(bytes, 8, 8)?).ok()?;
    if header_bytes < ENTRY_BYTES {
        return None;
    }
    let end = header_bytes.checked_add(contents_bytes)?;
    let contents = bytes.get(header_bytes..end)?;
    let after = bytes.get(end..)?;
    let form = match number(bytes, 0, 2)? {
        1 => Form::Ptx,
        2 => Form::Cubin,
        _ => return Some((None, after)),
    };
    let flags = number(bytes, 40, 8)?;
    // Bytes without the padding, if the contents are compressed.
    let packed = number(bytes, 16, 4)? as usize;
    let is_packed = flags & (LZ4 | ZSTANDARD) != 0;
    let contents = if is_packed { contents.get(..packed)? } else { contents };
    let capability = u32::try_from(number(bytes, 28, 4)?).ok()?;
    let target = match form {
        Form::Ptx => format!("sm_{capability}").parse().unwrap_or_default(),
        Form::Cubin => Target::of_machine_code(capability),
    };
    let bytes_after = number(bytes, 56, 8)?;
    Some((Some(Entry { form, target, flags, contents, bytes_after }), after))
}

impl Entry<'_> {
    /// The contents, decompressed; `None` if they are damaged or too long.
    pub(crate) fn contents(&self) -> Option<Vec<u8>> {
        if self.flags & (LZ4 | ZSTANDARD) != 0 && self.bytes_after > CONTENTS_MAX {
            return None;
        }
        if self.flags & ZSTANDARD != 0 {
            let decoder = zstd::stream::read::Decoder::with_buffer(self.contents).ok()?;
            let mut contents = Vec::new();
            // One byte more than announced shows that there is more.
            let limit = self.bytes_after.saturating_add(1);
            decoder.take(limit).read_to_end(&mut contents).ok()?;
            return (contents.len() as u64 == self.bytes_after).then_some(contents);
        }
        if self.flags & LZ4 != 0 {
            // LZ4 makes at most 255 bytes of one.
            let most = (self.contents.len() as u64).saturating_mul(255).saturating_add(64);
            if self.bytes_after > most {
                return None;
            }
            let contents = lz4_flex::block::decompress(self.contents, self.bytes_after as usize);
            return contents.ok().filter(|contents| contents.len() as u64 == self.bytes_after);
        }
        Some(self.contents.to_vec())
    }
}
