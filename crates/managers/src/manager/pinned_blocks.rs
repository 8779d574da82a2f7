//! Blocks of page-locked memory: their bytes as the host reaches them, and those that are kept to be
//! used again.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use pagewise::Span;
use pagewise::resource::Allocation;

use crate::sync::{Mutex, lock};

/// Where the bytes of page-locked memory are for the host: `len` of them, or all if there are fewer.
/// A pointer, because whether it becomes a shared or an exclusive reference is the caller's to say.
pub(super) fn pinned_bytes(span: Span, len: usize) -> *mut [u8] {
    let len = len.min(usize::try_from(span.bytes).unwrap_or(usize::MAX));
    let first = std::ptr::with_exposed_provenance_mut::<u8>(span.ptr.0 as usize);
    std::ptr::slice_from_raw_parts_mut(first, len)
}

/// The blocks of a manager.
#[derive(Debug, Default)]
pub(crate) struct Blocks(pub(super) Mutex<Inside>);

#[derive(Debug, Default)]
pub(super) struct Inside {
    /// The bytes of blocks that arrays use.
    pub(super) live_bytes: u64,
    pub(super) idle: Vec<Idle>,
    /// Counts the calls that release idle memory.
    pub(super) generation: u64,
}

#[derive(Debug)]
pub(super) struct Idle {
    pub(super) allocation: Allocation,
    pub(super) since: u64,
}

impl Inside {
    pub(super) fn idle_bytes(&self) -> u64 {
        self.idle.iter().map(|idle| idle.allocation.span().bytes).fold(0, u64::saturating_add)
    }

    /// Takes the smallest idle block of at least so many bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Allocation> {
        let size = |idle: &Idle| idle.allocation.span().bytes;
        let fitting = self.idle.iter().enumerate().filter(|(_, idle)| size(idle) >= bytes);
        let (place, _) = fitting.min_by_key(|(_, idle)| size(idle))?;
        let allocation = self.idle.remove(place).allocation;
        self.live_bytes = self.live_bytes.saturating_add(allocation.span().bytes);
        Some(allocation)
    }
}

/// A block of page-locked memory. With its end it goes idle, or back if the manager is gone.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    /// There until the block's end.
    allocation: Option<Allocation>,
    home: Weak<Blocks>,
}

impl PinnedBlock {
    /// A block that is counted among the live bytes of `home` already.
    pub(super) fn new(allocation: Allocation, home: &Arc<Blocks>) -> Self {
        Self { allocation: Some(allocation), home: Arc::downgrade(home) }
    }

    /// Lets the memory go back at the end, as work may use it still.
    pub(super) fn never_again(&mut self) {
        if let (Some(home), Some(allocation)) = (self.home.upgrade(), &self.allocation) {
            let mut inside = lock(&home.0);
            inside.live_bytes = inside.live_bytes.saturating_sub(allocation.span().bytes);
        }
        self.home = Weak::new();
    }
}

impl Deref for PinnedBlock {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        self.allocation.as_ref().expect("it is there until the block is dropped")
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let (Some(home), Some(allocation)) = (self.home.upgrade(), self.allocation.take()) else {
            return;
        };
        let mut inside = lock(&home.0);
        inside.live_bytes = inside.live_bytes.saturating_sub(allocation.span().bytes);
        let since = inside.generation;
        inside.idle.push(Idle { allocation, since });
    }
}
