//! Memory resources: the memory that they give and take back, and the additions of adaptors.
#![cfg(feature = "sim")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use pagewise::inject::{Fault, FaultInjector, sweep};
use pagewise::intercept::Operation;
use pagewise::resource::{
    Allocation, DeviceMemoryResource, Failing, Limit, ManagedMemoryResource, MemoryKind,
    MemoryResource, PinnedMemoryResource, Pool, PoolOptions, PrefetchOnAllocate, ReplayLog,
    Statistics, SubAllocator, VirtualMemoryResource, VirtualOptions,
};
use pagewise::{
    Code, Device, DevicePtr, DriverVersion, ErrorKind, HandleTypes, Host, Machine, ManagedBuffer,
    NumaNode, Place, PointerAttribute, PoolAttribute, Result, SimBackend, SimConfig, Stream,
};
use proptest::prelude::*;

const CHUNK: u64 = 32 << 20;

fn machine() -> Result<Machine> {
    Ok(Machine::from(pagewise::sim()?))
}

fn pool(resource: &ManagedMemoryResource) -> &Pool {
    resource.pool().expect("made with a pool")
}

/// Every resource, each made anew.
fn every_resource(machine: &Machine) -> Result<Vec<Arc<dyn MemoryResource>>> {
    let first = Device::FIRST;
    let options = PoolOptions::default();
    Ok(vec![
        Arc::new(ManagedMemoryResource::direct(machine)),
        Arc::new(ManagedMemoryResource::new_pool(machine, None)?),
        Arc::new(ManagedMemoryResource::current_pool(machine)?),
        Arc::new(ManagedMemoryResource::default_pool(machine)?),
        Arc::new(PinnedMemoryResource::direct(machine)),
        Arc::new(PinnedMemoryResource::new_pool(machine, options)?),
        Arc::new(PinnedMemoryResource::on_node(machine, NumaNode::new(0)?, options)?),
        Arc::new(PinnedMemoryResource::current_pool(machine)?),
        Arc::new(PinnedMemoryResource::default_pool(machine)?),
        Arc::new(DeviceMemoryResource::direct(machine, first)?),
        Arc::new(DeviceMemoryResource::new_pool(machine, first, options)?),
        Arc::new(DeviceMemoryResource::current_pool(machine, first)?),
        Arc::new(DeviceMemoryResource::default_pool(machine, first)?),
        Arc::new(VirtualMemoryResource::new(machine, first, VirtualOptions::default())?),
        Arc::new(VirtualMemoryResource::new(machine, Place::HOST, VirtualOptions::default())?),
        Arc::new(SubAllocator::new(ManagedMemoryResource::direct(machine), 1 << 20)?),
    ])
}

#[test]
fn every_resource_gives_memory_of_its_kind_and_takes_it_back() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    for resource in every_resource(&machine)? {
        let bytes = Allocation::new(Arc::clone(&resource), 1000, &stream)?;
        let ask = |attribute| machine.backend().pointer_attribute(bytes.device_ptr(), attribute);
        let kind = resource.memory_kind();
        assert_eq!(
            ask(PointerAttribute::IS_MANAGED)? == 1,
            kind == MemoryKind::Managed,
            "{resource:?}"
        );
        assert_eq!(
            ask(PointerAttribute::MEMORY_TYPE)? == 1,
            kind == MemoryKind::Pinned,
            "{resource:?}"
        );
        assert!(bytes.device_ptr().0.is_multiple_of(256), "{resource:?}");
        bytes.free()?;
        let none = Allocation::new(Arc::clone(&resource), 0, &stream).unwrap_err();
        assert_eq!((none.kind(), none.code()), (ErrorKind::InvalidValue, None), "{resource:?}");
        let other = Stream::legacy_default(&Machine::from(pagewise::sim()?));
        assert!(resource.allocate(8, &other).is_err(), "{resource:?}");
    }
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

#[test]
fn a_buffer_of_any_managed_resource_is_a_buffer() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    for resource in every_resource(&machine)? {
        let kind = resource.memory_kind();
        let buffer = ManagedBuffer::<u64>::from_resource(resource, 1000, &stream);
        if kind != MemoryKind::Managed {
            assert_eq!(buffer.unwrap_err().kind(), ErrorKind::Unsupported);
            continue;
        }
        let mut buffer = buffer?;
        buffer.write()?.fill(3);
        buffer.prefetch(Device::FIRST, &stream)?;
        assert_eq!(buffer.read()?.iter().sum::<u64>(), 3000);
        buffer.free()?;
    }
    Ok(())
}

