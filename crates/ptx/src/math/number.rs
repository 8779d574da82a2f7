//! Exact numbers: what an operation gives before it is rounded, and the rounding into any format.
//!
//! The common cases, to the nearest and of the machine's own formats, have fast forms in other
//! files. Directed roundings and narrow formats come here.

use super::Rounding;

/// A binary format of floats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    /// Bits of the fraction.
    fraction: u32,
    /// Bits of the exponent.
    exponent: u32,
    /// The NaN that operations give.
    nan: u64,
    /// Whether there are infinities. If not, only the pattern of all ones is no number.
    infinities: bool,
}

/// `.f16`
pub(super) const F16: Format = Format { fraction: 10, exponent: 5, nan: 0x7fff, infinities: true };
/// `.bf16`
pub(super) const BF16: Format = Format { fraction: 7, exponent: 8, nan: 0x7fff, infinities: true };
/// `.tf32`, without the 13 low bits of its register.
pub(super) const TF32: Format =
    Format { fraction: 10, exponent: 8, nan: 0x3ffff, infinities: true };
/// `.f32`
pub(super) const F32: Format =
    Format { fraction: 23, exponent: 8, nan: 0x7fff_ffff, infinities: true };
/// `.f64`
pub(super) const F64: Format =
    Format { fraction: 52, exponent: 11, nan: 0xfff8_0000_0000_0000, infinities: true };
/// `.e4m3`
pub(super) const E4M3: Format = Format { fraction: 3, exponent: 4, nan: 0x7f, infinities: false };
/// `.e5m2`
pub(super) const E5M2: Format = Format { fraction: 2, exponent: 5, nan: 0x7f, infinities: true };

impl Format {
    /// Bits of the fraction.
    pub(super) const fn places(self) -> i32 {
        self.fraction as i32
    }

    /// One less than the exponent of the least normal number.
    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The bits of infinity, or of the first pattern beyond the finite numbers.
    const fn beyond(self) -> u64 {
        let all = ((1 << self.exponent) - 1) << self.fraction;
        if self.infinities { all } else { all | ((1 << self.fraction) - 1) }
    }

    /// The value of a pattern of bits.
    pub(super) const fn decode(self, bits: u64) -> Value {
        let negative = bits >> (self.fraction + self.exponent) & 1 != 0;
        let magnitude = bits & ((1 << (self.fraction + self.exponent)) - 1);
        if magnitude >= self.beyond() {
            let infinite = self.infinities && magnitude == self.beyond();
            return if infinite { Value::Infinite { negative } } else { Value::Nan };
        }
        let (field, fraction) =
            (magnitude >> self.fraction, magnitude & ((1 << self.fraction) - 1));
        let hidden = if field == 0 { 0 } else { 1 << self.fraction };
        let place = if field == 0 { 1 } else { field as i32 };
        Value::Finite(Number {
            negative,
            exponent: place - self.bias() - self.fraction as i32,
            magnitude: (fraction | hidden) as u128,
        })
    }

    /// The bits of a value, rounded. `finite` makes the largest number of what is beyond it.
    pub(super) fn encode(self, value: Value, rounding: Rounding, finite: bool) -> u64 {
        let sign = |negative: bool| u64::from(negative) << (self.fraction + self.exponent);
        let largest = self.beyond() - 1;
        match value {
            Value::Nan => self.nan,
            Value::Infinite { negative } => {
                let none = finite || !self.infinities;
                sign(negative) | if none { largest } else { self.beyond() }
            }
            Value::Finite(number) => {
                let bits = self.round(number, rounding);
                let away = match rounding {
                    Rounding::Nearest | Rounding::NearestAway => true,
                    Rounding::Zero => false,
                    Rounding::Down => number.negative,
                    Rounding::Up => !number.negative,
                };
                let bits = if bits < self.beyond() {
                    bits
                } else if finite || !away {
                    largest
                } else {
                    self.beyond()
                };
                sign(number.negative) | bits
            }
        }
    }

