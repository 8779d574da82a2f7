//! Eight threads on one machine: the result does not depend on which thread was faster. Where the
//! order is fixed, everything is as if one thread had made all calls.

use std::sync::{Condvar, Mutex};
use std::thread;

use pagewise_fuzz::hal::attack_shared;
use pagewise_fuzz::{Choices, Log};
use pagewise_hal::{
    AttachFlags, Backend, BackendExt, Counters, DeviceAccess, DeviceId, DeviceTouch, HostAccess,
    HostTouch, Location, MemoryEvent, Span, StreamFlags, StreamHandle,
};
use pagewise_sim::{SimBackend, SimConfig};

const THREADS: usize = 8;
const MIB: u64 = 1 << 20;
const GPU: DeviceId = DeviceId(0);

fn machine() -> SimBackend {
    SimBackend::new(SimConfig::h200().seed(5)).expect("an H200 machine can be made")
}

/// A thread's own work, with its own buffer and stream: the host writes, the device counts up, the
/// host reads. Returns the sum of what it read.
fn own_work(sim: &SimBackend, thread: usize) -> u64 {
    let stream = sim.stream_create(GPU, StreamFlags::NON_BLOCKING).expect("a stream");
    let span = sim.alloc((2 + thread as u64) * MIB).expect("memory");
    let mut sum = 0;
    for pass in 0..6_u8 {
        let value = pass + thread as u8;
        let write = HostTouch { span, stride_bytes: 64, access: HostAccess::Write(value) };
        let read = HostTouch { span, stride_bytes: 64, access: HostAccess::Read };
        let add = DeviceTouch {
            device: GPU,
            span,
            stride_bytes: 64,
            access: DeviceAccess::AtomicAdd,
            blocks: 1,
            threads: 1,
        };
        // SAFETY: only this thread uses the buffer.
        unsafe {
            sim.host_touch(write).expect("the host writes");
            sim.prefetch(span, Location::device(GPU), 0, stream).expect("it goes");
            sim.device_touch(add, stream).expect("the device counts up");
            sim.prefetch(span, Location::HOST, 0, stream).expect("it comes");
            sum += sim.host_touch(read).expect("the host reads");
        }
    }
    // SAFETY: no code uses the buffer or the stream again.
    unsafe {
        sim.free(span.ptr).expect("freed");
        sim.stream_destroy(stream).expect("destroyed");
    }
    sum
}

#[test]
fn threads_with_their_own_buffers_leave_what_one_thread_would_leave() {
    let serial = machine();
    let serial_sums: Vec<u64> = (0..THREADS).map(|thread| own_work(&serial, thread)).collect();
    for _ in 0..3 {
        let sim = machine();
        let sums: Vec<u64> = thread::scope(|scope| {
            let work = |thread| {
                scope.spawn({
                    let sim = &sim;
                    move || own_work(sim, thread)
                })
            };
            let running: Vec<_> = (0..THREADS).map(work).collect();
            running.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        assert_eq!(sums, serial_sums);
        assert_eq!(sim.counters(), serial.counters());
        assert_eq!(sim.memory_info(GPU), serial.memory_info(GPU));
    }
}

/// Lets threads make calls in a fixed order.
#[derive(Default)]
struct Order {
    next: Mutex<usize>,
    changed: Condvar,
}

impl Order {
    fn in_turn<T>(&self, turn: usize, act: impl FnOnce() -> T) -> T {
        let next = self.next.lock().expect("no panic");
        let mut next = self.changed.wait_while(next, |next| *next != turn).expect("no panic");
        let answer = act();
        *next += 1;
        self.changed.notify_all();
        answer
    }
}

/// The call with this number of a seeded program over buffers that all threads share.
fn call(sim: &SimBackend, buffers: &[Span], number: usize) -> u64 {
    let bytes = Choices::bytes_of(77, number as u64, 32);
    let mut choices = Choices::new(&bytes);
    let whole = choices.one_of(buffers);
    let offset = choices.below(whole.bytes / 4096) * 4096;
    let span =
        Span::new(whole.ptr.offset(offset), (whole.bytes - offset).min(1 + choices.below(MIB)));
    let value = choices.byte();
    // SAFETY: only this thread uses the memory, and it makes one call after another.
    let answer = unsafe {
        match choices.below(6) {
            0 => sim.host_touch(HostTouch { span, stride_bytes: 512, access: HostAccess::Read }),
            1 => sim.host_touch(HostTouch {
                span,
                stride_bytes: 512,
                access: HostAccess::Write(value),
            }),
            2 => sim.prefetch_to(span, Location::HOST).map(|()| 0),
            3 => sim.prefetch_to(span, Location::device(GPU)).map(|()| 0),
            4 => sim.memset(span, value, StreamHandle::NULL).map(|()| 0),
            _ => sim.device_touch(
                DeviceTouch {
                    device: GPU,
                    span,
                    stride_bytes: 512,
                    access: choices.one_of(&[DeviceAccess::Read, DeviceAccess::Write(value)]),
                    blocks: 1,
                    threads: choices.one_of(&[1, 32]),
                },
                StreamHandle::NULL,
            ),
        }
    };
    answer.expect("all calls are right")
}

/// Everything that a run came to. Addresses count from the first buffer.
#[derive(Debug, PartialEq)]
struct Run {
    answers: Vec<u64>,
    events: Vec<MemoryEvent>,
    counters: Counters,
    clock_ns: u64,
}

fn run(threads: usize) -> Run {
    const CALLS: usize = 600;
    let sim = machine();
    let buffers: Vec<Span> = [4, 2, 8, 1].map(|mib| sim.alloc(mib * MIB).expect("memory")).into();
    let (order, answers) = (Order::default(), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for thread in 0..threads {
            let (sim, buffers, order, answers) = (&sim, &buffers, &order, &answers);
            scope.spawn(move || {
                for turn in (thread..CALLS).step_by(threads) {
                    order.in_turn(turn, || {
                        let answer = call(sim, buffers, turn);
                        answers.lock().expect("no panic").push(answer);
                    });
                }
            });
        }
    });
    let first = buffers[0].ptr.0;
    let relative = |event: MemoryEvent| event.with_address(event.address() - first);
    let events = sim.take_events().expect("records are kept").into_iter().map(relative).collect();
    let answers = answers.into_inner().expect("no panic");
    Run { answers, events, counters: sim.counters(), clock_ns: sim.clock_ns() }
}

#[test]
fn calls_of_eight_threads_in_a_fixed_order_are_those_of_one() {
    let serial = run(1);
    assert!(serial.events.len() > 1000, "much moves");
    assert_eq!(run(THREADS), serial);
}

#[test]
fn eight_threads_attack_one_machine_and_it_still_works() {
    let sim = SimBackend::new(SimConfig::h200().devices(2)).expect("a machine can be made");
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let sim = &sim;
            scope.spawn(move || {
                let mut log = Log::default();
                for round in 0..6 {
                    log.begin_round(round);
                    let bytes = Choices::bytes_of(thread, round, 4096);
                    attack_shared(sim, &mut Choices::new(&bytes), &mut log);
                }
            });
        }
    });
    let ptr = sim.alloc_managed(MIB, AttachFlags::GLOBAL).expect("there is room");
    let span = Span::new(ptr, MIB);
    let write = HostTouch { span, stride_bytes: 1, access: HostAccess::Write(3) };
    let read = HostTouch { span, stride_bytes: 1, access: HostAccess::Read };
    // SAFETY: no other code uses the buffer.
    let sum = unsafe { sim.host_touch(write).and_then(|_| sim.host_touch(read)) };
    assert_eq!(sum, Ok(3 * MIB));
}
