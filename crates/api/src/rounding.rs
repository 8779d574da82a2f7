//! The rounding of byte ranges to whole pages.

use std::ops::Range;

use pagewise_hal::{DevicePtr, PAGE_BYTES, Result, Span};

use crate::refuse::invalid;

/// The treatment of pages that a range covers in part.
///
/// Advice, prefetch and discard work on pages of 4 KiB. The driver rounds advice and prefetch
/// outward and discard inward. A range does the same, unless
/// [`Region::rounded`](crate::Region::rounded) chooses another treatment.
///
/// ```
/// use pagewise::{ErrorKind, ManagedBuffer, Rounding};
///
/// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 3 * 4096)?;
/// let odd = buffer.range(100..2 * 4096)?;
/// odd.rounded(Rounding::Inward).set_read_mostly(true)?;
/// assert!(!buffer.range(..4096)?.read_mostly()?);
/// assert!(buffer.range(4096..2 * 4096)?.read_mostly()?);
/// let error = odd.rounded(Rounding::Exact).set_read_mostly(true).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidValue);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Rounding {
    /// They take part, and with them other elements on them. Discards that are not whole pages are
    /// refused, because neighbours would lose their contents.
    Outward,
    /// They take no part.
    Inward,
    /// The operation is refused if there are any.
    Exact,
}

const fn is_whole_pages(span: Span) -> bool {
    span.ptr.0.is_multiple_of(PAGE_BYTES) && span.bytes.is_multiple_of(PAGE_BYTES)
}

/// The whole pages of a range, as bytes; empty if there is none.
fn inward(span: Span) -> Span {
    let Range { start, end } = span.pages_inward();
    Span::new(DevicePtr(start * PAGE_BYTES), (end - start) * PAGE_BYTES)
}

impl Rounding {
    /// The bytes of a range that take part under this policy.
    ///
    /// Outward leaves the range as it is, because the driver rounds advice and prefetch outward by
    /// itself. Inward gives the whole pages within it, 0 bytes if there is none.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code), in the operation's name, from `Exact` for a range that is not
    /// whole pages.
    ///
    /// ```
    /// use pagewise::{DevicePtr, Rounding, Span};
    ///
    /// let odd = Span::new(DevicePtr(4096 + 8), 8192);
    /// assert_eq!(Rounding::Outward.apply("move", odd)?, odd);
    /// assert_eq!(Rounding::Inward.apply("move", odd)?, Span::new(DevicePtr(8192), 4096));
    /// assert!(Rounding::Exact.apply("move", odd).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[inline]
    pub fn apply(self, operation: &'static str, span: Span) -> Result<Span> {
        match self {
            Self::Outward => Ok(span),
            Self::Inward => Ok(inward(span)),
            Self::Exact => exact(operation, span),
        }
    }

    /// The range to pass to an operation that rounds outward by itself.
    #[inline]
    pub(crate) fn for_advice(policy: Option<Self>, what: &'static str, span: Span) -> Result<Span> {
        let rounded = policy.unwrap_or(Self::Outward).apply(what, span)?;
        if policy == Some(Self::Inward) && rounded.bytes == 0 {
            let why = "no whole page lies in the range: widen it, or round outward";
            return Err(invalid(what, why).with_span(span));
        }
        Ok(rounded)
    }

    /// The range to pass to a discard; empty if no whole page lies in the range.
    #[inline]
    pub(crate) fn for_discard(
        policy: Option<Self>,
        what: &'static str,
        span: Span,
    ) -> Result<Span> {
        match policy {
            None | Some(Self::Inward) => Self::Inward.apply(what, span),
            Some(Self::Outward | Self::Exact) => Self::Exact.apply(what, span),
        }
    }
}

fn exact(what: &'static str, span: Span) -> Result<Span> {
    if is_whole_pages(span) {
        return Ok(span);
    }
    let why = "the range is not whole pages of 4096 bytes: align it, or round inward";
    Err(invalid(what, why).with_span(span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Inward is within the range, whole, and no page of the range is missing.
        #[test]
        fn inward_is_the_largest_set_of_whole_pages_within(
            start in 1_u64..100_000,
            bytes in 1_u64..100_000,
        ) {
            let span = Span::new(DevicePtr(start), bytes);
            let whole = inward(span);
            prop_assert!(is_whole_pages(whole));
            if whole.bytes == 0 {
                prop_assert!(bytes < 2 * PAGE_BYTES);
            } else {
                prop_assert!(whole.ptr.0 >= start && whole.ptr.0 - start < PAGE_BYTES);
                let (end, whole_end) = (start + bytes, whole.ptr.0 + whole.bytes);
                prop_assert!(whole_end <= end && end - whole_end < PAGE_BYTES);
            }
        }

        /// The three policies agree where there is nothing to round.
        #[test]
        fn whole_pages_are_left_alone(first in 1_u64..1000, pages in 1_u64..1000) {
            let span = Span::new(DevicePtr(first * PAGE_BYTES), pages * PAGE_BYTES);
            for policy in [None, Some(Rounding::Outward), Some(Rounding::Inward), Some(Rounding::Exact)] {
                prop_assert_eq!(Rounding::for_advice(policy, "advise", span), Ok(span));
                prop_assert_eq!(Rounding::for_discard(policy, "discard", span), Ok(span));
            }
        }
    }

    #[test]
    fn a_part_of_a_page_is_refused_where_it_would_be_lost_or_too_much() {
        let span = Span::new(DevicePtr(4096 + 8), 100);
        assert_eq!(Rounding::for_advice(Some(Rounding::Outward), "advise", span), Ok(span));
        assert!(Rounding::for_advice(Some(Rounding::Inward), "advise", span).is_err());
        assert!(Rounding::for_advice(Some(Rounding::Exact), "advise", span).is_err());
        assert!(Rounding::for_discard(Some(Rounding::Outward), "discard", span).is_err());
        assert!(Rounding::for_discard(Some(Rounding::Exact), "discard", span).is_err());
        assert_eq!(Rounding::for_discard(None, "discard", span).map(|span| span.bytes), Ok(0));
    }
}
