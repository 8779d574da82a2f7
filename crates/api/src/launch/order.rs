//! The order in which a kernel takes the elements of an operand.

use std::ops::Range;

use pagewise_hal::{DevicePtr, KernelAccesses, PAGE_BYTES, Span, StridedSpan};

/// Elements at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Number of the place of its first element.
    first: usize,
    /// Its first element.
    start: usize,
    count: usize,
    /// Elements from one to the next; at least 1.
    step: usize,
}

impl Run {
    /// The last element.
    fn last(&self) -> usize {
        self.start + (self.count - 1) * self.step
    }
}

/// Elements by place: place 0 is the element that the kernel takes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ElementOrder {
    /// Never empty.
    runs: Vec<Run>,
    places: usize,
}

/// The reason why an order is refused.
type Checked<T> = Result<T, String>;

impl ElementOrder {
    fn of_one(start: usize, count: usize, step: usize) -> Self {
        Self { runs: vec![Run { first: 0, start, count, step }], places: count }
    }

    /// All elements of `length`, which is at least 1.
    pub(super) fn dense(length: usize) -> Self {
        Self::of_one(0, length, 1)
    }

    /// Every `step`-th of `length` elements.
    pub(super) fn strided(length: usize, step: usize) -> Checked<Self> {
        match step {
            0 => Err("the stride is 0: give at least 1 element".to_owned()),
            step => Ok(Self::of_one(0, length.div_ceil(step), step)),
        }
    }

    /// These elements. Ascending neighbours become one run.
    pub(super) fn gathered(length: usize, indices: &[usize]) -> Checked<Self> {
        if let Some(beyond) = indices.iter().find(|&&index| index >= length) {
            return Err(beyond_the_end(*beyond, length));
        }
        let ranges = indices.chunk_by(|a, b| a.checked_add(1) == Some(*b));
        Self::ranges(length, ranges.map(|run| run[0]..run[0] + run.len()))
    }

    /// The elements of these ranges, one range after another.
    pub(super) fn ranges(
        length: usize,
        ranges: impl IntoIterator<Item = Range<usize>>,
    ) -> Checked<Self> {
        let mut order = Self { runs: Vec::new(), places: 0 };
        for Range { start, end } in ranges {
            if start >= end {
                return Err(format!("range {start}..{end} has no element: leave it out"));
            }
            if end > length {
                return Err(beyond_the_end(end - 1, length));
            }
            if order.runs.len() == KernelAccesses::RANGES_MAX {
                return Err(format!(
                    "more than {} ranges: launch several kernels",
                    KernelAccesses::RANGES_MAX
                ));
            }
            let count = end - start;
            order.runs.push(Run { first: order.places, start, count, step: 1 });
            // Overlaps may be counted more often than there are numbers, in theory.
            order.places = order.places.checked_add(count).ok_or("too many elements")?;
        }
        match order.places {
            0 => Err("no element is accessed: give at least one".to_owned()),
            _ => Ok(order),
        }
    }

    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    /// The element at a place; `None` behind the last.
    pub(super) fn element(&self, place: usize) -> Option<usize> {
        if place >= self.places {
            return None;
        }
        let run = self.runs[self.runs.partition_point(|run| run.first <= place) - 1];
        Some(run.start + (place - run.first) * run.step)
    }

    /// An element that two places name, if there is one.
    pub(super) fn repeated(&self) -> Option<usize> {
        // Only one order has steps, and that has one run.
        let mut runs: Vec<(usize, usize)> =
            self.runs.iter().map(|run| (run.start, run.last())).collect();
        runs.sort_unstable();
        let twice = runs.windows(2).find(|pair| pair[1].0 <= pair[0].1);
        twice.map(|pair| pair[1].0)
    }

    /// The bytes of each run, for elements of `size` bytes from an address on. The bytes of a run
    /// with a step include those between its elements.
    pub(super) fn spans(&self, base: DevicePtr, size: u64) -> impl Iterator<Item = (Span, bool)> {
        self.runs.iter().map(move |run| {
            let ptr = base.offset(run.start as u64 * size);
            let bytes = (run.last() - run.start) as u64 * size + size;
            (Span::new(ptr, bytes), run.step == 1 || run.count == 1)
        })
    }

