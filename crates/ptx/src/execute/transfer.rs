//! Loads and stores of a fragment.
//!
//! Nearly all accesses of a warp are in one piece of memory that the warp is known to reach. Their
//! offsets in it are found by a few operations on vectors, and the bytes move by the offsets: as one
//! piece if they follow one another. All others take the places of their lanes one by one.

use super::access::{Blocked, Pointers, Region, Wanted, read, write};
use super::block::Common;
use super::engine::{Engine, lanes};
use super::lane_bytes::{Found, Offsets, Places, row};
use super::memory::Kind;
use super::rows;
use super::warp::{Fragment, Warp};
use crate::code::{Access, Fill, Lanes, Op, WIDTH, active};

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

    /// The region around the bytes of the first active lane, and its address.
    #[inline(always)]
    fn around(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, wanted): (Access, Wanted),
    ) -> Option<(Region, u64)> {
        let lane = wanted.mask.trailing_zeros() as usize % WIDTH;
        let registers = lanes(self.program, warp, &fragment.frame, wanted.mask);
        let address = if access.wide {
            registers.double(op.s[0])[lane].wrapping_add(op.imm)
        } else {
            registers.word(op.s[0])[lane].wrapping_add(op.imm as u32).into()
        };
        let region = self.reach.region(common, warp, &fragment.frame, address, wanted)?;
        Some((region, address))
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
        let wanted = Wanted { place: access.place, bytes, kind, mask };
        let (region, address) = self.around(common, warp, fragment, op, (access, wanted))?;
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let found = match row(&registers, op, access, &region, (address, bytes)) {
            Some(row) => Found::Row(row),
            None => {
                let offsets = Offsets::of(&registers, op, access.wide, &region, bytes)?;
                Found::Places(Places { host: region.host, apart: region.apart, offsets })
            }
        };
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
    let Access { bytes, count, doubles, .. } = access;
    if let Found::Row(row) = found {
        // SAFETY: the row has one element for each lane, so many each, and they have so many bytes.
        unsafe {
            match (bytes, count, doubles) {
                (4, 1, 0) => return load_words::<1>(&mut lanes, op, row),
                (4, 2, 0) => return load_words::<2>(&mut lanes, op, row),
                (4, 4, 0) => return load_words::<4>(&mut lanes, op, row),
                (8, 1, 1) => return load_doubles::<1>(&mut lanes, op, row),
                (8, 2, 3) => return load_doubles::<2>(&mut lanes, op, row),
                _ => {}
            }
        }
    }
    let places = found.places(bytes * count);
    for element in 0..usize::from(count) {
        let at = element * usize::from(bytes);
        if bytes == 4 && doubles >> element & 1 == 0 {
            // SAFETY: the lanes' bytes hold all elements of the access.
            let words = unsafe { places.values::<u32, u32>(at) };
            // No sign fills a register of 32 bits.
            lanes.set_word(op.d[element], &words);
            continue;
        }
        // SAFETY: the lanes' bytes hold all elements of the access, of so many bytes each.
        let values = unsafe {
            match bytes {
                1 => places.values::<u8, u64>(at),
                2 => places.values::<u16, u64>(at),
                4 => places.values::<u32, u64>(at),
                _ => places.values::<u64, u64>(at),
            }
        };
        leave(&mut lanes, op, access, element, values);
    }
    true
}

/// Writes an element of an access to its register.
#[inline(always)]
fn leave(lanes: &mut Lanes<'_>, op: &Op, access: Access, element: usize, mut values: [u64; WIDTH]) {
    if access.fill != Fill::Zero {
        let shift = 64 - 8 * u32::from(access.bytes);
        let kept = if access.fill == Fill::Sign16 { 0xffff } else { u64::MAX };
        for value in &mut values {
            *value = ((*value << shift).cast_signed() >> shift).cast_unsigned() & kept;
        }
    }
    if access.doubles >> element & 1 != 0 {
        lanes.set_double(op.d[element], &values);
        return;
    }
    let mut words = [0; WIDTH];
    for lane in 0..WIDTH {
        words[lane] = values[lane] as u32;
    }
    lanes.set_word(op.d[element], &words);
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
    let Access { bytes, count, doubles, .. } = access;
    if let Found::Row(row) = found {
        // SAFETY: the row has one element for each lane, so many each, and they have so many bytes,
        // to write.
        unsafe {
            match (bytes, count, doubles) {
                (4, 1, 0) => return store_words::<1>(&lanes, op, row),
                (4, 2, 0) => return store_words::<2>(&lanes, op, row),
                (4, 4, 0) => return store_words::<4>(&lanes, op, row),
                (8, 1, 1) => return store_doubles::<1>(&lanes, op, row),
                (8, 2, 3) => return store_doubles::<2>(&lanes, op, row),
                _ => {}
            }
        }
    }
    let places = found.places(bytes * count);
    for element in 0..usize::from(count) {
        let (source, at) = (op.source(element + 1), element * usize::from(bytes));
        // SAFETY: the lanes' bytes hold all elements of the access, to write.
        unsafe {
            if doubles >> element & 1 != 0 {
                let values = lanes.double(source);
                match bytes {
                    1 => places.set_values(at, mask, |lane| values[lane] as u8),
                    2 => places.set_values(at, mask, |lane| values[lane] as u16),
                    4 => places.set_values(at, mask, |lane| values[lane] as u32),
                    _ => places.set_values(at, mask, |lane| values[lane]),
                }
            } else {
                let values = lanes.word(source);
                match bytes {
                    1 => places.set_values(at, mask, |lane| values[lane] as u8),
                    2 => places.set_values(at, mask, |lane| values[lane] as u16),
                    4 => places.set_values(at, mask, |lane| values[lane]),
                    _ => places.set_values(at, mask, |lane| u64::from(values[lane])),
                }
            }
        }
    }
    true
}

/// Makes functions that load and store `N` values of a type for each lane.
macro_rules! rows {
    ($load:ident, $store:ident, $value:ty, $get:ident, $set:ident) => {
        /// # Safety
        /// The row is 32 times `N` values that can be read, aligned to a value.
        #[inline(always)]
        unsafe fn $load<const N: usize>(lanes: &mut Lanes<'_>, op: &Op, row: *mut u8) -> bool {
            let mut values: [[$value; N]; WIDTH] = [[0; N]; WIDTH];
            // SAFETY: `values` has as many values as the row, and 32 of them are whole vectors.
            unsafe { rows::read(row, &mut values) };
            for (element, &slot) in op.d[..N].iter().enumerate() {
                let mut column = [0; WIDTH];
                for lane in 0..WIDTH {
                    column[lane] = values[lane][element];
                }
                lanes.$set(slot, &column);
            }
            true
        }

        /// # Safety
        /// The row is 32 times `N` values that can be written, aligned to a value.
        #[inline(always)]
        unsafe fn $store<const N: usize>(lanes: &Lanes<'_>, op: &Op, row: *mut u8) -> bool {
            let mut values: [[$value; N]; WIDTH] = [[0; N]; WIDTH];
            for element in 0..N {
                let column = lanes.$get(op.source(element + 1));
                for lane in 0..WIDTH {
                    values[lane][element] = column[lane];
                }
            }
            // SAFETY: `values` has as many values as the row, and 32 of them are whole vectors.
            unsafe { rows::write(row, &values) };
            true
        }
    };
}
rows!(load_words, store_words, u32, word, set_word);
rows!(load_doubles, store_doubles, u64, double, set_double);
