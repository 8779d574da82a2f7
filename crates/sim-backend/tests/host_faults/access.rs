//! Accesses that fault, and their number.

use std::io::{Read, Write, pipe};

use pagewise_hal::{
    AccessFlags, Backend, BackendExt, DeviceAccess, HostAccess, HostAllocFlags, HostTouch,
    Location, MemoryAccess, MemoryEvent, Span,
};
use pagewise_sim::SimBackend;

use crate::common::{DEVICE, PAGE, device, machine, peek, poke, serves_system_calls, with_each};

fn cpu_faults(sim: &SimBackend) -> usize {
    let records = sim.take_events().unwrap();
    records.iter().filter(|record| matches!(record, MemoryEvent::CpuFault { .. })).count()
}

#[test]
fn a_prefetch_to_the_device_makes_pages_inaccessible_again() {
    with_each(|config, _| {
        let sim = machine(config);
        let span = sim.alloc(2 << 20).unwrap();
        poke(span.ptr.0, 1);
        let faults = cpu_faults(&sim);
        assert!(faults > 0);
        poke(span.ptr.0, 2);
        assert_eq!(cpu_faults(&sim), 0, "mapped");
        sim.prefetch_to(span, Location::device(DEVICE)).unwrap();
        assert_eq!(peek(span.ptr.0), 2);
        assert_eq!(cpu_faults(&sim), 1, "gone to the device");
    });
}

#[test]
fn a_declared_access_maps_pages_for_raw_ones() {
    with_each(|config, _| {
        let sim = machine(config);
        let span = sim.alloc(1 << 20).unwrap();
        let touch = HostTouch { span, stride_bytes: PAGE, access: HostAccess::Write(3) };
        // SAFETY: only this test uses the memory.
        unsafe { sim.host_touch(touch) }.unwrap();
        sim.take_events().unwrap();
        assert!((0..256).all(|page| peek(span.ptr.0 + page * PAGE) == 3));
        assert_eq!(cpu_faults(&sim), 0);
    });
}

#[test]
fn a_write_to_a_duplicated_page_collapses_its_duplicates() {
    with_each(|config, _| {
        let sim = machine(config);
        let span = sim.alloc(PAGE).unwrap();
        sim.set_read_mostly(span, true).unwrap();
        poke(span.ptr.0, 9);
        assert_eq!(device(&sim, span, DeviceAccess::Read), 9);
        sim.take_events().unwrap();
        assert_eq!(peek(span.ptr.0), 9);
        assert_eq!(cpu_faults(&sim), 0, "the host has its duplicate");
        poke(span.ptr.0, 10);
        assert_eq!(cpu_faults(&sim), 1, "which is write-protected");
        let faults = sim.counters().gpu_faults;
        assert_eq!(device(&sim, span, DeviceAccess::Read), 10);
        assert!(sim.counters().gpu_faults > faults, "the device's duplicate went");
    });
}

#[test]
fn system_calls_reach_memory_as_the_mechanism_allows() {
    with_each(|config, faults| {
        let sim = machine(config);
        let span = sim.alloc(16 * PAGE).unwrap();
        device(&sim, span, DeviceAccess::Write(5));
        let (mut reader, mut writer) = pipe().unwrap();
        let first = std::ptr::with_exposed_provenance_mut::<u8>(span.ptr.0 as usize);
        // SAFETY: the memory is live for as long as the machine, and no other code uses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(first, 8 * PAGE as usize) };
        sim.take_events().unwrap();
        if !serves_system_calls(faults) {
            println!("partly skipped: system calls do not wait for pages here");
            let refused = writer.write(bytes).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
            assert_eq!(cpu_faults(&sim), 0);
            (0..8).for_each(|page| assert_eq!(peek(span.ptr.0 + page * PAGE), 5));
        }
        writer.write_all(bytes).unwrap();
        assert!(cpu_faults(&sim) > 0);
        sim.prefetch_to(span, Location::device(DEVICE)).unwrap();
        if !serves_system_calls(faults) {
            let refused = reader.read(bytes).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
            return;
        }
        bytes[PAGE as usize] = 6;
        reader.read_exact(bytes).unwrap();
        assert_eq!((bytes[0], bytes[1], bytes[PAGE as usize]), (5, 0, 5), "as they were sent");
    });
}

#[test]
fn memory_that_the_host_always_reaches_is_accessible_and_causes_no_record() {
    with_each(|config, _| {
        let sim = machine(config);
        let pinned = sim.alloc_pinned(3 << 20, HostAllocFlags::empty()).unwrap();
        poke(pinned.0 + (3 << 20) - 1, 8);
        assert_eq!((peek(pinned.0), peek(pinned.0 + (3 << 20) - 1)), (0, 8));
        let span = Span::new(pinned, 3 << 20);
        device(&sim, span, DeviceAccess::Write(4));
        assert_eq!(peek(pinned.0 + PAGE), 4);
        assert!(sim.take_events().unwrap().is_empty());
    });
}

#[test]
fn mapped_host_memory_is_accessible_as_its_access_says() {
    with_each(|config, _| {
        let sim = machine(config);
        let props = pagewise_hal::MemoryProps {
            allocation_type: pagewise_hal::AllocationType::PINNED,
            location: Location::host_numa(0),
            handle_types: pagewise_hal::HandleTypes::empty(),
        };
        let memory = sim.memory_create(2 << 20, props).unwrap();
        let ptr = sim.address_reserve(2 << 20, 0, pagewise_hal::DevicePtr::NULL).unwrap();
        let span = Span::new(ptr, 2 << 20);
        let host = MemoryAccess { location: Location::HOST, access: AccessFlags::READ_WRITE };
        // SAFETY: only this test uses the range.
        unsafe {
            sim.memory_map(span, 0, memory).unwrap();
            sim.memory_set_access(span, &[host]).unwrap();
        }
        poke(ptr.0 + PAGE, 3);
        assert_eq!(peek(ptr.0 + PAGE), 3);
    });
}

#[test]
fn locked_and_forgotten_pages_move_as_others_do() {
    with_each(|config, faults| {
        let sim = machine(config);
        let span = sim.alloc(8 * PAGE).unwrap();
        (0..8).for_each(|page| poke(span.ptr.0 + page * PAGE, 1));
        let place = std::ptr::with_exposed_provenance_mut(span.ptr.0 as usize);
        let bytes = span.bytes as usize;
        // SAFETY: locking changes no contents.
        let locked = unsafe { libc::mlock(place, bytes) };
        assert_eq!(locked, 0, "{faults:?}: {}", std::io::Error::last_os_error());
        device(&sim, span, DeviceAccess::Write(2));
        sim.take_events().unwrap();
        assert_eq!(peek(span.ptr.0), 2);
        assert!(cpu_faults(&sim) > 0, "{faults:?}: a locked page left the host");
        // SAFETY: the memory stays as it is, and shared memory keeps its contents.
        let forgotten = unsafe {
            libc::munlock(place, bytes);
            libc::madvise(place, bytes, libc::MADV_DONTNEED)
        };
        assert_eq!(forgotten, 0);
        assert_eq!(peek(span.ptr.0), 2);
        assert_eq!(cpu_faults(&sim), 0, "the driver has it mapped");
    });
}
