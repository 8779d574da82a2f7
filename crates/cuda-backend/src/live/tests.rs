//! Sets of live handles, on threads of the system.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::*;

#[derive(Default)]
struct Ended(Mutex<Vec<u64>>);

impl Ending for Ended {
    fn end(&self, _: Kind, raw: u64) {
        self.0.lock().unwrap().push(raw);
    }
}

#[test]
fn a_handle_is_live_from_its_making_to_its_end() {
    let (set, ended) = (Live::new(Kind::Stream), Ended::default());
    assert!(set.find(0x20, &ended).is_none());
    set.add(0x20);
    assert!(set.find(0x20, &ended).is_some());
    assert!(set.find(0x20, &ended).is_some(), "as this thread remembers it");
    assert_eq!(set.take(0x20), Taken::Free);
    assert!(set.find(0x20, &ended).is_none());
    assert_eq!(set.take(0x20), Taken::Unknown);
    assert!(ended.0.into_inner().unwrap().is_empty(), "who takes a free one ends it");
}

#[test]
fn what_a_call_uses_ends_with_that_call_and_is_refused_at_once() {
    let (set, ended) = (Live::new(Kind::Event), Ended::default());
    set.add(0x20);
    let uses = [set.find(0x20, &ended), set.find(0x20, &ended)];
    assert_eq!(set.take(0x20), Taken::InUse);
    assert!(set.find(0x20, &ended).is_none());
    let [first, second] = uses;
    drop(first);
    assert!(ended.0.lock().unwrap().is_empty());
    drop(second);
    assert_eq!(*ended.0.lock().unwrap(), [0x20]);
}

#[test]
fn sets_do_not_know_each_others_handles_and_a_number_that_comes_again_is_new() {
    let (one, other) = (Live::new(Kind::Pool), Live::new(Kind::Pool));
    let ended = Ended::default();
    one.add(0x20);
    assert!(one.find(0x20, &ended).is_some());
    assert!(other.find(0x20, &ended).is_none());
    assert_eq!(one.take(0x20), Taken::Free);
    one.add(0x20);
    assert!(one.find(0x20, &ended).is_some());
}

#[test]
fn each_handle_ends_once_however_threads_use_and_end_it() {
    const HANDLES: u64 = if cfg!(miri) { 50 } else { 2000 };
    let (set, ended) = (Live::new(Kind::Stream), Ended::default());
    (1..=HANDLES).for_each(|raw| set.add(raw));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for raw in 1..=HANDLES {
                    let used = set.find(raw, &ended);
                    if set.take(raw) == Taken::Free {
                        ended.end(Kind::Stream, raw);
                    }
                    drop(used);
                }
            });
        }
    });
    let mut ended = ended.0.into_inner().unwrap();
    ended.sort_unstable();
    assert!(ended.into_iter().eq(1..=HANDLES));
}

#[test]
fn a_thread_finds_more_handles_than_it_remembers() {
    let (set, ended) = (Live::new(Kind::Event), Ended::default());
    let handles = || (1..=4 * REMEMBERED as u64).map(|n| n << 4);
    handles().for_each(|raw| set.add(raw));
    for _ in 0..3 {
        let uses: Vec<_> = handles().map(|raw| set.find(raw, &ended).expect("live")).collect();
        drop(uses);
    }
    assert!(handles().all(|raw| set.take(raw) == Taken::Free));
    assert!(handles().all(|raw| set.find(raw, &ended).is_none()));
}

#[test]
fn a_use_outlives_what_its_thread_remembers() {
    let (set, ended) = (Live::new(Kind::Event), Ended::default());
    set.add(0x10);
    let used = set.find(0x10, &ended);
    for raw in (0x20..).step_by(0x10).take(4 * REMEMBERED) {
        set.add(raw);
        set.find(raw, &ended);
    }
    assert_eq!(set.take(0x10), Taken::InUse);
    drop(used);
    assert_eq!(*ended.0.lock().unwrap(), [0x10]);
}

#[test]
fn a_handle_in_use_on_two_threads_ends_with_the_later_use() {
    let (set, ended) = (Live::new(Kind::Stream), Ended::default());
    set.add(0x20);
    let mine = set.find(0x20, &ended);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| drop(set.find(0x20, &ended)));
        other.join().expect("no panic");
        let taken = scope.spawn(|| {
            let used = set.find(0x20, &ended);
            assert!(used.is_some());
            set.take(0x20)
        });
        assert_eq!(taken.join().expect("no panic"), Taken::InUse);
    });
    assert!(ended.0.lock().unwrap().is_empty());
    drop(mine);
    assert_eq!(*ended.0.lock().unwrap(), [0x20]);
}

/// Which handles were destroyed, by their numbers.
struct Destroyed(Vec<AtomicBool>);

impl Ending for Destroyed {
    fn end(&self, _: Kind, raw: u64) {
        let before = self.0[raw as usize].swap(true, Ordering::SeqCst);
        assert!(!before, "{raw} was destroyed before");
    }
}

#[test]
fn no_handle_is_destroyed_while_a_thread_uses_it_and_each_is_in_the_end() {
    const HANDLES: u64 = if cfg!(miri) { 100 } else { 20_000 };
    let set = Live::new(Kind::Stream);
    let destroyed = Destroyed((0..=HANDLES).map(|_| AtomicBool::new(false)).collect());
    let newest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while newest.load(Ordering::Relaxed) < HANDLES {
                    let raw = newest.load(Ordering::Relaxed);
                    let Some(used) = set.find(raw, &destroyed) else { continue };
                    let gone = destroyed.0[raw as usize].load(Ordering::SeqCst);
                    assert!(!gone, "{raw} is in use");
                    drop(used);
                }
            });
        }
        for raw in 1..=HANDLES {
            set.add(raw);
            newest.store(raw, Ordering::Relaxed);
            (0..raw % 64).for_each(|_| std::hint::spin_loop());
            if set.take(raw) == Taken::Free {
                destroyed.end(Kind::Stream, raw);
            }
        }
    });
    assert!(destroyed.0[1..].iter().all(|gone| gone.load(Ordering::SeqCst)));
}

#[test]
fn a_stream_and_an_event_of_one_call_never_share_a_place() {
    let sets = [Kind::Stream, Kind::Event, Kind::Pool].map(Live::new);
    let raws = || (1..=64_u64).map(|n| n << 4);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let places: Vec<usize> = raws().map(|raw| sets[one].place_of(raw)).collect();
        assert!(raws().all(|raw| !places.contains(&sets[other].place_of(raw))), "{one} {other}");
    }
    assert!(sets.iter().all(|set| raws().all(|raw| set.place_of(raw) < PLACES)));
}