    /// Whether the value is closer to zero than any normal number, rounded to as many bits as those have, with
    /// any exponent. With `.ftz`, hardware makes a zero of it, even if the format's own rounding makes the least
    /// normal number of it.
    #[cfg(test)]
    pub(super) fn is_tiny(self, value: Value, rounding: Rounding) -> bool {
        let Value::Finite(Number { magnitude, exponent, negative }) = value else { return false };
        let top = exponent + 127 - magnitude.leading_zeros() as i32;
        let least = 1 - self.bias();
        if top != least - 1 {
            return top < least;
        }
        // It may be rounded up to the least normal number.
        let shift = top - self.fraction as i32 - exponent;
        let beyond = 2 << self.fraction;
        shift <= 0 || round_shift(magnitude, shift as u32, rounding, negative) < beyond
    }

    /// The bits of a magnitude, which may be beyond the finite ones.
    fn round(self, number: Number, rounding: Rounding) -> u64 {
        if number.magnitude == 0 {
            return 0;
        }
        let least = 1 - self.bias();
        let top = number.exponent + 127 - number.magnitude.leading_zeros() as i32;
        let place = top.max(least);
        if place > self.bias() + 1 {
            return self.beyond();
        }
        let shift = place - self.fraction as i32 - number.exponent;
        let kept = if shift <= 0 {
            (number.magnitude << -shift) as u64
        } else {
            round_shift(number.magnitude, shift as u32, rounding, number.negative)
        };
        (((place - least) as u64) << self.fraction) + kept
    }
}

/// A magnitude shifted right and rounded.
fn round_shift(magnitude: u128, shift: u32, rounding: Rounding, negative: bool) -> u64 {
    let (kept, rest, half) = match shift {
        ..=127 => (magnitude >> shift, magnitude & ((1 << shift) - 1), 1_u128 << (shift - 1)),
        // All of it is less than a half.
        _ => (0, u128::from(magnitude != 0), 2),
    };
    let up = match rounding {
        Rounding::Nearest => rest > half || rest == half && kept & 1 != 0,
        Rounding::NearestAway => rest >= half,
        Rounding::Zero => false,
        Rounding::Down => negative && rest != 0,
        Rounding::Up => !negative && rest != 0,
    };
    kept as u64 + u64::from(up)
}

/// A value of any format.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    /// No number.
    Nan,
    /// An infinity.
    Infinite {
        /// Whether it is below zero.
        negative: bool,
    },
    /// A number, or a zero with its sign.
    Finite(Number),
}

/// A magnitude times a power of two. The lowest bit also stands for anything that lies below it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    /// The sign, of a zero too.
    pub(super) negative: bool,
    /// The power of two.
    pub(super) exponent: i32,
    /// The magnitude.
    pub(super) magnitude: u128,
}

impl Number {
    const fn zero(negative: bool) -> Self {
        Self { negative, exponent: 0, magnitude: 0 }
    }

    /// The same number with its highest bit at a place from 0 to 127. Nothing is lost upwards.
    const fn normal(self, place: u32) -> Self {
        let now = 127 - self.magnitude.leading_zeros();
        Self {
            exponent: self.exponent + now as i32 - place as i32,
            magnitude: if now < place {
                self.magnitude << (place - now)
            } else {
                jam(self.magnitude, now - place)
            },
            ..self
        }
    }
}

/// Shifts right; the lowest bit is set if a bit was lost.
const fn jam(magnitude: u128, shift: u32) -> u128 {
    if shift > 127 {
        return (magnitude != 0) as u128;
    }
    let kept = magnitude >> shift;
    kept | ((kept << shift) != magnitude) as u128
}

impl Value {
    /// Whether it is below zero, or a zero with that sign.
    const fn negative(self) -> bool {
        match self {
            Self::Nan => false,
            Self::Infinite { negative } => negative,
            Self::Finite(number) => number.negative,
        }
    }

    /// An integer.
    pub(super) const fn integer(negative: bool, magnitude: u64) -> Self {
        Self::Finite(Number { negative, exponent: 0, magnitude: magnitude as u128 })
    }

