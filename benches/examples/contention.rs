//! Calls of two threads at a time: on a machine for each, and on one machine together.
//!
//! `cargo run --release -p pagewise-benches --example contention`, on an idle host with two cores.
//! A row is a kind of call: the calls a second of one thread, and those of two threads together as a
//! multiple of it, on two machines and on one. The last rows are the times that two reads of
//! attributes take beside a long call of another thread of the same machine.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use pagewise::{
    Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, EventCapture, HostAccess, HostTouch,
    PointerAttribute, RangeAttribute, SimBackend, SimConfig, Span, StreamHandle,
};

const PAGE: u64 = 4096;
const FOR: Duration = Duration::from_millis(500);

/// A call on memory that only the calling thread uses.
type Call = fn(&SimBackend, Span);

const CALLS: [(&str, Call); 3] = [
    ("touch of a resident page", |sim, span| {
        let touch = HostTouch { span, stride_bytes: PAGE, access: HostAccess::Write(1) };
        // SAFETY: no other thread uses the memory.
        unsafe { sim.host_touch(touch) }.expect("inside");
    }),
    ("read of an attribute", |sim, span| {
        sim.range_attribute(span, RangeAttribute::READ_MOSTLY).expect("managed memory");
    }),
    ("page to the device and back", |sim, span| {
        let touch = HostTouch { span, stride_bytes: PAGE, access: HostAccess::Write(1) };
        let device_touch = DeviceTouch {
            device: DeviceId(0),
            span,
            stride_bytes: PAGE,
            access: DeviceAccess::Write(1),
            blocks: 1,
            threads: 1,
        };
        // SAFETY: no other thread uses the memory.
        unsafe {
            sim.device_touch(device_touch, StreamHandle::NULL).expect("inside");
            sim.host_touch(touch).expect("inside");
        }
    }),
];

fn machine() -> SimBackend {
    SimBackend::new(SimConfig::h200().events(EventCapture::Off)).expect("address space")
}

/// A machine with memory for two threads: also if one has it alone, as the time of a call grows with
/// the number of allocations.
fn machine_for_two() -> (SimBackend, [Span; 2]) {
    let sim = machine();
    let spans = [(); 2].map(|()| Span::new(sim.alloc(2 << 20).expect("address space").ptr, 4));
    (sim, spans)
}

/// Calls a second of all threads together, each of which has a page of a machine.
fn rate(pages: &[(&SimBackend, Span)], call: Call) -> f64 {
    let ends = Instant::now() + FOR;
    let count = |sim: &SimBackend, span| {
        let mut calls = 0_u32;
        while Instant::now() < ends {
            (0..32).for_each(|_| call(sim, span));
            calls += 32;
        }
        f64::from(calls) / FOR.as_secs_f64()
    };
    scope(|scope| {
        let spawn = |&(sim, span)| scope.spawn(move || count(sim, span));
        let threads: Vec<_> = pages.iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// A long call on memory that only the calling thread uses.
const LONG_CALLS: [(&str, Call); 3] = [
    ("fill of 256 MiB", |sim, span| {
        // SAFETY: no other thread uses the memory.
        unsafe { sim.memset(span, 1, StreamHandle::NULL) }.expect("inside");
    }),
    ("kernel over 256 MiB", |sim, span| {
        let access = DeviceAccess::Write(1);
        let device_touch = DeviceTouch {
            device: DeviceId(0),
            span,
            stride_bytes: PAGE,
            access,
            blocks: 132,
            threads: 1024,
        };
        // SAFETY: no other thread uses the memory.
        unsafe { sim.device_touch(device_touch, StreamHandle::NULL) }.expect("inside");
    }),
    ("sweep of 256 MiB by the host", |sim, span| {
        let touch = HostTouch { span, stride_bytes: PAGE, access: HostAccess::Write(1) };
        // SAFETY: no other thread uses the memory.
        unsafe { sim.host_touch(touch) }.expect("inside");
    }),
];

/// Times of reads, without an entry for each: that would take memory beside the call.
struct Times {
    longest: Duration,
    /// How many took so many tens of nanoseconds; the last, how many took longer than all others.
    counts: Vec<usize>,
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
        let last = self.counts.len() - 1;
        self.counts[(time.as_nanos() as usize / 10).min(last)] += 1;
    }

    /// The time that so many of 1000 reads do not exceed.
    fn of_1000(&self, share: usize) -> Duration {
        let wanted = self.counts.iter().sum::<usize>() * share / 1000;
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Duration::from_nanos(10 * sums.take_while(|&sum| sum <= wanted).count() as u64)
    }
}

/// The times of reads of attributes beside a long call, and of the call.
fn reads_beside(sim: &SimBackend, call: Call) -> (Times, Duration) {
    let used = sim.alloc(256 << 20).expect("address space");
    let read = sim.alloc(2 << 20).expect("address space");
    let (begins, is_over) = (Barrier::new(2), AtomicBool::new(false));
    scope(|scope| {
        let long = scope.spawn(|| {
            begins.wait();
            let start = Instant::now();
            call(sim, used);
            is_over.store(true, Ordering::Release);
            start.elapsed()
        });
        let mut times = Times { longest: Duration::ZERO, counts: vec![0; 10_000] };
        begins.wait();
        while !is_over.load(Ordering::Acquire) {
            let start = Instant::now();
            sim.range_attribute(read, RangeAttribute::READ_MOSTLY).expect("managed memory");
            sim.pointer_attribute(read.ptr, PointerAttribute::IS_MANAGED).expect("live memory");
            times.add(start.elapsed());
        }
        (times, long.join().expect("no panic"))
    })
}

fn main() {
    println!("{:30} {:>12} {:>14} {:>12}", "call", "one thread/s", "two machines", "one machine");
    for (name, call) in CALLS {
        let ((one, [page, next]), (other, [far, _])) = (machine_for_two(), machine_for_two());
        // The best of three, as other programs of the host take their share.
        let best = |pages: &[_]| (0..3).map(|_| rate(pages, call)).fold(0.0, f64::max);
        let alone = best(&[(&one, page)]);
        let two = best(&[(&one, page), (&other, far)]) / alone;
        let shared = best(&[(&one, page), (&one, next)]) / alone;
        println!("{name:30} {alone:12.0} {two:13.2}x {shared:11.2}x");
    }
    println!(
        "{:30} {:>12} {:>12} {:>12} {:>12}",
        "reads beside", "its time", "longest", "one in 1000", "half"
    );
    for (name, call) in LONG_CALLS {
        let (times, took) = reads_beside(&machine(), call);
        let (longest, rare, half) = (times.longest, times.of_1000(999), times.of_1000(500));
        println!("{name:30} {took:12.1?} {longest:12.1?} {rare:12.1?} {half:12.1?}");
    }
}
