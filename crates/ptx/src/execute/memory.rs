//! The memory that kernels run over: the caller's, reached through windows.

/// How an instruction uses the bytes that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A read and a write in one step.
    Atomic,
}

/// The reason that an access cannot happen now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The bytes are on their way, as all of their page of 4 KiB. The lanes suspend, and repeat the
    /// access in a later step.
    Wait,
    /// No allocation holds the bytes, or it may not be used so. The kernel ends. The text names the
    /// nearest allocation and the distance to it, if the caller knows them.
    Refused(String),
}

/// A range of addresses and where its bytes are in this process.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    start: u64,
    bytes: u64,
    host: *mut u8,
    is_alone: bool,
}

impl Window {
    /// A window that begins at the device address `start`.
    ///
    /// # Safety
    /// The `bytes` bytes at `host` stay readable, and writable if the window was asked for with
    /// [`Kind::Write`] or [`Kind::Atomic`], until [`Memory::generation`] changes or the memory is
    /// no longer given to [`Run::step`](crate::execute::Run::step). `host` and `start` have the same
    /// remainder by 16. Other threads may touch the bytes as a CPU may touch memory that a kernel
    /// uses: with atomic or volatile accesses. No Rust reference to them lives
    /// during a step.
    #[must_use]
    pub const unsafe fn new(start: u64, bytes: u64, host: *mut u8) -> Self {
        Self { start, bytes, host, is_alone: false }
    }

    /// The window with bytes that the run alone accesses: atomics need no atomic access of this process
    /// then, which takes several times as long.
    ///
    /// # Safety
    /// For as long as the window holds, no other thread or process accesses the bytes while a step runs.
    #[must_use]
    pub const unsafe fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// Whether the run [alone](Self::alone) accesses the bytes.
    #[inline]
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// The first device address.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// How many bytes the window holds.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the first byte is in this process.
    #[inline]
    #[must_use]
    pub const fn host(&self) -> *mut u8 {
        self.host
    }

    /// Whether all `bytes` bytes at `address` are inside.
    #[inline]
    #[must_use]
    pub const fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.bytes && self.bytes - offset >= bytes
    }
}

/// The address space of the machine.
///
/// The executor asks for a window once and keeps it. It asks again when [`Memory::generation`] has
/// changed, or when an access is of another [`Kind`].
pub trait Memory {
    /// Where the `bytes` bytes at `address` are, and how far around them that holds.
    ///
    /// The window must hold all of the bytes. An access never spans more than 16 bytes and is
    /// aligned to its size.
    ///
    /// # Errors
    /// [`Stop::Wait`] if the access can succeed later, [`Stop::Refused`] if it never can.
    fn window(&mut self, address: u64, bytes: u32, kind: Kind) -> Result<Window, Stop>;

    /// A number that changes whenever a window given earlier no longer holds.
    fn generation(&self) -> u64;

    /// Whether it looks at who accesses it.
    fn watches_turns(&self) -> bool {
        false
    }

    /// A warp takes its turn: the accesses that follow are its own. A memory that
    /// [watches turns](Self::watches_turns) notes the place here; others are not told.
    fn turn(&mut self, _: Turn) {}
}

/// The warp that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The place of the block among those that the machine holds. A block takes that of one that
    /// ended. Its multiprocessor is the remainder by their count.
    pub slot: u32,
    /// The block, by its linear index in the grid.
    pub block: u64,
    /// The warp in the block.
    pub warp: u32,
}

/// An access that waits for its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outstanding {
    /// The block, by its linear index in the grid.
    pub block: u64,
    /// The warp in the block.
    pub warp: u32,
    /// The multiprocessor that the block runs on.
    pub sm: u32,
    /// The place of the instruction among those of the warp that wait: 0 for the first. The others
    /// need no result of one that waits.
    pub nth: u32,
    /// The device address of the first byte of one lane.
    pub address: u64,
    /// How the instruction uses the bytes.
    pub kind: Kind,
}

/// Where shared memory begins in the generic address space. No allocation may lie above this.
pub const SHARED_WINDOW: u64 = 1 << 56;
/// Where local memory begins in the generic address space.
pub const LOCAL_WINDOW: u64 = 2 << 56;
/// Where a kernel's parameters begin in the generic address space.
pub const PARAMETER_WINDOW: u64 = 3 << 56;
/// Where the addresses of functions begin.
pub const FUNCTION_WINDOW: u64 = 4 << 56;
