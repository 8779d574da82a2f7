//! Moves the bytes of lanes between memory and registers, once their places are known.

use super::access::{Region, read, write};
use super::offsets::{Base, Offsets};
use super::places::Places;
use super::registers::Results;
use super::rows;
use crate::code::{Access, Fill, Lanes, Line, Op, WIDTH};

/// Calls a function of this module, in the form for AVX2 if the machine has it.
macro_rules! by_machine {
    ($engine:ident, $name:ident $(::<$plain:literal>)?, $($argument:expr),*) => {{
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if $engine.rules.wide_vectors {
            $crate::execute::moves::wide::$name($($argument),*)
        } else {
            $crate::execute::moves::$name$(::<$plain>)?($($argument),*)
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        $crate::execute::moves::$name$(::<$plain>)?($($argument),*)
    }};
}

pub(super) use by_machine;

/// The functions of this module, compiled for AVX2. They are not inlined, so that each has the
/// machine's registers for itself.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) mod wide {
    use super::{Access, Lanes, Op, Region};

    macro_rules! wide {
        ($name:ident = $same:expr, $lanes:ty, $place:ty, $result:ty) => {
            /// # Safety
            /// As for the function that it calls, and the machine has AVX2.
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            #[inline(never)]
            pub(in crate::execute) unsafe fn $name(
                lanes: $lanes,
                op: &Op,
                access: Access,
                place: $place,
            ) -> $result {
                // SAFETY: the caller promises what both functions ask for.
                unsafe { $same(lanes, op, access, place) }
            }
        };
    }

    wide!(load_row = super::load_row, &mut Lanes<'_>, *mut u8, ());
    wide!(load_places = super::load_places::<true>, &mut Lanes<'_>, &Region, bool);
    wide!(store_row = super::store_row, &Lanes<'_>, *mut u8, ());
    wide!(store_last = super::store_last, &Lanes<'_>, *mut u8, ());
    wide!(store_places = super::store_places::<true>, &Lanes<'_>, &Region, bool);
}

/// A load of a row.
///
/// # Safety
/// The row has the elements of each lane, of so many bytes.
#[inline(always)]
pub(super) unsafe fn load_row(lanes: &mut Lanes<'_>, op: &Op, access: Access, row: *mut u8) {
    let Access { bytes, count, doubles, fill, .. } = access;
    // SAFETY: the caller's, and each arm reads elements of just that width and count.
    unsafe {
        match (bytes, count, doubles) {
            (4, 1, 0) => load_words::<1>(lanes, op, row),
            (4, 2, 0) => load_words::<2>(lanes, op, row),
            (4, 4, 0) => load_words::<4>(lanes, op, row),
            (8, 1, 1) => load_doubles::<1>(lanes, op, row),
            (8, 2, 3) => load_doubles::<2>(lanes, op, row),
            (1, 1, 0) => load_bytes::<1>(lanes, op, row, fill),
            (1, 2, 0) => load_bytes::<2>(lanes, op, row, fill),
            (1, 4, 0) => load_bytes::<4>(lanes, op, row, fill),
            (2, 1, 0) => load_halves::<1>(lanes, op, row, fill),
            (2, 2, 0) => load_halves::<2>(lanes, op, row, fill),
            (2, 4, 0) => load_halves::<4>(lanes, op, row, fill),
            _ => {
                let step = usize::from(bytes) * usize::from(count);
                for element in 0..usize::from(count) {
                    let mut values = [0; WIDTH];
                    for (lane, value) in values.iter_mut().enumerate() {
                        let at = lane * step + element * usize::from(bytes);
                        *value = read(row.wrapping_add(at), bytes);
                    }
                    leave(lanes, op, access, element, values);
                }
            }
        }
    }
}

/// A load of the same bytes by all lanes.
///
/// # Safety
/// The place has the elements of the access.
#[inline(always)]
pub(super) unsafe fn load_same(results: &mut Results<'_>, op: &Op, access: Access, place: *mut u8) {
    for element in 0..usize::from(access.count) {
        let at = place.wrapping_add(element * usize::from(access.bytes));
        // SAFETY: the caller's, and the element is one of the access.
        let value = filled(access, unsafe { read(at, access.bytes) });
        if access.doubles >> element & 1 != 0 {
            results.set_double(op.result(element), Line::same(value));
        } else {
            results.set_word(op.result(element), Line::same(value as u32));
        }
    }
}

/// A load of lanes with their bytes in any places of a region. Returns whether all are there; if not,
/// nothing is done.
///
/// # Safety
/// The machine has AVX2 if `WIDE`.
#[inline(always)]
pub(super) unsafe fn load_places<const WIDE: bool>(
    lanes: &mut Lanes<'_>,
    op: &Op,
    access: Access,
    region: &Region,
) -> bool {
    let mut offsets = Offsets::default();
    let places = places::<WIDE>(lanes, op, access, region, &mut offsets);
    let Some(places) = places else { return false };
    let Access { bytes, count, doubles, .. } = access;
    if bytes == 4 && doubles == 0 {
        // No sign fills a register of 32 bits.
        for element in 0..usize::from(count) {
            let (at, mask) = (element * usize::from(bytes), lanes.mask);
            // SAFETY: the lanes' bytes hold all elements of the access, and the caller's.
            unsafe { places.words::<WIDE>(at, mask, lanes.word_mut(op.d[element])) };
        }
        return true;
    }
    for element in 0..usize::from(count) {
        let at = element * usize::from(bytes);
        // SAFETY: the lanes' bytes hold all elements of the access, of so many bytes each.
        let values = unsafe {
            match bytes {
                1 => places.values::<u8, u64>(at),
                2 => places.values::<u16, u64>(at),
                4 => places.values::<u32, u64>(at),
                _ => places.values::<u64, u64>(at),
            }
        };
        leave(lanes, op, access, element, values);
    }
    true
}

/// The value of a register for one that is loaded.
#[inline(always)]
fn filled(access: Access, value: u64) -> u64 {
    if access.fill == Fill::Zero {
        return value;
    }
    let shift = 64 - 8 * u32::from(access.bytes);
    let kept = if access.fill == Fill::Sign16 { 0xffff } else { u64::MAX };
    ((value << shift).cast_signed() >> shift).cast_unsigned() & kept
}

/// Writes an element of an access to its register.
#[inline(always)]
pub(super) fn leave(
    lanes: &mut Lanes<'_>,
    op: &Op,
    access: Access,
    element: usize,
    mut values: [u64; WIDTH],
) {
    if access.fill != Fill::Zero {
        for value in &mut values {
            *value = filled(access, *value);
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

/// A store of a row.
///
/// # Safety
/// The row has the elements of each lane, of so many bytes, to write.
#[inline(always)]
pub(super) unsafe fn store_row(lanes: &Lanes<'_>, op: &Op, access: Access, row: *mut u8) {
    let Access { bytes, count, doubles, .. } = access;
    // SAFETY: the caller's, and each arm writes elements of just that width and count.
    unsafe {
        match (bytes, count, doubles) {
            (4, 1, 0) => store_words::<1>(lanes, op, row),
            (4, 2, 0) => store_words::<2>(lanes, op, row),
            (4, 4, 0) => store_words::<4>(lanes, op, row),
            (8, 1, 1) => store_doubles::<1>(lanes, op, row),
            (8, 2, 3) => store_doubles::<2>(lanes, op, row),
            (1, 1, 0) => store_bytes::<1>(lanes, op, row),
            (1, 2, 0) => store_bytes::<2>(lanes, op, row),
            (1, 4, 0) => store_bytes::<4>(lanes, op, row),
            (2, 1, 0) => store_halves::<1>(lanes, op, row),
            (2, 2, 0) => store_halves::<2>(lanes, op, row),
            (2, 4, 0) => store_halves::<4>(lanes, op, row),
            _ => {
                for lane in 0..WIDTH {
                    let step = usize::from(bytes) * usize::from(count);
                    store_lane(lanes, op, access, lane, row.wrapping_add(lane * step));
                }
            }
        }
    }
}

/// A store of all lanes to the same bytes: those of the last lane stay.
///
/// # Safety
/// The place has the elements of the access, to write.
#[inline(always)]
pub(super) unsafe fn store_last(lanes: &Lanes<'_>, op: &Op, access: Access, place: *mut u8) {
    // SAFETY: the caller's, which holds for the last lane as for the others.
    unsafe { store_lane(lanes, op, access, WIDTH - 1, place) };
}

/// A store of one lane.
///
/// # Safety
/// The place has the elements of the access, to write.
#[inline(always)]
unsafe fn store_lane(lanes: &Lanes<'_>, op: &Op, access: Access, lane: usize, place: *mut u8) {
    for element in 0..usize::from(access.count) {
        let source = op.source(element + 1);
        let value = if access.doubles >> element & 1 != 0 {
            lanes.double(source)[lane]
        } else {
            lanes.word(source)[lane].into()
        };
        let at = place.wrapping_add(element * usize::from(access.bytes));
        // SAFETY: the caller's, and the element is one of the access.
        unsafe { write(at, access.bytes, value) };
    }
}

/// A store of lanes with their bytes in any places of a region, as [`load_places`].
///
/// # Safety
/// As for [`load_places`], and the bytes are ones to write.
#[inline(always)]
pub(super) unsafe fn store_places<const WIDE: bool>(
    lanes: &Lanes<'_>,
    op: &Op,
    access: Access,
    region: &Region,
) -> bool {
    let mut offsets = Offsets::default();
    let places = places::<WIDE>(lanes, op, access, region, &mut offsets);
    let Some(places) = places else { return false };
    let (Access { bytes, count, doubles, .. }, mask) = (access, lanes.mask);
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

/// The places of the bytes of all active lanes, if a region has them. `WIDE` promises AVX2.
#[inline(always)]
fn places<'o, const WIDE: bool>(
    lanes: &Lanes<'_>,
    op: &Op,
    access: Access,
    region: &Region,
    offsets: &'o mut Offsets,
) -> Option<Places<'o>> {
    let bytes = access.all_bytes();
    Places::of::<WIDE>(base(lanes, op, access), (op.imm, lanes.mask), region, bytes, offsets)
}

/// The register that an instruction takes addresses from.
#[inline(always)]
pub(super) fn base<'l>(lanes: &'l Lanes<'_>, op: &Op, access: Access) -> Base<'l> {
    if access.wide {
        Base::Doubles(lanes.double(op.s[0]))
    } else {
        Base::Words(lanes.word(op.s[0]))
    }
}

/// Makes functions that load and store `N` values of a type for each lane.
macro_rules! rows {
    ($load:ident, $store:ident, $value:ty, $get:ident, $set:ident) => {
        /// # Safety
        /// The row is 32 times `N` values that can be read, aligned to a value.
        #[inline(always)]
        unsafe fn $load<const N: usize>(lanes: &mut Lanes<'_>, op: &Op, row: *mut u8) {
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
        }

        /// # Safety
        /// The row is 32 times `N` values that can be written, aligned to a value.
        #[inline(always)]
        unsafe fn $store<const N: usize>(lanes: &Lanes<'_>, op: &Op, row: *mut u8) {
            let mut values: [[$value; N]; WIDTH] = [[0; N]; WIDTH];
            for element in 0..N {
                let column = lanes.$get(op.source(element + 1));
                for lane in 0..WIDTH {
                    values[lane][element] = column[lane];
                }
            }
            // SAFETY: `values` has as many values as the row, and 32 of them are whole vectors.
            unsafe { rows::write(row, &values) };
        }
    };
}
rows!(load_words, store_words, u32, word, set_word);
rows!(load_doubles, store_doubles, u64, double, set_double);

/// Makes functions that load and store `N` values of 8 or 16 bits for each lane.
macro_rules! narrow_rows {
    ($load:ident, $store:ident, $value:ty) => {
        /// # Safety
        /// The row is 32 times `N` values that can be read, aligned to a value.
        #[inline(always)]
        unsafe fn $load<const N: usize>(lanes: &mut Lanes<'_>, op: &Op, row: *mut u8, fill: Fill) {
            let mut values: [[$value; N]; WIDTH] = [[0; N]; WIDTH];
            // SAFETY: `values` has as many values as the row, and 32 of them are whole vectors.
            unsafe { rows::read(row, &mut values) };
            let shift = 32 - <$value>::BITS;
            let kept = if fill == Fill::Sign16 { 0xffff } else { u32::MAX };
            for (element, &slot) in op.d[..N].iter().enumerate() {
                let mut column = [0; WIDTH];
                for lane in 0..WIDTH {
                    column[lane] = u32::from(values[lane][element]);
                }
                if fill != Fill::Zero {
                    for value in &mut column {
                        *value = ((*value << shift).cast_signed() >> shift).cast_unsigned() & kept;
                    }
                }
                lanes.set_word(slot, &column);
            }
        }

        /// # Safety
        /// The row is 32 times `N` values that can be written, aligned to a value.
        #[inline(always)]
        unsafe fn $store<const N: usize>(lanes: &Lanes<'_>, op: &Op, row: *mut u8) {
            let mut values: [[$value; N]; WIDTH] = [[0; N]; WIDTH];
            for element in 0..N {
                let column = lanes.word(op.source(element + 1));
                for lane in 0..WIDTH {
                    values[lane][element] = column[lane] as $value;
                }
            }
            // SAFETY: `values` has as many values as the row, and 32 of them are whole vectors.
            unsafe { rows::write(row, &values) };
        }
    };
}
narrow_rows!(load_bytes, store_bytes, u8);
narrow_rows!(load_halves, store_halves, u16);
