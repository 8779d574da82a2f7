//! Claims: reads of attributes do not wait for a long call of another thread on the same machine, and
//! come right after it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::Duration;

use pagewise_hal::{
    AccessFlags, Advice, Backend, BackendExt, DeviceId, DevicePtr, HostAccess, HostTouch, Location,
    MemoryAccess, MemoryProps, PointerAttribute, RangeAttribute, Result, Span,
};
use pagewise_sim::{CodeState, DeviceCode, DeviceMemory, DeviceWait, SimBackend, SimConfig};
use proptest::prelude::*;

use crate::common::{MIB, STREAM, code};

/// Longer than any machine takes for a read that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Code that calls a function while its kernel has the machine.
struct Holds<'a>(&'a mut dyn FnMut());

impl DeviceCode for Holds<'_> {
    fn run(&mut self, _: &DeviceMemory<'_>) -> CodeState {
        (self.0)();
        CodeState::Ended { ran_ns: 5000 }
    }

    fn waiting(&self) -> Vec<DeviceWait> {
        Vec::new()
    }
}

fn machine() -> SimBackend {
    SimBackend::new(SimConfig::h200().devices(2)).expect("address space")
}

/// Runs a kernel that calls a function.
fn kernel(sim: &SimBackend, mut during: impl FnMut()) {
    // SAFETY: the code accesses nothing.
    unsafe { sim.run_code(DeviceId(0), 1, &mut Holds(&mut during), STREAM) }.expect("a device");
}

/// The answer of another thread while a kernel has the machine; `None` if it waits for the kernel.
fn beside<T: Send>(sim: &SimBackend, ask: impl FnOnce(&SimBackend) -> T + Send) -> Option<T> {
    let (begin, begun) = channel();
    let (answer, answered) = channel();
    scope(|threads| {
        threads.spawn(move || {
            begun.recv().expect("the kernel begins");
            // The kernel may have ended meanwhile.
            _ = answer.send(ask(sim));
        });
        let mut found = None;
        kernel(sim, || {
            begin.send(()).expect("the thread waits");
            found = answered.recv_timeout(PATIENCE).ok();
        });
        found
    })
}

#[derive(Debug, Clone, Copy)]
enum Read {
    Range(Span, RangeAttribute),
    AccessedBy(Span, usize),
    Pointer(DevicePtr, PointerAttribute),
}

/// An answer: numbers, or a driver's code.
type Answer = std::result::Result<Vec<i64>, Option<i32>>;

fn read(sim: &SimBackend, read: Read) -> Answer {
    let numbers = match read {
        Read::Range(span, attribute) => {
            sim.range_attribute(span, attribute).map(|value| vec![value.into()])
        }
        Read::AccessedBy(span, room) => {
            let mut found = vec![0; room];
            let answer = sim.range_accessed_by(span, &mut found);
            answer.map(|()| found.into_iter().map(i64::from).collect())
        }
        Read::Pointer(ptr, attribute) => {
            sim.pointer_attribute(ptr, attribute).map(|value| vec![value.cast_signed()])
        }
    };
    numbers.map_err(|error| error.code())
}

#[test]
fn reads_of_attributes_do_not_wait_for_a_kernel_of_another_thread() {
    let sim = machine();
    let span = sim.alloc(4 * MIB).unwrap();
    let device = Location::device(DeviceId(1));
    sim.advise(span, Advice::SET_PREFERRED_LOCATION, device).unwrap();
    sim.advise(span, Advice::SET_ACCESSED_BY, Location::HOST).unwrap();
    sim.prefetch_to(span, device).unwrap();
    let reads = [
        (Read::Range(span, RangeAttribute::READ_MOSTLY), vec![0]),
        (Read::Range(span, RangeAttribute::PREFERRED_LOCATION), vec![1]),
        (Read::Range(span, RangeAttribute::LAST_PREFETCH_LOCATION), vec![1]),
        (Read::AccessedBy(span, 2), vec![-1, -2]),
        (Read::Pointer(span.ptr, PointerAttribute::IS_MANAGED), vec![1]),
        (Read::Pointer(span.ptr, PointerAttribute::RANGE_SIZE), vec![4 << 20]),
    ];
    for (question, expected) in reads {
        let answer = beside(&sim, |sim| read(sim, question));
        assert_eq!(answer, Some(Ok(expected)), "{question:?}");
    }
    let refused = beside(&sim, |sim| code(sim.range_attribute(span, RangeAttribute(99))));
    assert_eq!(refused, Some(1), "a refusal does not wait either");
}

#[test]
fn any_number_of_reads_finds_room_beside_a_kernel() {
    let sim = machine();
    let span = sim.alloc(MIB).unwrap();
    let (range, pointer) = (RangeAttribute::READ_MOSTLY, PointerAttribute::IS_MANAGED);
    let asked = beside(&sim, |sim| {
        (0..100_000).try_for_each(|_| sim.range_attribute(span, range).map(drop))?;
        (0..50_000).try_for_each(|_| {
            sim.pointer_attribute(span.ptr, pointer)?;
            sim.range_attribute(span, range).map(drop)
        })
    });
    assert_eq!(asked, Some(Result::Ok(())));
    assert_eq!(sim.range_attribute(span, range), Ok(0));
}

