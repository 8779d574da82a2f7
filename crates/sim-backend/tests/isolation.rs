//! Machines of one process share nothing: each answers as if it were alone.
//!
//! The tests of many machines reserve most of the address space that a process has, so they are
//! one test; the one of a limited process runs in a process of its own.

use std::process::Command;

use pagewise_hal::{
    AllocationType, AttachFlags, Backend, DeviceId, DevicePtr, HandleTypes, HostAllocFlags,
    Location, MemoryInfo, PointerAttribute, PoolAttribute, PoolHandle, PoolProps, RangeAttribute,
    Result, Span, StreamHandle,
};
use pagewise_sim::{SimBackend, SimConfig};

const DEVICE: DeviceId = DeviceId(0);
const GIB: u64 = 1 << 30;
const STREAM: StreamHandle = StreamHandle::PER_THREAD;

fn sim() -> SimBackend {
    SimBackend::new(SimConfig::h200()).expect("a valid configuration")
}

fn pool(sim: &SimBackend, allocation_type: AllocationType) -> PoolHandle {
    let location = Location::device(DEVICE);
    let handle_types = HandleTypes::empty();
    let props = PoolProps { allocation_type, location, handle_types, max_bytes: 0 };
    sim.pool_create(props).expect("a pool")
}

/// The answers of calls, addresses by their distance.
#[derive(Debug, PartialEq)]
struct Answers {
    info: [MemoryInfo; 3],
    distances: [u64; 2],
    too_much: Option<i32>,
    reserved: u64,
}

fn answers(sim: &SimBackend) -> Result<Answers> {
    let info = || sim.memory_info(DEVICE);
    let before = info()?;
    let device = sim.alloc_device(DEVICE, 105 * GIB)?;
    let next = sim.alloc_device(DEVICE, GIB)?;
    let held = info()?;
    let small = sim.alloc_managed(4 << 20, AttachFlags::GLOBAL)?;
    let beside = sim.alloc_managed(4 << 20, AttachFlags::GLOBAL)?;
    sim.alloc_managed(600 * GIB, AttachFlags::GLOBAL)?;
    let pool = pool(sim, AllocationType::PINNED);
    sim.pool_alloc(pool, 20 * GIB, STREAM)?;
    Ok(Answers {
        info: [before, held, info()?],
        distances: [next.0 - device.0, beside.0 - small.0],
        too_much: sim.alloc_device(DEVICE, 20 * GIB).err().and_then(|error| error.code()),
        reserved: sim.pool_attribute(pool, PoolAttribute::RESERVED_MEM_CURRENT)?,
    })
}

#[test]
fn a_machine_among_a_hundred_answers_as_one_alone() -> Result<()> {
    let machines: Vec<SimBackend> = (0..100).map(|_| sim()).collect();
    for sim in &machines {
        sim.alloc_device(DEVICE, 105 * GIB)?;
        let span = Span::new(sim.alloc_managed(600 * GIB, AttachFlags::GLOBAL)?, 1);
        // SAFETY: only this test knows the memory.
        unsafe { sim.memset(span, 7, STREAM) }?;
    }
    drop(machines);
    let alone = answers(&sim())?;
    assert_eq!(alone.too_much, Some(2));
    let machines: Vec<SimBackend> = (0..60).map(|_| sim()).collect();
    for (number, sim) in machines.iter().enumerate() {
        assert_eq!(answers(sim)?, alone, "machine {number}");
    }
    Ok(())
}

