//! Quadratic polynomials as hardware sums them for its approximate functions.
//!
//! A function has one for each of 64 or 128 segments of its argument. Hardware squares the argument within
//! a segment without the columns of low weight, sums all terms, and cuts the sum to 24 bits.

use super::coefficients::Segment;

/// The square of a number below 1, given as `BITS` bits, in units of 2^-15. Products of two bits
/// below that weight are left out.
///
/// It has no branch, so that a loop over it is vectorised.
#[inline(always)]
pub(super) fn square<const BITS: u32>(value: u32) -> i32 {
    // The products of the upper eight bits with each other are their square: nothing of it is left out but
    // the square of the last bit.
    let (high, low) = (value >> (BITS - 8), value & ((1 << (BITS - 8)) - 1));
    let mut sum = (high * high) >> 1;
    let mut place = 0;
    // The bit at a place from the left has the weight 2^-(place + 1). Its products with the lower bits are
    // doubled, and end at the weight 2^-15.
    while place < 7 {
        let is_set = (value << (32 - BITS + place)).cast_signed() >> 31;
        sum += (low >> (BITS - 15 + place)) & is_set.cast_unsigned();
        place += 1;
    }
    sum.cast_signed()
}

/// A segment of which only the 24 bits of the polynomial are wanted, in words: vectors hold twice as
/// many as of doubles. The constant is cut in two, before its last `BITS` bits that count.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    whole: i32,
    part: i32,
    linear: i32,
    quadratic: i32,
}

/// The segments of a table for arguments with `BITS` bits.
pub(super) const fn cut_table<const BITS: u32, const N: usize>(table: &[Segment; N]) -> [Cut; N] {
    let mut cuts = [Cut { whole: 0, part: 0, linear: 0, quadratic: 0 }; N];
    let mut at = 0;
    while at < N {
        let [constant, linear, quadratic] = table[at];
        // The terms of the argument have no bits below.
        let constant = constant >> (18 - BITS);
        cuts[at] = Cut {
            whole: (constant >> BITS) as i32,
            part: (constant & ((1 << BITS) - 1)) as i32,
            linear: linear as i32,
            quadratic: (quadratic << (BITS - 16)) as i32,
        };
        at += 1;
    }
    cuts
}

/// The polynomial of a segment, cut to 24 bits; `inner` is below 1, of `BITS` bits.
#[inline(always)]
pub(super) fn cut_polynomial<const BITS: u32>(segment: Cut, inner: u32) -> u32 {
    let Cut { whole, part, linear, quadratic } = segment;
    // The argument in two parts, so that each product fits 32 bits.
    let (high, low) = ((inner >> 8).cast_signed(), (inner & 0xff).cast_signed());
    let below = linear * low + quadratic * square::<BITS>(inner) + part;
    let above = linear * high + (below >> 8);
    (whole + (above >> (BITS - 8))).cast_unsigned()
}

/// [`cut_polynomial`] of a table with 64 segments, of an argument with 23 bits.
#[inline(always)]
pub(super) fn cut_of_64(table: &[Cut; 64], argument: u32) -> u32 {
    cut_polynomial::<17>(table[(argument >> 17) as usize & 63], argument & 0x1_ffff)
}

/// 2 to the power of 42: the bits of a polynomial's 1 in doubles.
pub(super) const POINT: f64 = 4_398_046_511_104.0;

/// The segments of a table as doubles, which hold the whole polynomial exactly.
pub(super) const fn whole_table(table: &[Segment; 64]) -> [[f64; 3]; 64] {
    let mut whole = [[0.0; 3]; 64];
    let mut at = 0;
    while at < 64 {
        let [constant, linear, quadratic] = table[at];
        // The factors have the units of their terms.
        whole[at] = [constant as f64, (linear << 1) as f64, (quadratic << 2) as f64];
        at += 1;
    }
    whole
}

/// The polynomial of a table with 64 segments, of an argument with 23 bits: all 42 bits, as a double.
#[inline(always)]
pub(super) fn whole_of_64(table: &[[f64; 3]; 64], argument: u32) -> f64 {
    let [constant, linear, quadratic] = table[(argument >> 17) as usize & 63];
    let inner = argument & 0x1_ffff;
    let square = f64::from(square::<17>(inner));
    constant + linear * f64::from(inner.cast_signed()) + quadratic * square
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The square, product of two bits by product of two bits.
    fn by_bits<const BITS: u32>(value: u32) -> i32 {
        let bit = |place: u32| (value >> (BITS - 1 - place) & 1).cast_signed();
        (0..8)
            .map(|place| {
                let own = if place < 7 { bit(place) << (13 - 2 * place) } else { 0 };
                let right = (place + 1..BITS).filter(|other| place + other <= 14);
                own + right
                    .map(|other| (bit(place) * bit(other)) << (14 - place - other))
                    .sum::<i32>()
            })
            .sum()
    }

    #[test]
    fn a_square_leaves_out_the_products_of_bits_below_its_last_place() {
        assert!((0..1 << 16).all(|value| square::<16>(value) == by_bits::<16>(value)));
        assert!((0..1 << 17).all(|value| square::<17>(value) == by_bits::<17>(value)));
    }
}
