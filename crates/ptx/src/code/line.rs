//! Registers that hold a line: a value for the first lane, and a step from each lane to the next.
//!
//! Most registers of most kernels hold sizes, indices and addresses. All lanes then have the same
//! value, or values that follow from one another by one step. An instruction on such registers is an
//! instruction on two numbers. All arithmetic wraps as that of the lanes, so a line is exact.

use super::lanes::WIDTH;

/// Values of 32 lanes: lane `n` has `first + n * step`, which wraps.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Line<T> {
    pub(crate) first: T,
    pub(crate) step: T,
}

/// The step of values that are no line. Coordinates are far less apart.
pub(crate) const NO_STEP: u32 = 1 << 31;

/// A coordinate of the threads of a warp, for compiled code: it may be a line, or one in each half of the
/// warp.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Axis {
    pub(crate) first: u32,
    /// The value of the first lane of the upper half.
    pub(crate) second: u32,
    /// The step if it is a line, else [`NO_STEP`].
    pub(crate) step: u32,
    /// The step if each half is a line with it, else [`NO_STEP`].
    pub(crate) half_step: u32,
    /// The values of all lanes.
    pub(crate) values: [u32; WIDTH],
}

impl Axis {
    pub(crate) fn of(values: &[u32; WIDTH]) -> Self {
        let [first, second] = [0, 1].map(|half| values[half * WIDTH / 2]);
        let step = Line::through(values).map_or(NO_STEP, |line| line.step);
        let half_step = half_step(values).unwrap_or(NO_STEP);
        Self { first, second, step, half_step, values: *values }
    }
}

/// The step of two lines, one in each half of a warp, if there are such lines.
pub(crate) fn half_step<T: Wrapping>(values: &[T; WIDTH]) -> Option<T> {
    let step = values[1].minus(values[0]);
    let (halves, _) = values.as_chunks::<{ WIDTH / 2 }>();
    let mut pairs = halves.iter().flat_map(|half| half.windows(2));
    pairs.all(|pair| pair[1].minus(pair[0]) == step).then_some(step)
}

/// A number of 32 or 64 bits with arithmetic that wraps.
pub(crate) trait Wrapping: Copy + Default + PartialEq {
    fn of(lane: usize) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The value with a factor, if no lane of the line wraps: each has the product of its own value,
    /// widened to 64 bits by the sign of the type.
    fn widened(line: Line<Self>, factor: i64) -> Option<Line<i64>>;
    /// The values of the first lane and the last one, if no lane between them wraps.
    fn ends(line: Line<Self>) -> Option<[Self; 2]>;
}

