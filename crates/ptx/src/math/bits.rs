//! Instructions on bits: fields, masks, shifts of pairs, permutations of bytes, tables of logic.

/// `bfe.u32`: the field of `length` bits from `position` on, each taken modulo 256.
#[inline]
#[must_use]
pub const fn extract_32(value: u32, position: u32, length: u32) -> u32 {
    let (position, length) = (position & 0xff, length & 0xff);
    let shifted = if position > 31 { 0 } else { value >> position };
    if length > 31 { shifted } else { shifted & ((1 << length) - 1) }
}

/// `bfe.u64`: the field of `length` bits from `position` on, each taken modulo 256.
#[inline]
#[must_use]
pub const fn extract_64(value: u64, position: u32, length: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let shifted = if position > 63 { 0 } else { value >> position };
    if length > 63 { shifted } else { shifted & ((1 << length) - 1) }
}

/// `bfe.s32`: as [`extract_32`], filled with the sign of the field. A field that runs out of the
/// number has the number's sign.
#[inline]
#[must_use]
pub const fn extract_32_signed(value: i32, position: u32, length: u32) -> i32 {
    extract_64_signed(value as i64, position, length) as i32
}

/// `bfe.s64`: as [`extract_64`], filled with the sign of the field. A field that runs out of the
/// number has the number's sign.
#[inline]
#[must_use]
pub const fn extract_64_signed(value: i64, position: u32, length: u32) -> i64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    let shifted = value >> if position > 63 { 63 } else { position };
    if length > 63 { shifted } else { shifted << (64 - length) >> (64 - length) }
}

/// `bfi.b32`: `base` with `length` bits from `position` on replaced by the low bits of `field`.
#[inline]
#[must_use]
pub const fn insert_32(field: u32, base: u32, position: u32, length: u32) -> u32 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position > 31 || length == 0 {
        return base;
    }
    let mask = if length > 31 { u32::MAX } else { (1 << length) - 1 } << position;
    base & !mask | field << position & mask
}

/// `bfi.b64`: `base` with `length` bits from `position` on replaced by the low bits of `field`.
#[inline]
#[must_use]
pub const fn insert_64(field: u64, base: u64, position: u32, length: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position > 63 || length == 0 {
        return base;
    }
    let mask = if length > 63 { u64::MAX } else { (1 << length) - 1 } << position;
    base & !mask | field << position & mask
}

/// `bfind.u32`: the place of the highest bit that is set, or all ones if none is.
#[inline]
#[must_use]
pub const fn find_32(value: u32) -> u32 {
    31_u32.wrapping_sub(value.leading_zeros())
}

/// `bfind.u64`: the place of the highest bit that is set, or all ones if none is.
#[inline]
#[must_use]
pub const fn find_64(value: u64) -> u32 {
    63_u32.wrapping_sub(value.leading_zeros())
}

/// `bfind.s32`: the place of the highest bit that differs from the sign, or all ones.
#[inline]
#[must_use]
pub const fn find_32_signed(value: i32) -> u32 {
    find_32((value ^ (value >> 31)) as u32)
}

/// `bfind.s64`: the place of the highest bit that differs from the sign, or all ones.
#[inline]
#[must_use]
pub const fn find_64_signed(value: i64) -> u32 {
    find_64((value ^ (value >> 63)) as u64)
}

/// `bfind.shiftamt`: how far left the bit that was found, of `width` bits, is from the top. All ones
/// stay all ones.
#[inline]
#[must_use]
pub const fn shift_amount(found: u32, width: u32) -> u32 {
    if found == u32::MAX { found } else { width - 1 - found }
}

/// `fns.b32`: the place of a bit that is set, counted from `base`.
///
/// An offset of 1 is the first at or above the base, of -1 the first at or below it, of 0 the base
/// itself. All ones say that there is none. A base above 31 finds none. The least offset gives 0, as
/// hardware does.
#[inline]
#[must_use]
pub const fn find_nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == i32::MIN {
        return 0;
    }
    if base > 31 {
        return u32::MAX;
    }
    let (mut left, mut count) = match offset {
        0 => (mask & 1 << base, 1),
        1.. => (mask & u32::MAX << base, offset as u32),
        _ => ((mask & u32::MAX >> (31 - base)).reverse_bits(), offset.unsigned_abs()),
    };
    if count > left.count_ones() {
        return u32::MAX;
    }
    while count > 1 {
        left &= left - 1;
        count -= 1;
    }
    if offset < 0 { 31 - left.trailing_zeros() } else { left.trailing_zeros() }
}

