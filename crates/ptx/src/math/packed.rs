//! Arithmetic on the parts of a 32-bit register: pairs of halves, dot products of bytes.

use super::integer::Integer;

/// Applies a function to both halves of two registers.
#[inline]
fn pairs(a: u32, b: u32, each: impl Fn(u16, u16) -> u16) -> u32 {
    let low = each(a as u16, b as u16);
    let high = each((a >> 16) as u16, (b >> 16) as u16);
    u32::from(high) << 16 | u32::from(low)
}

/// `add.u16x2`, `add.s16x2`: both sums, each of which wraps.
#[inline]
#[must_use]
pub fn add_16x2(a: u32, b: u32) -> u32 {
    pairs(a, b, u16::wrapping_add)
}

/// `min.u16x2`.
#[inline]
#[must_use]
pub fn min_u16x2(a: u32, b: u32) -> u32 {
    pairs(a, b, u16::min)
}

/// `max.u16x2`.
#[inline]
#[must_use]
pub fn max_u16x2(a: u32, b: u32) -> u32 {
    pairs(a, b, u16::max)
}

/// `min.s16x2`, `min.relu.s16x2`.
#[inline]
#[must_use]
pub fn min_s16x2<const RELU: bool>(a: u32, b: u32) -> u32 {
    pairs(a, b, |a, b| {
        let least = (a as i16).min(b as i16);
        (if RELU { least.relu() } else { least }) as u16
    })
}

/// `max.s16x2`, `max.relu.s16x2`.
#[inline]
#[must_use]
pub fn max_s16x2<const RELU: bool>(a: u32, b: u32) -> u32 {
    pairs(a, b, |a, b| {
        let most = (a as i16).max(b as i16);
        (if RELU { most.relu() } else { most }) as u16
    })
}

/// A byte of a register as a signed or an unsigned number.
#[inline]
fn byte<const SIGNED: bool>(register: u32, index: u32) -> i32 {
    let byte = (register >> (index * 8)) as u8;
    if SIGNED { i32::from(byte as i8) } else { i32::from(byte) }
}

/// A half of a register as a signed or an unsigned number.
#[inline]
fn half<const SIGNED: bool>(register: u32, index: u32) -> i32 {
    let half = (register >> (index * 16)) as u16;
    if SIGNED { i32::from(half as i16) } else { i32::from(half) }
}

/// `dp4a`: four products of bytes, added to `sum`. It wraps. Each operand's bytes are signed or not.
#[inline]
#[must_use]
pub fn dot_4<const A_SIGNED: bool, const B_SIGNED: bool>(a: u32, b: u32, sum: u32) -> u32 {
    let product = |i| byte::<A_SIGNED>(a, i) * byte::<B_SIGNED>(b, i);
    (0..4).fold(sum, |sum, i| sum.wrapping_add(product(i) as u32))
}

/// `dp2a`: two products of the halves of `a` and the lower (or upper) two bytes of `b`, added to
/// `sum`. It wraps.
#[inline]
#[must_use]
pub fn dot_2<const A_SIGNED: bool, const B_SIGNED: bool>(
    a: u32,
    b: u32,
    sum: u32,
    upper: bool,
) -> u32 {
    let first = if upper { 2 } else { 0 };
    let product = |i| half::<A_SIGNED>(a, i) * byte::<B_SIGNED>(b, first + i);
    (0..2).fold(sum, |sum, i| sum.wrapping_add(product(i) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_product_takes_each_operand_with_its_own_sign() {
        assert_eq!(dot_4::<false, true>(0xff, 0xff, 0), (-255_i32) as u32);
        assert_eq!(dot_4::<true, true>(u32::MAX, u32::MAX, 1), 5);
        assert_eq!(dot_2::<true, false>(0x0001_ffff, 0x0000_0203, 0, false), (-1_i32) as u32);
        assert_eq!(dot_2::<false, false>(0x0001_0002, 0x0304_0000, 0, true), 11);
    }

    #[test]
    fn the_halves_of_a_sum_do_not_carry_into_each_other() {
        assert_eq!(add_16x2(0x0001_ffff, 0x0001_0001), 0x0002_0000);
        assert_eq!(max_s16x2::<true>(0x8000_0001, 0xffff_0002), 0x0000_0002);
        assert_eq!(min_u16x2(0x8000_0001, 0x7fff_0002), 0x7fff_0001);
    }
}