#[test]
fn pools_of_managed_memory_say_what_they_need() -> Result<()> {
    let old = SimConfig::h200().driver_version(DriverVersion::CUDA_12_9);
    let wsl = SimConfig::profile("wsl").expect("shipped");
    for (config, says) in [(old, "13.0"), (wsl, "concurrent managed access")] {
        let backend = Arc::new(FaultInjector::around(SimBackend::new(config)?));
        let machine = Machine::from(&backend);
        for answer in [
            ManagedMemoryResource::new_pool(&machine, None),
            ManagedMemoryResource::current_pool(&machine),
            ManagedMemoryResource::default_pool(&machine),
        ] {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None), "{error}");
            assert!(error.to_string().contains(says), "{error}");
            assert!(error.to_string().contains("direct"), "says what to do: {error}");
        }
        assert_eq!(backend.take_calls(), [], "before the driver is asked");
        let stream = Stream::legacy_default(&machine);
        let direct = Arc::new(ManagedMemoryResource::direct(&machine));
        assert!(ManagedBuffer::<u8>::from_resource(direct, 8, &stream).is_ok());
    }
    Ok(())
}

#[test]
fn a_preferred_location_is_any_place_that_pools_take() -> Result<()> {
    let machine = machine()?;
    let node = Place::from(Host::node(0)?);
    let current = Place::from(Host::CurrentNode);
    let places = [Place::HOST, Device::FIRST.into(), node, current].map(Some);
    for place in places.into_iter().chain([None]) {
        let resource = ManagedMemoryResource::new_pool(&machine, place)?;
        assert_eq!(resource.preferred_location(), place);
        assert!(pool(&resource).is_owned());
    }
    let of = |place: Place| ManagedMemoryResource::new_pool(&machine, Some(place)).unwrap_err();
    assert_eq!(of(Device::new(4)?.into()).kind(), ErrorKind::InvalidDevice);
    assert_eq!(of(Host::node(9)?.into()).code(), Some(Code::INVALID_VALUE));
    Ok(())
}

#[test]
fn a_pinned_pool_for_export_is_on_the_nearest_node() -> Result<()> {
    let machine = machine()?;
    let export =
        PoolOptions { handle_types: HandleTypes::POSIX_FILE_DESCRIPTOR, ..PoolOptions::default() };
    assert_eq!(PinnedMemoryResource::new_pool(&machine, PoolOptions::default())?.node(), None);
    let node = PinnedMemoryResource::new_pool(&machine, export)?.node();
    assert_eq!(node, Some(NumaNode::new(0)?));
    let far = PinnedMemoryResource::on_node(&machine, NumaNode::new(7)?, export).unwrap_err();
    assert_eq!(far.code(), Some(Code::INVALID_VALUE));
    Ok(())
}

/// The attributes are newer than the pools that they describe: unknown means ask the driver.
#[test]
fn host_pools_are_refused_by_the_attribute_only_if_the_driver_knows_it() -> Result<()> {
    let node = NumaNode::new(0)?;
    for (version, on_node, on_host) in [
        (DriverVersion::CUDA_12_8, true, false),
        (DriverVersion::CUDA_12_9, true, false),
        (DriverVersion::CUDA_13_0, true, true),
    ] {
        let config = SimConfig::h200().driver_version(version);
        let machine = Machine::from(Arc::new(SimBackend::new(config)?));
        let options = PoolOptions::default();
        let pools = (
            PinnedMemoryResource::on_node(&machine, node, options).is_ok(),
            PinnedMemoryResource::new_pool(&machine, options).is_ok(),
        );
        assert_eq!(pools, (on_node, on_host), "{version}");
    }
    Ok(())
}

