//! Sequences of the typed API over a back end that fails now and then.
//!
//! After any failure the contents are what they were, and once everything is dropped nothing is
//! left of it. What a program wrote is remembered beside each buffer and compared.

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{
    Backend, Code, Device, DeviceId, DeviceProgram, Machine, ManagedBuffer, MemoryAdvice, Place,
    Region, SimBackend, SimConfig, Stream, advise, prefetch,
};

use crate::{Choices, Log};

/// Most buffers that live at a time.
const BUFFERS_MAX: usize = 6;
/// Most bytes of a buffer.
const BYTES_MAX: u64 = 3 << 20;
/// Operations that fail. Without those that free: memory that a driver does not take back is lost.
const FAILING: [Operation; 12] = [
    Operation::AllocManaged,
    Operation::Advise,
    Operation::AdviseOrdinal,
    Operation::Prefetch,
    Operation::PrefetchBatch,
    Operation::DiscardBatch,
    Operation::DiscardPrefetchBatch,
    Operation::RangeAttribute,
    Operation::RangeAccessedBy,
    Operation::HostTouch,
    Operation::DeviceTouch,
    Operation::StreamSynchronize,
];
const CODES: [i32; 4] =
    [Code::OUT_OF_MEMORY, Code::INVALID_VALUE, Code::NOT_SUPPORTED, Code::ILLEGAL_ADDRESS];

/// A buffer and what it holds; `None` where a discard made that indeterminate.
struct Known {
    buffer: ManagedBuffer<u8>,
    holds: Option<Vec<u8>>,
}

/// Makes a machine, then calls of the API until the bytes are used up, some of which fail.
///
/// # Panics
/// If anything does, if contents are not what was written, or if memory is lost.
pub fn attack(choices: &mut Choices<'_>, log: &mut Log) {
    let config = SimConfig::h200().devices(2);
    let injector = Arc::new(FaultInjector::around(
        SimBackend::new(config).expect("an H200 machine can be made"),
    ));
    let machine = Machine::from(&injector);
    let before = free_bytes(&injector);
    let stream = Stream::new(&machine, Device::FIRST).expect("a stream can be made");
    let mut buffers: Vec<Known> = Vec::new();
    while !choices.is_done() {
        arm(&injector, choices);
        step(&machine, &stream, &mut buffers, choices, log);
        injector.disarm();
    }
    buffers.iter().for_each(check);
    drop(buffers);
    assert_eq!(machine.failures_on_drop(), 0, "nothing fails when it is dropped");
    assert_eq!(free_bytes(&injector), before, "free memory after everything was dropped");
}

fn free_bytes(injector: &FaultInjector<SimBackend>) -> [u64; 2] {
    [0, 1]
        .map(|device| injector.memory_info(DeviceId(device)).expect("the device exists").free_bytes)
}

/// Lets one of the next calls fail, half of the time.
fn arm(injector: &FaultInjector<SimBackend>, choices: &mut Choices<'_>) {
    if choices.chance(1, 2) {
        let fault = Fault::new(choices.one_of(&CODES)).on(choices.one_of(&FAILING));
        injector.arm(fault.nth(choices.below(3)));
    }
}

fn place(choices: &mut Choices<'_>) -> Place {
    let second = Device::new(1).expect("an ordinal fits");
    choices.one_of(&[Place::HOST, Place::Device(Device::FIRST), Place::Device(second)])
}

/// 0 for success, else the code that was injected, or [`crate::NO_CODE`].
fn code<T>(answer: &pagewise::Result<T>) -> i32 {
    super::hal::code(answer)
}

