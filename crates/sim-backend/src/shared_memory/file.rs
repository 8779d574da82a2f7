//! One anonymous file that processes share.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use pagewise_hal::ShareableHandle;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};

use crate::host_faults::double_map::DoubleMap;

use super::locks::{is_locked_elsewhere, lock, unlock};

/// The type of file system that anonymous files are of (`statfs(2)`). Files of huge pages are of
/// another one: an access to them can fail.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A file of memory. Its first bytes are words that say what it is: `shared`.
pub(crate) struct SharedFile {
    file: File,
    number: u64,
}

/// Numbers of files and descriptors differ from run to run.
impl fmt::Debug for SharedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedFile")
    }
}

impl SharedFile {
    /// Makes a file of zeros, which never becomes shorter.
    pub(crate) fn create(bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("pagewise-shared", flags)?);
        file.set_len(bytes)?;
        // The second one keeps importers from adding seals, such as one against writing.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        Self::of(file)
    }

    fn of(file: File) -> io::Result<Self> {
        let number = file.metadata()?.ino();
        Ok(Self { file, number })
    }

    /// Opens the file that a descriptor of this process names; `None` if it names no such file.
    pub(crate) fn of_descriptor(handle: ShareableHandle) -> Option<Self> {
        Self::reopen(&borrowed(handle, |given| given.try_clone_to_owned().ok())?)
    }

    /// Opens a file that another process has open as this descriptor, if it is the one with this
    /// number.
    pub(crate) fn of_process(process: u32, descriptor: u32, number: u64) -> Option<Self> {
        is_process(process).then_some(())?;
        let path = format!("/proc/{process}/fd/{descriptor}");
        // This opens nothing yet: opening a device or a pipe could have effects.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let metadata = File::from(place.try_clone().ok()?).metadata().ok()?;
        let is_it = metadata.is_file() && metadata.ino() == number;
        (is_it && is_in_memory(&place)).then_some(())?;
        Self::reopen(&place)
    }

    /// Opens a file once more, so that its locks are this value's alone.
    fn reopen(place: &OwnedFd) -> Option<Self> {
        // Of files that other descriptors have: a descriptor that is only a path has no seals.
        let is_path = rustix::fs::fcntl_getfl(place).ok()?.contains(OFlags::PATH);
        (is_path || can_be_mapped(place)).then_some(())?;
        let path = format!("/proc/self/fd/{}", place.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        can_be_mapped(&file).then_some(())?;
        Self::of(file).ok()
    }

    /// The number of the file, which no other anonymous file has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The number of its descriptor in this process.
    pub(crate) fn descriptor(&self) -> u32 {
        self.file.as_raw_fd().unsigned_abs()
    }

    /// Whether a number is a descriptor of this file.
    pub(crate) fn is(&self, handle: ShareableHandle) -> bool {
        let number = borrowed(handle, |given| {
            let given = given.try_clone_to_owned().ok()?;
            is_in_memory(&given).then_some(())?;
            Some(File::from(given).metadata().ok()?.ino())
        });
        number == Some(self.number)
    }

    /// One more descriptor, which is the caller's.
    pub(crate) fn duplicate(&self) -> io::Result<ShareableHandle> {
        Ok(ShareableHandle(self.file.try_clone()?.into_raw_fd()))
    }

    /// The memory, to be mapped.
    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Puts the bytes from an offset on at whole pages of both views of a memory.
    pub(crate) fn map_in_views(
        &self,
        views: &DoubleMap,
        pages: &Range<u64>,
        offset: u64,
    ) -> io::Result<()> {
        views.share(pages, self.memory(), offset)
    }

    /// Whether the file has these bytes. It has them for ever then.
    pub(crate) fn has(&self, bytes: &Range<u64>) -> bool {
        self.file.metadata().is_ok_and(|file| bytes.end <= file.len())
    }

    /// Makes the file as long as this, if it is shorter.
    pub(crate) fn grow(&self, bytes: u64) -> io::Result<()> {
        if self.has(&(0..bytes)) { Ok(()) } else { self.file.set_len(bytes) }
    }

    /// The words at an offset; `None` if the file ends before.
    pub(crate) fn words<const N: usize>(&self, offset: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        let mut bytes = vec![0; N.checked_mul(size_of::<u64>())?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        Some(words)
    }

    /// Writes words at an offset, all at once.
    pub(crate) fn set_words(&self, offset: u64, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(offset, &bytes)
    }

    /// Writes bytes.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Gives the memory behind bytes back: they read as zeros.
    pub(crate) fn discard(&self, bytes: &Range<u64>) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let length = bytes.end.saturating_sub(bytes.start);
        Ok(rustix::fs::fallocate(&self.file, mode, bytes.start, length)?)
    }

    /// Lets the exporter know that these bytes are in use, until [`leave`](Self::leave) or the end
    /// of the process.
    pub(crate) fn hold(&self, bytes: &Range<u64>) -> io::Result<()> {
        lock(self.file.as_fd(), bytes)
    }

    /// Ends what [`hold`](Self::hold) began.
    pub(crate) fn leave(&self, bytes: &Range<u64>) {
        unlock(self.file.as_fd(), bytes);
    }

    /// Whether an importer holds some of these bytes.
    pub(crate) fn is_held(&self, bytes: &Range<u64>) -> bool {
        is_locked_elsewhere(self.file.as_fd(), bytes)
    }
}

/// Whether a number is that of a process: a thread has files under its own number too.
fn is_process(number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    group.is_some_and(|group| group.trim().parse() == Ok(number))
}

/// Whether a file can be mapped, and its bytes stay: it has the seals of
/// [`SharedFile::create`], and no others.
fn can_be_mapped(file: &impl AsFd) -> bool {
    let seals = rustix::fs::fcntl_get_seals(file);
    seals.is_ok_and(|seals| seals == SealFlags::SHRINK | SealFlags::SEAL) && is_in_memory(file)
}

fn is_in_memory(file: &impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type == TMPFS)
}

/// Looks at the file that a number of the caller's names, if it is a descriptor.
#[allow(unsafe_code)]
fn borrowed<T>(handle: ShareableHandle, look: impl Fn(BorrowedFd<'_>) -> Option<T>) -> Option<T> {
    if handle.0 < 0 {
        return None;
    }
    // SAFETY: the number is not -1, which `BorrowedFd` cannot hold. It may name no open descriptor,
    // or another one a moment later. That does no harm: the number is only duplicated, which the
    // system refuses if it is not open, and the duplicate is asked what it is. Nothing is read,
    // written or closed through the caller's number.
    look(unsafe { BorrowedFd::borrow_raw(handle.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there is no list of processes")]
    fn files_are_found_by_their_process_and_by_no_thread_of_it() {
        let file = SharedFile::create(4096).unwrap();
        let find = |process| SharedFile::of_process(process, file.descriptor(), file.number());
        assert!(find(std::process::id()).is_some());
        let of_thread = || rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let thread = std::thread::scope(|threads| {
            let thread = threads.spawn(|| (of_thread(), find(of_thread()).is_some()));
            thread.join().unwrap()
        });
        assert_ne!(thread.0, std::process::id());
        assert!(!thread.1, "a handle names a process");
    }
}
