//! The kernel's interface of `userfaultfd(2)`: structures, numbers of operations, flags.
//!
//! Source: `ioctl_userfaultfd(2)` and the kernel's header `linux/userfaultfd.h`.

/// The version of the interface.
pub(super) const API: u64 = 0xaa;

/// Faults on shared memory that no page is behind.
pub(super) const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
/// Faults on shared memory with a page, and no entry in the page table (Linux 5.13).
pub(super) const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
/// Faults have the address of the access, not of its page (Linux 5.18).
pub(super) const FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
/// Write protection of shared memory (Linux 5.19).
pub(super) const FEATURE_WP_SHMEM: u64 = 1 << 12;

/// The program's own faults only, not the kernel's for it.
pub(super) const USER_MODE_ONLY: i32 = 1;

pub(super) const REGISTER_MISSING: u64 = 1 << 0;
pub(super) const REGISTER_WP: u64 = 1 << 1;
pub(super) const REGISTER_MINOR: u64 = 1 << 2;

/// Threads that wait go on waiting.
pub(super) const CONTINUE_DONT_WAKE: u64 = 1 << 0;
pub(super) const CONTINUE_WP: u64 = 1 << 1;
pub(super) const WRITE_PROTECT: u64 = 1 << 0;
/// Threads that wait go on waiting; for taking a protection away.
pub(super) const WRITE_PROTECT_DONT_WAKE: u64 = 1 << 1;

pub(super) const EVENT_PAGEFAULT: u8 = 0x12;
/// The access writes.
pub(super) const FAULT_WRITE: u64 = 1 << 0;
/// The page is there, and write-protected.
pub(super) const FAULT_WP: u64 = 1 << 1;

/// Handshake.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Api {
    pub(super) api: u64,
    pub(super) features: u64,
    pub(super) ioctls: u64,
}

/// A range of addresses.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// A range of which faults are wanted.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Register {
    pub(super) span: Span,
    pub(super) mode: u64,
    pub(super) ioctls: u64,
}

/// A range that gets or loses write protection.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct WriteProtect {
    pub(super) span: Span,
    pub(super) mode: u64,
}

/// A range that gets page table entries for the memory behind it.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Continue {
    pub(super) span: Span,
    pub(super) mode: u64,
    /// Bytes that got them, or the negative error.
    pub(super) mapped: i64,
}

/// An operation on the descriptor: its number and its argument.
pub(super) trait Operation {
    /// The number of the `ioctl`.
    const NUMBER: u64;
}

/// The kernel's encoding of an operation with an argument of `bytes` that is passed both ways.
const fn both_ways(number: u64, bytes: usize) -> u64 {
    3 << 30 | (bytes as u64) << 16 | 0xaa << 8 | number
}

/// The same for an argument that the kernel only reads. (The header says "R" here.)
const fn one_way(number: u64, bytes: usize) -> u64 {
    2 << 30 | (bytes as u64) << 16 | 0xaa << 8 | number
}

/// Asks `/dev/userfaultfd` for a descriptor.
pub(super) const NEW: u64 = 0xaa << 8;

impl Operation for Api {
    const NUMBER: u64 = both_ways(0x3f, size_of::<Self>());
}

impl Operation for Register {
    const NUMBER: u64 = both_ways(0x00, size_of::<Self>());
}

impl Operation for WriteProtect {
    const NUMBER: u64 = both_ways(0x06, size_of::<Self>());
}

impl Operation for Continue {
    const NUMBER: u64 = both_ways(0x07, size_of::<Self>());
}

/// Waiting threads access again.
impl Operation for Span {
    const NUMBER: u64 = one_way(0x02, size_of::<Self>());
}

/// The bytes of a message.
pub(super) const MESSAGE_BYTES: usize = 32;

/// The flags and the address of a fault; `None` for another message.
pub(super) fn fault_of(message: &[u8; MESSAGE_BYTES]) -> Option<(u64, u64)> {
    let word = |at: usize| message[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
    (message[0] == EVENT_PAGEFAULT).then_some((word(8)?, word(16)?))
}