/// 254 GiB of a pool's 256 are taken, and every other part is freed: the next request fits
/// into the pool's memory, but into no hole of its addresses.
#[test]
fn a_pool_never_places_memory_among_the_addresses_of_another() -> Result<()> {
    let sim = sim();
    let props = PoolProps {
        allocation_type: AllocationType::MANAGED,
        location: Location::NONE,
        handle_types: HandleTypes::empty(),
        max_bytes: 0,
    };
    let (first, second) = (sim.pool_create(props)?, sim.pool_create(props)?);
    let parts = [(); 4].map(|()| sim.pool_alloc(first, 63 * GIB, STREAM));
    let other = sim.pool_alloc(second, GIB, STREAM)?;
    for part in [&parts[0], &parts[2]] {
        // SAFETY: the test does not use the memory again.
        unsafe { sim.free_async(part.clone()?, STREAM) }?;
    }
    sim.stream_synchronize(STREAM)?;
    let refused = sim.pool_alloc(first, 100 * GIB, STREAM).expect_err("no hole is as long");
    assert_eq!(refused.code(), Some(2));
    let again = sim.pool_alloc(first, 63 * GIB, STREAM)?;
    assert_eq!(again, parts[0].clone()?);
    assert_eq!(sim.pointer_attribute(other, PointerAttribute::RANGE_SIZE)?, GIB);
    Ok(())
}

#[test]
fn a_refused_first_allocation_leaves_no_trace_in_a_pool() -> Result<()> {
    let answer = |refused_first: bool| {
        let sim = sim();
        let pool = pool(&sim, AllocationType::MANAGED);
        if refused_first {
            let refused = sim.pool_alloc(pool, 300 * GIB, STREAM).expect_err("beyond a region");
            assert_eq!(refused.code(), Some(2));
        }
        let ptr = sim.pool_alloc(pool, 4 << 20, STREAM)?;
        let span = Span::new(ptr, 4 << 20);
        let preferred = sim.range_attribute(span, RangeAttribute::PREFERRED_LOCATION)?;
        Ok((preferred, sim.memory_info(DEVICE)?, sim.take_events()?.len()))
    };
    let plain: Result<_> = answer(false);
    assert_eq!(answer(true)?, plain?);
    Ok(())
}

/// Says which test runs in a limited process, to the process itself.
const LIMITED: &str = "PAGEWISE_TEST_LIMITED";

#[cfg(target_os = "linux")]
#[test]
fn a_process_without_address_space_says_so_and_serves_what_fits() -> Result<()> {
    const NAME: &str = "a_process_without_address_space_says_so_and_serves_what_fits";
    if std::env::var_os(LIMITED).is_none() {
        let this = std::env::current_exe().expect("this program");
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -v 8388608 && exec \"$0\" --exact \"$1\" --nocapture"]);
        let run = shell.arg(this).arg(NAME).env(LIMITED, "1").output().expect("a shell");
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success() && text.contains("1 passed"), "{text}{run:?}");
        return Ok(());
    }
    let sim = sim();
    let before = sim.memory_info(DEVICE)?;
    let managed = |bytes| sim.alloc_managed(bytes, AttachFlags::GLOBAL);
    let pinned = |bytes| sim.alloc_pinned(bytes, HostAllocFlags::empty());
    let pool = pool(&sim, AllocationType::PINNED);
    let refused: [Result<DevicePtr>; 4] = [
        managed(600 * GIB),
        pinned(9 * GIB),
        sim.alloc_device(DEVICE, 105 * GIB),
        sim.pool_alloc(pool, 105 * GIB, STREAM),
    ];
    for answer in refused {
        let error = answer.expect_err("8 GiB are all there is");
        assert_eq!(error.code(), Some(2));
        assert!(error.to_string().contains("ulimit -v"), "{error}");
    }
    assert_eq!(sim.memory_info(DEVICE)?, before);
    for bytes in [4 << 20, 600 << 20] {
        let spans = [
            managed(bytes)?,
            pinned(bytes)?,
            sim.alloc_device(DEVICE, bytes)?,
            sim.pool_alloc(pool, bytes, STREAM)?,
        ];
        for ptr in spans {
            // SAFETY: only this test knows the memory.
            unsafe { sim.memset(Span::new(ptr, 4096), 7, STREAM) }?;
        }
    }
    Ok(())
}
