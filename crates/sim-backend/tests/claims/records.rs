//! Records: counters, the ring, listeners.

use std::sync::{Arc, Mutex};

use pagewise_hal::{
    Backend, BackendExt, Counters, DeviceId, ErrorKind, HostAccess, HostTouch, Location,
    MemoryEvent, Span,
};
use pagewise_sim::{EventCapture, SimBackend, SimConfig};

use crate::common::MIB;

const GPU: Location = Location::device(DeviceId(0));

fn machine(capture: EventCapture) -> (SimBackend, Span) {
    let sim = SimBackend::new(SimConfig::h200().events(capture)).expect("address space");
    let span = sim.alloc(16 * MIB).expect("managed memory");
    (sim, span)
}

/// One record for each of the 8 blocks.
fn move_to(sim: &SimBackend, span: Span, to: Location) {
    sim.prefetch_to(span, to).expect("managed");
}

#[test]
fn counters_are_the_sum_of_the_records() {
    let (sim, span) = machine(EventCapture::default());
    let touch = HostTouch { span, stride_bytes: 4096, access: HostAccess::Write(1) };
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.host_touch(touch) }.expect("inside");
    move_to(&sim, span, GPU);
    let events = sim.take_events().expect("kept");
    let sum: Counters = events.iter().collect();
    assert_eq!(sim.counters(), sum);
    assert_eq!((sum.cpu_faults > 0, sum.to_device.bytes), (true, 16 * MIB));
}

#[test]
fn a_full_ring_keeps_the_last_records_and_says_how_many_it_lost() {
    let (sim, span) = machine(EventCapture::Ring { capacity: 3 });
    move_to(&sim, span, Location::HOST);
    move_to(&sim, span, GPU);
    assert_eq!(sim.events_lost(), 5);
    let kept = sim.take_events().expect("kept");
    let blocks: Vec<u64> = kept.iter().map(|e| (e.address() - span.ptr.0) / (2 * MIB)).collect();
    assert_eq!(blocks, [5, 6, 7]);
    assert_eq!((sim.events_lost(), sim.counters().to_device.runs), (0, 8));
}

#[test]
fn without_capture_records_are_counted_and_asking_for_them_says_what_to_do() {
    let (sim, span) = machine(EventCapture::Off);
    move_to(&sim, span, Location::HOST);
    move_to(&sim, span, GPU);
    assert_eq!(sim.counters().to_device.runs, 8);
    assert!(!sim.capabilities().events);
    let error = sim.take_events().expect_err("none are kept");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("SimConfig::events"), "{error}");
}

#[test]
fn a_listener_gets_each_call_s_records_in_order_also_of_calls_that_it_makes() {
    let (sim, span) = machine(EventCapture::Off);
    let sim = Arc::new(sim);
    move_to(&sim, span, Location::HOST);
    let heard: Arc<Mutex<Vec<Vec<MemoryEvent>>>> = Arc::default();
    let (log, weak) = (Arc::clone(&heard), Arc::downgrade(&sim));
    sim.set_listener(move |events| {
        let mut log = log.lock().expect("one thread");
        log.push(events.to_vec());
        // Moves everything back, once.
        if let (1, Some(sim)) = (log.len(), weak.upgrade()) {
            drop(log);
            move_to(&sim, span, Location::HOST);
        }
    });
    move_to(&sim, span, GPU);
    let counted: Vec<Counters> =
        heard.lock().expect("done").iter().map(|c| c.iter().collect()).collect();
    assert_eq!(counted.len(), 2);
    assert_eq!((counted[0].to_device.runs, counted[1].to_host.runs), (8, 8));

    sim.remove_listener();
    move_to(&sim, span, GPU);
    assert_eq!(heard.lock().expect("done").len(), 2);
}

#[test]
fn threads_hand_over_every_record_once() {
    let (sim, _) = machine(EventCapture::Off);
    let heard: Arc<Mutex<Counters>> = Arc::default();
    let log = Arc::clone(&heard);
    sim.set_listener(move |events| {
        let mut log = log.lock().expect("a listener runs alone");
        events.iter().for_each(|event| log.count(event));
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let span = sim.alloc(4 * MIB).expect("managed memory");
                for _ in 0..50 {
                    move_to(&sim, span, Location::HOST);
                    move_to(&sim, span, GPU);
                }
            });
        }
    });
    assert_eq!(*heard.lock().expect("done"), sim.counters());
    assert!(sim.counters().to_device.runs >= 4 * 50);
}