    /// The walks of a kernel over these elements: one over their first bytes. If an element may
    /// reach into further pages, also one over its first byte in each of those.
    pub(super) fn walks(&self, base: DevicePtr, size: u64) -> Vec<Vec<StridedSpan>> {
        let in_one_page =
            size.is_power_of_two() && size <= PAGE_BYTES && base.0.is_multiple_of(size);
        let inner = (0..size).step_by(PAGE_BYTES as usize);
        let last = (!in_one_page).then_some(size - 1);
        let offsets = inner.chain(last).take(KernelAccesses::WALKS_MAX + 1);
        let walk = |offset: u64| {
            let range = |run: &Run| StridedSpan {
                span: Span::new(
                    base.offset(run.start as u64 * size + offset),
                    (run.last() - run.start) as u64 * size + size - offset,
                ),
                stride_bytes: run.step as u64 * size,
            };
            self.runs.iter().map(range).collect()
        };
        offsets.map(walk).collect()
    }
}

fn beyond_the_end(element: usize, length: usize) -> String {
    format!("element {element} is beyond the {length} that there are")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(order: &ElementOrder) -> Vec<usize> {
        (0..order.places()).map(|place| order.element(place).expect("a place")).collect()
    }

    #[test]
    fn each_order_names_its_elements_by_place() {
        let order = |order: Checked<ElementOrder>| elements(&order.expect("inside"));
        assert_eq!(elements(&ElementOrder::dense(3)), [0, 1, 2]);
        assert_eq!(order(ElementOrder::strided(10, 4)), [0, 4, 8]);
        assert_eq!(order(ElementOrder::gathered(10, &[7, 3, 4, 5, 5])), [7, 3, 4, 5, 5]);
        assert_eq!(order(ElementOrder::ranges(10, [8..10, 0..2, 1..2])), [8, 9, 0, 1, 1]);
        assert_eq!(ElementOrder::dense(3).element(3), None);
    }

    #[test]
    fn an_order_is_within_the_elements_and_not_empty() {
        for (refused, why) in [
            (ElementOrder::strided(10, 0), "stride is 0"),
            (ElementOrder::gathered(10, &[]), "no element"),
            (ElementOrder::gathered(10, &[9, 10]), "element 10 is beyond the 10"),
            (ElementOrder::gathered(10, &[usize::MAX]), "is beyond"),
            (ElementOrder::ranges(10, [1..2, 3..3]), "range 3..3 has no element"),
            (ElementOrder::ranges(10, std::iter::repeat(0..1)), "more than 4194304 ranges"),
        ] {
            let error = refused.expect_err("a broken order");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_repeated_element_is_found_wherever_it_is() {
        let gathered = |indices: &[usize]| ElementOrder::gathered(99, indices).expect("inside");
        assert_eq!(gathered(&[5, 1, 3]).repeated(), None);
        assert_eq!(gathered(&[5, 1, 2, 3, 5]).repeated(), Some(5));
        assert_eq!(gathered(&[1, 2, 3, 9, 2]).repeated(), Some(2));
        assert_eq!(ElementOrder::strided(99, 7).expect("a stride").repeated(), None);
    }

    /// Pages that elements of an order touch, byte by byte.
    fn pages_of(order: &ElementOrder, base: u64, size: u64) -> Vec<u64> {
        let bytes = elements(order).into_iter().flat_map(|element| {
            let start = base + element as u64 * size;
            start..start + size
        });
        let mut pages: Vec<u64> = bytes.map(|byte| byte / PAGE_BYTES).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    #[test]
    fn walks_touch_every_page_that_an_element_reaches_into_and_no_other() {
        for size in [1, 4, 12, 96, 4096, 4100, 9000] {
            for base in [1 << 20, (1 << 20) + 512] {
                for order in [
                    ElementOrder::dense(700),
                    ElementOrder::strided(900, 7).expect("a stride"),
                    ElementOrder::gathered(4000, &[3999, 3, 341, 342]).expect("inside"),
                ] {
                    let walks = order.walks(DevicePtr(base), size);
                    let places = walks.iter().flatten().flat_map(|range| {
                        (0..range.span.bytes)
                            .step_by(range.stride_bytes as usize)
                            .map(|at| (range.span.ptr.0 + at) / PAGE_BYTES)
                    });
                    let mut pages: Vec<u64> = places.collect();
                    pages.sort_unstable();
                    pages.dedup();
                    assert_eq!(pages, pages_of(&order, base, size), "{size} bytes at {base}");
                }
            }
        }
    }

    #[test]
    fn elements_that_fit_in_pages_take_one_walk_with_one_place_each() {
        let walks = ElementOrder::dense(100).walks(DevicePtr(4096), 8);
        let span = Span::new(DevicePtr(4096), 800);
        assert_eq!(walks, [[StridedSpan { span, stride_bytes: 8 }]]);
    }
}
