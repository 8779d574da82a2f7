//! The uses of a pointer's memory that its views and fills may rely on.

use pagewise::Stream;

/// The uses of one piece of memory, as far as they are known.
#[derive(Default)]
pub(super) struct Access {
    /// Only uses that this value counts, and those of unsafe code. Without that promise there are
    /// no views and no fills.
    pub(super) is_exclusive: bool,
    /// The stream in the order of which the memory is valid; `None` if it is valid
    /// for every stream.
    pub(super) comes_on: Option<Stream>,
    readers: usize,
    is_written: bool,
}

const SHARED: &str =
    "other code may use the memory: only its maker can promise otherwise (`MemoryPointer::vouch`)";

impl Access {
    /// Of memory that nothing else uses.
    pub(super) fn exclusive(comes_on: Option<&Stream>) -> Self {
        Self { is_exclusive: true, comes_on: comes_on.cloned(), ..Self::default() }
    }

    pub(super) fn begin_read(&mut self) -> Result<(), &'static str> {
        match self {
            Self { is_exclusive: false, .. } => Err(SHARED),
            Self { is_written: true, .. } => {
                Err("a host view for writing is out, or a fill goes on: end it first")
            }
            _ => {
                self.readers += 1;
                Ok(())
            }
        }
    }

    pub(super) fn end_read(&mut self) {
        self.readers -= 1;
    }

    pub(super) fn begin_write(&mut self) -> Result<(), &'static str> {
        match self {
            Self { is_exclusive: false, .. } => Err(SHARED),
            Self { readers: 0, is_written: false, .. } => {
                self.is_written = true;
                Ok(())
            }
            _ => Err("a host view of the memory is out, or a fill goes on: end it first"),
        }
    }

    pub(super) fn end_write(&mut self) {
        self.is_written = false;
    }
}