#[test]
fn every_attribute_of_a_pool_is_read_and_every_setting_set() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let resource = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    let figures = pool(&resource).figures()?;
    let flags = |f: pagewise::resource::PoolFigures| {
        [
            f.reuse_follow_event_dependencies,
            f.reuse_allow_opportunistic,
            f.reuse_allow_internal_dependencies,
        ]
    };
    assert_eq!(flags(figures), [true; 3]);
    pool(&resource).set_reuse_follow_event_dependencies(false)?;
    assert_eq!(flags(pool(&resource).figures()?), [false, true, true]);
    pool(&resource).set_reuse_allow_opportunistic(false)?;
    pool(&resource).set_reuse_follow_event_dependencies(true)?;
    assert_eq!(flags(pool(&resource).figures()?), [true, false, true]);
    pool(&resource).set_reuse_allow_internal_dependencies(false)?;
    pool(&resource).set_reuse_allow_opportunistic(true)?;
    assert_eq!(flags(pool(&resource).figures()?), [true, true, false]);
    pool(&resource).set_release_threshold(CHUNK)?;
    let big = Allocation::new(resource.clone(), 3 * CHUNK, &stream)?;
    let small = Allocation::new(resource.clone(), 100, &stream)?;
    let full = pool(&resource).figures()?;
    assert_eq!((full.used_bytes, full.used_high_bytes), (3 * CHUNK + 100, 3 * CHUNK + 100));
    assert!(full.reserved_bytes >= full.used_bytes);
    drop(big);
    pool(&resource).reset_used_high()?;
    assert_eq!(pool(&resource).figures()?.used_high_bytes, 100);
    drop(small);
    stream.synchronize()?;
    let kept = pool(&resource).figures()?;
    assert_eq!((kept.used_bytes, kept.reserved_bytes), (0, CHUNK), "the threshold stays");
    pool(&resource).reset_reserved_high()?;
    assert_eq!(pool(&resource).figures()?.reserved_high_bytes, CHUNK);
    pool(&resource).trim(0)?;
    assert_eq!(pool(&resource).figures()?.reserved_bytes, 0);
    let unknown = pool(&resource).attribute(PoolAttribute(99)).unwrap_err();
    assert_eq!(unknown.code(), Some(Code::INVALID_VALUE));
    Ok(())
}

#[test]
fn memory_goes_before_the_pool_that_gave_it() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let resource = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    let buffer = ManagedBuffer::<u8>::from_resource(resource, 100, &stream)?;
    let _ = backend.take_calls();
    drop(stream);
    drop(buffer);
    let calls: Vec<_> = backend.take_calls().iter().map(|call| call.operation()).collect();
    let order = [Operation::FreeAsync, Operation::PoolDestroy, Operation::StreamDestroy];
    assert_eq!(calls, order, "the memory, then who gave it");
    drop(ManagedMemoryResource::current_pool(&machine)?);
    let destroyed = |call: &pagewise::intercept::Call| call.operation() == Operation::PoolDestroy;
    assert!(!backend.take_calls().iter().any(destroyed), "a pool of the driver stays");
    Ok(())
}

#[test]
fn a_pool_whose_threshold_cannot_be_set_is_not_left_behind() -> Result<()> {
    let options = PoolOptions { release_threshold_bytes: 1 << 20, ..PoolOptions::default() };
    let sites = sweep(Code::OUT_OF_MEMORY, pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let made = backend.watch(|| ManagedMemoryResource::with_options(&machine, None, options));
        assert_eq!(made.is_err(), failing.is_some());
        drop(made);
        assert_eq!(machine.failures_on_drop(), 0);
        let calls = backend.take_calls();
        let count = |operation| calls.iter().filter(|call| call.operation() == operation).count();
        let created = count(Operation::PoolCreate);
        let failed = usize::from(failing == Some(0));
        assert!(created - failed <= 1 && count(Operation::PoolSetAttribute) <= 1);
        Ok(())
    })?;
    assert_eq!(sites, 2, "make it, set the threshold");
    Ok(())
}

#[test]
fn streams_that_use_a_leased_buffer_are_waited_for() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let home = Stream::new(&machine, Device::FIRST)?;
    let other = Stream::new(&machine, Device::FIRST)?;
    let resource = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    let buffer = ManagedBuffer::<u8>::from_resource(resource, 8192, &home)?;
    let waits = || {
        let calls = backend.take_calls();
        calls.iter().filter(|call| call.operation() == Operation::StreamWaitEvent).count()
    };
    buffer.prefetch(Device::FIRST, &home)?;
    assert_eq!(waits(), 0, "its own stream need not wait");
    buffer.prefetch(Device::FIRST, &other)?;
    assert_eq!(waits(), 1, "the other waits for it to come");
    buffer.prefetch(Device::FIRST, &other)?;
    assert_eq!(waits(), 0, "once");
    drop(buffer);
    assert_eq!(waits(), 1, "it waits for the other before it goes");
    Ok(())
}

fn operations(backend: &FaultInjector<Arc<SimBackend>>) -> Vec<Operation> {
    backend.take_calls().iter().map(|call| call.operation()).collect()
}

