//! The footprint of many byte ranges: each byte once, whole pages by a policy, neighbours joined.

use std::collections::BTreeMap;
use std::ops::Range;

use pagewise::refuse::invalid;
use pagewise::{DevicePtr, PAGE_BYTES, Result, Rounding, Span};

/// The footprint of a set of byte ranges.
///
/// Ranges that overlap count once. Then the [`Rounding`] says which pages take part, and `coalesce`
/// whether neighbours become one range: those that touch or, rounded outward, share a page or have
/// adjacent ones. All ranges must be of one allocation: no range of a driver call may leave it.
///
/// ```
/// use pagewise_managers::mempool::RangeFootprint;
/// use pagewise::{DevicePtr, Rounding, Span};
///
/// let range = |start, bytes| Span::new(DevicePtr(start), bytes);
/// let views = [range(4096, 1000), range(4096, 500), range(4600, 1000), range(6000, 3000)];
/// let outward = RangeFootprint::of(&views, Rounding::Outward, true)?;
/// assert_eq!((outward.requested_bytes, outward.unique_bytes), (5500, 4504));
/// assert_eq!((outward.page_bytes, &outward.ranges[..]), (8192, &[range(4096, 4904)][..]));
/// let inward = RangeFootprint::of(&views, Rounding::Inward, true)?;
/// assert_eq!((inward.page_bytes, inward.ranges.len()), (0, 0), "no whole page");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RangeFootprint {
    /// Bytes of all ranges, those that overlap counted each time.
    pub requested_bytes: u64,
    /// Bytes that lie in any range.
    pub unique_bytes: u64,
    /// Bytes of the pages that take part.
    pub page_bytes: u64,
    /// The ranges for the driver, by address.
    pub ranges: Vec<Span>,
}

impl RangeFootprint {
    /// Works it out. Ranges of 0 bytes count for nothing.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for a range that passes the end of the address space, or, with
    /// [`Rounding::Exact`], ranges that are not whole pages when taken together.
    ///
    /// ```
    /// use pagewise_managers::mempool::RangeFootprint;
    /// use pagewise::{DevicePtr, Rounding, Span};
    ///
    /// let halves = [Span::new(DevicePtr(4096), 2048), Span::new(DevicePtr(6144), 2048)];
    /// assert!(RangeFootprint::of(&halves, Rounding::Exact, true).is_ok());
    /// assert!(RangeFootprint::of(&halves, Rounding::Exact, false).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn of(spans: &[Span], rounding: Rounding, coalesce: bool) -> Result<Self> {
        const OPERATION: &str = "footprint";
        let mut requested_bytes = 0_u64;
        let mut bytes: Vec<Range<u64>> = Vec::with_capacity(spans.len());
        for &span in spans.iter().filter(|span| span.bytes > 0) {
            let end = span.end().ok_or_else(|| {
                invalid(OPERATION, "the range passes the end of the address space").with_span(span)
            })?;
            requested_bytes = requested_bytes.saturating_add(span.bytes);
            bytes.push(span.ptr.0..end);
        }
        let unique_bytes = joined(bytes.clone(), |end, next| next <= end).iter().map(size).sum();
        let united = joined(bytes, |end, next| next < end || coalesce && next == end);
        let ranges = rounded(OPERATION, united, rounding, coalesce)?;
        let page_bytes = page_bytes(&ranges);
        Ok(Self { requested_bytes, unique_bytes, page_bytes, ranges })
    }
}

/// Bytes of the pages that the ranges touch, each once.
pub(super) fn page_bytes(ranges: &[Span]) -> u64 {
    let pages = ranges.iter().map(|span| span.pages_outward()).collect();
    joined(pages, |end, next| next <= end).iter().map(size).sum::<u64>() * PAGE_BYTES
}

fn size(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Ranges by start, those that `joins` (end of the one before, start of the next) made one.
fn joined(mut ranges: Vec<Range<u64>>, joins: impl Fn(u64, u64) -> bool) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if joins(last.end, range.start) => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

fn rounded(
    operation: &'static str,
    ranges: Vec<Range<u64>>,
    rounding: Rounding,
    coalesce: bool,
) -> Result<Vec<Span>> {
    let span_of = |range: Range<u64>| Span::new(DevicePtr(range.start), range.end - range.start);
    match rounding {
        // The driver rounds outward itself. Ranges are joined across the rest of a shared page or
        // where their pages are adjacent, and stay within the bytes that were asked for: pages at
        // the end of an allocation may be another's.
        Rounding::Outward if coalesce => {
            let adjacent = |end: u64, next: u64| next / PAGE_BYTES <= end.div_ceil(PAGE_BYTES);
            Ok(joined(ranges, adjacent).into_iter().map(span_of).collect())
        }
        _ => {
            let parts = ranges.into_iter().map(|range| rounding.apply(operation, span_of(range)));
            let mut parts: Vec<Span> = parts.collect::<Result<_>>()?;
            parts.retain(|span| span.bytes > 0);
            Ok(parts)
        }
    }
}

/// The footprint of ranges of several allocations, by the start of each: ranges of one are never
/// joined with those of another, but a page that two share counts once.
pub(super) fn of_allocations(
    spans: &BTreeMap<u64, Vec<Span>>,
    rounding: Rounding,
    coalesce: bool,
) -> Result<RangeFootprint> {
    let mut all = RangeFootprint::default();
    for spans in spans.values() {
        let one = RangeFootprint::of(spans, rounding, coalesce)?;
        all.requested_bytes = all.requested_bytes.saturating_add(one.requested_bytes);
        all.unique_bytes += one.unique_bytes;
        all.ranges.extend(one.ranges);
    }
    all.page_bytes = page_bytes(&all.ranges);
    Ok(all)
}