/// `szext.u32`: the lower `width` bits. `wrap` takes the width modulo 32; else 32 and more keep all.
#[inline]
#[must_use]
pub const fn zero_extend(value: u32, width: u32, wrap: bool) -> u32 {
    let width = if wrap { width & 31 } else { width };
    if width > 31 { value } else { value & ((1 << width) - 1) }
}

/// `szext.s32`: the lower `width` bits, filled with their sign. See [`zero_extend`].
#[inline]
#[must_use]
pub const fn sign_extend(value: i32, width: u32, wrap: bool) -> i32 {
    let width = if wrap { width & 31 } else { width };
    match width {
        0 => 0,
        1..=31 => value << (32 - width) >> (32 - width),
        _ => value,
    }
}

/// `bmsk.b32`: a mask of `width` bits from `position` on. `wrap` takes both modulo 32.
#[inline]
#[must_use]
pub const fn mask(position: u32, width: u32, wrap: bool) -> u32 {
    let (low_position, low_width) = (position & 31, width & 31);
    let beyond = low_position + low_width > 31 || !wrap && (position > 31 || width > 31);
    let from = if !wrap && position > 31 { 0 } else { u32::MAX << low_position };
    let end = if beyond { 0 } else { u32::MAX << (low_position + low_width) };
    from & !end
}

/// The amount of a funnel shift.
const fn funnel_amount(amount: u32, wrap: bool) -> u32 {
    if wrap {
        amount & 31
    } else if amount > 32 {
        32
    } else {
        amount
    }
}

/// `shf.l`: the upper half of a pair of words shifted left. `wrap` takes the amount modulo 32; else
/// 32 and more count as 32.
#[inline]
#[must_use]
pub const fn funnel_left(low: u32, high: u32, amount: u32, wrap: bool) -> u32 {
    let pair = (high as u64) << 32 | low as u64;
    ((pair << funnel_amount(amount, wrap)) >> 32) as u32
}

/// `shf.r`: the lower half of a pair of words shifted right. See [`funnel_left`].
#[inline]
#[must_use]
pub const fn funnel_right(low: u32, high: u32, amount: u32, wrap: bool) -> u32 {
    let pair = (high as u64) << 32 | low as u64;
    (pair >> funnel_amount(amount, wrap)) as u32
}

/// The rows of the table of a `lop3` as masks. The numbers of rows have the bits of the inputs.
#[inline]
#[must_use]
pub(crate) const fn rows_of(table: u8) -> [u32; 8] {
    let mut rows = [0; 8];
    let mut row = 0;
    while row < 8 {
        rows[row] = if table >> row & 1 != 0 { u32::MAX } else { 0 };
        row += 1;
    }
    rows
}

/// `lop3.b32`: for each bit, the row that the three bits choose.
#[inline(always)]
#[must_use]
pub(crate) const fn logic_by_rows(a: u32, b: u32, c: u32, rows: [u32; 8]) -> u32 {
    let below = either(b, either(c, rows[3], rows[2]), either(c, rows[1], rows[0]));
    let above = either(b, either(c, rows[7], rows[6]), either(c, rows[5], rows[4]));
    either(a, above, below)
}

/// The bits of one word where those of the first are set, and of another where not.
#[inline(always)]
const fn either(which: u32, set: u32, clear: u32) -> u32 {
    clear ^ which & (set ^ clear)
}

/// `lop3.b32`: for each bit, the bit of `table` that the three bits choose.
#[inline]
#[must_use]
pub const fn logic(a: u32, b: u32, c: u32, table: u8) -> u32 {
    logic_by_rows(a, b, c, rows_of(table))
}

/// How `prmt` chooses bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permutation {
    /// No mode: each byte by its own four bits of the selector.
    Bytes,
    /// `.f4e`: four bytes forward.
    Forward4,
    /// `.b4e`: four bytes backward.
    Backward4,
    /// `.rc8`: one byte in all places.
    Replicate8,
    /// `.ecl`: the edge clamps on the left.
    ClampLeft,
    /// `.ecr`: the edge clamps on the right.
    ClampRight,
    /// `.rc16`: one half in both places.
    Replicate16,
}

