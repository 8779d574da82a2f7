//! Virtual memory resources: what they take, how they grow, what is left after a failure. Numbers
//! with # are issues of cuda-python, about defects that are not here.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector, Sweep};
use pagewise::intercept::Operation;
use pagewise::resource::{
    Allocation, DeviceMemoryResource, Growth, MemoryKind, MemoryResource, Statistics,
    VirtualMemoryResource, VirtualOptions,
};
use pagewise::{
    AccessFlags, Backend, Code, Device, DeviceAccess, DeviceId, DevicePtr, DeviceTouch,
    DriverVersion, ErrorKind, GpuProfile, Granularity, HandleTypes, Host, HostAccess, HostTouch,
    Location, Machine, NumaNode, Place, Result, SimBackend, SimConfig, Span, Stream,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const UNIT: u64 = 2 * MIB;

type Resource = Arc<VirtualMemoryResource>;

fn of_device(machine: &Machine) -> Result<Resource> {
    let options = VirtualOptions::default();
    VirtualMemoryResource::new(machine, Device::FIRST, options).map(Arc::new)
}

fn taken(machine: &Machine) -> u64 {
    let info = machine.backend().memory_info(DeviceId(0)).expect("a device");
    info.total_bytes - info.free_bytes
}

fn touch(machine: &Machine, device: i32, span: Span, access: DeviceAccess) -> Result<u64> {
    let stream = Stream::new(machine, Device::new(device.cast_unsigned())?)?;
    let device = DeviceId(device);
    let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
    // SAFETY: only the test uses the memory, from one thread.
    unsafe { machine.backend().device_touch(touch, stream.handle()) }
}

fn write(machine: &Machine, span: Span, value: u8) -> Result<()> {
    touch(machine, 0, span, DeviceAccess::Write(value)).map(drop)
}

fn sum(machine: &Machine, span: Span) -> Result<u64> {
    touch(machine, 0, span, DeviceAccess::Read)
}

/// #2882, #2344: the handle of the physical memory was never released.
#[test]
fn sixty_four_allocations_of_64_mib_leave_no_memory_taken_when_they_go() -> Result<()> {
    let sim = Arc::new(pagewise::sim()?);
    let machine = Machine::from(&sim);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let before = taken(&machine);
    for round in 0..2 {
        let resource = of_device(&machine)?;
        let make = || Allocation::new(resource.clone(), 64 * MIB, &stream);
        let all = (0..64).map(|_| make()).collect::<Result<Vec<_>>>()?;
        assert_eq!(taken(&machine) - before, 64 * 64 * MIB);
        drop(all);
        assert_eq!(taken(&machine), before, "round {round}");
    }
    assert_eq!(sim.live(), []);
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

/// #2887: a range that had grown in place was freed as one reservation, which it is not.
/// #2907: growth to a size between two units recorded the size that was asked for.
#[test]
fn what_grew_to_any_size_goes_back_as_a_whole() -> Result<()> {
    let sim = Arc::new(pagewise::sim()?);
    let machine = Machine::from(&sim);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let resource = of_device(&machine)?;
    let before = taken(&machine);
    for sizes in [[1, 3 * MIB, 7 * MIB + 1], [UNIT, 2 * UNIT, 4 * UNIT], [5, 6, UNIT + 1]] {
        let mut bytes = Allocation::new(resource.clone(), sizes[0], &stream)?;
        let start = bytes.device_ptr();
        for size in &sizes[1..] {
            let growth = resource.grow(&mut bytes, *size)?;
            assert_ne!(growth, Growth::Moved);
            assert_eq!(bytes.span(), Span::new(start, *size));
            let capacity = size.next_multiple_of(UNIT);
            assert_eq!(resource.capacity_bytes(&bytes), Some(capacity));
            assert_eq!(taken(&machine) - before, capacity);
            write(&machine, Span::new(start, capacity), 1)?;
        }
        bytes.free()?;
        assert_eq!((taken(&machine), sim.live()), (before, Vec::new()));
        // The addresses are free again: another allocation begins at the same.
        let again = Allocation::new(resource.clone(), 64 * UNIT, &stream)?;
        assert_eq!(again.device_ptr(), start);
    }
    Ok(())
}

/// #2886: memory was unmapped under work that used it.
#[test]
fn the_stream_is_waited_for_before_memory_is_unmapped() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let other = Stream::new(&machine, Device::FIRST)?;
    let resource = of_device(&machine)?;
    let order = || {
        let seen = [Operation::StreamSynchronize, Operation::MemoryUnmap, Operation::AddressFree];
        let calls = backend.take_calls();
        let operations = calls.iter().map(|call| call.operation());
        operations.filter(|operation| seen.contains(operation)).collect::<Vec<_>>()
    };
    let wait_then_unmap =
        [Operation::StreamSynchronize, Operation::MemoryUnmap, Operation::AddressFree];
    let mut bytes = Allocation::new(resource.clone(), UNIT, &stream)?;
    let neighbour = Allocation::new(resource.clone(), UNIT, &stream)?;
    drop(backend.take_calls());
    assert_eq!(resource.grow(&mut bytes, 2 * UNIT)?, Growth::Moved);
    // The first range of addresses was none that follows.
    assert_eq!(order()[1..], wait_then_unmap);
    bytes.set_stream(&other)?;
    drop(backend.take_calls());
    drop(neighbour);
    assert_eq!(order(), wait_then_unmap);
    assert_eq!(resource.grow(&mut bytes, 3 * UNIT)?, Growth::InPlace);
    assert_eq!(order(), [], "nothing waits for growth in place");
    Ok(())
}

#[test]
fn growth_keeps_contents_access_and_the_address_if_it_can() -> Result<()> {
    let machine = Machine::from(Arc::new(SimBackend::new(SimConfig::h200().devices(2))?));
    let stream = Stream::new(&machine, Device::FIRST)?;
    let second = Device::new(1)?;
    let options =
        VirtualOptions { peers: vec![(second, AccessFlags::READ)], ..VirtualOptions::default() };
    let resource = Arc::new(VirtualMemoryResource::new(&machine, Device::FIRST, options)?);
    let mut bytes = Allocation::new(resource.clone(), UNIT, &stream)?;
    write(&machine, bytes.span(), 3)?;
    let start = bytes.device_ptr();
    assert_eq!(resource.grow(&mut bytes, 3 * UNIT)?, Growth::InPlace);
    assert_eq!(bytes.device_ptr(), start);
    let neighbour = Allocation::new(resource.clone(), 1, &stream)?;
    assert_eq!(resource.grow(&mut bytes, 9 * UNIT)?, Growth::Moved);
    assert_ne!(bytes.device_ptr(), start);
    let places = UNIT / 4096;
    assert_eq!(sum(&machine, Span::new(bytes.device_ptr(), UNIT))?, 3 * places);
    write(&machine, bytes.span(), 1)?;
    assert_eq!(touch(&machine, 1, bytes.span(), DeviceAccess::Read)?, 9 * places, "a peer reads");
    let refused = touch(&machine, 1, bytes.span(), DeviceAccess::Write(1)).unwrap_err();
    assert_eq!(refused.code(), Some(Code::ILLEGAL_ADDRESS), "and only reads");
    let gone = sum(&machine, Span::new(start, UNIT)).unwrap_err();
    assert_eq!(gone.code(), Some(Code::ILLEGAL_ADDRESS), "nothing is at the old address");
    for smaller in [1, UNIT, 9 * UNIT] {
        assert_eq!(resource.grow(&mut bytes, smaller)?, Growth::Enough);
        assert_eq!(bytes.span().bytes, 9 * UNIT, "allocations do not shrink");
    }
    drop(neighbour);
    Ok(())
}

/// Makes an allocation with contents, and one that takes the addresses after it if asked to.
fn grown(machine: &Machine, moves: bool) -> Result<(Resource, Allocation, Option<Allocation>)> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let resource = of_device(machine)?;
    let mut bytes = Allocation::new(resource.clone(), UNIT, &stream)?;
    resource.grow(&mut bytes, 2 * UNIT)?;
    let in_the_way = moves.then(|| Allocation::new(resource.clone(), UNIT, &stream)).transpose()?;
    write(machine, bytes.span(), 7)?;
    Ok((resource, bytes, in_the_way))
}

