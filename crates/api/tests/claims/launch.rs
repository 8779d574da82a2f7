//! Kernels: their accesses move pages, and a closure computes their results.
#![cfg(feature = "sim")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pagewise::inject::sweep;
use pagewise::launch::{atomic, read, update, write};
use pagewise::{
    Code, Device, DeviceAccess, DeviceProgram, Error, ErrorKind, FaultAccess, Host, Launch,
    Machine, ManagedBuffer, MemoryEvent, Result, SimBackend, Stream, assert_faults,
};
use proptest::prelude::*;

const PAGE: usize = 4096;
/// Words of a page.
const WORDS: usize = PAGE / 4;

fn machine() -> Result<(Arc<SimBackend>, Machine, Stream)> {
    let sim = pagewise::sim()?;
    let machine = Machine::from(&sim);
    let stream = Stream::new(&machine, Device::FIRST)?;
    Ok((sim, machine, stream))
}

/// Faults and copies, without their times: address, and access or bytes.
fn moves(sim: &SimBackend) -> Vec<(u64, Option<FaultAccess>, u64)> {
    let moved = |record: &MemoryEvent| match *record {
        MemoryEvent::GpuFault { address, access, .. }
        | MemoryEvent::CpuFault { address, access } => Some((address, Some(access), 0)),
        MemoryEvent::Copy { address, bytes, .. } => Some((address, None, bytes)),
        _ => None,
    };
    pagewise::Backend::take_events(sim).expect("kept").iter().filter_map(moved).collect()
}

/// From the first address on.
fn relative(
    moves: Vec<(u64, Option<FaultAccess>, u64)>,
    base: u64,
) -> Vec<(u64, Option<FaultAccess>, u64)> {
    moves.into_iter().map(|(address, access, bytes)| (address - base, access, bytes)).collect()
}

fn three(machine: &Machine) -> Result<[ManagedBuffer<u32>; 3]> {
    let length = 300 * WORDS;
    let a: Vec<u32> = (0..length as u32).collect();
    let b: Vec<u32> = a.iter().map(|n| 7 * n).collect();
    Ok([
        ManagedBuffer::from_slice(machine, &a)?,
        ManagedBuffer::from_slice(machine, &b)?,
        ManagedBuffer::from_slice(machine, &vec![1; length])?,
    ])
}

/// Issue 15, item 9: no program could add two buffers.
#[test]
fn a_vector_add_has_the_results_and_the_moves_of_its_accesses_in_turn() -> Result<()> {
    let (sim, machine, stream) = machine()?;
    let [a, b, mut c] = three(&machine)?;
    moves(&sim);
    let operands = (read(&a), read(&b), write(&mut c));
    Launch::new(Device::FIRST).run(&stream, operands, |(a, b, c)| {
        for i in 0..c.len() {
            c[i] = a[i] + b[i];
        }
    })?;
    let launched = relative(moves(&sim), a.region().span().ptr.0);
    let sums: Vec<u32> = (0..300 * WORDS as u32).map(|n| 8 * n).collect();
    assert_eq!(c.read()?, sums);

    let (sim, machine, stream) = self::machine()?;
    let [mut a, mut b, mut c] = three(&machine)?;
    moves(&sim);
    for page in 0..300 {
        let words = page * WORDS..(page + 1) * WORDS;
        for buffer in [&mut a, &mut b] {
            let reads = DeviceProgram::read(Device::FIRST);
            buffer.range_mut(words.clone())?.run_on_device(reads, &stream)?;
        }
        let writes = DeviceProgram::write(Device::FIRST, 0);
        c.range_mut(words)?.run_on_device(writes, &stream)?;
    }
    let touched = relative(moves(&sim), a.region().span().ptr.0);
    assert_eq!(launched, touched);
    assert!(touched.len() > 30, "{touched:?}");
    Ok(())
}

#[test]
fn a_launch_of_one_operand_is_a_device_program() -> Result<()> {
    for (blocks, threads) in [(1, 1), (64, 128)] {
        for kind in 0..3 {
            let run = |launched: bool| -> Result<_> {
                let (sim, machine, stream) = machine()?;
                let mut buffer = ManagedBuffer::<u32>::zeroed(&machine, 700 * WORDS)?;
                moves(&sim);
                let kinds = [DeviceAccess::Read, DeviceAccess::Write(0), DeviceAccess::AtomicAdd];
                let program = DeviceProgram::new(Device::FIRST, kinds[kind]).stride(4);
                let launch = Launch::new(Device::FIRST).grid(blocks, threads);
                match (launched, kind) {
                    (false, _) => {
                        _ = buffer.run_on_device(program.grid(blocks, threads), &stream)?;
                    }
                    (true, 0) => launch.run(&stream, (read(&buffer),), |_| ())?,
                    (true, 1) => launch.run(&stream, (write(&mut buffer),), |_| ())?,
                    (true, _) => launch.run(&stream, (atomic(&mut buffer),), |_| ())?,
                }
                let base = buffer.region().span().ptr.0;
                Ok((relative(moves(&sim), base), pagewise::Backend::clock_ns(&*sim)))
            };
            assert_eq!(run(true)?, run(false)?, "access {kind}, {blocks} x {threads}");
        }
    }
    Ok(())
}

