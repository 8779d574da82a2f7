//! Amounts that a claim allows: a number, or a range of numbers.

use std::fmt;
use std::ops::{Bound, RangeBounds};

/// A number, or a range of numbers.
///
/// ```
/// use pagewise::Amount;
/// assert!(Amount::from(6).contains(6) && !Amount::from(6).contains(7));
/// assert!(Amount::from(..=6).contains(0) && Amount::from(2..4).contains(3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Amount {
    min: u64,
    max: u64,
}

impl Amount {
    /// Whether a number is this number, or lies in this range.
    #[must_use]
    pub const fn contains(self, number: u64) -> bool {
        self.min <= number && number <= self.max
    }

    /// An empty range contains nothing.
    fn of(range: impl RangeBounds<u64>) -> Self {
        const NOTHING: Amount = Amount { min: 1, max: 0 };
        let min = match range.start_bound() {
            Bound::Included(&min) => Some(min),
            Bound::Excluded(&before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let max = match range.end_bound() {
            Bound::Included(&max) => Some(max),
            Bound::Excluded(&end) => end.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        min.zip(max).map_or(NOTHING, |(min, max)| Self { min, max })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (min, max) if min == max => write!(f, "{min}"),
            (0, max) => write!(f, "at most {max}"),
            (min, u64::MAX) => write!(f, "at least {min}"),
            (min, max) => write!(f, "{min} to {max}"),
        }
    }
}

impl From<u64> for Amount {
    fn from(number: u64) -> Self {
        Self { min: number, max: number }
    }
}

macro_rules! amount_of_range {
    ($($range:ty),*) => {
        $(impl From<$range> for Amount {
            fn from(range: $range) -> Self {
                Self::of(range)
            }
        })*
    };
}

amount_of_range!(
    std::ops::Range<u64>,
    std::ops::RangeInclusive<u64>,
    std::ops::RangeFrom<u64>,
    std::ops::RangeTo<u64>,
    std::ops::RangeToInclusive<u64>
);
