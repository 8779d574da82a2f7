//! A check that a refused call changed nothing.

use pagewise_hal::Span;

/// Bytes of one allocation that are looked at.
const SAMPLES_MAX: u64 = 8192;

/// The parts that a refused call must leave as they are: the machine's state and its contents.
#[derive(Debug)]
pub struct Snapshot {
    state: String,
    /// Samples: one byte of each 512, and at most some thousand of one allocation.
    contents: Vec<u8>,
}

/// The one part of the state that a call changes though it is refused, by its name in
/// `SimBackend::state`. Drivers do that, and recordings say so.
///
/// - The batch calls have recorded where ranges were to go before they refuse a later one.
/// - A copy of the process's own memory takes staging memory before it is refused, which uses up the
///   id of an allocation.
/// - An allocation from a pool that fails has made the pool grow and shrink again, which its
///   high-water mark shows, and has let what was freed settle.
#[must_use]
pub fn changes_first(call: &str) -> Option<&'static str> {
    match call {
        "prefetch_batch" | "cuMemPrefetchBatchAsync" => Some("attributes"),
        "discard_prefetch_batch" | "cuMemDiscardAndPrefetchBatchAsync" => Some("attributes"),
        "pool_alloc" | "cuMemAllocFromPoolAsync" => Some("pools"),
        "cuMemcpyHtoDAsync_v2" | "cuMemcpyDtoHAsync_v2" => Some(IDS),
        _ => None,
    }
}

/// Whether a call that is refused may have moved pages and written memory: a batch of copies makes
/// those before the one that it refuses, as drivers do (CONTRACT-105).
fn copies_first(call: &str) -> bool {
    matches!(call, "memcpy_batch" | "cuMemcpyBatchAsync" | "cuMemcpyBatchAsync_v2")
}

/// The last id of an allocation: a field and not a part.
const IDS: &str = "last_id";

impl Snapshot {
    /// A snapshot of a machine with this state and these live allocations.
    ///
    /// # Safety
    /// The ranges are live memory of this process that no other code writes meanwhile.
    #[must_use]
    pub unsafe fn new(state: String, live: impl IntoIterator<Item = Span>) -> Self {
        let mut contents = Vec::new();
        for Span { ptr, bytes } in live {
            let step = (bytes / SAMPLES_MAX).max(512) as usize;
            for at in (0..bytes).step_by(step) {
                let place = std::ptr::with_exposed_provenance::<u8>((ptr.0 + at) as usize);
                // SAFETY: the byte lies in a range that the caller promises can be read. The read
                // is volatile, because the memory is not Rust's.
                contents.push(unsafe { place.read_volatile() });
            }
        }
        Self { state, contents }
    }

    /// Panics unless the snapshot after a refused call is the same, but for what the call
    /// [`changes_first`].
    ///
    /// # Panics
    /// If it is not, with the call and what differs.
    pub fn assert_same(&self, after: &Self, call: &str, what: impl Fn() -> String) {
        if copies_first(call) {
            return;
        }
        assert_eq!(self.contents, after.contents, "contents after a refusal: {}", what());
        if self.state == after.state {
            return;
        }
        let part = changes_first(call);
        let (before, after) = (without(&self.state, part), without(&after.state, part));
        assert!(before == after, "{} after a refusal: {}", what(), difference(&before, &after));
    }
}

/// A state without one of its parts, each of which is a line.
fn without(state: &str, part: Option<&str>) -> String {
    let Some(part) = part else { return state.to_owned() };
    let name = format!("{part}: ");
    if part == IDS {
        let mut between = state.split(&name);
        let first = between.next().unwrap_or_default().to_owned();
        return between.fold(first, |kept, rest| kept + rest.trim_start_matches(char::is_numeric));
    }
    let kept = state.lines().filter(|line| !line.starts_with(&name));
    kept.collect::<Vec<_>>().join("\n")
}

/// The place where states differ first, with what stands around it.
fn difference(before: &str, after: &str) -> String {
    const AROUND: usize = 600;
    let pairs = before.chars().zip(after.chars());
    let same = pairs.take_while(|(before, after)| before == after).count();
    let around = |text: &str| -> String {
        text.chars().skip(same.saturating_sub(AROUND)).take(2 * AROUND).collect()
    };
    format!("before:\n{}\nafter:\n{}", around(before), around(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(state: &str) -> Snapshot {
        // SAFETY: `new` asks that every range can be read, and there is no range.
        unsafe { Snapshot::new(state.to_owned(), []) }
    }

    fn differs(before: &Snapshot, after: &Snapshot, call: &str) -> bool {
        std::panic::catch_unwind(|| before.assert_same(after, call, String::new)).is_err()
    }

    /// Asserts that a call, and no other, may change the first state to the second, but not to the
    /// third.
    fn assert_may_change(call: &str, states: [&str; 3]) {
        let [before, after, more] = states.map(snapshot);
        assert!(!differs(&before, &after, call));
        assert!(differs(&before, &after, "free"));
        assert!(differs(&before, &more, call));
    }

    #[test]
    fn one_part_may_change_where_the_driver_changes_it() {
        let before = "pools: P { high: 1 }\nother: 2\n";
        let after = "pools: P { high: 3 }\nother: 2\n";
        let more = "pools: P { high: 3 }\nother: 3\n";
        assert_may_change("pool_alloc", [before, after, more]);
    }

    #[test]
    fn ids_may_be_used_up_where_staging_memory_was_taken() {
        let before = "space: S { last_id: 7, next: 7 }\n";
        let after = "space: S { last_id: 18, next: 7 }\n";
        let more = "space: S { last_id: 18, next: 8 }\n";
        assert_may_change("cuMemcpyHtoDAsync_v2", [before, after, more]);
    }
}
