//! Names of buffers in errors, failed claims and observations.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::{
    BackendExt, Budget, Code, Device, DeviceProgram, Error, Launch, Machine, ManagedBuffer,
    NamedSpan, Observation, Place, Result, Stream, advise, discard, launch, observe, prefetch,
};

const MIB: usize = 1 << 20;

fn scene() -> Result<(Machine, Stream)> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    Ok((machine, stream))
}

fn seen(machine: &Machine, run: impl FnOnce() -> Result<()>) -> Result<Observation> {
    let (answer, seen) = observe(machine, run)?;
    answer.map(|()| seen)
}

#[test]
fn a_buffer_is_named_after_the_place_that_made_it_until_it_gets_a_name() -> Result<()> {
    let (machine, _) = scene()?;
    let buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    let place = format!("crates/api/tests/claims/names.rs:{}", line!() - 1);
    assert!(buffer.name().replace('\\', "/").ends_with(&place), "{}", buffer.name());
    let others =
        [ManagedBuffer::<u8>::new(&machine, 1)?, ManagedBuffer::from_slice(&machine, &[1])?];
    for other in &others {
        assert!(other.name().contains("names.rs:") && other.name() != buffer.name());
    }
    let buffer = buffer.named("weights");
    assert_eq!(buffer.name(), "weights");
    let debug = format!("{buffer:?} {:?}", buffer.range(..16)?);
    assert!(debug.contains("(weights, 0x") && debug.contains("weights[0..16]"), "{debug}");
    Ok(())
}

#[test]
fn a_name_fits_into_a_line_whatever_it_is() -> Result<()> {
    let (machine, _) = scene()?;
    let buffer = ManagedBuffer::<u8>::new(&machine, 1)?
        .named("two\nlines\u{7}".to_owned() + &"ä".repeat(500));
    assert_eq!(buffer.name().chars().count(), 100);
    assert!(buffer.name().starts_with("two lines ä"), "{}", buffer.name());
    Ok(())
}

fn says(error: &Error, what: &str) {
    assert!(error.to_string().contains(what), "{what}: {error}");
}

#[test]
fn errors_of_every_operation_name_the_buffer_and_the_bytes() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut one = ManagedBuffer::<u32>::zeroed(&machine, MIB)?.named("one");
    let two = ManagedBuffer::<u32>::zeroed(&machine, MIB)?.named("two");
    machine.device_count()?;
    backend.arm(Fault::new(Code::NOT_READY).always());
    let part = one.range(1024..2048)?;
    says(&part.prefetch(Device::FIRST, &stream).unwrap_err(), ": one[4096..8192], range 0x");
    says(&part.set_read_mostly(true).unwrap_err(), "one[4096..8192]");
    says(&part.read_mostly().unwrap_err(), "one[4096..8192]");
    says(&part.accessed_by().to_set().unwrap_err(), "one[4096..8192]");
    says(&part.read().unwrap_err(), "one[4096..4097]");
    says(&one.write().unwrap_err(), ": one");
    let program = DeviceProgram::read(Device::FIRST);
    says(&one.run_on_device(program, &stream).unwrap_err(), ": one, range");
    says(&discard(&mut one, &stream).unwrap_err(), ": one, range");
    says(
        &advise([one.region(), two.region()], pagewise::MemoryAdvice::SetReadMostly).unwrap_err(),
        "one",
    );
    says(&one.free().unwrap_err(), ": one, range");
    backend.disarm();
    let gather = launch::read(&two).gather(&[MIB]);
    let error = Launch::new(Device::FIRST).run(&stream, (gather,), |_| ()).unwrap_err();
    says(&error, ": two, range");
    says(&two.range(..2 * MIB).unwrap_err(), ": two, range");
    let half = two.range(..100)?.rounded(pagewise::Rounding::Exact);
    let error = prefetch([two.region(), half], Place::HOST, &stream).unwrap_err();
    assert_eq!((error.item(), error.name()), (Some(1), Some("two[0..400]")), "{error}");
    Ok(())
}

#[test]
fn a_failed_claim_and_an_observation_name_buffers_and_their_bytes() -> Result<()> {
    let (machine, stream) = scene()?;
    let weights = ManagedBuffer::<u8>::zeroed(&machine, 4 * MIB)?.named("weights");
    let biases = ManagedBuffer::<u8>::zeroed(&machine, 4 * MIB)?.named("biases");
    let seen = seen(&machine, || {
        weights.range(..MIB)?.prefetch(Device::FIRST, &stream)?;
        biases.prefetch(Device::FIRST, &stream)
    })?;
    let to =
        format!("bytes from host to gpu0, in prefetch on stream {:#x}", stream.handle().as_raw());
    let lines = [format!("  biases: {} {to}", 4 * MIB), format!("  weights[0..{MIB}]: {MIB} {to}")];
    let over = Budget::new().bytes_to_devices(0).check(&seen).unwrap_err().to_string();
    assert_eq!(over.lines().skip(1).collect::<Vec<_>>(), lines);
    assert!(lines.iter().all(|line| seen.to_string().contains(line)), "{seen}");
    let over = Budget::new().to_device(&weights, 1).to_host(weights.range(5..9)?.region(), 1);
    let over = over.check(&seen).unwrap_err().to_string();
    assert!(
        over.starts_with(&format!("bytes of weights to devices: {MIB}, expected 1\n")),
        "{over}"
    );
    assert!(over.ends_with("bytes of weights[5..9] to the host: 0, expected 1"), "{over}");
    assert!(seen.buffers.contains(&NamedSpan::from(&weights)), "{:?}", seen.buffers);
    assert_eq!(seen.buffers.len(), 2);
    Ok(())
}

#[test]
fn buffers_that_were_dropped_meanwhile_are_named_and_others_are_not() -> Result<()> {
    let (machine, stream) = scene()?;
    let touched =
        |name: &str| Ok::<_, Error>(ManagedBuffer::<u8>::zeroed(&machine, 4 * MIB)?.named(name));
    drop(touched("before")?);
    let during = seen(&machine, || touched("during").map(drop))?;
    assert!(during.to_string().contains("  during[0.."), "{during}");
    assert_eq!(during.buffers.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["during"]);
    let unnamed = seen(&machine, || {
        let span = machine.backend().alloc(4 * MIB as u64)?;
        machine.prefetch(span, Place::from(Device::FIRST), stream.handle())?;
        // SAFETY: the address was given just now, and no other code has it.
        unsafe { machine.backend().free(span.ptr) }
    })?;
    assert_eq!(unnamed.buffers, []);
    Ok(())
}

#[test]
fn buffers_that_share_a_page_are_named_together() -> Result<()> {
    let (machine, _) = scene()?;
    let mut small = Vec::new();
    for name in ["a", "b", "c"] {
        small.push(ManagedBuffer::<u8>::new(&machine, 100)?.named(name));
    }
    let seen = seen(&machine, || small[1].write().map(|bytes| bytes.fill(1)))?;
    assert!(seen.to_string().contains("  a, b and 1 more: 1 faults of the host"), "{seen}");
    Ok(())
}

#[test]
fn names_are_known_through_wrappers_and_other_holders_of_the_back_end() -> Result<()> {
    let sim = pagewise::sim()?;
    let wrapped = Machine::from(Arc::new(FaultInjector::around(sim.clone())));
    let mut buffer = ManagedBuffer::<u8>::new(&wrapped, 4 * MIB)?.named("shared");
    let seen = seen(&Machine::from(&sim), || buffer.write().map(|bytes| bytes.fill(1)))?;
    assert!(seen.to_string().contains("  shared[0.."), "{seen}");
    Ok(())
}