    /// The sum. The rounding decides the sign of a sum of opposite numbers.
    pub(super) fn add(self, other: Self, rounding: Rounding) -> Self {
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Infinite { negative: a }, Self::Infinite { negative: b }) if a != b => Self::Nan,
            (Self::Infinite { .. }, _) => self,
            (_, Self::Infinite { .. }) => other,
            (Self::Finite(a), Self::Finite(b)) => Self::Finite(sum(a, b, rounding)),
        }
    }

    /// The product.
    pub(super) fn multiply(self, other: Self) -> Self {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Finite(a), Self::Finite(b)) => Self::Finite(Number {
                negative,
                exponent: a.exponent + b.exponent,
                magnitude: a.magnitude * b.magnitude,
            }),
            (Self::Finite(zero), Self::Infinite { .. })
            | (Self::Infinite { .. }, Self::Finite(zero))
                if zero.magnitude == 0 =>
            {
                Self::Nan
            }
            _ => Self::Infinite { negative },
        }
    }

    /// The quotient, exact but for the lowest of at least 64 bits.
    pub(super) fn divide(self, other: Self) -> Self {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Infinite { .. }, Self::Infinite { .. }) => Self::Nan,
            (Self::Infinite { .. }, _) => Self::Infinite { negative },
            (_, Self::Infinite { .. }) => Self::Finite(Number::zero(negative)),
            (Self::Finite(a), Self::Finite(b)) => match (a.magnitude, b.magnitude) {
                (0, 0) => Self::Nan,
                (0, _) => Self::Finite(Number::zero(negative)),
                (_, 0) => Self::Infinite { negative },
                _ => {
                    let (a, b) = (a.normal(127), b.normal(63));
                    let quotient = a.magnitude / b.magnitude;
                    let rest = a.magnitude % b.magnitude != 0;
                    Self::Finite(Number {
                        negative,
                        exponent: a.exponent - b.exponent,
                        magnitude: quotient | u128::from(rest),
                    })
                }
            },
        }
    }

    /// The square root, exact but for the lowest of at least 63 bits.
    pub(super) fn square_root(self) -> Self {
        match self {
            Self::Finite(number) if number.magnitude == 0 => self,
            Self::Nan | Self::Infinite { negative: true } => Self::Nan,
            Self::Infinite { negative: false } => self,
            Self::Finite(number) if number.negative => Self::Nan,
            Self::Finite(number) => {
                let high = number.normal(126);
                let even = if high.exponent & 1 == 0 { high } else { number.normal(125) };
                let root = even.magnitude.isqrt();
                let rest = root * root != even.magnitude;
                Self::Finite(Number {
                    negative: false,
                    // A bit below the root stands for its rest.
                    exponent: even.exponent / 2 - 1,
                    magnitude: root << 1 | u128::from(rest),
                })
            }
        }
    }
}

/// The sum of two numbers, exact but for the lowest of at least 125 bits.
fn sum(a: Number, b: Number, rounding: Rounding) -> Number {
    if a.magnitude == 0 && b.magnitude == 0 {
        let negative =
            if a.negative == b.negative { a.negative } else { rounding == Rounding::Down };
        return Number::zero(negative);
    }
    if a.magnitude == 0 {
        return b;
    }
    if b.magnitude == 0 {
        return a;
    }
    let (a, b) = (a.normal(125), b.normal(125));
    let (high, low) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let low_magnitude = jam(low.magnitude, high.exponent.abs_diff(low.exponent));
    let (negative, magnitude) = if high.negative == low.negative {
        (high.negative, high.magnitude + low_magnitude)
    } else if high.magnitude >= low_magnitude {
        (high.negative, high.magnitude - low_magnitude)
    } else {
        (low.negative, low_magnitude - high.magnitude)
    };
    if magnitude == 0 {
        return Number::zero(rounding == Rounding::Down);
    }
    Number { negative, exponent: high.exponent, magnitude }
}
