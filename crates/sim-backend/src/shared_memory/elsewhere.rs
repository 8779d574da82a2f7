//! Exports on systems without anonymous files: only the machine that made them knows them. No other
//! process can open one.

use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise_hal::ShareableHandle;

use crate::host_faults::double_map::DoubleMap;
#[cfg(unix)]
use unix::Descriptor;

/// Whether exported memory is in files, and other processes import it.
pub(crate) const HAS_FILES: bool = false;

/// An export. It holds no bytes, and other processes do not find it.
#[derive(Debug)]
pub(crate) struct SharedFile {
    number: u64,
    descriptor: OnceLock<Descriptor>,
}

#[allow(clippy::unused_self, reason = "the methods are those of Linux")]
impl SharedFile {
    pub(crate) fn create(_: u64) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { number, descriptor: OnceLock::new() })
    }

    pub(crate) fn of_descriptor(_: ShareableHandle) -> Option<Self> {
        None
    }

    pub(crate) fn of_process(_: u32, _: u32, _: u64) -> Option<Self> {
        None
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn descriptor(&self) -> u32 {
        0
    }

    /// One more descriptor, which is the caller's.
    pub(crate) fn duplicate(&self) -> io::Result<ShareableHandle> {
        if let Some(known) = self.descriptor.get() {
            return known.duplicate();
        }
        let made = Descriptor::new()?;
        self.descriptor.get_or_init(|| made).duplicate()
    }

    /// Whether a number is a descriptor of this.
    pub(crate) fn is(&self, handle: ShareableHandle) -> bool {
        self.descriptor.get().is_some_and(|known| known.is(handle))
    }

    pub(crate) fn map_in_views(&self, _: &DoubleMap, _: &Range<u64>, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn has(&self, _: &Range<u64>) -> bool {
        false
    }

    pub(crate) fn grow(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn words<const N: usize>(&self, _: u64) -> Option<[u64; N]> {
        None
    }

    pub(crate) fn set_words(&self, _: u64, _: &[u64]) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn discard(&self, _: &Range<u64>) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn hold(&self, _: &Range<u64>) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn leave(&self, _: &Range<u64>) {}

    pub(crate) fn is_held(&self, _: &Range<u64>) -> bool {
        false
    }
}

/// Leaves the memory at the addresses as it is.
///
/// # Safety
/// None is needed: the promise is that of the function of the same name on Linux.
#[allow(unsafe_code)]
pub(crate) unsafe fn map_over(_: &Range<u64>, _: &SharedFile, _: u64) -> io::Result<()> {
    Ok(())
}

/// Leaves the memory at the addresses as it is.
///
/// # Safety
/// As [`map_over`].
#[allow(unsafe_code)]
pub(crate) unsafe fn map_private(_: &Range<u64>) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io::{PipeReader, PipeWriter};
    use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
    use std::os::unix::fs::MetadataExt;

    use super::{ShareableHandle, io};

    /// One end of a pipe without a reader: a descriptor that is like no other, however often it
    /// is duplicated. The other end keeps it so.
    #[derive(Debug)]
    pub(crate) struct Descriptor {
        reader: PipeReader,
        _writer: PipeWriter,
    }

    fn identity(descriptor: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
        let metadata = File::from(descriptor.try_clone_to_owned()?).metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    impl Descriptor {
        pub(crate) fn new() -> io::Result<Self> {
            let (reader, writer) = io::pipe()?;
            Ok(Self { reader, _writer: writer })
        }

        pub(crate) fn duplicate(&self) -> io::Result<ShareableHandle> {
            Ok(ShareableHandle(self.reader.try_clone()?.into_raw_fd()))
        }

        #[allow(unsafe_code)]
        pub(crate) fn is(&self, handle: ShareableHandle) -> bool {
            if handle.0 < 0 {
                return false;
            }
            // SAFETY: the number is not -1, which `BorrowedFd` cannot hold. It may name no open
            // descriptor, or another one a moment later. That does no harm: the number is only
            // duplicated, which the system refuses if it is not open, and the duplicate is asked
            // what it is. Nothing is read, written or closed through the caller's number.
            let given = unsafe { BorrowedFd::borrow_raw(handle.0) };
            let own = identity(self.reader.as_fd());
            identity(given).is_ok_and(|given| own.is_ok_and(|own| given == own))
        }
    }
}

/// Elsewhere there are none.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) enum Descriptor {}

#[cfg(not(unix))]
impl Descriptor {
    pub(crate) fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn duplicate(&self) -> io::Result<ShareableHandle> {
        match *self {}
    }

    pub(crate) fn is(&self, _: ShareableHandle) -> bool {
        match *self {}
    }
}