#[test]
fn the_closure_causes_no_fault_of_the_host() -> Result<()> {
    let (sim, machine, stream) = machine()?;
    let mut buffer = ManagedBuffer::<u32>::zeroed(&machine, 600 * WORDS)?;
    buffer.prefetch(Device::FIRST, &stream)?;
    let before = sim.counters();
    Launch::new(Device::FIRST).run(&stream, (update(&mut buffer),), |(words,)| words.fill(3))?;
    assert_eq!(sim.counters(), before, "all pages were on the device");
    assert_eq!(buffer.read()?[600 * WORDS - 1], 3);
    Ok(())
}

#[test]
fn a_gather_faults_on_the_named_pages_only_and_shows_the_named_elements_by_place() -> Result<()> {
    let (sim, machine, stream) = machine()?;
    let table: Vec<u32> = (0..8192 * WORDS as u32).collect();
    let table = ManagedBuffer::from_slice(&machine, &table)?;
    let mut out = ManagedBuffer::<u32>::zeroed(&machine, 4)?;
    table.set_preferred_location(Some(Host::Any.into()))?;
    out.prefetch(Device::FIRST, &stream)?;
    moves(&sim);
    let indices = [5000 * WORDS + 1, 3, 5000 * WORDS + 2, 7000 * WORDS];
    let operands = (read(&table).gather(&indices), write(&mut out));
    Launch::new(Device::FIRST).run(&stream, operands, |(table, out)| {
        assert_eq!((table.len(), table.get(4)), (4, None));
        for i in 0..out.len() {
            out[i] = table[i];
        }
    })?;
    let base = table.region().span().ptr.0;
    let faults: Vec<u64> =
        moves(&sim).iter().filter_map(|m| m.1.map(|_| (m.0 - base) / PAGE as u64)).collect();
    assert_eq!(faults, [5000, 0, 7000], "each page once, in the order of the indices");
    assert_eq!(out.read()?, indices.map(|index| index as u32));
    Ok(())
}

#[test]
fn strided_and_ranged_elements_are_written_by_place_and_no_others() -> Result<()> {
    let (_, machine, stream) = machine()?;
    let mut buffer = ManagedBuffer::<u64>::zeroed(&machine, 20)?;
    let launch = Launch::new(Device::FIRST).grid(2, 32);
    launch.run(&stream, (write(&mut buffer).strided(7),), |(mut places,)| {
        (0..places.len()).for_each(|place| places[place] = place as u64 + 1);
        assert!(places.get_mut(3).is_none());
    })?;
    let ranges = [18..20, 1..3];
    launch.run(&stream, (update(&mut buffer).ranges(ranges),), |(mut places,)| {
        (0..places.len()).for_each(|place| places[place] += 10 + place as u64);
    })?;
    let mut expected = [0; 20];
    (expected[0], expected[7], expected[14]) = (1, 2, 3);
    (expected[18], expected[19], expected[1], expected[2]) = (10, 11, 12, 13);
    assert_eq!(buffer.read()?, expected);
    Ok(())
}

#[test]
fn an_update_of_read_mostly_memory_faults_twice_and_a_write_once() -> Result<()> {
    let (_, machine, stream) = machine()?;
    let mut buffer = ManagedBuffer::<u32>::zeroed(&machine, WORDS)?;
    buffer.set_read_mostly(true)?;
    let launch = Launch::new(Device::FIRST);
    assert_faults!(machine, 2, launch.run(&stream, (update(&mut buffer),), |_| ())?);
    assert_eq!(buffer.read()?[0], 0);
    assert_faults!(machine, 1, launch.run(&stream, (write(&mut buffer),), |_| ())?);
    Ok(())
}

