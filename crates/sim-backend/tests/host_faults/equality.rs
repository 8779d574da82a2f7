//! Random programs: a raw access moves what `host_touch` of one byte moves.
//!
//! Both machines are paced, so that each operation ends at the same time on both.

use pagewise_hal::{
    Advice, Backend, BackendExt, Counters, DeviceAccess, HostAccess, HostTouch, Location,
    MemoryEvent, PageRun, Span, StreamHandle,
};
use pagewise_sim::{DiscardedContents, SimBackend, SimConfig};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRng, TestRunner};

use crate::common::{DEVICE, PAGE, machine, peek, poke, with_each};

const PAGES: u64 = 1200;
const OPERATION_NS: u64 = 100_000;

#[derive(Debug, Clone, Copy)]
enum Step {
    HostRead(u64),
    HostWrite(u64, u8),
    Device(u64, u64, u8),
    Prefetch(u64, u64, bool),
    Advise(u64, u64, u8),
    Discard(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..PAGES - 1, 1..200_u64).prop_map(|(at, n)| (at, n.min(PAGES - at)));
    let step = prop_oneof![
        6 => (0..PAGES).prop_map(Step::HostRead),
        6 => (0..PAGES, any::<u8>()).prop_map(|(page, value)| Step::HostWrite(page, value)),
        4 => (range(), any::<u8>()).prop_map(|((at, n), how)| Step::Device(at, n, how)),
        1 => (range(), any::<bool>()).prop_map(|((at, n), host)| Step::Prefetch(at, n, host)),
        2 => (range(), 0..8_u8).prop_map(|((at, n), which)| Step::Advise(at, n, which)),
        1 => range().prop_map(|(at, n)| Step::Discard(at, n)),
    ];
    prop::collection::vec(step, 1..120)
}

/// The way in which the host accesses bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Pointers,
    Declarations,
}

/// The observations of a run that do not depend on addresses.
#[derive(Debug, PartialEq)]
struct Seen {
    answers: Vec<u64>,
    page_map: Vec<PageRun>,
    counters: Counters,
    clock_ns: u64,
    records: Vec<MemoryEvent>,
}

struct Run {
    sim: SimBackend,
    span: Span,
    by: By,
    answers: Vec<u64>,
}

impl Run {
    fn part(&self, page: u64, pages: u64) -> Span {
        Span::new(self.span.ptr.offset(page * PAGE), pages * PAGE)
    }

    /// An access of the host: one byte.
    fn host(&mut self, page: u64, access: HostAccess) {
        let byte = Span::new(self.part(page, 1).ptr, 1);
        if self.by == By::Declarations {
            let touch = HostTouch { span: byte, stride_bytes: 1, access };
            // SAFETY: only this test uses the memory, from one thread.
            self.answers.push(unsafe { self.sim.host_touch(touch) }.unwrap());
            return;
        }
        match access {
            HostAccess::Read => self.answers.push(peek(byte.ptr.0).into()),
            HostAccess::Write(value) => {
                poke(byte.ptr.0, value);
                self.answers.push(0);
            }
        }
        self.sim.sleep_ns(0); // The rest of the time that the declaration takes.
    }

    fn step(&mut self, step: Step) {
        const STREAM: StreamHandle = StreamHandle::PER_THREAD;
        let faults = std::iter::repeat_n((7, 5), 4096);
        self.sim.pace_next_op(OPERATION_NS, faults);
        match step {
            Step::HostRead(page) => self.host(page, HostAccess::Read),
            Step::HostWrite(page, value) => self.host(page, HostAccess::Write(value)),
            Step::Device(at, pages, how) => {
                let access = match how % 4 {
                    0 => DeviceAccess::Write(how),
                    1 => DeviceAccess::AtomicAdd,
                    _ => DeviceAccess::Read,
                };
                self.answers.push(crate::common::device(&self.sim, self.part(at, pages), access));
            }
            Step::Prefetch(at, pages, host) => {
                let to = if host { Location::HOST } else { Location::device(DEVICE) };
                self.sim.prefetch_to(self.part(at, pages), to).unwrap();
            }
            Step::Advise(at, pages, which) => {
                let (advice, location) = match which {
                    0 | 1 => (Advice::SET_READ_MOSTLY, Location::HOST),
                    2 => (Advice::UNSET_READ_MOSTLY, Location::HOST),
                    3 => (Advice::SET_PREFERRED_LOCATION, Location::HOST),
                    4 => (Advice::SET_PREFERRED_LOCATION, Location::device(DEVICE)),
                    5 => (Advice::UNSET_PREFERRED_LOCATION, Location::HOST),
                    6 => (Advice::SET_ACCESSED_BY, Location::HOST),
                    _ => (Advice::SET_ACCESSED_BY, Location::device(DEVICE)),
                };
                self.sim.advise(self.part(at, pages), advice, location).unwrap();
            }
            Step::Discard(at, pages) => {
                // SAFETY: only this test uses the memory, from one thread.
                unsafe { self.sim.discard_batch(&[self.part(at, pages)], 0, STREAM) }.unwrap();
            }
        }
    }

    fn seen(self) -> Seen {
        let first = self.span.ptr.0;
        let records = self.sim.take_events().unwrap();
        let apart = |record: &MemoryEvent| record.with_address(record.address() - first);
        Seen {
            page_map: self.sim.host_page_map(self.span).unwrap(),
            counters: self.sim.counters(),
            clock_ns: self.sim.clock_ns(),
            records: records.iter().map(apart).collect(),
            answers: self.answers,
        }
    }
}

fn run(config: SimConfig, by: By, steps: &[Step]) -> Seen {
    let sim = machine(config);
    let span = sim.alloc(PAGES * PAGE).unwrap();
    let mut run = Run { sim, span, by, answers: Vec::new() };
    steps.iter().for_each(|&step| run.step(step));
    // What the state decides: each page is accessed once more, by declarations alone.
    run.by = By::Declarations;
    for page in 0..PAGES {
        run.step(if page % 3 == 0 { Step::HostWrite(page, 1) } else { Step::HostRead(page) });
        run.step(Step::Device(PAGES - 1 - page, 1, 2));
    }
    run.seen()
}

#[test]
fn raw_accesses_move_what_declared_accesses_move() {
    with_each(|config, _| {
        for contents in [DiscardedContents::Kept, DiscardedContents::Driver] {
            let real = config.clone().discarded_contents(contents);
            let declared = SimConfig::h200().discarded_contents(contents);
            let settings = Config { cases: 24, failure_persistence: None, ..Config::default() };
            let random = TestRng::deterministic_rng(settings.rng_algorithm);
            let claim = |steps: Vec<Step>| {
                let one = run(real.clone(), By::Pointers, &steps);
                let other = run(declared.clone(), By::Declarations, &steps);
                let differs = |(one, other): (&u64, &u64)| one != other;
                let first = one.answers.iter().zip(&other.answers).position(differs);
                prop_assert_eq!(first, None, "the first answer that differs");
                prop_assert_eq!(&one.records, &other.records);
                prop_assert_eq!(one, other);
                Ok(())
            };
            TestRunner::new_with_rng(settings, random).run(&steps(), claim).unwrap();
        }
    });
}
