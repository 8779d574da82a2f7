//! The buffers that records are of, and stretches of memory by their names.

use std::fmt;

use pagewise_hal::Span;

use crate::names::{Part, Remembering};
use crate::{ManagedBuffer, Region};

/// Memory with the name that messages use.
///
/// ```
/// use pagewise::{ManagedBuffer, NamedSpan};
///
/// let weights = ManagedBuffer::<u8>::new(pagewise::sim()?, 8192)?.named("weights");
/// assert_eq!(NamedSpan::from(weights.range(4096..)?.region()).name, "weights[4096..8192]");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct NamedSpan {
    /// The bytes, by address.
    pub span: Span,
    /// The name of the buffer, with the bytes of a part; the address of memory without a name.
    pub name: String,
}

impl fmt::Display for NamedSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl From<Span> for NamedSpan {
    fn from(span: Span) -> Self {
        Self { span, name: span.to_string() }
    }
}

impl From<Region<'_>> for NamedSpan {
    fn from(region: Region<'_>) -> Self {
        Self { span: region.span(), name: region.name() }
    }
}

impl<T> From<&ManagedBuffer<T>> for NamedSpan {
    fn from(buffer: &ManagedBuffer<T>) -> Self {
        Self { span: buffer.span(), name: buffer.name() }
    }
}

/// Named memory by address, to be searched.
pub(super) struct Buffers<'o> {
    list: &'o [NamedSpan],
    /// The highest end among each one and those before it: none before reaches further.
    reach: Vec<u64>,
}

fn end_of(span: Span) -> u64 {
    span.ptr.0.saturating_add(span.bytes)
}

impl<'o> Buffers<'o> {
    /// Of a list in the order of addresses.
    pub(super) fn new(list: &'o [NamedSpan]) -> Self {
        let reach = list.iter().scan(0, |highest, one| {
            *highest = end_of(one.span).max(*highest);
            Some(*highest)
        });
        Self { list, reach: reach.collect() }
    }

    /// The indices of those with bytes from the first address to before the second one, the
    /// highest first.
    fn touching(&self, first: u64, end: u64) -> impl Iterator<Item = usize> {
        let below = self.list.partition_point(|one| one.span.ptr.0 < end);
        let near = (0..below).rev().take_while(move |&index| self.reach[index] > first);
        near.filter(move |&index| end_of(self.list[index].span) > first)
    }

    /// The first one with bytes in a range.
    pub(super) fn first_in(&self, first: u64, end: u64) -> Option<usize> {
        self.touching(first, end).last()
    }

    /// A range by the names of its buffers, or by its address if it has none.
    pub(super) fn describe(&self, span: Span) -> String {
        let mut found: Vec<_> = self.touching(span.ptr.0, end_of(span)).collect();
        found.reverse();
        let named = |index: &usize| &self.list[*index];
        match found.as_slice() {
            [] => span.to_string(),
            [one] => {
                let NamedSpan { span: buffer, name } = named(one);
                Part { name, buffer: *buffer, span }.to_string()
            }
            [one, other] => format!("{} and {}", named(one), named(other)),
            [one, other, more @ ..] => {
                format!("{}, {} and {} more", named(one), named(other), more.len())
            }
        }
    }
}

/// The buffers with bytes in one of many ranges, each given by its first address and the one after
/// its last: by address, also those that went meanwhile.
pub(super) fn buffers_in(
    ranges: impl Iterator<Item = (u64, u64)> + Clone,
    remembering: &Remembering,
) -> Vec<NamedSpan> {
    let Some(first) = ranges.clone().map(|(first, _)| first).min() else { return Vec::new() };
    let end = ranges.clone().map(|(_, end)| end).max().unwrap_or(first);
    let named = remembering.buffers(first, end).into_iter();
    let all: Vec<_> =
        named.map(|(span, name)| NamedSpan { span, name: name.to_string() }).collect();
    let mut used = vec![false; all.len()];
    let known = Buffers::new(&all);
    for (first, end) in ranges {
        known.touching(first, end).for_each(|index| used[index] = true);
    }
    let kept = used.into_iter();
    all.into_iter().zip(kept).filter_map(|(one, used)| used.then_some(one)).collect()
}

#[cfg(test)]
mod tests {
    use pagewise_hal::DevicePtr;

    use super::*;

    fn named(first: u64, bytes: u64, name: &str) -> NamedSpan {
        NamedSpan { span: Span::new(DevicePtr(first), bytes), name: name.to_owned() }
    }

    #[test]
    fn a_range_is_described_by_all_buffers_that_it_touches() {
        let list =
            [named(100, 100, "a"), named(200, 100, "b"), named(300, 1, "c"), named(500, 9, "d")];
        let buffers = Buffers::new(&list);
        let says = |first, bytes| buffers.describe(Span::new(DevicePtr(first), bytes));
        assert_eq!(says(100, 100), "a");
        assert_eq!(says(0, 200), "a", "a page begins before its buffer");
        assert_eq!(says(150, 10), "a[50..60]");
        assert_eq!(says(250, 50), "b[50..100]");
        assert_eq!(says(199, 2), "a and b");
        assert_eq!(says(0, 1000), "a, b and 2 more");
        assert_eq!(says(301, 100), Span::new(DevicePtr(301), 100).to_string());
        assert_eq!(buffers.first_in(150, 400), Some(0));
        assert_eq!(buffers.first_in(400, 500), None);
    }

    #[test]
    fn a_buffer_inside_of_another_one_hides_neither() {
        let list = [named(100, 1000, "outer"), named(200, 10, "inner"), named(300, 10, "later")];
        let buffers = Buffers::new(&list);
        let says = |first| buffers.describe(Span::new(DevicePtr(first), 1));
        assert_eq!(says(205), "outer and inner");
        assert_eq!(says(305), "outer and later");
        assert_eq!(says(1050), "outer[950..951]");
    }
}
