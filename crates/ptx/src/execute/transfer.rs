//! Loads and stores of a fragment.
//!
//! Nearly all accesses of a warp are in one piece of memory that the warp is known to reach. Their
//! offsets in it are found by a few operations on vectors, and the bytes move by the offsets: as one
//! piece if they follow one another. All others take the places of their lanes one by one.

use super::access::{Blocked, Pointers, Wanted, read, write};
use super::block::Common;
use super::engine::{Engine, lanes};
use super::memory::Kind;
use super::moves::{leave, load_places, load_row, load_same, store_last, store_places, store_row};
use super::places::{Found, Run, found};
use super::warp::{Fragment, Warp};
use crate::code::{Access, Op, WIDTH, active};

impl Engine<'_> {
    pub(super) fn load(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Result<(), Blocked> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.rules.wide_vectors {
            // SAFETY: the machine has the instructions that the function is compiled with.
            let is_done = unsafe { load_wide(self, common, warp, fragment, op, access, mask) };
            return if is_done {
                Ok(())
            } else {
                self.load_each(common, warp, fragment, op, access, mask)
            };
        }
        if load(self, common, warp, fragment, op, access, mask) {
            return Ok(());
        }
        self.load_each(common, warp, fragment, op, access, mask)
    }

    pub(super) fn store(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Result<(), Blocked> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.rules.wide_vectors {
            // SAFETY: the machine has the instructions that the function is compiled with.
            let is_done = unsafe { store_wide(self, common, warp, fragment, op, access, mask) };
            return if is_done {
                Ok(())
            } else {
                self.store_each(common, warp, fragment, op, access, mask)
            };
        }
        if store(self, common, warp, fragment, op, access, mask) {
            return Ok(());
        }
        self.store_each(common, warp, fragment, op, access, mask)
    }

    /// The places of all lanes, if one region has them.
    #[inline(always)]
    fn found(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, kind): (Access, Kind),
        mask: u32,
    ) -> Option<Found> {
        let bytes = u32::from(access.bytes) * u32::from(access.count);
        let lane = mask.trailing_zeros() as usize % WIDTH;
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let address = if access.wide {
            registers.double(op.s[0])[lane].wrapping_add(op.imm)
        } else {
            registers.word(op.s[0])[lane].wrapping_add(op.imm as u32).into()
        };
        let wanted = Wanted { place: access.place, bytes, kind, mask };
        let region = self.reach.region(common, warp, &fragment.frame, address, wanted)?;
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let found = found(&registers, op, access.wide, &region, (address, bytes))?;
        if region.is_counted {
            self.reach.count(wanted, mask.count_ones().into());
        }
        Some(found)
    }

    /// A load of lanes that are in several places, or may not be there at all.
    #[cold]
    fn load_each(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Result<(), Blocked> {
        let pointers = self.places(common, warp, fragment, op, (access, Kind::Read), mask)?;
        let mut lanes = lanes(self.program, warp, &fragment.frame, mask);
        let Access { bytes, count, .. } = access;
        for element in 0..usize::from(count) {
            let mut values = [0; WIDTH];
            for lane in active(mask) {
                let place = pointers[lane].wrapping_add(element * usize::from(bytes));
                // SAFETY: `places` gave the pointer for all elements of the access.
                values[lane] = unsafe { read(place, bytes) };
            }
            leave(&mut lanes, op, access, element, values);
        }
        Ok(())
    }

    /// A store, as [`Self::load_each`].
    #[cold]
    fn store_each(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Result<(), Blocked> {
        let pointers = self.places(common, warp, fragment, op, (access, Kind::Write), mask)?;
        let lanes = lanes(self.program, warp, &fragment.frame, mask);
        let Access { bytes, count, doubles, .. } = access;
        for element in 0..usize::from(count) {
            let source = op.source(element + 1);
            for lane in active(mask) {
                let value = if doubles >> element & 1 != 0 {
                    lanes.double(source)[lane]
                } else {
                    lanes.word(source)[lane].into()
                };
                let place = pointers[lane].wrapping_add(element * usize::from(bytes));
                // SAFETY: `places` gave the pointer for all elements of the access, to write.
                unsafe { write(place, bytes, value) };
            }
        }
        Ok(())
    }

    fn places(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, kind): (Access, Kind),
        mask: u32,
    ) -> Result<Pointers, Blocked> {
        let bytes = u32::from(access.bytes) * u32::from(access.count);
        let wanted = Wanted { place: access.place, bytes, kind, mask };
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let addresses = registers.addresses(op.s[0], op.imm, access.wide);
        self.reach.places(common, warp, fragment, &addresses, wanted)
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn load_wide(
    engine: &mut Engine<'_>,
    common: &mut Common,
    warp: &mut Warp,
    fragment: &Fragment,
    op: &Op,
    access: Access,
    mask: u32,
) -> bool {
    load(engine, common, warp, fragment, op, access, mask)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn store_wide(
    engine: &mut Engine<'_>,
    common: &mut Common,
    warp: &mut Warp,
    fragment: &Fragment,
    op: &Op,
    access: Access,
    mask: u32,
) -> bool {
    store(engine, common, warp, fragment, op, access, mask)
}

/// A load of lanes that are in one region. Returns whether they are.
#[inline(always)]
fn load(
    engine: &mut Engine<'_>,
    common: &mut Common,
    warp: &mut Warp,
    fragment: &Fragment,
    op: &Op,
    access: Access,
    mask: u32,
) -> bool {
    let found = engine.found(common, warp, fragment, op, (access, Kind::Read), mask);
    let Some(found) = found else { return false };
    let mut lanes = lanes(engine.program, warp, &fragment.frame, mask);
    // SAFETY: `found` has all elements of the access.
    unsafe {
        match found {
            Found::Run(Run::Row, row) => load_row(&mut lanes, op, access, row),
            Found::Run(Run::Same, place) => load_same(&mut lanes, op, access, place),
            Found::Places(places) => load_places(&mut lanes, op, access, &places),
        }
    }
    true
}

/// A store of lanes that are in one region. Returns whether they are.
#[inline(always)]
fn store(
    engine: &mut Engine<'_>,
    common: &mut Common,
    warp: &mut Warp,
    fragment: &Fragment,
    op: &Op,
    access: Access,
    mask: u32,
) -> bool {
    let found = engine.found(common, warp, fragment, op, (access, Kind::Write), mask);
    let Some(found) = found else { return false };
    let lanes = lanes(engine.program, warp, &fragment.frame, mask);
    // SAFETY: `found` has all elements of the access, to write.
    unsafe {
        match found {
            Found::Run(Run::Row, row) => store_row(&lanes, op, access, row),
            Found::Run(Run::Same, place) => store_last(&lanes, op, access, place),
            Found::Places(places) => store_places(&lanes, op, access, &places),
        }
    }
    true
}
