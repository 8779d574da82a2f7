//! A fault of the host on the program's view, and the answers to it.

/// A fault that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// An address in the page.
    pub(crate) address: u64,
    /// Whether the access writes; `None` if the machine does not say.
    pub(crate) writes: Option<bool>,
    /// Where the answer goes: page protection only, the address of a waiting thread's word.
    pub(crate) waiter: usize,
}

/// The answer to a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The page was shown: the access is made again.
    Served,
    /// The host may not access the page: the program gets a segmentation fault.
    Refused,
}

/// The access to pages that the program's view shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// They can be read.
    Read,
    /// They can be read and written.
    Write,
}
