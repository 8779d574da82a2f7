//! The virtual clock, in nanoseconds since the machine was made. It has an end.
//!
//! The caller says how long sleeps and paced calls take, and may say anything; profiles say what
//! work costs. None of that carries the clock beyond [`END_NS`], some 292 years: from there on it
//! stands still. What the driver waits for by itself, naps of throttled processors, still passes,
//! so that waiting always ends.

/// Where the clock stops.
pub(crate) const END_NS: u64 = u64::MAX / 2;

/// The time when something is over that begins at `now_ns` and takes this long.
pub(crate) const fn after(now_ns: u64, duration_ns: u64) -> u64 {
    if now_ns >= END_NS {
        return now_ns;
    }
    let end_ns = now_ns.saturating_add(duration_ns);
    if end_ns < END_NS { end_ns } else { END_NS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_ends_and_never_runs_backwards() {
        assert_eq!(after(5, 7), 12);
        assert_eq!(after(5, u64::MAX), END_NS);
        assert_eq!(after(END_NS - 1, 1), END_NS);
        assert_eq!(after(END_NS + 9, u64::MAX), END_NS + 9, "a nap led beyond the end");
    }
}
