//! Loads and stores of a fragment.
//!
//! Most accesses of a warp are to one address or to adjacent ones, in memory that the warp is known
//! to reach. They are found by a few operations on vectors of addresses, and move as one piece. All
//! others take the places of their lanes one by one.

use super::access::{Blocked, Pointers, Wanted, read, write};
use super::block::Common;
use super::engine::{Engine, lanes};
use super::memory::Kind;
use super::rows;
use super::warp::{Fragment, Warp};
use super::words;
use crate::code::{Access, Fill, Lanes, Op, WIDTH, active};

/// Where the bytes of the lanes are.
#[allow(clippy::large_enum_variant, reason = "it lives for one instruction, on the stack")]
enum Found {
    /// All lanes access the same ones.
    Same(*mut u8),
    /// All 32 lanes access bytes that follow each other.
    Row(*mut u8),
    /// Each active lane has its own.
    Each(Pointers),
}

/// The addresses of a fragment's lanes, from that of its first active lane on.
struct Survey {
    first: u64,
    /// From the first address to each lane's; 0 for lanes that are not active.
    deltas: [i64; WIDTH],
    least: i64,
    most: i64,
    aligned: bool,
}

impl Survey {
    #[inline(always)]
    fn of(addresses: &[u64; WIDTH], mask: u32, bytes: u32) -> Self {
        let first = addresses[mask.trailing_zeros() as usize % WIDTH];
        let mut deltas = [0; WIDTH];
        for lane in 0..WIDTH {
            let kept = i64::from(mask.cast_signed() << (31 - lane) >> 31);
            deltas[lane] = addresses[lane].wrapping_sub(first).cast_signed() & kept;
        }
        let (mut least, mut most, mut all) = (0, 0, 0);
        for delta in deltas {
            least = delta.min(least);
            most = delta.max(most);
            all |= delta;
        }
        let aligned = (first | all.cast_unsigned()) & u64::from(bytes - 1) == 0;
        Self { first, deltas, least, most, aligned }
    }
}

/// How far apart the addresses of neighbouring lanes are, if it is the same for all and either
/// nothing or `bytes`, a power of 2.
#[inline(always)]
fn step(lanes: &Lanes<'_>, slot: u16, wide: bool, bytes: u32) -> Option<u32> {
    let shift = bytes.trailing_zeros();
    if wide {
        let base = lanes.double(slot);
        let next = base[1].wrapping_sub(base[0]);
        let ones = if next == bytes.into() { u64::MAX } else { 0 };
        let mut apart = next & !ones;
        for lane in 0..WIDTH {
            apart |= base[lane].wrapping_sub(base[0]) ^ (lane as u64 & ones) << shift;
        }
        return (apart == 0).then_some(ones as u32 & bytes);
    }
    let base = lanes.word(slot);
    let next = base[1].wrapping_sub(base[0]);
    let ones = if next == bytes { u32::MAX } else { 0 };
    let mut apart = next & !ones;
    for lane in 0..WIDTH {
        apart |= base[lane].wrapping_sub(base[0]) ^ (lane as u32 & ones) << shift;
    }
    // Of a row that goes on behind 4 GiB nothing is known.
    let is_whole = ones == 0 || base[0] <= u32::MAX / 2;
    (apart == 0 && is_whole).then_some(ones & bytes)
}

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
        if words::is_one(access) {
            let mut lanes = lanes(self.program, warp, &fragment.frame, mask);
            if words::load(&mut lanes, op, common, self.rules.wide_vectors) {
                return Ok(());
            }
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.rules.wide_vectors {
            // SAFETY: the machine has the instructions that the function is compiled with.
            return unsafe { load_wide(self, common, warp, fragment, op, access, mask) };
        }
        load(self, common, warp, fragment, op, access, mask)
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
        if words::is_one(access) {
            let lanes = lanes(self.program, warp, &fragment.frame, mask);
            if words::store(&lanes, op, common, self.rules.wide_vectors) {
                return Ok(());
            }
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.rules.wide_vectors {
            // SAFETY: the machine has the instructions that the function is compiled with.
            return unsafe { store_wide(self, common, warp, fragment, op, access, mask) };
        }
        store(self, common, warp, fragment, op, access, mask)
    }

    /// Finds the bytes of an access.
    #[inline(always)]
    fn found(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, kind): (Access, Kind),
        mask: u32,
    ) -> Result<Found, Blocked> {
        let bytes = u32::from(access.bytes) * u32::from(access.count);
        let wanted = Wanted { place: access.place, bytes, kind, mask };
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        if mask == u32::MAX
            && let Some(step) = step(&registers, op.s[0], access.wide, bytes)
        {
            let start = if access.wide {
                registers.double(op.s[0])[0].wrapping_add(op.imm)
            } else {
                u64::from(registers.word(op.s[0])[0].wrapping_add(op.imm as u32))
            };
            let span = u64::from(step) * (WIDTH as u64 - 1) + u64::from(bytes);
            if start & u64::from(bytes - 1) == 0
                && let Some((pointer, 0)) =
                    self.reach.region(common, warp, &fragment.frame, (start, span), wanted)
            {
                return Ok(if step == 0 { Found::Same(pointer) } else { Found::Row(pointer) });
            }
        }
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let addresses = registers.addresses(op.s[0], op.imm, access.wide);
        let survey = Survey::of(&addresses, mask, bytes);
        let span = survey.most.wrapping_sub(survey.least).cast_unsigned();
        let start = survey.first.wrapping_add_signed(survey.least);
        if survey.aligned
            && let Some(span) = span.checked_add(bytes.into())
            && let Some((pointer, apart)) =
                self.reach.region(common, warp, &fragment.frame, (start, span), wanted)
        {
            if apart == 0 && survey.least == survey.most {
                return Ok(Found::Same(pointer));
            }
            let first = pointer.wrapping_offset(survey.least.wrapping_neg() as isize);
            let mut pointers = [first; WIDTH];
            for (lane, pointer) in pointers.iter_mut().enumerate() {
                let delta = survey.deltas[lane] as isize;
                *pointer = pointer.wrapping_offset(delta).wrapping_add(lane * apart);
            }
            return Ok(Found::Each(pointers));
        }
        self.reach.places(common, warp, fragment, &addresses, wanted).map(Found::Each)
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
) -> Result<(), Blocked> {
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
) -> Result<(), Blocked> {
    store(engine, common, warp, fragment, op, access, mask)
}