#[test]
fn a_closure_that_panics_leaves_memory_and_machine_usable() -> Result<()> {
    let (_, machine, stream) = machine()?;
    let mut buffer = ManagedBuffer::from_slice(&machine, &[1_u32, 2, 3])?;
    let launch = Launch::new(Device::FIRST);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        launch.run(&stream, (update(&mut buffer),), |(words,)| {
            words[0] = 9;
            words[7] = 1; // Behind the end.
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(buffer.read()?, [9, 2, 3]);
    launch.run(&stream, (update(&mut buffer),), |(words,)| words[1] = 8)?;
    assert_eq!(buffer.read()?, [9, 8, 3]);
    buffer.free()
}

#[test]
fn written_elements_settle_a_discard_and_discarded_ones_are_not_read() -> Result<()> {
    let (_, machine, stream) = machine()?;
    let mut buffer = ManagedBuffer::<u32>::zeroed(&machine, 4 * WORDS)?;
    let launch = Launch::new(Device::FIRST);
    drop(buffer.discard(&stream)?);
    for refused in [
        launch.run(&stream, (read(&buffer),), |_| panic!("not called")),
        launch.run(&stream, (update(&mut buffer),), |_| panic!("not called")),
        launch.run(&stream, (atomic(&mut buffer).strided(9),), |_| panic!("not called")),
    ] {
        let error = refused.expect_err("discarded");
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None), "{error}");
    }
    let first = (write(&mut buffer).ranges([0..WORDS, 2 * WORDS..3 * WORDS]),);
    launch.run(&stream, first, |(mut places,)| {
        (0..places.len()).for_each(|place| places[place] = 5);
    })?;
    assert_eq!(buffer.range(2 * WORDS..3 * WORDS)?.read()?, [5; WORDS]);
    assert!(buffer.range(WORDS..WORDS + 1)?.read().is_err(), "that page was not written");
    launch.run(&stream, (read(&buffer).gather(&[0, 2 * WORDS + 1]),), |(places,)| {
        assert!(places.iter().all(|&word| word == 5));
    })?;
    launch.run(&stream, (write(&mut buffer),), |(words,)| words.fill(6))?;
    assert_eq!(buffer.read()?, [6; 4 * WORDS]);
    Ok(())
}

fn refusal(answer: Result<()>) -> Error {
    answer.expect_err("a wrong launch")
}

#[test]
fn a_wrong_launch_says_what_is_wrong_before_anything_moves() -> Result<()> {
    let (sim, machine, stream) = machine()?;
    let (_, other, elsewhere) = self::machine()?;
    let mut a = ManagedBuffer::<u32>::zeroed(&machine, 10)?;
    let b = ManagedBuffer::<u32>::zeroed(&other, 10)?;
    let big = ManagedBuffer::<[[u8; 4096]; 128]>::zeroed(&machine, 2)?;
    moves(&sim);
    let launch = Launch::new(Device::FIRST);
    let never = |_: &str| panic!("the closure of a refused launch runs");
    let far = Launch::new(Device::new(5)?);
    let refusals = [
        (far.run(&stream, (read(&a),), |_| never("far")), "does not exist"),
        (launch.run(&elsewhere, (read(&a),), |_| never("stream")), "another machine"),
        (launch.run(&stream, (read(&a), read(&b)), |_| never("two")), "different machines"),
        (launch.clone().grid(0, 1).run(&stream, (read(&a),), |_| never("0")), "at least 1"),
        (launch.run(&stream, (read(&a).strided(0),), |_| never("step")), "stride is 0"),
        (launch.run(&stream, (read(&a).gather(&[10]),), |_| never("end")), "beyond the 10"),
        (launch.run(&stream, (read(&a).gather(&[]),), |_| never("none")), "no element"),
        (
            launch.run(&stream, (read(&a).ranges([0..1, 2..2]),), |_| never("empty")),
            "has no element",
        ),
        (launch.run(&stream, (write(&mut a).gather(&[1, 1]),), |_| never("2")), "threads race"),
        (launch.run(&stream, (update(&mut a).ranges([0..3, 2..4]),), |_| never("3")), "race"),
        (launch.run(&stream, (read(&big),), |_| never("big")), "64 walks"),
    ];
    for (answer, why) in refusals {
        let error = refusal(answer);
        assert!(error.detail().contains(why), "{error}");
        assert_eq!(error.code(), None, "{error}");
    }
    assert_eq!(moves(&sim), []);
    let named = ManagedBuffer::<u32>::zeroed(&machine, 4)?.named("weights");
    let error = refusal(launch.run(&stream, (read(&named).gather(&[4]),), |_| never("name")));
    assert!(error.to_string().contains("weights"), "{error}");
    launch.run(&stream, (atomic(&mut a).gather(&[1, 1]),), |(mut bins,)| {
        (0..2).for_each(|place| bins[place] += 1);
    })?;
    assert_eq!(a.read()?[..3], [0, 2, 0], "atomics may meet");
    Ok(())
}