#[test]
fn reads_of_mapped_memory_do_not_wait_and_answer_as_after_the_kernel() {
    let sim = machine();
    let props = MemoryProps::at(Location::device(DeviceId(1)));
    let memory = sim.memory_create(2 * MIB, props).unwrap();
    let ptr = sim.address_reserve(4 * MIB, 0, DevicePtr::NULL).unwrap();
    let span = Span::new(ptr, 2 * MIB);
    // SAFETY: no other code uses the addresses.
    unsafe {
        sim.memory_map(span, 0, memory).unwrap();
        let access = AccessFlags::READ_WRITE;
        let wanted = MemoryAccess { location: Location::device(DeviceId(0)), access };
        sim.memory_set_access(span, &[wanted]).unwrap();
    }
    let all = |sim: &SimBackend| {
        let of = |attribute| {
            let answer = sim.pointer_attribute(ptr.offset(5), PointerAttribute(attribute));
            answer.map_err(|error| error.to_string())
        };
        (0..20).map(of).collect::<Vec<_>>()
    };
    let answers = beside(&sim, all);
    let value = |attribute: PointerAttribute| {
        answers.as_ref().and_then(|all| all[attribute.0 as usize].clone().ok())
    };
    assert_eq!(value(PointerAttribute::RANGE_SIZE), Some(4 * MIB), "the reservation's");
    assert_eq!(value(PointerAttribute::DEVICE_ORDINAL), Some(1));
    assert_eq!(value(PointerAttribute::HOST_POINTER), None, "the host does not reach it");
    assert_eq!(answers, Some(all(&sim)));
}

#[derive(Debug, Clone)]
enum Step {
    /// A kernel, and reads in order.
    Kernel(Vec<(ReadOf, u64)>),
    Advise(u64, Advice),
    Prefetch(u64, i32),
    Touch(u64),
    Sleep(u64),
}

/// A read, with the pages of one allocation that it is about.
#[derive(Debug, Clone, Copy)]
enum ReadOf {
    Range(i32),
    AccessedBy(usize),
    Pointer(i32),
}

const PAGES: u64 = 8;

fn steps() -> impl Strategy<Value = Step> {
    let reads = prop_oneof![
        4 => (0..10i32).prop_map(ReadOf::Range),
        1 => (0..4usize).prop_map(ReadOf::AccessedBy),
        4 => (0..20i32).prop_map(ReadOf::Pointer),
    ];
    let reads = (reads, 0..PAGES + 1, 1..5usize).prop_map(|(read, page, times)| {
        std::iter::repeat_n((read, page), times).collect::<Vec<_>>()
    });
    let reads = prop::collection::vec(reads, 0..6).prop_map(|reads| reads.concat());
    prop_oneof![
        4 => reads.prop_map(Step::Kernel),
        2 => (0..PAGES, 1..7i32).prop_map(|(page, advice)| Step::Advise(page, Advice(advice))),
        1 => (0..PAGES, -1..2i32).prop_map(|(page, to)| Step::Prefetch(page, to)),
        1 => (0..PAGES).prop_map(Step::Touch),
        1 => (0..3_000_000u64).prop_map(Step::Sleep),
    ]
}

