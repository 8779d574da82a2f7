//! The texts of sharing: the words at the start of a shared file, and the blobs that callers send to
//! other processes.
//!
//! All of them may come from hostile processes, so reading answers `None` to what no machine wrote.

use std::io;

use pagewise_hal::{HandleTypes, Location, LocationKind, SHARED_BLOB_BYTES};

use crate::shared_memory::SharedFile;

/// Where the bytes of a memory begin in its file.
pub(crate) const MEMORY_AT: u64 = 4096;

/// The first word of every file.
const FILE_MARK: u64 = u64::from_le_bytes(*b"pagewise");
/// The form of files and blobs. Machines of other forms do not know each other.
const FORM: u64 = 1;
/// The most bytes of one memory: all that a zone of the arena has.
const BYTES_MAX: u64 = 16 << 40;

/// The kinds of shared files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Memory of `cuMemAlloc`.
    Memory = 1,
    /// A pool.
    Pool = 2,
    /// Memory of `cuMemCreate`.
    Physical = 3,
    /// An event.
    Event = 4,
}

/// The words at the start of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) content: Content,
    /// Where the memory is. Devices of machines are the same if their ordinals are.
    pub(crate) location: Location,
    /// The bytes of the memory, 0 for pools and events.
    pub(crate) bytes: u64,
    pub(crate) handle_types: HandleTypes,
}

impl About {
    /// Makes a file with these words at its start.
    pub(crate) fn create_file(&self, file_bytes: u64) -> io::Result<SharedFile> {
        let Self { content, location, bytes, handle_types } = *self;
        let place = [location.kind.0, location.id].map(|number| u64::from(number.cast_unsigned()));
        let (content, types) = (content as u64, u64::from(handle_types.bits()));
        let file = SharedFile::create(file_bytes)?;
        file.set_words(0, &[FILE_MARK, FORM, content, place[0], place[1], bytes, types])?;
        Ok(file)
    }

    /// The words of a file with this content.
    pub(crate) fn read(file: &SharedFile, content: Content) -> Option<Self> {
        let [mark, form, kind, place_kind, place, bytes, types] = file.words(0)?;
        let number = |word: u64| u32::try_from(word).ok().map(u32::cast_signed);
        let location = Location { kind: LocationKind(number(place_kind)?), id: number(place)? };
        let handle_types = HandleTypes::from_bits_retain(u32::try_from(types).ok()?);
        let is_known = mark == FILE_MARK && form == FORM && kind == content as u64;
        let has_memory = matches!(content, Content::Memory | Content::Physical);
        let is_there = !has_memory || (1..=BYTES_MAX).contains(&bytes);
        (is_known && is_there).then_some(Self { content, location, bytes, handle_types })
    }
}

/// The kinds of blobs, by their first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// `CUmemPoolPtrExportData`
    Pointer,
    /// `CUipcMemHandle`
    Memory,
    /// `CUipcEventHandle`
    Event,
}

impl Mark {
    const fn word(self) -> u64 {
        u64::from_le_bytes(match self {
            Self::Pointer => *b"pgwpoint",
            Self::Memory => *b"pgwmemry",
            Self::Event => *b"pgwevent",
        })
    }

    /// A blob of three words.
    pub(crate) fn blob(self, words: [u64; 3]) -> [u8; SHARED_BLOB_BYTES] {
        let mut bytes = [0; SHARED_BLOB_BYTES];
        let words = [self.word(), FORM].into_iter().chain(words);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The words of a blob.
    pub(crate) fn words(self, blob: &[u8; SHARED_BLOB_BYTES]) -> Option<[u64; 3]> {
        let mut words = [0; SHARED_BLOB_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(blob.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [mark, form, one, two, three, rest @ ..] = words;
        let is_known = mark == self.word() && form == FORM && rest.iter().all(|word| *word == 0);
        is_known.then_some([one, two, three])
    }

    /// The blob by which another process finds a file of this one.
    pub(crate) fn of_file(self, file: &SharedFile) -> [u8; SHARED_BLOB_BYTES] {
        self.blob([u64::from(std::process::id()), u64::from(file.descriptor()), file.number()])
    }

    /// Opens the file that a blob names, of the process that made it.
    pub(crate) fn open_file(self, blob: &[u8; SHARED_BLOB_BYTES]) -> Option<SharedFile> {
        let [process, descriptor, number] = self.words(blob)?;
        SharedFile::of_process(process.try_into().ok()?, descriptor.try_into().ok()?, number)
    }

    /// Whether a blob names a file of this machine.
    pub(crate) fn names(self, file: &SharedFile, blob: &[u8; SHARED_BLOB_BYTES]) -> bool {
        self.words(blob).is_some_and(|[.., number]| number == file.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_read_back_under_its_mark_only() {
        let blob = Mark::Memory.blob([1, u64::MAX, 3]);
        assert_eq!(Mark::Memory.words(&blob), Some([1, u64::MAX, 3]));
        assert_eq!(Mark::Event.words(&blob), None);
        for byte in 0..SHARED_BLOB_BYTES {
            let mut changed = blob;
            changed[byte] ^= 0x10;
            assert_ne!(Mark::Memory.words(&changed), Some([1, u64::MAX, 3]), "byte {byte}");
        }
    }

    #[test]
    #[cfg_attr(
        any(
            miri,
            not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))
        ),
        ignore = "files hold bytes on Linux only"
    )]
    fn a_file_says_what_it_is_to_those_who_ask_for_that() {
        let location = Location { kind: LocationKind::DEVICE, id: 3 };
        let handle_types = HandleTypes::POSIX_FILE_DESCRIPTOR;
        let about = About { content: Content::Physical, location, bytes: 5, handle_types };
        let file = about.create_file(MEMORY_AT).unwrap();
        assert_eq!(About::read(&file, Content::Physical), Some(about));
        assert_eq!(About::read(&file, Content::Memory), None);
        file.set_words(40, &[0]).unwrap();
        assert_eq!(About::read(&file, Content::Physical), None, "no memory has 0 bytes");
        file.set_words(40, &[u64::MAX]).unwrap();
        assert_eq!(About::read(&file, Content::Physical), None);
    }
}