#[test]
fn every_failure_of_a_call_is_reported_and_leaves_contents_as_they_were() -> Result<()> {
    let calls = sweep(Code::OUT_OF_MEMORY, pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let (mut a, b) = (
            ManagedBuffer::from_slice(&machine, &[1_u32; 2048])?,
            ManagedBuffer::from_slice(&machine, &[2_u32; 2048])?,
        );
        let stream = Stream::new(&machine, Device::FIRST)?;
        drop(a.range_mut(1024..)?.rounded(pagewise::Rounding::Inward).discard(&stream)?);
        let answer = backend.watch(|| {
            let operands = (write(&mut a), read(&b));
            Launch::new(Device::FIRST).grid(4, 64).run(&stream, operands, |(a, b)| {
                a.copy_from_slice(b);
            })
        });
        assert_eq!(answer.is_err(), failing.is_some(), "{:?}", backend.failed());
        let expected = if failing.is_some() { 1 } else { 2 };
        assert_eq!(a.range(..1024)?.read()?, [expected; 1024]);
        assert_eq!(a.range(1024..)?.read().is_err(), failing.is_some(), "still discarded");
        Ok(())
    })?;
    assert!(calls >= 2, "waiting for the discard, and the accesses: {calls}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(3),
        cases: 40,
        ..ProptestConfig::default()
    })]

    /// Whatever the grid and the pattern, results are those of the closure over plain memory, and
    /// all elements that are accessed are on the device afterwards.
    #[test]
    fn a_launch_computes_what_its_closure_computes_on_plain_memory(
        picked in prop::collection::vec(0..9000_usize, 1..60),
        step in 1..3000_usize,
        blocks in 1..9_u32,
        threads in 1..130_u32,
    ) {
        let (sim, machine, stream) = machine().expect("room");
        let values: Vec<u32> = (0..9000).map(|n| n * 3).collect();
        let table = ManagedBuffer::from_slice(&machine, &values).expect("room");
        let mut sums = ManagedBuffer::<u32>::zeroed(&machine, 9000).expect("room");
        let places = picked.len().min(9000_usize.div_ceil(step));
        let compute = |at: usize, read: u32| read.wrapping_mul(7) + at as u32;
        let operands = (read(&table).gather(&picked), update(&mut sums).strided(step));
        let launch = Launch::new(Device::FIRST).grid(blocks, threads);
        launch.run(&stream, operands, |(from, mut to)| {
            (0..from.len().min(to.len())).for_each(|at| to[at] += compute(at, from[at]));
        }).expect("inside");
        for index in &picked {
            let span = table.range(*index..index + 1).expect("inside").region().span();
            let map = pagewise::Backend::host_page_map(&*sim, span).expect("managed");
            prop_assert!(!map[0].mapped, "element {}", index);
        }
        let mut expected = vec![0; 9000];
        for at in 0..places {
            expected[at * step] += compute(at, values[picked[at]]);
        }
        prop_assert_eq!(sums.read().expect("written"), expected);
    }
}

#[cfg(feature = "mock")]
#[test]
fn a_launch_on_a_driver_is_one_call_with_the_addresses_first_and_one_wait() -> Result<()> {
    use pagewise::launch::Module;
    use pagewise::mock::{MockBackend, permit_machine};
    use pagewise::{DevicePtr, FunctionHandle, KernelParam, LaunchShape, ModuleHandle};

    let mut mock = MockBackend::new();
    mock.expect_module_load()
        .times(1)
        .withf(|device, image| device.0 == 0 && image == b"// PTX")
        .returning(|_, _| Ok(ModuleHandle::checked(5)));
    mock.expect_module_function()
        .times(1)
        .withf(|module, name| module.as_raw() == 5 && name == "add")
        .returning(|_, _| Ok(FunctionHandle::checked(6)));
    mock.expect_module_unload().times(1).returning(|_| Ok(()));
    mock.expect_alloc_managed().times(1).returning(|_, _| Ok(DevicePtr(0x10_0000)));
    let number = KernelParam::new(3_u32.to_ne_bytes());
    let expected = [KernelParam::from(DevicePtr(0x10_0008)), number.clone()];
    mock.expect_launch()
        .times(1)
        .withf(move |function, shape, params, _| {
            let linear = LaunchShape { shared_bytes: 64, ..LaunchShape::linear(4, 32) };
            function.as_raw() == 6 && *shape == linear && *params == expected
        })
        .returning(|_, _, _, _| Ok(()));
    mock.expect_stream_synchronize().times(1).returning(|_| Ok(()));
    permit_machine(&mut mock);

    let machine = Machine::from(Arc::new(mock));
    let kernel = Module::from_ptx(&machine, Device::FIRST, "// PTX")?.kernel("add")?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u64>::new(&machine, 4)?;
    let launch = Launch::new(Device::FIRST).grid(4, 32).shared_bytes(64);
    // SAFETY: a mock runs no kernel.
    let launch = unsafe { launch.kernel(&kernel, [number]) };
    let part = buffer.range_mut(1..)?;
    launch.run(&stream, (write(part),), |_| panic!("a driver runs the kernel"))
}
