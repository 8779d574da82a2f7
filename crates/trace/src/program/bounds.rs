//! Bounds on the memory and the accesses of a random program.

/// Managed memory that a program may hold at a time.
pub const MAX_LIVE_BYTES: u64 = 96 << 20;

/// Buffers that a program may hold at a time.
pub const MAX_LIVE_BUFFERS: usize = 10;

/// Accesses that one thread makes in one operation.
pub const MAX_SERIAL_ACCESSES: u64 = 2048;