/// Makes a step; reads of a kernel are made while it has the machine, or after it.
fn made(sim: &SimBackend, whole: Span, step: &Step, is_beside: bool) -> Vec<Answer> {
    let at = |page: u64| Span::new(whole.ptr.offset(page * 4096), 4096);
    let asked = |&(of, page): &(ReadOf, u64)| match of {
        ReadOf::Range(attribute) => Read::Range(at(page), RangeAttribute(attribute)),
        ReadOf::AccessedBy(room) => Read::AccessedBy(at(page), room),
        ReadOf::Pointer(attribute) => Read::Pointer(at(page).ptr, PointerAttribute(attribute)),
    };
    let each = |reads: &[(ReadOf, u64)]| -> Vec<Answer> {
        reads.iter().map(|one| read(sim, asked(one))).collect()
    };
    let done = match step {
        Step::Kernel(reads) if is_beside => {
            return beside(sim, |_| each(reads)).expect("reads do not wait");
        }
        Step::Kernel(reads) => {
            kernel(sim, || ());
            return each(reads);
        }
        Step::Advise(page, advice) => sim.advise_ordinal(at(*page), *advice, 0),
        Step::Prefetch(page, to) => sim.prefetch_ordinal(at(*page), *to, STREAM),
        Step::Touch(page) => {
            let access = HostAccess::Write(1);
            let touch = HostTouch { span: at(*page), stride_bytes: 4096, access };
            // SAFETY: no other code uses the memory.
            unsafe { sim.host_touch(touch) }.map(drop)
        }
        Step::Sleep(duration_ns) => {
            sim.sleep_ns(*duration_ns);
            Ok(())
        }
    };
    vec![done.map(|()| Vec::new()).map_err(|error| error.code())]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 48 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The second machine has one thread, so its reads take the way of a free machine.
    #[test]
    fn reads_beside_a_kernel_answer_and_take_time_as_after_it(
        steps in prop::collection::vec(steps(), 1..20),
        is_observed in any::<bool>(),
    ) {
        let [one, other] = [(); 2].map(|()| {
            let sim = machine();
            let span = sim.alloc(PAGES * 4096).unwrap();
            if is_observed {
                sim.observe_costs();
            }
            (sim, span)
        });
        // Answers name addresses by their distance from the allocation.
        let apart = one.1.ptr.0.cast_signed().wrapping_sub(other.1.ptr.0.cast_signed());
        for step in &steps {
            let beside = made(&one.0, one.1, step, true);
            let mut after = made(&other.0, other.1, step, false);
            for (beside, after) in beside.iter().zip(&mut after) {
                if let (Ok(beside), Ok(after)) = (beside, after) {
                    let names_address = beside.iter().zip(after.iter()).all(|(a, b)| a - b == apart);
                    if names_address {
                        after.iter_mut().for_each(|value| *value += apart);
                    }
                }
            }
            prop_assert_eq!(beside, after, "{:?}", step);
            prop_assert_eq!(one.0.clock_ns(), other.0.clock_ns(), "{:?}", step);
            prop_assert_eq!(one.0.counters(), other.0.counters());
        }
        let params = &one.0.config().gpu().cost;
        let [one, other] = [&one.0, &other.0].map(|sim| {
            let calls = sim.take_cost_observations();
            calls.iter().map(|call| call.ns(params)).collect::<Vec<_>>()
        });
        prop_assert_eq!(one, other);
    }
}

/// Rounds of the thread that changes attributes.
const ROUNDS: u64 = if cfg!(miri) { 8 } else { 2000 };

/// The place that a round names: one of two devices or the host.
fn place(round: u64) -> i32 {
    (round % 3) as i32 - 1
}

#[test]
fn a_read_sees_attributes_as_they_are_between_the_changes_of_another_thread() {
    let sim = machine();
    // Changes below cover the whole; those here leave many runs behind.
    let span = sim.alloc(8 * MIB).unwrap();
    sim.prefetch_ordinal(span, place(0), STREAM).unwrap();
    sim.advise_ordinal(span, Advice::SET_PREFERRED_LOCATION, place(0)).unwrap();
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let change = |round: u64| {
        // Runs of other values, so that a change has many to write.
        for page in (0..2048).step_by(64) {
            let part = Span::new(span.ptr.offset(page * 4096), 4096);
            let advice = [Advice::SET_READ_MOSTLY, Advice::UNSET_READ_MOSTLY][(round % 2) as usize];
            sim.advise_ordinal(part, advice, 0).unwrap();
        }
        begun.store(round, Ordering::SeqCst);
        sim.advise_ordinal(span, Advice::SET_PREFERRED_LOCATION, place(round)).unwrap();
        sim.prefetch_ordinal(span, place(round), STREAM).unwrap();
        ended.store(round, Ordering::SeqCst);
    };
    let is_between = |attribute: RangeAttribute| {
        let from = ended.load(Ordering::SeqCst);
        let value = sim.range_attribute(span, attribute).unwrap();
        let to = begun.load(Ordering::SeqCst);
        assert!((from..=to).any(|round| place(round) == value), "{value} in {from} to {to}");
    };
    scope(|threads| {
        threads.spawn(|| (1..=ROUNDS).for_each(change));
        for attribute in
            [RangeAttribute::PREFERRED_LOCATION, RangeAttribute::LAST_PREFETCH_LOCATION]
        {
            let (is_between, ended) = (&is_between, &ended);
            threads.spawn(move || {
                while ended.load(Ordering::SeqCst) < ROUNDS {
                    is_between(attribute);
                }
            });
        }
    });
}

#[test]
fn every_read_of_many_threads_is_made_once() {
    let sim = machine();
    let (span, filled) = (sim.alloc(4 * MIB).unwrap(), sim.alloc(4 * MIB).unwrap());
    let (reads, fills) = if cfg!(miri) { (10, 2) } else { (5_000, 200) };
    sim.observe_costs();
    scope(|threads| {
        for attribute in [RangeAttribute::READ_MOSTLY, RangeAttribute(99)] {
            let sim = &sim;
            threads.spawn(move || {
                for _ in 0..reads {
                    _ = sim.range_attribute(span, attribute);
                    sim.pointer_attribute(span.ptr, PointerAttribute::IS_MANAGED).unwrap();
                }
            });
        }
        threads.spawn(|| {
            for _ in 0..fills {
                // SAFETY: no other code uses the memory.
                unsafe { sim.memset(filled, 1, STREAM) }.unwrap();
            }
        });
    });
    assert_eq!(sim.take_cost_observations().len(), 4 * reads + fills);
}