#[inline(always)]
fn load(
    engine: &mut Engine<'_>,
    common: &mut Common,
    warp: &mut Warp,
    fragment: &Fragment,
    op: &Op,
    access: Access,
    mask: u32,
) -> Result<(), Blocked> {
    let found = engine.found(common, warp, fragment, op, (access, Kind::Read), mask)?;
    let mut lanes = lanes(engine.program, warp, &fragment.frame, mask);
    let Access { bytes, count, doubles, .. } = access;
    let all_doubles = doubles == ((1_u16 << count) - 1) as u8;
    let filled = |pointer: *mut u8| {
        // SAFETY: each pointer is one that `found` gave for all elements of the access.
        let value = unsafe { read(pointer, bytes) };
        match access.fill {
            Fill::Zero => value,
            Fill::Sign16 => signed(value, bytes) & 0xffff,
            Fill::Sign => signed(value, bytes),
        }
    };
    match found {
        Found::Row(row) if bytes == 4 && doubles == 0 => {
            // SAFETY: the row has one element for each lane, so many each, and they have 4 bytes.
            unsafe {
                match count {
                    1 => load_words::<1>(&mut lanes, op, row),
                    2 => load_words::<2>(&mut lanes, op, row),
                    _ => load_words::<4>(&mut lanes, op, row),
                }
            }
        }
        Found::Row(row) if bytes == 8 && all_doubles => {
            // SAFETY: the row has one element for each lane, so many each, and they have 8 bytes.
            unsafe {
                match count {
                    1 => load_doubles::<1>(&mut lanes, op, row),
                    _ => load_doubles::<2>(&mut lanes, op, row),
                }
            }
        }
        Found::Same(place) => {
            for element in 0..usize::from(count) {
                let value = filled(place.wrapping_add(element * usize::from(bytes)));
                if doubles >> element & 1 != 0 {
                    lanes.set_double(op.d[element], &[value; WIDTH]);
                } else {
                    lanes.set_word(op.d[element], &[value as u32; WIDTH]);
                }
            }
        }
        Found::Row(_) | Found::Each(_) => {
            let pointers = pointers(&found, access);
            for element in 0..usize::from(count) {
                let at = element * usize::from(bytes);
                let value = |lane: usize| filled(pointers[lane].wrapping_add(at));
                if doubles >> element & 1 != 0 {
                    let mut values = [0; WIDTH];
                    active(mask).for_each(|lane| values[lane] = value(lane));
                    lanes.set_double(op.d[element], &values);
                } else if bytes == 4 {
                    // No sign fills a register of 32 bits.
                    let mut values = [0; WIDTH];
                    // SAFETY: each pointer is one that `found` gave for all elements of the access.
                    let word = |lane: usize| unsafe { read(pointers[lane].wrapping_add(at), 4) };
                    if mask == u32::MAX {
                        (0..WIDTH).for_each(|lane| values[lane] = word(lane) as u32);
                    } else {
                        active(mask).for_each(|lane| values[lane] = word(lane) as u32);
                    }
                    lanes.set_word(op.d[element], &values);
                } else {
                    let mut values = [0; WIDTH];
                    active(mask).for_each(|lane| values[lane] = value(lane) as u32);
                    lanes.set_word(op.d[element], &values);
                }
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn store(
    engine: &mut Engine<'_>,
    common: &mut Common,
    warp: &mut Warp,
    fragment: &Fragment,
    op: &Op,
    access: Access,
    mask: u32,
) -> Result<(), Blocked> {
    let found = engine.found(common, warp, fragment, op, (access, Kind::Write), mask)?;
    let lanes = lanes(engine.program, warp, &fragment.frame, mask);
    let Access { bytes, count, doubles, .. } = access;
    if let Found::Row(row) = found
        && bytes == 4
        && doubles == 0
    {
        // SAFETY: the row has one element for each lane, one after another, so many each, to write.
        unsafe {
            match count {
                1 => store_words::<1>(&lanes, op, row),
                2 => store_words::<2>(&lanes, op, row),
                _ => store_words::<4>(&lanes, op, row),
            }
        }
        return Ok(());
    }
    let pointers = pointers(&found, access);
    for element in 0..usize::from(count) {
        let source = op.source(element + 1);
        let at = element * usize::from(bytes);
        if doubles >> element & 1 != 0 {
            let values = lanes.double(source);
            for lane in active(mask) {
                // SAFETY: `found` gave the pointer for all elements of the access, to write.
                unsafe { write(pointers[lane].wrapping_add(at), bytes, values[lane]) };
            }
        } else {
            let values = lanes.word(source);
            // SAFETY: `found` gave the pointer for all elements of the access, to write.
            let write = |lane: usize, bytes| unsafe {
                write(pointers[lane].wrapping_add(at), bytes, values[lane].into());
            };
            match (mask, bytes) {
                (u32::MAX, 4) => (0..WIDTH).for_each(|lane| write(lane, 4)),
                (_, 4) => active(mask).for_each(|lane| write(lane, 4)),
                _ => active(mask).for_each(|lane| write(lane, bytes)),
            }
        }
    }
    Ok(())
}

/// The place of each lane.
#[inline(always)]
fn pointers(found: &Found, access: Access) -> Pointers {
    let bytes = usize::from(access.bytes) * usize::from(access.count);
    match *found {
        Found::Same(place) => [place; WIDTH],
        Found::Row(row) => std::array::from_fn(|lane| row.wrapping_add(lane * bytes)),
        Found::Each(pointers) => pointers,
    }
}

/// Makes a function that loads `N` values of a type for each lane.
macro_rules! load_rows {
    ($name:ident, $value:ty, $set:ident) => {
        /// # Safety
        /// The row is 32 times `N` values that can be read, aligned to a value.
        #[inline(always)]
        unsafe fn $name<const N: usize>(lanes: &mut Lanes<'_>, op: &Op, row: *mut u8) {
            let mut values: [[$value; N]; WIDTH] = [[0; N]; WIDTH];
            // SAFETY: `values` has as many values as the row, and 32 of them are whole vectors.
            unsafe { rows::read(row, values.as_flattened_mut()) };
            for (element, &slot) in op.d[..N].iter().enumerate() {
                let mut column = [0; WIDTH];
                for lane in 0..WIDTH {
                    column[lane] = values[lane][element];
                }
                lanes.$set(slot, &column);
            }
        }
    };
}
load_rows!(load_words, u32, set_word);
load_rows!(load_doubles, u64, set_double);

/// Stores `N` words of each lane.
///
/// # Safety
/// The row is 32 times `N` words that can be written, aligned to 4 bytes.
#[inline(always)]
unsafe fn store_words<const N: usize>(lanes: &Lanes<'_>, op: &Op, row: *mut u8) {
    let mut values = [[0_u32; N]; WIDTH];
    let sources = [op.s[1], op.s[2], op.s[3], op.source(4)];
    for (element, &slot) in sources[..N].iter().enumerate() {
        let words = lanes.word(slot);
        for lane in 0..WIDTH {
            values[lane][element] = words[lane];
        }
    }
    // SAFETY: `values` has as many words as the row, and 32 of them are whole vectors.
    unsafe { rows::write(row, values.as_flattened()) };
}

fn signed(value: u64, bytes: u8) -> u64 {
    let shift = 64 - 8 * u32::from(bytes);
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}
