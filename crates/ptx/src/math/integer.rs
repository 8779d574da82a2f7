//! Integer arithmetic of one width: products, quotients, sums with carry.

/// An integer type of PTX's arithmetic.
///
/// Sums, differences and low products wrap, as the methods of Rust's integers with that name do; they
/// are not repeated here.
pub trait Integer: Copy + Ord {
    /// The type with twice the bits: results of `mul.wide` and `mad.wide`.
    type Wide;

    /// `mul.hi`: the upper half of the product.
    #[must_use]
    fn multiply_high(self, other: Self) -> Self;

    /// `mul.wide`: the whole product.
    #[must_use]
    fn multiply_wide(self, other: Self) -> Self::Wide;

    /// `div`. The quotient by zero has all bits set, as hardware gives it; the least signed number
    /// divided by -1 is itself.
    #[must_use]
    fn divide(self, other: Self) -> Self;

    /// `rem`. See [`remainder_by_zero`](Self::remainder_by_zero) for a divisor of zero.
    #[must_use]
    fn remainder(self, other: Self) -> Self;

    /// The remainder of a division by zero, as hardware gives it.
    #[must_use]
    fn remainder_by_zero(self) -> Self;

    /// `sad`: the absolute difference, added to `sum`. It wraps.
    #[must_use]
    fn sum_of_absolute_difference(self, other: Self, sum: Self) -> Self;

    /// `abs`. The least signed number is its own absolute value.
    #[must_use]
    fn absolute(self) -> Self;

    /// `neg`, which wraps.
    #[must_use]
    fn negate(self) -> Self;

    /// `shl`. All bits are gone if the amount is the width or more.
    #[must_use]
    fn shift_left(self, amount: u32) -> Self;

    /// `shr`. Only the sign, or zero, is left if the amount is the width or more.
    #[must_use]
    fn shift_right(self, amount: u32) -> Self;

    /// `min.relu` and `max.relu`: negative numbers become zero.
    #[must_use]
    fn relu(self) -> Self;
}

macro_rules! integer {
    ($type:ident, $wide:ident, $absolute:expr) => {
        impl Integer for $type {
            type Wide = $wide;

            #[inline]
            fn multiply_high(self, other: Self) -> Self {
                (self.multiply_wide(other) >> $type::BITS) as $type
            }

            #[inline]
            fn multiply_wide(self, other: Self) -> $wide {
                $wide::from(self) * $wide::from(other)
            }

            #[inline]
            fn divide(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }

            #[inline]
            fn remainder(self, other: Self) -> Self {
                if other == 0 { self.remainder_by_zero() } else { self.wrapping_rem(other) }
            }

            #[inline]
            fn remainder_by_zero(self) -> Self {
                !0
            }

            #[inline]
            fn sum_of_absolute_difference(self, other: Self, sum: Self) -> Self {
                let (least, most) = if self < other { (self, other) } else { (other, self) };
                sum.wrapping_add(most.wrapping_sub(least))
            }

            #[inline]
            fn absolute(self) -> Self {
                ($absolute)(self)
            }

            #[inline]
            fn negate(self) -> Self {
                self.wrapping_neg()
            }

            #[inline]
            fn shift_left(self, amount: u32) -> Self {
                if amount < $type::BITS { self << amount } else { 0 }
            }

            #[inline]
            fn shift_right(self, amount: u32) -> Self {
                let last = self >> ($type::BITS - 1);
                // The last bit of an unsigned number is no sign.
                let beyond = if $type::MIN == 0 { 0 } else { last };
                if amount < $type::BITS { self >> amount } else { beyond }
            }

            #[inline]
            fn relu(self) -> Self {
                self.max(0)
            }
        }
    };
}

integer!(u16, u32, |value| value);
integer!(u32, u64, |value| value);
integer!(u64, u128, |value| value);
integer!(i16, i32, i16::wrapping_abs);
integer!(i32, i64, i32::wrapping_abs);
integer!(i64, i128, i64::wrapping_abs);