#[test]
fn growth_that_fails_at_any_call_leaves_the_allocation_as_it_was() -> Result<()> {
    for moves in [false, true] {
        let sweep = Sweep::new(Code::OUT_OF_MEMORY);
        let swept = sweep.run(pagewise::sim, |backend, failing| {
            let machine = Machine::from(backend);
            let before = taken(&machine);
            let (resource, mut bytes, in_the_way) = grown(&machine, moves)?;
            let (span, used) = (bytes.span(), taken(&machine));
            let live = backend.inner().live();
            let answer = backend.watch(|| resource.grow(&mut bytes, 5 * UNIT));
            assert_eq!(answer.is_err(), failing.is_some(), "{:?}", backend.failed());
            if answer.is_err() {
                assert_eq!((bytes.span(), taken(&machine)), (span, used), "{:?}", backend.failed());
                assert_eq!(backend.inner().live(), live);
            }
            assert_eq!(sum(&machine, Span::new(bytes.device_ptr(), span.bytes))?, 7 * 1024);
            assert_eq!(machine.failures_on_drop(), 0);
            resource.grow(&mut bytes, 5 * UNIT)?;
            write(&machine, bytes.span(), 1)?;
            drop((bytes, in_the_way));
            assert_eq!((taken(&machine), backend.inner().live()), (before, Vec::new()));
            Ok(())
        })?;
        assert!(swept.calls >= 4, "{swept}");
    }
    Ok(())
}