fn step(
    machine: &Machine,
    stream: &Stream,
    buffers: &mut Vec<Known>,
    choices: &mut Choices<'_>,
    log: &mut Log,
) {
    let full = buffers.len() >= BUFFERS_MAX;
    if buffers.is_empty() || !full && choices.chance(1, 5) {
        let values = vec![choices.byte(); choices.below(BYTES_MAX) as usize + 1];
        let made = log.call("from_slice", || ManagedBuffer::from_slice(machine, &values), code);
        buffers.extend(made.ok().map(|buffer| Known { buffer, holds: Some(values) }));
        return;
    }
    let at = choices.below(buffers.len() as u64) as usize;
    match choices.below(10) {
        0 => {
            let known = buffers.swap_remove(at);
            let _ = log.call("free", || known.buffer.free(), code);
        }
        1 => many(stream, buffers, choices, log),
        2 | 3 => moved(&mut buffers[at], stream, choices, log),
        4 | 5 => written(&mut buffers[at], choices, log),
        6 | 7 => run(&mut buffers[at], stream, choices, log),
        8 => advised(&buffers[at], choices, log),
        _ => check(&buffers[at]),
    }
}

/// Calls about all buffers at once.
fn many(stream: &Stream, buffers: &[Known], choices: &mut Choices<'_>, log: &mut Log) {
    let regions: Vec<Region<'_>> = buffers.iter().map(|known| known.buffer.region()).collect();
    let to = place(choices);
    if choices.chance(1, 2) {
        let _ = log.call("prefetch of many", || prefetch(regions, to, stream), code);
    } else {
        let advice = MemoryAdvice::SetPreferredLocation(to);
        let _ = log.call("advise of many", || advise(regions, advice), code);
    }
}

fn moved(known: &mut Known, stream: &Stream, choices: &mut Choices<'_>, log: &mut Log) {
    let to = place(choices);
    match choices.below(4) {
        0 => {
            let discarded = log.call("discard", || known.buffer.discard(stream).map(drop), code);
            // A part of a refused discard may have been carried out.
            let _ = discarded;
            known.holds = None;
        }
        1 => {
            let moved = || known.buffer.discard_prefetch(to, stream).map(drop);
            let _ = log.call("discard_prefetch", moved, code);
            known.holds = None;
        }
        _ => {
            let _ = log.call("prefetch", || known.buffer.prefetch(to, stream), code);
        }
    }
}

fn written(known: &mut Known, choices: &mut Choices<'_>, log: &mut Log) {
    let value = choices.byte();
    let all = log.call("write", || known.buffer.write().map(|bytes| bytes.fill(value)), code);
    if all.is_ok() {
        known.holds = Some(vec![value; known.buffer.len()]);
    }
}

fn run(known: &mut Known, stream: &Stream, choices: &mut Choices<'_>, log: &mut Log) {
    let value = choices.byte();
    let stride = 1 + choices.below(5000);
    let program = DeviceProgram::write(Device::FIRST, value).stride(stride);
    let ran = log.call("run_on_device", || known.buffer.run_on_device(program, stream), code);
    if let (Ok(_), Some(holds)) = (&ran, &mut known.holds) {
        holds.iter_mut().step_by(stride as usize).for_each(|byte| *byte = value);
    }
}

fn advised(known: &Known, choices: &mut Choices<'_>, log: &mut Log) {
    let to = place(choices);
    let buffer = &known.buffer;
    match choices.below(5) {
        0 => log.call("set_read_mostly", || buffer.set_read_mostly(true), code).ok(),
        1 => log.call("unset_read_mostly", || buffer.set_read_mostly(false), code).ok(),
        2 => {
            let set = || buffer.set_preferred_location(Some(to));
            log.call("set_preferred_location", set, code).ok()
        }
        3 => {
            let members = log.call("accessed_by", || buffer.accessed_by().to_set(), code);
            let assigned = log.call("assign", || buffer.accessed_by().assign([to]), code);
            if let (Ok(before), Err(_)) = (members, assigned)
                && let Ok(after) = buffer.accessed_by().to_set()
            {
                assert_eq!(after, before, "a failed assignment changes nobody's access");
            }
            None
        }
        _ => log.call("preferred_location", || buffer.preferred_location(), code).map(drop).ok(),
    };
}

/// The buffer holds what was written. A read that fails says nothing.
fn check(known: &Known) {
    if let (Some(holds), Ok(bytes)) = (&known.holds, known.buffer.read()) {
        assert!(bytes == &holds[..], "contents are not what was written");
    }
}
