//! Calls of two threads at a time: on a machine for each, and on one machine together.
//!
//! `cargo run --release -p pagewise-benches --example contention`, on an idle host with two cores.
//! A row is a kind of call: the calls a second of one thread, and those of two threads together as a
//! multiple of it, on two machines and on one. The last row is the time that reads of attributes
//! wait for a fill of 256 MiB by another thread of the same machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use pagewise::{
    Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, EventCapture, HostAccess, HostTouch,
    RangeAttribute, SimBackend, SimConfig, Span, StreamHandle,
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

/// Calls a second of all threads together, each of which has a page on its machine.
fn rate(machines: &[&SimBackend], call: Call) -> f64 {
    let ends = Instant::now() + FOR;
    let count = |sim: &SimBackend| {
        let whole = sim.alloc(2 << 20).expect("address space");
        let span = Span::new(whole.ptr, 4);
        let mut calls = 0_u32;
        while Instant::now() < ends {
            (0..32).for_each(|_| call(sim, span));
            calls += 32;
        }
        f64::from(calls) / FOR.as_secs_f64()
    };
    scope(|scope| {
        let threads: Vec<_> = machines.iter().map(|sim| scope.spawn(move || count(sim))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// The longest and the mean time of attribute reads beside fills, and of a fill.
fn reads_beside_fills(sim: &SimBackend) -> [Duration; 3] {
    let filled = sim.alloc(256 << 20).expect("address space");
    let read = sim.alloc(2 << 20).expect("address space");
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        let fill = scope.spawn(|| {
            let start = Instant::now();
            // SAFETY: no other thread uses the memory.
            unsafe { sim.memset(filled, 1, StreamHandle::NULL) }.expect("inside");
            is_over.store(true, Ordering::Release);
            start.elapsed()
        });
        let (mut longest, mut all, mut reads) = (Duration::ZERO, Duration::ZERO, 0);
        while !is_over.load(Ordering::Acquire) {
            let start = Instant::now();
            sim.range_attribute(read, RangeAttribute::READ_MOSTLY).expect("managed memory");
            longest = longest.max(start.elapsed());
            all += start.elapsed();
            reads += 1;
        }
        [longest, all / reads.max(1), fill.join().expect("no panic")]
    })
}

fn main() {
    println!("{:30} {:>12} {:>14} {:>12}", "call", "one thread/s", "two machines", "one machine");
    for (name, call) in CALLS {
        let (one, other) = (machine(), machine());
        // The best of three, as other programs of the host take their share.
        let best =
            |machines: &[&SimBackend]| (0..3).map(|_| rate(machines, call)).fold(0.0, f64::max);
        let alone = best(&[&one]);
        let (two, shared) = (best(&[&one, &other]) / alone, best(&[&one, &one]) / alone);
        println!("{name:30} {alone:12.0} {two:13.2}x {shared:11.2}x");
    }
    let [longest, mean, fill] = reads_beside_fills(&machine());
    println!("reads beside a fill of {fill:?}: longest {longest:?}, mean {mean:?}");
}