#[test]
fn an_allocation_that_fails_at_any_call_takes_nothing() -> Result<()> {
    let swept = Sweep::new(Code::OUT_OF_MEMORY).run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let resource = of_device(&machine)?;
        let before = (taken(&machine), backend.inner().live());
        let made = backend.watch(|| Allocation::new(resource.clone(), 3, &stream));
        assert_eq!(made.is_err(), failing.is_some());
        drop(made);
        assert_eq!((taken(&machine), backend.inner().live()), before);
        assert_eq!(machine.failures_on_drop(), 0);
        Ok(())
    })?;
    assert_eq!(swept.calls, 4, "create, reserve, map, set access");
    Ok(())
}

/// Old addresses that cannot be given back stay with the allocation; what the resource could not
/// give back goes when it goes.
#[test]
fn what_could_not_be_given_back_is_tried_again() -> Result<()> {
    for operation in [Operation::MemoryUnmap, Operation::MemoryRelease, Operation::AddressFree] {
        let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
        let machine = Machine::from(&backend);
        let before = taken(&machine);
        let (resource, bytes, _) = grown(&machine, false)?;
        backend.arm(Fault::new(Code::UNKNOWN).on(operation));
        assert_eq!(bytes.free().unwrap_err().code(), Some(Code::UNKNOWN), "{operation}");
        drop(resource);
        let left = (taken(&machine), backend.inner().live());
        assert_eq!(left, (before, Vec::new()), "{operation}");
        assert_eq!(machine.failures_on_drop(), 0);
    }
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let before = taken(&machine);
    let (resource, mut bytes, in_the_way) = grown(&machine, true)?;
    backend.arm(Fault::new(Code::UNKNOWN).on(Operation::MemoryUnmap));
    assert_eq!(resource.grow(&mut bytes, 3 * UNIT)?, Growth::Moved);
    assert_eq!(machine.failures_on_drop(), 1, "an old mapping stays");
    write(&machine, bytes.span(), 1)?;
    assert_eq!(resource.grow(&mut bytes, 4 * UNIT)?, Growth::InPlace);
    assert_eq!(sum(&machine, Span::new(bytes.device_ptr(), 3 * UNIT))?, 3 * UNIT / 4096);
    drop((bytes, in_the_way));
    assert_eq!((taken(&machine), backend.inner().live()), (before, Vec::new()));
    Ok(())
}

