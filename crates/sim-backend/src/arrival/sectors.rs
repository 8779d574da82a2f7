//! The room of a multiprocessor for outstanding faults, in one round.
#![allow(clippy::arithmetic_side_effects, reason = "a sector has pages, and one was added")]

use super::params::ArrivalParams;

/// Pages of a sector (see [`ArrivalParams::sectors_per_multiprocessor`]).
const SECTOR_PAGES: usize = 4;

/// The sectors on which a multiprocessor has faults outstanding.
#[derive(Debug, Clone, Default)]
pub(super) struct Sectors {
    all: Vec<Sector>,
    /// The place of the one that was used last.
    last: usize,
}

#[derive(Debug, Clone, Copy)]
struct Sector {
    number: u64,
    /// Faults of writes raised on each of its pages.
    raised: [u64; SECTOR_PAGES],
}

/// The faults outstanding on a page.
#[derive(Debug)]
pub(super) struct OnPage<'a>(&'a mut u64);

impl OnPage<'_> {
    /// The faults for which there is room on a page that may have so many.
    #[inline]
    pub(super) fn take_room(self, faults: u64, most: u64) -> u64 {
        let taken = faults.min(most.saturating_sub(*self.0));
        *self.0 = self.0.saturating_add(taken);
        taken
    }
}

impl Sectors {
    /// Forgets the last round.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// The page, if faults on it are raised. If not, the multiprocessor is stuck.
    #[inline]
    pub(super) fn admit(&mut self, params: &ArrivalParams, page: u64) -> Option<OnPage<'_>> {
        let (number, at) = (page / SECTOR_PAGES as u64, page as usize % SECTOR_PAGES);
        // Most faults are near the last one.
        if self.all.get(self.last).is_none_or(|sector| sector.number != number) {
            self.last = match self.all.iter().rposition(|sector| sector.number == number) {
                Some(place) => place,
                None if self.all.len() < params.sectors_per_multiprocessor.max(1) as usize => {
                    self.all.push(Sector { number, raised: [0; SECTOR_PAGES] });
                    self.all.len() - 1
                }
                None => return None,
            };
        }
        Some(OnPage(&mut self.all[self.last].raised[at]))
    }
}