/// `prmt.b32`: four bytes of the pair `a` (bytes 0 to 3) and `b` (bytes 4 to 7).
#[inline]
#[must_use]
pub const fn permute(a: u32, b: u32, selector: u32, mode: Permutation) -> u32 {
    let chosen = match (mode, selector & 3) {
        (Permutation::Bytes, _) => return permute_bytes(a, b, selector),
        (Permutation::Forward4, 0) => 0x3210,
        (Permutation::Forward4, 1) => 0x4321,
        (Permutation::Forward4, 2) => 0x5432,
        (Permutation::Forward4, _) => 0x6543,
        (Permutation::Backward4, 0) => 0x5670,
        (Permutation::Backward4, 1) => 0x6701,
        (Permutation::Backward4, 2) => 0x7012,
        (Permutation::Backward4, _) => 0x0123,
        (Permutation::Replicate8, byte) => byte * 0x1111,
        (Permutation::ClampLeft, 0) => 0x3210,
        (Permutation::ClampLeft, 1) => 0x3211,
        (Permutation::ClampLeft, 2) => 0x3222,
        (Permutation::ClampLeft, _) => 0x3333,
        (Permutation::ClampRight, 0) => 0x0000,
        (Permutation::ClampRight, 1) => 0x1110,
        (Permutation::ClampRight, 2) => 0x2210,
        (Permutation::ClampRight, _) => 0x3210,
        (Permutation::Replicate16, 0 | 2) => 0x1010,
        (Permutation::Replicate16, _) => 0x3232,
    };
    permute_bytes(a, b, chosen)
}

/// `prmt.b32` without a mode. The fourth bit of a byte's selector asks for its sign in all bits.
#[inline]
#[must_use]
pub const fn permute_bytes(a: u32, b: u32, selector: u32) -> u32 {
    let pair = (b as u64) << 32 | a as u64;
    let mut result = 0;
    let mut place = 0;
    while place < 32 {
        // A byte's four bits are at half the place of the byte.
        let choice = selector >> (place / 2);
        let byte = (pair >> ((choice & 7) * 8)) as u8;
        let sign = ((byte as i8) >> 7) as u8;
        let byte = if choice & 8 != 0 { sign } else { byte };
        result |= (byte as u32) << place;
        place += 8;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_runs_out_has_the_sign_of_the_number() {
        assert_eq!(extract_32_signed(i32::MIN, 30, 8), -2);
        assert_eq!(extract_32_signed(i32::MIN, 200, 1), -1);
        assert_eq!(extract_32(0x8000_0000, 31, 8), 1);
        assert_eq!(extract_32(u32::MAX, 40, 8), 0);
        assert_eq!(extract_64_signed(0xf0, 4, 4), -1);
    }

    #[test]
    fn a_field_of_no_bits_changes_nothing() {
        assert_eq!(insert_32(u32::MAX, 5, 3, 0), 5);
        assert_eq!(insert_32(u32::MAX, 5, 32, 4), 5);
        assert_eq!(insert_32(u32::MAX, 0, 28, 200), 0xf000_0000);
        assert_eq!(insert_64(u64::MAX, 0, 60, 8), 0xf << 60);
    }

    #[test]
    fn the_nth_set_bit_is_counted_from_the_base_both_ways() {
        assert_eq!(find_nth_set(0b1011_0000, 5, 1), 5);
        assert_eq!(find_nth_set(0b1011_0000, 5, 2), 7);
        assert_eq!(find_nth_set(0b1011_0000, 5, -2), 4);
        assert_eq!(find_nth_set(0b1011_0000, 6, 0), u32::MAX);
        assert_eq!(find_nth_set(0b1011_0000, 5, i32::MIN), 0);
        assert_eq!(find_nth_set(u32::MAX, 32, 1), u32::MAX);
    }

    #[test]
    fn a_table_of_logic_has_its_inputs_as_its_rows() {
        let (a, b, c) = (0xf0f0_1234, 0xcccc_5678, 0xaaaa_9abc);
        for table in 0..=255_u8 {
            let bit = |i: u32| {
                let row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1;
                u32::from(table) >> row & 1
            };
            let expected = (0..32).fold(0, |all, i| all | bit(i) << i);
            assert_eq!(logic(a, b, c, table), expected, "table {table:#x}");
        }
    }

    #[test]
    fn a_permutation_takes_bytes_or_their_signs() {
        assert_eq!(permute_bytes(0x3322_1180, 0x7766_5544, 0x7610), 0x7766_1180);
        assert_eq!(permute_bytes(0x3322_1180, 0x7766_5544, 0x0898), 0x80ff_00ff);
        let mode = |mode, selector| permute(0x3322_1100, 0x7766_5544, selector, mode);
        assert_eq!(mode(Permutation::Forward4, 1), 0x4433_2211);
        assert_eq!(mode(Permutation::Backward4, 1), 0x6677_0011);
        assert_eq!(mode(Permutation::Replicate16, 3), 0x3322_3322);
    }
}
