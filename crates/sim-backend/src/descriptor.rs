//! The file descriptor that stands for an exported pool, as on a driver.

use std::io;

use pagewise_hal::ShareableHandle;

#[cfg(unix)]
pub(crate) use unix::Descriptor;

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

        /// One more descriptor, which is the caller's.
        pub(crate) fn duplicate(&self) -> io::Result<ShareableHandle> {
            Ok(ShareableHandle(self.reader.try_clone()?.into_raw_fd()))
        }

        /// Whether a number is a descriptor of this.
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
pub(crate) struct Descriptor;

#[cfg(not(unix))]
impl Descriptor {
    pub(crate) fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn duplicate(&self) -> io::Result<ShareableHandle> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is(&self, _: ShareableHandle) -> bool {
        false
    }
}