/// `add.cc`, `addc`, 32 bits: the sum with a carry, and the carry out of it.
#[inline]
#[must_use]
pub const fn add_carry_32(a: u32, b: u32, carry: bool) -> (u32, bool) {
    let sum = a as u64 + b as u64 + carry as u64;
    (sum as u32, sum >> 32 != 0)
}

/// `add.cc`, `addc`, 64 bits: the sum with a carry, and the carry out of it.
#[inline]
#[must_use]
pub const fn add_carry_64(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (sum, first) = a.overflowing_add(b);
    let (sum, second) = sum.overflowing_add(carry as u64);
    (sum, first || second)
}

/// `sub.cc`, `subc`, 32 bits: the difference less a borrow, and the borrow out of it.
#[inline]
#[must_use]
pub const fn subtract_borrow_32(a: u32, b: u32, borrow: bool) -> (u32, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(borrow as u32);
    (difference, first || second)
}

/// `sub.cc`, `subc`, 64 bits: the difference less a borrow, and the borrow out of it.
#[inline]
#[must_use]
pub const fn subtract_borrow_64(a: u64, b: u64, borrow: bool) -> (u64, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(borrow as u64);
    (difference, first || second)
}

/// `mad.hi.sat.s32`: the upper half of the product, plus a number, clamped.
#[inline]
#[must_use]
pub fn multiply_high_add_saturating(a: i32, b: i32, c: i32) -> i32 {
    a.multiply_high(b).saturating_add(c)
}

/// The lower 24 bits as an unsigned number.
const fn low_24(value: u32) -> u64 {
    (value & 0xff_ffff) as u64
}

/// The lower 24 bits as a signed number.
const fn signed_24(value: i32) -> i64 {
    ((value << 8) >> 8) as i64
}

/// `mul24.lo.u32`: the lower 32 bits of the product of the lower 24 bits.
#[inline]
#[must_use]
pub const fn multiply_24_low(a: u32, b: u32) -> u32 {
    (low_24(a) * low_24(b)) as u32
}

/// `mul24.hi.u32`: bits 16 to 47 of the product of the lower 24 bits.
#[inline]
#[must_use]
pub const fn multiply_24_high(a: u32, b: u32) -> u32 {
    ((low_24(a) * low_24(b)) >> 16) as u32
}

/// `mul24.lo.s32`: the lower 32 bits of the product of the lower 24 bits.
#[inline]
#[must_use]
pub const fn multiply_24_low_signed(a: i32, b: i32) -> i32 {
    (signed_24(a) * signed_24(b)) as i32
}

/// `mul24.hi.s32`: bits 16 to 47 of the product of the lower 24 bits.
#[inline]
#[must_use]
pub const fn multiply_24_high_signed(a: i32, b: i32) -> i32 {
    ((signed_24(a) * signed_24(b)) >> 16) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_by_the_width_or_more_leaves_the_sign_or_nothing() {
        for amount in [32, 33, 64, u32::MAX] {
            assert_eq!(u32::MAX.shift_left(amount), 0);
            assert_eq!(u32::MAX.shift_right(amount), 0);
            assert_eq!((-5_i32).shift_right(amount), -1);
            assert_eq!(5_i32.shift_right(amount), 0);
        }
        assert_eq!((-8_i64).shift_right(63), -1);
    }

    #[test]
    fn a_carry_runs_through_a_sum_of_all_ones() {
        assert_eq!(add_carry_32(u32::MAX, 0, true), (0, true));
        assert_eq!(add_carry_64(u64::MAX, u64::MAX, true), (u64::MAX, true));
        assert_eq!(subtract_borrow_32(0, u32::MAX, true), (0, true));
        assert_eq!(subtract_borrow_64(0, 0, true), (u64::MAX, true));
    }

    #[test]
    fn the_difference_of_the_farthest_numbers_wraps() {
        assert_eq!(i32::MIN.sum_of_absolute_difference(i32::MAX, 0), -1);
        assert_eq!(i32::MAX.sum_of_absolute_difference(i32::MIN, 2), 1);
    }
}