macro_rules! wrapping {
    ($($type:ty, $signed:ty);*) => {$(
        impl Wrapping for $type {
            #[inline(always)]
            fn of(lane: usize) -> Self {
                lane as $type
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn widened(line: Line<Self>, factor: i64) -> Option<Line<i64>> {
                Self::ends(line)?;
                let first = i64::try_from(line.first).ok()?.wrapping_mul(factor);
                Some(Line { first, step: (line.step as $signed as i64).wrapping_mul(factor) })
            }
            #[inline(always)]
            fn ends(line: Line<Self>) -> Option<[Self; 2]> {
                let rise = (line.step as $signed).checked_mul(WIDTH as $signed - 1)?;
                let last = i128::from(line.first) + i128::from(rise);
                Some([line.first, Self::try_from(last).ok()?])
            }
        }
    )*};
}

wrapping!(u32, i32; i32, i32; u64, i64; i64, i64);

impl<T: Wrapping> Line<T> {
    /// The same value in all lanes.
    #[inline(always)]
    pub(crate) fn same(value: T) -> Self {
        Self { first: value, step: T::default() }
    }

    /// The line of these values, if they are one.
    pub(crate) fn through(values: &[T; WIDTH]) -> Option<Self> {
        let line = Self { first: values[0], step: values[1].minus(values[0]) };
        let follow = values.iter().enumerate().all(|(lane, value)| *value == line.at(lane));
        follow.then_some(line)
    }

    /// The values of all lanes.
    pub(crate) fn values(self) -> [T; WIDTH] {
        let mut values = [T::default(); WIDTH];
        self.fill(&mut values);
        values
    }

    /// The value of all lanes, if it is the same.
    #[inline(always)]
    pub(crate) fn value(self) -> Option<T> {
        (self.step == T::default()).then_some(self.first)
    }

    #[inline(always)]
    pub(crate) fn at(self, lane: usize) -> T {
        self.first.plus(self.step.times(T::of(lane)))
    }

    #[inline(always)]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { first: self.first.plus(other.first), step: self.step.plus(other.step) }
    }

    #[inline(always)]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self { first: self.first.minus(other.first), step: self.step.minus(other.step) }
    }

    /// The products of the lanes, which are a line if all lanes have one of the factors in common.
    #[inline(always)]
    pub(crate) fn times(self, other: Self) -> Option<Self> {
        let (line, factor) = match (self.value(), other.value()) {
            (_, Some(factor)) => (self, factor),
            (Some(factor), None) => (other, factor),
            (None, None) => return None,
        };
        Some(Self { first: line.first.times(factor), step: line.step.times(factor) })
    }

    /// The products of the lanes in twice the bits: 32 become 64.
    #[inline(always)]
    pub(crate) fn times_wide(self, other: Self) -> Option<Line<i64>>
    where
        T: Into<i64>,
    {
        match (self.value(), other.value()) {
            (_, Some(factor)) => T::widened(self, factor.into()),
            (Some(factor), None) => T::widened(other, factor.into()),
            (None, None) => None,
        }
    }

    /// The value of a function that never falls or never rises, if it is the same for all lanes.
    #[inline(always)]
    pub(crate) fn level<R: PartialEq>(self, f: impl Fn(T) -> R) -> Option<R> {
        let [first, last] = T::ends(self)?;
        let value = f(first);
        (value == f(last)).then_some(value)
    }

    /// Writes the values of all lanes.
    #[inline(never)]
    pub(crate) fn fill(self, values: &mut [T; WIDTH]) {
        // Eight at a time, so that they are vectors.
        let mut next = [self.first; 8];
        for (lane, value) in next.iter_mut().enumerate() {
            *value = self.at(lane);
        }
        let further = self.step.times(T::of(8));
        for eight in values.as_chunks_mut::<8>().0 {
            *eight = next;
            for value in &mut next {
                *value = value.plus(further);
            }
        }
    }
}

macro_rules! masked {
    ($($type:ty),*) => {$(
        impl Line<$type> {
            /// The bits that each lane has in common with a mask, if all lanes have the same, or the mask
            /// is one of the lower bits or of the upper ones and no carry passes its end.
            #[inline(always)]
            pub(crate) fn masked(self, mask: Self) -> Option<Self> {
                let mask = mask.value()?;
                if let Some(value) = self.value() {
                    return Some(Self::same(value & mask));
                }
                let is_lower = mask & mask.wrapping_add(1) == 0;
                let lower = if is_lower { mask } else { !mask };
                if lower & lower.wrapping_add(1) != 0 {
                    return None;
                }
                let rest = Self { first: self.first & lower, ..self };
                let [_, last] = Wrapping::ends(rest)?;
                (last <= lower).then(|| if is_lower { rest } else { self.minus(rest) })
            }
        }
    )*};
}

masked!(u32, u64);

impl Line<u64> {
    /// The line of the lower halves.
    #[inline(always)]
    pub(crate) fn low(self) -> Line<u32> {
        Line { first: self.first as u32, step: self.step as u32 }
    }
}

impl Line<i64> {
    /// The line of the same bits.
    #[inline(always)]
    pub(crate) fn unsigned(self) -> Line<u64> {
        Line { first: self.first.cast_unsigned(), step: self.step.cast_unsigned() }
    }
}
