//! The managed allocations of a process, and the most of each that was on devices.
//!
//! They are followed by what changed: a call costs by the allocations that it makes, frees and moves,
//! however many there are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use pagewise_hal::{BLOCK_BYTES, DevicePtr, Processor, Span};
use pagewise_sim::{ManagedChanges, ManagedStep, SimBackend};
use serde::Serialize;

/// The most buffers that a summary lists: those with the largest peaks.
const LISTED_BUFFERS: usize = 64;

/// The most buffers that are followed. Those allocated while there are as many are not listed.
const FOLLOWED_BUFFERS: usize = 4096;

/// One managed allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Buffer {
    /// Its number among the managed allocations of the process, from 1.
    number: u64,
    bytes: u64,
    /// The most of it that was resident on devices after a call, duplicates counted each.
    peak_device_bytes: u64,
}

/// The place of a buffer in a list: larger peaks come first, and then lower numbers.
type Rank = (Reverse<u64>, u64);

impl Buffer {
    fn rank(&self) -> Rank {
        (Reverse(self.peak_device_bytes), self.number)
    }
}

/// The managed allocations of a process.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Those that live, by address.
    live: BTreeMap<DevicePtr, Buffer>,
    /// The same by their ranks.
    ranked: BTreeMap<Rank, Buffer>,
    /// The first of those that were freed.
    freed: BTreeMap<Rank, Buffer>,
    /// How many there were.
    count: u64,
}

impl Buffers {
    /// Notes what changed. Returns whether the list of the largest may have.
    pub(crate) fn follow(&mut self, sim: &SimBackend, changes: &ManagedChanges) -> bool {
        let (mut moved, mut is_changed) = (BTreeSet::new(), false);
        for step in &changes.steps {
            match step {
                ManagedStep::Made(span) if self.live.len() < FOLLOWED_BUFFERS => {
                    self.add(*span);
                    // Memory of a pool may be on a device already.
                    moved.insert(span.ptr);
                    is_changed = true;
                }
                ManagedStep::Made(_) => {}
                ManagedStep::Gone(span) => is_changed |= self.free(span.ptr),
            }
        }
        let mut behind = 0;
        for &block in &changes.blocks {
            let end = block.saturating_add(BLOCK_BYTES);
            let start = behind.max(block);
            if start < end {
                for span in self.within(start, end) {
                    moved.insert(span.ptr);
                    behind = behind.max(span.ptr.0.saturating_add(span.bytes));
                }
            }
        }
        for ptr in moved {
            is_changed |= self.measure(sim, ptr);
        }
        is_changed
    }

    fn add(&mut self, span: Span) {
        self.count = self.count.saturating_add(1);
        let buffer = Buffer { number: self.count, bytes: span.bytes, peak_device_bytes: 0 };
        self.live.insert(span.ptr, buffer);
        self.ranked.insert(buffer.rank(), buffer);
    }

    /// Notes that memory went. Returns whether it was followed.
    fn free(&mut self, ptr: DevicePtr) -> bool {
        let Some(buffer) = self.live.remove(&ptr) else { return false };
        self.ranked.remove(&buffer.rank());
        self.freed.insert(buffer.rank(), buffer);
        if self.freed.len() > LISTED_BUFFERS {
            self.freed.pop_last();
        }
        true
    }

    /// The live buffers with bytes in a range.
    fn within(&self, start: u64, end: u64) -> Vec<Span> {
        let before = self.live.range(..DevicePtr(end)).rev();
        let spans = before.map(|(&ptr, buffer)| Span::new(ptr, buffer.bytes));
        spans.take_while(|span| span.ptr.0.saturating_add(span.bytes) > start).collect()
    }

    /// Raises the peak of a buffer if more of it is on devices now. Returns whether it was.
    fn measure(&mut self, sim: &SimBackend, ptr: DevicePtr) -> bool {
        let Some(buffer) = self.live.get_mut(&ptr) else { return false };
        let span = Span::new(ptr, buffer.bytes);
        let on = |device| sim.resident_bytes(span, Processor::device(device));
        let now = (0..sim.config().device_count()).map(on).fold(0, u64::saturating_add);
        if now <= buffer.peak_device_bytes {
            return false;
        }
        self.ranked.remove(&buffer.rank());
        buffer.peak_device_bytes = now;
        self.ranked.insert(buffer.rank(), *buffer);
        true
    }

    /// Those with the largest peaks, in the order of allocation.
    pub(crate) fn largest(&self) -> Vec<Buffer> {
        let live = self.ranked.values().take(LISTED_BUFFERS);
        let mut all: Vec<Buffer> = live.chain(self.freed.values()).copied().collect();
        all.sort_by_key(Buffer::rank);
        all.truncate(LISTED_BUFFERS);
        all.sort_by_key(|buffer| buffer.number);
        all
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::{Backend, BackendExt, DeviceId, Location};
    use pagewise_sim::SimConfig;

    use super::*;

    fn peaks(buffers: &Buffers) -> Vec<(u64, u64)> {
        let listed = buffers.largest();
        listed.iter().map(|buffer| (buffer.number, buffer.peak_device_bytes)).collect()
    }

    #[test]
    fn the_peak_of_a_buffer_is_the_most_that_was_on_devices_after_a_call() {
        let sim = SimBackend::new(SimConfig::h200()).expect("address space");
        sim.follow_managed();
        let mut buffers = Buffers::default();
        let follow = |buffers: &mut Buffers| buffers.follow(&sim, &sim.take_managed_changes());
        let [first, second] = [8 << 20, 3 << 20].map(|bytes| sim.alloc(bytes).expect("memory"));
        assert!(follow(&mut buffers));
        let plain = sim.alloc_device(DeviceId(0), 1 << 20).expect("memory");
        // SAFETY: only this test knows the memory.
        unsafe { sim.free(plain) }.expect("live memory");
        assert!(!follow(&mut buffers), "it is not managed");
        assert_eq!(peaks(&buffers), [(1, 0), (2, 0)]);
        let device = Location::device(DeviceId(0));
        sim.prefetch_to(Span::new(first.ptr, 3 << 20), device).expect("managed");
        sim.prefetch_to(second, device).expect("managed");
        assert!(follow(&mut buffers));
        sim.prefetch_to(first, Location::HOST).expect("managed");
        assert!(!follow(&mut buffers), "a peak stays");
        // SAFETY: only this test knows the memory.
        unsafe { sim.free(second.ptr) }.expect("live memory");
        assert!(follow(&mut buffers));
        assert!(!follow(&mut buffers), "nothing happened");
        assert_eq!(peaks(&buffers), [(1, 3 << 20), (2, 3 << 20)]);
    }

    #[test]
    fn the_largest_are_listed_whether_they_live_or_not() {
        let mut buffers = Buffers::default();
        for number in 0..200_u64 {
            let ptr = DevicePtr(number << 21);
            buffers.add(Span::new(ptr, 1 << 21));
            let buffer = buffers.live.get_mut(&ptr).expect("added");
            buffers.ranked.remove(&buffer.rank());
            buffer.peak_device_bytes = number % 100;
            buffers.ranked.insert(buffer.rank(), *buffer);
            if number % 2 == 0 {
                assert!(buffers.free(ptr));
            }
        }
        let mut listed: Vec<u64> = peaks(&buffers).iter().map(|(_, peak)| *peak).collect();
        listed.sort_unstable();
        let twice: Vec<u64> = (68..100).flat_map(|peak| [peak, peak]).collect();
        assert_eq!(listed, twice);
    }
}