#[test]
fn refusals_come_before_anything_is_taken() -> Result<()> {
    let machine = Machine::from(Arc::new(SimBackend::new(SimConfig::h200().devices(2))?));
    let stream = Stream::new(&machine, Device::FIRST)?;
    let make = |place: Place, options| VirtualMemoryResource::new(&machine, place, options);
    let first = Place::from(Device::FIRST);
    let peer = |device, access| {
        let peers = vec![(device, access)];
        make(first, VirtualOptions { peers, ..VirtualOptions::default() })
    };
    let second = Device::new(1)?;
    let refused = [
        peer(Device::FIRST, AccessFlags::READ_WRITE),
        peer(second, AccessFlags::NONE),
        peer(second, AccessFlags(2)),
        make(first, VirtualOptions { align_bytes: 12, ..VirtualOptions::default() }),
        make(
            first,
            VirtualOptions {
                peers: vec![(second, AccessFlags::READ); 2],
                ..VirtualOptions::default()
            },
        ),
    ];
    for answer in refused {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None), "{error}");
    }
    assert_eq!(
        peer(Device::new(7)?, AccessFlags::READ).unwrap_err().kind(),
        ErrorKind::InvalidDevice
    );
    let wild = VirtualOptions { granularity: Granularity(9), ..VirtualOptions::default() };
    assert_eq!(make(first, wild).unwrap_err().code(), Some(Code::INVALID_VALUE));
    let exported = HandleTypes::POSIX_FILE_DESCRIPTOR;
    let exported = VirtualOptions { handle_types: exported, ..VirtualOptions::default() };
    assert!(make(first, exported.clone()).is_ok());
    let error = make(Place::HOST, exported).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    let fabric = VirtualOptions { handle_types: HandleTypes::FABRIC, ..VirtualOptions::default() };
    let fabric = Arc::new(make(first, fabric)?);
    let error = Allocation::new(fabric, UNIT, &stream).unwrap_err();
    assert_eq!(error.code(), Some(Code::NOT_PERMITTED), "the machine has no IMEX channel");
    let resource = of_device(&machine)?;
    let before = taken(&machine);
    let none = Allocation::new(resource.clone(), 0, &stream).unwrap_err();
    assert_eq!((none.kind(), none.code()), (ErrorKind::InvalidValue, None));
    for (bytes, kind) in [(u64::MAX, ErrorKind::InvalidValue), (1 << 50, ErrorKind::OutOfMemory)] {
        let error = Allocation::new(resource.clone(), bytes, &stream).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(taken(&machine), before);
    // SAFETY: the memory is not of the resource, so it is refused.
    let foreign = unsafe { resource.deallocate(DevicePtr(4096), 1, &stream) };
    assert_eq!(foreign.unwrap_err().kind(), ErrorKind::InvalidValue);
    Ok(())
}

#[test]
fn only_allocations_directly_of_the_resource_grow() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let (resource, other) = (of_device(&machine)?, of_device(&machine)?);
    let counted = Arc::new(Statistics::new(resource.clone()));
    let plain = Arc::new(DeviceMemoryResource::direct(&machine, Device::FIRST)?);
    let all: [Arc<dyn MemoryResource>; 3] = [other, counted.clone(), plain];
    for made_by in all {
        let mut bytes = Allocation::new(made_by, UNIT, &stream)?;
        let error = resource.grow(&mut bytes, 2 * UNIT).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
        assert_eq!(bytes.span().bytes, UNIT);
    }
    assert_eq!(counted.counters().bytes.current, 0, "adaptors take and give as for any other");
    Ok(())
}

/// The node's number was fixed at -1.
#[test]
fn memory_of_the_host_is_on_the_node_that_was_named_and_the_host_uses_it() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let node = Place::Host(Host::Node(NumaNode::new(0)?));
    for (place, location) in [(node, Location::host_numa(0)), (Place::HOST, Location::HOST)] {
        let peers = vec![(Device::FIRST, AccessFlags::READ_WRITE)];
        let options = VirtualOptions { peers, ..VirtualOptions::default() };
        let resource = Arc::new(VirtualMemoryResource::new(&machine, place, options)?);
        assert_eq!((resource.place(), resource.memory_kind()), (place, MemoryKind::Pinned));
        let before = taken(&machine);
        drop(backend.take_calls());
        let mut bytes = Allocation::new(resource.clone(), UNIT, &stream)?;
        let calls = backend.take_calls();
        let create = calls.iter().find(|call| call.operation() == Operation::MemoryCreate);
        assert_eq!(create.and_then(|call| call.location()), Some(location));
        assert_eq!(taken(&machine), before, "it takes no memory of the device");
        let host = |span, access| {
            // SAFETY: only the test uses the memory, from one thread.
            unsafe { backend.host_touch(HostTouch { span, stride_bytes: 4096, access }) }
        };
        host(bytes.span(), HostAccess::Write(5))?;
        let _in_the_way = Allocation::new(resource.clone(), 1, &stream)?;
        assert_eq!(resource.grow(&mut bytes, 2 * UNIT)?, Growth::Moved);
        assert_eq!(sum(&machine, bytes.span())?, 5 * 512, "the device sees what the host wrote");
        write(&machine, bytes.span(), 1)?;
        assert_eq!(host(bytes.span(), HostAccess::Read)?, 1024);
        let start = std::ptr::with_exposed_provenance::<u8>(bytes.device_ptr().0 as usize);
        // SAFETY: the address is the host's address of the allocation, which lives and has work of
        // no device left.
        assert_eq!(unsafe { start.read() }, 1);
    }
    Ok(())
}

