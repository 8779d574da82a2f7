//! Access programs: the smallest workload that every back end can run.
//!
//! A program touches one byte at `offset`, `offset + stride`, … below `bytes`. Back ends that run
//! the same program must leave the same contents and, on one thread, move the same pages.

use crate::{DeviceId, Span};

/// What the host does at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum HostAccess {
    /// Reads the byte.
    Read,
    /// Writes this byte.
    Write(u8),
}

/// What the device does at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DeviceAccess {
    /// Reads the byte.
    Read,
    /// Writes this byte.
    Write(u8),
    /// Adds 1, wrapping, to the 4-byte little-endian word at the place rounded down to 4.
    AtomicAdd,
}

/// A host access program: ascending, one access after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostTouch {
    /// The bytes that the program walks over.
    pub span: Span,
    /// Bytes from one access to the next; at least 1.
    pub stride_bytes: u64,
    /// What is done at each place.
    pub access: HostAccess,
}

/// A device access program.
///
/// With one block of one thread each access is complete (system-wide fence) before the next is
/// made: one fault at a time. Otherwise a grid-stride loop over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceTouch {
    /// The device that runs it.
    pub device: DeviceId,
    /// The bytes that the program walks over.
    pub span: Span,
    /// Bytes from one access to the next; at least 1.
    pub stride_bytes: u64,
    /// What is done at each place.
    pub access: DeviceAccess,
    /// Blocks of the grid; at least 1.
    pub blocks: u32,
    /// Threads of a block; at least 1.
    pub threads: u32,
}

impl DeviceTouch {
    /// Whether one thread makes all accesses, in order.
    #[must_use]
    pub const fn is_serial(&self) -> bool {
        self.blocks == 1 && self.threads == 1
    }
}
