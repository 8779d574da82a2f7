//! Errors of the manager, for callers that act on the reason.

use pagewise::{Error, ErrorKind};

use super::array_memory::ArrayMemory;
use super::instance_id::InstanceId;

/// The result of the manager's calls.
pub type Result<T, E = ManagerError> = std::result::Result<T, E>;

/// Reads a variant by its name; an error lists the names.
macro_rules! named {
    ($kind:ident, $what:literal, $(#[$doc:meta])* { $first:literal => $variant:ident
        $(, $name:literal => $other:ident)* $(,)? }) => {
        impl std::str::FromStr for $kind {
            type Err = $crate::manager::ManagerError;

            $(#[$doc])*
            fn from_str(name: &str) -> $crate::manager::Result<Self> {
                match name {
                    $first => Ok(Self::$variant),
                    $($name => Ok(Self::$other),)*
                    _ => Err($crate::manager::ManagerError::UnknownName {
                        what: $what,
                        name: name.to_owned(),
                        known: concat!($first $(, ", ", $name)*),
                    }),
                }
            }
        }
    };
}
pub(super) use named;

/// The reason why a call was refused, or failed. Nothing has changed then, unless the variant says
/// so.
///
/// It becomes a [`pagewise::Error`](pagewise::Error) of the same kind where that is wanted.
///
/// ```
/// use pagewise_managers::manager::{ChunkPolicy, RunFootprint, ManagerError};
/// use pagewise::ErrorKind;
///
/// let error = RunFootprint::new(1).fixed(100).chunks(10, ChunkPolicy::exact()).unwrap_err();
/// assert_eq!(error, ManagerError::NothingToChunk { needed: 100, available: 10 });
/// assert_eq!(pagewise::Error::from(error).kind(), ErrorKind::OutOfMemory);
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A call of the back end, or of a memory resource, failed.
    #[error(transparent)]
    Driver(#[from] Error),
    /// It was never registered with this manager, or has been released.
    #[error("{0} is not registered: it never was, or it was released")]
    UnknownInstance(InstanceId),
    /// The same object is registered already.
    #[error("the object is registered already, as {0}: release that first")]
    AlreadyRegistered(InstanceId),
    /// No instance was ever in a group of this name.
    #[error("there is no stream group {0:?}")]
    UnknownGroup(String),
    /// It is in a stream group already.
    #[error("{0} is in stream group {1:?} already: change its group instead")]
    AlreadyInGroup(InstanceId, String),
    /// A share of memory has to be more than 0 and at most 1.
    #[error(
        "a proportion of {0} is none: give more than 0 and at most 1, or none for the auto pool"
    )]
    InvalidProportion(f64),
    /// Manual shares would come to more than everything.
    #[error("manual proportions would come to {0}, more than 1")]
    ProportionsExceedOne(f64),
    /// Manual shares would leave too little for the instances that share the rest.
    #[error(
        "manual proportions of {manual} leave {left} for the auto pool, which needs {least}: lower \
         them first"
    )]
    AutoPoolTooSmall {
        /// The sum that the manual shares would have.
        manual: f64,
        /// The share that would be left.
        left: f64,
        /// The least that the auto pool may have.
        least: f64,
    },
    /// The memory of the device is unknown, so a share of it is no number of bytes.
    #[error(
        "the device does not say how much memory it has ({0}): give the total in the options, or \
         ask again when there is a device"
    )]
    TotalUnknown(Error),
    /// No such name.
    #[error("{name:?} is no {what}: one of {known}")]
    UnknownName {
        /// The kind of thing that was named.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: &'static str,
    },
    /// A request contradicts itself.
    #[error("request {label:?}: {why}")]
    InvalidRequest {
        /// Which array.
        label: String,
        /// The fault, and what to do.
        why: String,
    },
    /// Arrays that are divided together are of different lengths.
    #[error(
        "request {label:?} has {runs} runs, others of the group {others}: divide them apart, or \
         mark it as unchunkable"
    )]
    RunsDiffer {
        /// Which array.
        label: String,
        /// Its runs.
        runs: u64,
        /// The runs of the other request.
        others: u64,
    },
    /// The manager was told to insist on hooks, and the instance has none.
    #[error(
        "{0} has no live invalidation hook, which this manager requires of who queues requests"
    )]
    HookRequired(InstanceId),
    /// It does not fit, and nothing can be divided.
    #[error("{needed} bytes are needed, {available} available, and no array can be divided")]
    NothingToChunk {
        /// Bytes needed.
        needed: u128,
        /// Bytes available.
        available: u128,
    },
    /// The arrays that are never divided fill the memory.
    #[error(
        "arrays that cannot be divided need {needed} bytes of the {available} available, which \
         leaves nothing for the others"
    )]
    UnchunkableTooLarge {
        /// Bytes of those arrays.
        needed: u128,
        /// Bytes available.
        available: u128,
    },
    /// The smallest chunk does not fit.
    #[error("the smallest chunk needs {needed} bytes, {available} are available")]
    SingleRunTooLarge {
        /// Bytes of the smallest chunk, and of what is never divided.
        needed: u128,
        /// Bytes available.
        available: u128,
    },
    /// Peers hold arrays in chunks that do not fit any more.
    #[error(
        "chunks of {chunk_length} runs, in which others of the group hold their arrays, need \
         {needed} bytes, {available} are available: let the whole group allocate anew"
    )]
    PartitionDoesNotFit {
        /// The length that is fixed.
        chunk_length: u64,
        /// Bytes needed.
        needed: u128,
        /// Bytes available.
        available: u128,
    },
    /// Instances that allocate together keep arrays in chunks of different lengths.
    #[error(
        "who asks keeps arrays in chunks of {one} runs and in chunks of {other}: free one or the \
         other, or use groups of their own"
    )]
    DivisionsDiffer {
        /// One length.
        one: u64,
        /// Another.
        other: u64,
    },
    /// An allocation failed after memory that was to be replaced had been given back to make room.
    /// The requests are queued as before; the arrays named are gone.
    #[error("{cause}; to make room, arrays that the requests replace were freed before: {freed:?}")]
    AfterFreeing {
        /// The failure.
        cause: Error,
        /// The instances and labels that lost memory.
        freed: Vec<(InstanceId, String)>,
    },
    /// There are fewer chunks.
    #[error("chunk {chunk} does not exist: there are {chunks}, counted from 0")]
    ChunkOutOfRange {
        /// The chunk asked for.
        chunk: u64,
        /// How many there are.
        chunks: u64,
    },
    /// The array's memory was given back: freed, replaced or invalidated.
    #[error("the array's memory was given back")]
    ArrayGone,
    /// The host side and the device side do not match.
    #[error("copy {item}: {why}")]
    Mismatch {
        /// Which pair of a list.
        item: usize,
        /// The mismatch.
        why: String,
    },
    /// That kind of memory cannot do it.
    #[error("{memory:?} memory: {why}")]
    WrongMemory {
        /// Which kind.
        memory: ArrayMemory,
        /// The thing that it cannot do.
        why: &'static str,
    },
    /// A file for spilled host memory could not be made or filled.
    #[error("host memory cannot be spilled to {path}: {why}")]
    Spill {
        /// The file or its directory.
        path: String,
        /// The system's message.
        why: String,
    },
}

impl ManagerError {
    /// By what the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Driver(error)
            | Self::TotalUnknown(error)
            | Self::AfterFreeing { cause: error, .. } => error.kind(),
            Self::NothingToChunk { .. }
            | Self::UnchunkableTooLarge { .. }
            | Self::SingleRunTooLarge { .. }
            | Self::PartitionDoesNotFit { .. } => ErrorKind::OutOfMemory,
            Self::ArrayGone | Self::UnknownInstance(_) => ErrorKind::InvalidHandle,
            Self::WrongMemory { .. } => ErrorKind::Unsupported,
            Self::Spill { .. } => ErrorKind::NotPermitted,
            _ => ErrorKind::InvalidValue,
        }
    }
}

impl From<ManagerError> for Error {
    fn from(error: ManagerError) -> Self {
        match error {
            ManagerError::Driver(error) => error,
            other => Self::new("memory manager", other.kind()).with_detail(other.to_string()),
        }
    }
}