#[test]
fn a_machine_without_the_ability_says_what_to_use_instead() -> Result<()> {
    let mut gpu = GpuProfile::h200();
    gpu.attributes.virtual_memory_management_supported = false;
    let machine = Machine::from(Arc::new(SimBackend::new(SimConfig::new(gpu))?));
    assert!(!machine.capabilities().virtual_memory);
    let error = of_device(&machine).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
    assert!(error.to_string().contains("DeviceMemoryResource"), "{error}");
    let old = SimConfig::h200().driver_version(DriverVersion::CUDA_12_0);
    let machine = Machine::from(Arc::new(SimBackend::new(old)?));
    assert!(of_device(&machine).is_ok(), "older than CUDA 12");
    let host = VirtualMemoryResource::new(&machine, Place::HOST, VirtualOptions::default());
    let error = host.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
    Ok(())
}

/// A step of a random program.
#[derive(Debug, Clone)]
enum Step {
    Allocate(u64),
    Grow(usize, u64),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1..5 * UNIT).prop_map(Step::Allocate),
        4 => (any::<usize>(), 1..12 * UNIT).prop_map(|(which, bytes)| Step::Grow(which, bytes)),
        1 => any::<usize>().prop_map(Step::Free),
    ];
    proptest::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// The model of an allocation: its size, its capacity, and the mark that each unit has.
    #[test]
    fn allocations_that_come_grow_and_go_keep_apart_and_keep_their_contents(steps in steps()) {
        let sim = Arc::new(pagewise::sim()?);
        let machine = Machine::from(&sim);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let resource = of_device(&machine)?;
        let before = taken(&machine);
        let mut live: BTreeMap<usize, (Allocation, u64, u8)> = BTreeMap::new();
        let mut moved = 0;
        for (number, step) in steps.into_iter().enumerate() {
            let pick = |which: usize| live.keys().copied().nth(which % live.len().max(1));
            match step {
                Step::Allocate(bytes) => {
                    let made = Allocation::new(resource.clone(), bytes, &stream)?;
                    let mark = number as u8 + 1;
                    write(&machine, made.span(), mark)?;
                    live.insert(number, (made, bytes.next_multiple_of(UNIT), mark));
                }
                Step::Grow(which, bytes) => {
                    let Some((made, capacity, mark)) = pick(which).and_then(|at| live.get_mut(&at))
                    else { continue };
                    let growth = resource.grow(made, bytes)?;
                    moved += u64::from(growth.is_elsewhere());
                    *capacity = (*capacity).max(bytes.next_multiple_of(UNIT));
                    prop_assert_eq!(resource.capacity_bytes(made), Some(*capacity));
                    write(&machine, made.span(), *mark)?;
                }
                Step::Free(which) => {
                    pick(which).and_then(|at| live.remove(&at));
                }
            }
            let capacity: u64 = live.values().map(|(_, capacity, _)| capacity).sum();
            prop_assert_eq!(taken(&machine) - before, capacity);
            let mapped: u64 = sim.live().iter().map(|span| span.bytes).sum();
            prop_assert_eq!(mapped, capacity, "each byte is mapped once");
            for (made, _, mark) in live.values() {
                let places = made.span().bytes.div_ceil(4096);
                prop_assert_eq!(sum(&machine, made.span())?, u64::from(*mark) * places);
            }
        }
        drop(live);
        prop_assert_eq!((taken(&machine), sim.live()), (before, Vec::new()), "{} moved", moved);
        prop_assert_eq!(machine.failures_on_drop(), 0);
    }
}
