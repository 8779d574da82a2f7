//! The location of each range of a batch.

/// Whether the driver takes a list of starts for so many ranges: the first is 0, and all are below
/// the number of ranges. They need not ascend (CONTRACT-55).
///
/// ```
/// use pagewise_hal::starts_are_valid;
/// assert!(starts_are_valid(&[0, 2], 3) && starts_are_valid(&[0, 2, 2], 3));
/// assert!(!starts_are_valid(&[1], 3) && !starts_are_valid(&[0, 3], 3));
/// assert!(!starts_are_valid(&[], 3));
/// ```
#[must_use]
pub fn starts_are_valid(location_starts: &[usize], ranges: usize) -> bool {
    location_starts.first() == Some(&0) && location_starts.iter().all(|&start| start < ranges)
}

/// For each range of a batch the number of its location. The driver goes over the ranges, and at
/// each but the first takes the next location if that one starts here. So no range has a
/// location that starts at or before the start of the one before it, or a later one
/// (CONTRACT-55).
///
/// ```
/// use pagewise_hal::locations_of_ranges;
/// let of = |starts: &[usize]| locations_of_ranges(starts, 4).collect::<Vec<_>>();
/// assert_eq!(of(&[0, 1, 3]), [0, 1, 1, 2]);
/// assert_eq!(of(&[0, 2, 2]), [0, 0, 1, 1]);
/// assert_eq!(of(&[0, 0, 1]), [0, 0, 0, 0]);
/// ```
pub fn locations_of_ranges(
    location_starts: &[usize],
    ranges: usize,
) -> impl Iterator<Item = usize> + '_ {
    let mut location = 0_usize;
    (0..ranges).map(move |range| {
        let next = location.saturating_add(1);
        if range > 0 && location_starts.get(next) == Some(&range) {
            location = next;
        }
        location
    })
}
