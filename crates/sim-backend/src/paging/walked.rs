//! The memory that a device accessed, so that it has the page tables at hand (TIMING-32).
//!
//! A device reads the entries of a page table when it accesses their pages, and forgets all of them
//! when the driver takes an entry of its away. What it merely maps, it has not read.
#![allow(clippy::arithmetic_side_effects, reason = "at most 64 stretches are counted")]

use std::fmt;
use std::ops::Range;

use super::processor::ProcId;

/// Accessed stretches that are kept for each device. A kernel adds one for each of its walks.
const STRETCHES: usize = 64;

/// For each device the memory that it accessed since it last lost a mapping.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Walked {
    /// By the processor's index. The host's stays empty.
    devices: Vec<Stretches>,
}

/// Stretches of pages that one device accessed.
#[derive(Clone)]
struct Stretches {
    /// In a ring: the stretch with number `n` is at `n % STRETCHES`. Places that have none are empty.
    kept: [Range<u64>; STRETCHES],
    /// How many were noted since the device lost a mapping.
    noted: usize,
    /// How many of them begin with a page of each kind: most pages of new stretches are of a kind
    /// that none has, so that the others need no look.
    kinds: [u8; KINDS],
}

/// Kinds of pages, by a hash.
const KINDS: usize = 1 << KIND_BITS;
const KIND_BITS: u32 = 12;

#[inline]
fn kind(page: u64) -> usize {
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - KIND_BITS)) as usize
}

impl Default for Stretches {
    fn default() -> Self {
        Self { kept: [const { 0..0 }; STRETCHES], noted: 0, kinds: [0; KINDS] }
    }
}

impl PartialEq for Stretches {
    fn eq(&self, other: &Self) -> bool {
        self.in_order().eq(other.in_order())
    }
}

impl fmt::Debug for Stretches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.in_order()).finish()
    }
}

impl Stretches {
    /// The oldest first.
    fn in_order(&self) -> impl Iterator<Item = &Range<u64>> {
        let oldest = self.noted.saturating_sub(STRETCHES);
        (oldest..self.noted).map(|number| &self.kept[number % STRETCHES])
    }

    #[inline]
    fn note(&mut self, pages: Range<u64>) {
        let kind = kind(pages.start);
        if self.kinds[kind] > 0 && self.has(&pages) {
            return;
        }
        self.kinds[kind] += 1;
        let place = &mut self.kept[self.noted % STRETCHES];
        let gone = std::mem::replace(place, pages);
        if !gone.is_empty() {
            self.kinds[self::kind(gone.start)] -= 1;
        }
        self.noted += 1;
    }

    #[cold]
    fn has(&self, pages: &Range<u64>) -> bool {
        self.kept.contains(pages)
    }

    fn clear(&mut self) {
        // Few are kept where mappings are lost often.
        for stretch in &mut self.kept[..self.noted.min(STRETCHES)] {
            self.kinds[kind(stretch.start)] = 0;
            *stretch = 0..0;
        }
        self.noted = 0;
    }
}

impl Walked {
    /// Notes that a device accesses pages, if there are any.
    #[inline]
    pub(super) fn note(&mut self, by: ProcId, pages: Option<Range<u64>>) {
        if let Some(pages) = pages
            && !by.is_host()
        {
            self.note_of_device(by, pages);
        }
    }

    /// The same of pages that a device accesses.
    #[inline(always)]
    pub(super) fn note_of_device(&mut self, by: ProcId, pages: Range<u64>) {
        match self.devices.get_mut(by.index()) {
            Some(stretches) => stretches.note(pages),
            None => self.note_first(by, pages),
        }
    }

    #[cold]
    fn note_first(&mut self, by: ProcId, pages: Range<u64>) {
        self.devices.resize_with(by.index().saturating_add(1), Stretches::default);
        self.devices[by.index()].note(pages);
    }

    /// A device lost a mapping.
    pub(super) fn forget(&mut self, by: ProcId) {
        if let Some(stretches) = self.devices.get_mut(by.index()) {
            stretches.clear();
        }
    }

    /// Whether a device has accessed one of these pages.
    pub(super) fn has(&self, by: ProcId, pages: &Range<u64>) -> bool {
        self.devices.get(by.index()).is_some_and(|stretches| {
            stretches.kept.iter().any(|known| known.start < pages.end && pages.start < known.end)
        })
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::Processor;

    use super::*;

    #[test]
    fn a_device_knows_what_it_accessed_until_it_loses_a_mapping() {
        let (one, other) = (Processor::device(0), Processor::device(1));
        let [one, other, host] = [one, other, Processor::HOST].map(ProcId::from);
        let mut walked = Walked::default();
        for by in [one, other, host] {
            walked.note(by, Some(16..32));
        }
        assert!(walked.has(one, &(31..40)) && !walked.has(one, &(32..40)));
        assert!(!walked.has(host, &(16..32)), "the host has other tables");
        walked.forget(one);
        assert!(!walked.has(one, &(16..32)) && walked.has(other, &(16..32)));
    }

    #[test]
    fn only_the_last_stretches_are_kept() {
        let device = ProcId::from(Processor::device(0));
        let mut walked = Walked::default();
        (0..1000).for_each(|page| walked.note(device, Some(page..page + 1)));
        assert!(!walked.has(device, &(935..936)) && walked.has(device, &(936..937)));
    }
}
