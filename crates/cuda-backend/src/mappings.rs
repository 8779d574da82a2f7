//! The physical memory that this back end created, its reservations and its mappings.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{Location, Span};

use crate::live::{Kind, Live};

/// Physical memory of this back end, and its mappings.
#[derive(Debug)]
pub(crate) struct Memories {
    pub(crate) live: Live,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Reservations: first address to bytes.
    pub(crate) reserved: BTreeMap<u64, u64>,
    /// The place of each memory that has a handle.
    pub(crate) places: BTreeMap<u64, Location>,
    /// By first address.
    pub(crate) mapped: BTreeMap<u64, Mapped>,
}

/// Memory that is mapped: as many bytes, of this place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapped {
    pub(crate) bytes: u64,
    pub(crate) place: Location,
}

impl Known {
    /// Whether one reservation holds all of a range. The driver does not ask: it maps memory past
    /// the end of a reservation (CONTRACT-122), over addresses that it reserves later.
    pub(crate) fn is_reserved(&self, span: Span) -> bool {
        let reservation = self.reserved.range(..=span.ptr.0).next_back();
        let within = |(first, bytes): (&u64, &u64)| {
            span.end().is_some_and(|end| end <= first.saturating_add(*bytes))
        };
        reservation.is_some_and(within)
    }
}

impl Default for Memories {
    fn default() -> Self {
        Self { live: Live::new(Kind::Memory), known: Mutex::default() }
    }
}

impl Memories {
    /// A panic elsewhere leaves maps of numbers as good as they were.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mappings that a range touches, if they hold all of it: first addresses and places.
    pub(crate) fn holding(&self, span: Span) -> Option<Vec<(u64, Location)>> {
        let end = span.end()?;
        let known = self.known();
        let (&first, _) = known.mapped.range(..=span.ptr.0).next_back()?;
        let mut next = first;
        let mut found = Vec::new();
        while next < end {
            let mapped = known.mapped.get(&next)?;
            found.push((next, mapped.place));
            next += mapped.bytes;
        }
        (next > span.ptr.0).then_some(found)
    }
}