#[test]
fn the_host_waits_once_for_a_leased_buffer_to_come() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let resource = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    let mut buffer = ManagedBuffer::<u8>::from_resource(resource, 100, &stream)?;
    let _ = backend.take_calls();
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::StreamSynchronize));
    assert!(buffer.write().is_err(), "what the wait reports");
    assert_eq!(operations(&backend), [Operation::StreamSynchronize], "and nothing is touched");
    buffer.write()?.fill(1);
    assert_eq!(operations(&backend), [Operation::StreamSynchronize, Operation::HostTouch]);
    assert_eq!(buffer.read()?[99], 1);
    assert_eq!(operations(&backend), [Operation::HostTouch], "it has come");
    Ok(())
}

#[test]
fn a_piece_changes_streams_only_after_one_waits_for_the_other() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let one = Stream::new(&machine, Device::FIRST)?;
    let two = Stream::new(&machine, Device::FIRST)?;
    let pieces = SubAllocator::new(ManagedMemoryResource::direct(&machine), 64 << 10)?;
    let waits = || operations(&backend).contains(&Operation::StreamWaitEvent);
    let first = pieces.allocate(1000, &one)?;
    assert!(!waits());
    // SAFETY: the piece is live, and no work uses it.
    unsafe { pieces.deallocate(first, 1000, &one)? };
    assert_eq!((pieces.allocate(1000, &one)?, waits()), (first, false), "its own: at once");
    // SAFETY: the piece was given a second time, is live, and no work uses it.
    unsafe { pieces.deallocate(first, 1000, &one)? };
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::StreamWaitEvent));
    assert!(pieces.allocate(1000, &two).is_err());
    let _ = backend.take_calls();
    assert_eq!((pieces.allocate(1000, &two)?, waits()), (first, true), "not lost, and ordered");
    assert_ne!(pieces.allocate(1000, &two)?, first);
    assert!(waits(), "the rest of the chunk came on the first stream");
    Ok(())
}

#[test]
fn peer_access_changes_as_a_whole() -> Result<()> {
    let three = || SimBackend::new(SimConfig::h200().devices(3));
    let device = |n| Device::new(n).expect("in range");
    for (start, target) in [(vec![], vec![1, 2]), (vec![1], vec![0, 2]), (vec![1, 2], vec![])] {
        sweep(Code::OUT_OF_MEMORY, three, |backend, failing| {
            let machine = Machine::from(backend);
            let options = PoolOptions::default();
            let resource = DeviceMemoryResource::new_pool(&machine, Device::FIRST, options)?;
            let peers = resource.peer_accessible_by().expect("it has a pool");
            peers.assign(start.iter().copied().map(device))?;
            let before = peers.to_set()?;
            let answer = backend.watch(|| peers.assign(target.iter().copied().map(device)));
            assert_eq!(answer.is_err(), failing.is_some());
            let wanted: BTreeSet<Device> =
                target.iter().copied().filter(|&n| n != 0).map(device).collect();
            let expected = if answer.is_ok() { wanted } else { before };
            assert_eq!(peers.to_set()?, expected, "{answer:?}");
            Ok(())
        })?;
    }
    let machine = Machine::from(Arc::new(three()?));
    let resource = DeviceMemoryResource::new_pool(&machine, Device::FIRST, PoolOptions::default())?;
    let peers = resource.peer_accessible_by().expect("it has a pool");
    let error = peers.assign([device(1), device(8)]).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidDevice, None));
    assert!(peers.to_set()?.is_empty(), "nothing was given");
    Ok(())
}

#[test]
fn a_limit_counts_what_was_given_only() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::legacy_default(&machine);
    let inner = Failing::new(ManagedMemoryResource::direct(&machine));
    inner.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::PoolAlloc).nth(1));
    let limited = Arc::new(Limit::new(inner, 100));
    let a = Allocation::new(limited.clone(), 60, &stream)?;
    assert!(Allocation::new(limited.clone(), 30, &stream).is_err(), "injected");
    assert_eq!(limited.used_bytes(), 60);
    let b = Allocation::new(limited.clone(), 40, &stream)?;
    let error = Allocation::new(limited.clone(), 1, &stream).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::OutOfMemory, None));
    assert!(error.to_string().contains("limit of 100"), "{error}");
    assert!(Allocation::new(limited.clone(), u64::MAX, &stream).is_err());
    drop((a, b));
    assert_eq!(limited.used_bytes(), 0);
    Ok(())
}

