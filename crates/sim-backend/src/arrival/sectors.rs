//! The room of a multiprocessor for outstanding faults, in one round.

use super::params::ArrivalParams;

/// Pages of a sector (see [`ArrivalParams::sectors_per_multiprocessor`]).
const SECTOR_PAGES: u64 = 4;

/// The sectors and pages on which a multiprocessor has faults outstanding.
#[derive(Debug, Clone, Default)]
pub(super) struct Sectors {
    sectors: Vec<u64>,
    /// Faults raised on each page.
    on_pages: Vec<(u64, u64)>,
}

impl Sectors {
    /// Forgets the last round.
    pub(super) fn clear(&mut self) {
        self.sectors.clear();
        self.on_pages.clear();
    }

    /// The faults for which there is room on a page that may have so many.
    pub(super) fn take_room(&mut self, page: u64, faults: u64, most: u64) -> u64 {
        let known = self.on_pages.iter().position(|(known, _)| *known == page);
        let at = known.unwrap_or(self.on_pages.len());
        if known.is_none() {
            self.on_pages.push((page, 0));
        }
        let on_page = &mut self.on_pages[at].1;
        let taken = faults.min(most.saturating_sub(*on_page));
        *on_page = on_page.saturating_add(taken);
        taken
    }

    /// Whether faults on a page are raised. If not, the multiprocessor is stuck.
    pub(super) fn admits(&mut self, params: &ArrivalParams, page: u64) -> bool {
        let sector = page / SECTOR_PAGES;
        let known = self.sectors.contains(&sector);
        let room = self.sectors.len() < params.sectors_per_multiprocessor.max(1) as usize;
        if !known && room {
            self.sectors.push(sector);
        }
        known || room
    }
}
