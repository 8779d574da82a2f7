//! Faults of many threads, and calls and listeners that meet memory that faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use pagewise_hal::{Advice, Backend, BackendExt, Counters, DeviceAccess, Location, Span};

use crate::common::{DEVICE, PAGE, device, machine, peek, poke, with_each};

#[test]
fn eight_threads_fault_while_pages_leave_and_no_byte_is_lost() {
    with_each(|config, _| {
        let sim = machine(config);
        let span = sim.alloc(8 << 20).unwrap();
        thread::scope(|scope| {
            for thread in 0..8_u64 {
                let sim = &sim;
                scope.spawn(move || {
                    // A page of its own in each row of eight, in all blocks.
                    let mine = (0..256).map(|row| span.ptr.0 + (row * 8 + thread) * PAGE);
                    for round in 1..6_u8 {
                        for (number, page) in mine.clone().enumerate() {
                            assert_eq!(peek(page), round - 1, "thread {thread}, page {number}");
                            poke(page, round);
                        }
                        let part = Span::new(span.ptr.offset(thread << 20), 1 << 20);
                        sim.prefetch_to(part, Location::device(DEVICE)).unwrap();
                    }
                });
            }
        });
        assert_eq!(device(&sim, span, DeviceAccess::Read), 2048 * 5);
    });
}

#[test]
fn a_listener_may_touch_memory_that_faults() {
    with_each(|config, _| {
        let sim = Arc::new(machine(config));
        let (one, other) = (sim.alloc(2 << 20).unwrap(), sim.alloc(2 << 20).unwrap());
        device(&sim, one, DeviceAccess::Write(1));
        device(&sim, other, DeviceAccess::Write(2));
        let heard = Arc::new(AtomicU64::new(0));
        let sum = heard.clone();
        sim.set_listener(move |_| {
            sum.fetch_add(peek(other.ptr.0).into(), Ordering::SeqCst);
        });
        assert_eq!(peek(one.ptr.0), 1);
        while heard.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        sim.remove_listener();
    });
}

#[test]
fn lists_of_a_call_may_lie_in_memory_that_faults() {
    with_each(|config, _| {
        let sim = machine(config);
        let span = sim.alloc(2 << 20).unwrap();
        sim.advise(span, Advice::SET_ACCESSED_BY, Location::device(DEVICE)).unwrap();
        device(&sim, span, DeviceAccess::Write(1));
        let first = std::ptr::with_exposed_provenance_mut::<i32>(span.ptr.0 as usize);
        // SAFETY: the memory is live for as long as the machine, and no other code uses it.
        let list = unsafe { std::slice::from_raw_parts_mut(first, 4) };
        sim.range_accessed_by(span, list).unwrap();
        assert_eq!(list[0], 0, "device 0");
    });
}

#[test]
fn machines_fault_apart_and_go_apart() {
    with_each(|config, faults| {
        let other = crate::common::mechanisms().into_iter().find(|&other| other != faults);
        let other = machine(config.clone().host_faults(other.unwrap_or(faults)));
        let there = other.alloc(2 << 20).unwrap();
        for _ in 0..20 {
            let sim = machine(config.clone());
            let here = sim.alloc(2 << 20).unwrap();
            poke(here.ptr.0, 1);
            poke(there.ptr.0, peek(there.ptr.0) + 1);
            other.prefetch_to(there, Location::device(DEVICE)).unwrap();
            assert_ne!(sim.counters(), Counters::default());
        }
        assert_eq!(peek(there.ptr.0), 20);
    });
}