#[test]
fn a_prefetch_that_fails_gives_the_memory_back() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::legacy_default(&machine);
    let counted = Arc::new(Statistics::new(ManagedMemoryResource::direct(&machine)));
    let resource = PrefetchOnAllocate::new(counted.clone(), Device::FIRST)?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::Prefetch));
    assert_eq!(resource.allocate(4096, &stream).unwrap_err().code(), Some(Code::OUT_OF_MEMORY));
    assert_eq!((counted.counters().bytes.current, counted.counters().bytes.total), (0, 4096));
    Ok(())
}

/// A log that tests can read while it is written.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panics").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_log_has_a_line_for_each_event() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let text = Shared::default();
    let limited = Limit::new(ManagedMemoryResource::direct(&machine), 100);
    let log = Arc::new(ReplayLog::new(limited, text.clone()));
    let bytes = Allocation::new(log.clone(), 64, &stream)?;
    assert!(Allocation::new(log.clone(), 64, &stream).is_err());
    let address = bytes.device_ptr().to_string();
    drop(bytes);
    let text = String::from_utf8(text.0.lock().expect("no panics").clone()).expect("text");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 6), "{text}");
    let on = format!("{:#x}", stream.handle().as_raw());
    let event = |row: usize| rows[row][2..].to_vec();
    assert_eq!(event(1), ["allocate", &address, "64", &on]);
    assert_eq!(event(2), ["allocate failure", "0x0", "64", &on]);
    assert_eq!(event(3), ["free", &address, "64", &on]);
    assert!(rows[1..].iter().all(|row| row[0] == rows[1][0]), "one thread");
    Ok(())
}

#[derive(Debug, Clone)]
enum Step {
    Give { bytes: u64, stream: usize },
    Take { which: usize, stream: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1_u64..2000, 2000_u64..20_000, Just(40_000)];
    let step = prop_oneof![
        (bytes, 0..2_usize).prop_map(|(bytes, stream)| Step::Give { bytes, stream }),
        (any::<usize>(), 0..2_usize).prop_map(|(which, stream)| Step::Take { which, stream }),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Pieces are aligned, never overlap, and everything goes back upstream.
    #[test]
    fn pieces_never_overlap_and_all_goes_back(steps in steps()) {
        let machine = machine()?;
        let streams =
            [Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?];
        let upstream = Arc::new(Statistics::new(ManagedMemoryResource::direct(&machine)));
        let pieces = SubAllocator::new(upstream.clone(), 64 << 10)?;
        let mut live: Vec<(DevicePtr, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Give { bytes, stream } => {
                    let ptr = pieces.allocate(bytes, &streams[stream])?;
                    prop_assert!(ptr.0.is_multiple_of(256));
                    let apart = |&(other, size): &(DevicePtr, u64)| {
                        ptr.0 + bytes <= other.0 || other.0 + size <= ptr.0
                    };
                    prop_assert!(live.iter().all(apart), "{ptr} + {bytes}: {live:?}");
                    live.push((ptr, bytes));
                }
                Step::Take { which, stream } => {
                    if live.is_empty() {
                        continue;
                    }
                    let (ptr, bytes) = live.swap_remove(which % live.len());
                    // SAFETY: the piece was given, is given back once, and no work uses it.
                    unsafe { pieces.deallocate(ptr, bytes, &streams[stream])? };
                }
            }
        }
        for (ptr, bytes) in live {
            // SAFETY: the piece was given, is given back once, and no work uses it.
            unsafe { pieces.deallocate(ptr, bytes, &streams[0])? };
        }
        drop(pieces);
        prop_assert_eq!(upstream.counters().bytes.current, 0);
        prop_assert_eq!(machine.failures_on_drop(), 0);
    }

    /// Counters of nested scopes are those that one scope would have had.
    #[test]
    fn scopes_add_up(sizes in proptest::collection::vec((1_u64..1000, any::<bool>()), 1..40)) {
        let machine = machine()?;
        let stream = Stream::legacy_default(&machine);
        let flat = Arc::new(Statistics::new(ManagedMemoryResource::direct(&machine)));
        let nested = Arc::new(Statistics::new(flat.clone()));
        let mut live = Vec::new();
        let mut depth = 0;
        for (bytes, keep) in sizes {
            match bytes % 3 {
                0 => { nested.push(); depth += 1 }
                1 if depth > 0 => { nested.pop()?; depth -= 1 }
                _ => {}
            }
            live.push(Allocation::new(nested.clone(), bytes, &stream)?);
            if !keep {
                live.swap_remove(0);
            }
        }
        while depth > 0 {
            nested.pop()?;
            depth -= 1;
        }
        prop_assert_eq!(nested.counters(), flat.counters());
        prop_assert!(nested.pop().is_err());
    }
}
