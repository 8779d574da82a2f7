//! Copies and fills between memory of every kind.
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pagewise::copy::{
    CopyOptions, Elements, ElementsMut, ReadOrder, SLICE_PIECE_BYTES, Transfer, copy_from_slice,
    copy_to_slice,
};
use pagewise::inject::{Fault, FaultInjector, Sweep};
use pagewise::intercept::Operation;
use pagewise::resource::{DeviceMemoryResource, PinnedMemoryResource};
use pagewise::{
    Backend, Code, Counters, Device, DeviceBuffer, DevicePtr, ErrorKind, HostRegisterFlags,
    Machine, ManagedBuffer, OnDrop, PinnedBuffer, Place, Result, SimBackend, SimConfig, Span,
    Stream, copy, copy_batch, fill,
};

fn machine() -> Result<(Machine, Stream)> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    Ok((machine, stream))
}

/// The elements of a buffer, by way of a slice.
fn held<'b>(from: impl Into<Elements<'b, u32>>, stream: &Stream) -> Result<Vec<u32>> {
    let from = from.into();
    let mut out = vec![0; from.len()];
    copy_to_slice(&mut out, from, stream)?;
    Ok(out)
}

#[test]
fn elements_of_every_kind_of_memory_are_copied_to_every_kind_whole_and_in_part() -> Result<()> {
    let (machine, stream) = machine()?;
    let numbers: Vec<u32> = (0..3000).collect();
    let mut managed = ManagedBuffer::<u32>::zeroed(&machine, 3000)?;
    let mut device = DeviceBuffer::<u32>::new(&machine, Device::FIRST, 3000)?;
    let mut pinned = PinnedBuffer::<u32>::new(&machine, 3000)?;
    copy_from_slice(&mut managed, &numbers, &stream)?;
    copy_from_slice(&mut device, &numbers, &stream)?;
    pinned.write()?.copy_from_slice(&numbers);
    fn check<'a, 'b>(
        to: impl Into<ElementsMut<'a, u32>>,
        from: impl Into<Elements<'b, u32>>,
        stream: &Stream,
    ) -> Result<()> {
        let (to, from) = (to.into(), from.into());
        copy(to, from, stream)
    }
    let sources: [Elements<'_, u32>; 3] =
        [managed.range(500..700)?.into(), device.range(500..700)?, pinned.range(500..700)?];
    for source in sources {
        let mut to_managed = ManagedBuffer::<u32>::zeroed(&machine, 300)?;
        let mut to_device = DeviceBuffer::<u32>::new(&machine, Device::FIRST, 200)?;
        let mut to_pinned = PinnedBuffer::<u32>::new(&machine, 200)?;
        check(to_managed.range_mut(100..)?, source, &stream)?;
        check(&mut to_device, source, &stream)?;
        check(&mut to_pinned, source, &stream)?;
        assert_eq!(to_managed.read()?[..100], [0; 100], "beside the range");
        assert_eq!(to_managed.read()?[100..], numbers[500..700]);
        assert_eq!(held(&to_device, &stream)?, numbers[500..700]);
        assert_eq!(to_pinned.read()?, &numbers[500..700]);
    }
    Ok(())
}

#[test]
fn a_copy_moves_the_pages_that_the_drivers_call_moves() -> Result<()> {
    let run = |by_api: bool| -> Result<Counters> {
        let sim = Arc::new(SimBackend::new(SimConfig::h200())?);
        let machine = Machine::from(&sim);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let from = ManagedBuffer::from_slice(&machine, &[1_u8; 5 << 20])?;
        let mut to = ManagedBuffer::<u8>::zeroed(&machine, 5 << 20)?;
        to.set_preferred_location(Some(Place::HOST))?;
        let (bytes, on) = (3 << 20, stream.handle());
        let (source, target) = (from.device_ptr().offset(4000), to.device_ptr().offset(100));
        if by_api {
            copy(to.range_mut(100..100 + bytes)?, from.range(4000..4000 + bytes)?, &stream)?;
            fill(to.range_mut(4 << 20..)?, 3, &stream)?;
        } else {
            let rest = Span::new(to.device_ptr().offset(4 << 20), 1 << 20);
            // SAFETY: the buffers are borrowed by no other code, and the ranges do not overlap.
            unsafe {
                sim.memcpy(target, source, bytes as u64, on)?;
                sim.memset(rest, 3, on)?;
            }
        }
        Ok(sim.counters())
    };
    assert_eq!(run(true)?, run(false)?);
    assert_ne!(run(true)?.to_device.bytes, 0);
    Ok(())
}

#[test]
fn fills_write_values_of_1_2_and_4_bytes_and_longer_ones_that_repeat() -> Result<()> {
    let (machine, stream) = machine()?;
    macro_rules! check {
        ($($value:expr => $type:ty),*) => {$(
            let mut buffer = ManagedBuffer::<$type>::zeroed(&machine, 5000)?;
            fill(buffer.range_mut(7..4000)?, $value, &stream)?;
            let seen = buffer.read()?;
            assert!(seen[7..4000].iter().all(|&one| one == $value), "{}", stringify!($type));
            assert!(seen[..7].iter().chain(&seen[4000..]).all(|&one| one == <$type>::default()));
        )*};
    }
    check!(200 => u8, -3 => i8, 0x1234 => u16, -300 => i16, 0x1234_5678 => u32, -70_000 => i32);
    check!(1.25 => f32, 0x0707_0707_0707_0707 => u64, 0 => u128);
    let mut wide = ManagedBuffer::<u64>::zeroed(&machine, 4)?;
    let error = fill(&mut wide, 1, &stream).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    assert!(error.to_string().contains("1, 2 or 4 bytes"), "{error}");
    assert_eq!(wide.read()?, [0; 4]);
    Ok(())
}

#[test]
fn wrong_copies_are_refused_before_the_back_end_is_asked() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let (other, elsewhere) = self::machine()?;
    let foreign = ManagedBuffer::<u8>::zeroed(&other, 4096)?;
    let mut to = ManagedBuffer::<u8>::zeroed(&machine, 4096)?.named("target");
    let from = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    let mut gone = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    drop(gone.discard(&stream)?);
    let _ = backend.take_calls();
    let errors = [
        copy(&mut to, &from, &stream).unwrap_err(),
        copy(&mut to, &foreign, &stream).unwrap_err(),
        copy(&mut to, from.range(..4096)?, &elsewhere).unwrap_err(),
        copy(&mut to, &gone, &stream).unwrap_err(),
        copy_from_slice(&mut to, &[0; 5], &stream).unwrap_err(),
        fill(&mut to, 1, &elsewhere).unwrap_err(),
    ];
    for (error, words) in errors.iter().zip([
        "8192 bytes cannot be copied to 4096",
        "different machines",
        "stream is of another machine",
        "contents were discarded",
        "5 elements and the memory 4096",
        "stream is of another machine",
    ]) {
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().contains("target"), "{error}");
    }
    assert_eq!(backend.take_calls().len(), 0, "the driver was not asked");
    Ok(())
}

#[test]
fn discarded_elements_have_contents_again_when_a_copy_or_fill_wrote_them() -> Result<()> {
    let (machine, stream) = machine()?;
    let from = ManagedBuffer::from_slice(&machine, &[5_u8; 8192])?;
    let mut to = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    copy(to.discard(&stream)?, &from, &stream)?;
    assert_eq!(to.read()?, [5; 8192]);
    drop(to.discard(&stream)?);
    fill(to.range_mut(..4096)?, 6, &stream)?;
    assert_eq!(to.range(..4096)?.read()?, [6; 4096]);
    assert!(to.read().is_err(), "the other half is still without contents");
    fill(to.range_mut(4096..)?, 7, &stream)?;
    to.prefetch(Device::FIRST, &stream)?;
    to.prefetch(Place::HOST, &stream)?;
    assert_eq!((to.read()?[0], to.read()?[8191]), (6, 7), "no migration loses them");
    Ok(())
}

/// The operations of a run, without those of attributes.
fn operations(backend: &FaultInjector<Arc<SimBackend>>) -> Vec<Operation> {
    backend.take_calls().iter().map(|call| call.operation()).collect()
}

#[test]
fn whatever_uses_memory_next_comes_after_its_copies() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let (first, second) =
        (Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?);
    let from = PinnedBuffer::<u8>::new(&machine, 4096)?;
    let mut to = DeviceBuffer::<u8>::new(&machine, Device::FIRST, 4096)?;
    let mut back = PinnedBuffer::<u8>::new(&machine, 4096)?;
    let _ = backend.take_calls();
    let wait = [Operation::EventCreate, Operation::EventRecord, Operation::StreamWaitEvent];
    copy(&mut to, &from, &first)?;
    assert_eq!(operations(&backend), [Operation::Memcpy]);
    copy(&mut back, &to, &second)?;
    assert_eq!(operations(&backend)[..3], wait, "another stream waits there");
    from.read()?;
    assert!(!operations(&backend).contains(&Operation::StreamSynchronize), "both only read");
    back.read()?;
    assert_eq!(operations(&backend)[0], Operation::StreamSynchronize);
    back.read()?;
    assert!(!operations(&backend).contains(&Operation::StreamSynchronize), "once is enough");
    drop(to);
    assert_eq!(
        operations(&backend),
        [Operation::StreamSynchronize, Operation::StreamSynchronize, Operation::Free]
    );
    Ok(())
}

#[test]
fn memory_stays_allocated_if_its_copies_cannot_be_waited_for() -> Result<()> {
    static FREED: AtomicU32 = AtomicU32::new(0);
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let from = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    let memory = machine.backend().alloc_device(Device::FIRST.id(), 4096)?;
    let free = OnDrop::new(|| _ = FREED.fetch_add(1, Ordering::Relaxed));
    // SAFETY: the memory is never freed, and only this buffer uses it.
    let mut adopted = unsafe { DeviceBuffer::<u8>::from_raw(&machine, memory, 4096, free) }?;
    let mut own = DeviceBuffer::<u8>::new(&machine, Device::FIRST, 4096)?;
    copy(&mut adopted, &from, &stream)?;
    copy(&mut own, &from, &stream)?;
    let live = backend.inner().live().len();
    backend.arm(Fault::new(Code::UNKNOWN).on(Operation::StreamSynchronize).always());
    drop(adopted);
    assert!(own.free().is_err());
    backend.disarm();
    assert_eq!(machine.failures_on_drop(), 1, "that of the destructor");
    assert_eq!(FREED.load(Ordering::Relaxed), 0, "its owner is kept");
    assert_eq!(backend.inner().live().len(), live, "nothing was freed");
    drop(from);
    assert_eq!(backend.inner().live().len(), live - 1);
    Ok(())
}

#[test]
fn a_batch_makes_copies_of_several_types_with_their_options() -> Result<()> {
    let (machine, stream) = machine()?;
    let bytes = ManagedBuffer::from_slice(&machine, &[7_u8; 5000])?;
    let numbers = ManagedBuffer::from_slice(&machine, &[2.5_f64; 100])?;
    let mut to_bytes = PinnedBuffer::<u8>::new(&machine, 5000)?;
    let mut to_numbers = ManagedBuffer::<f64>::zeroed(&machine, 200)?;
    let hinted = CopyOptions {
        source_order: ReadOrder::Any,
        source_hint: Some(Place::HOST),
        destination_hint: Some(Device::FIRST.into()),
        overlap_with_compute: true,
    };
    let (left, right) = to_numbers.range_mut(..)?.split_at(100)?;
    let transfers = [
        Transfer::new(&mut to_bytes, &bytes).with(hinted),
        Transfer::new(left, &numbers).with(hinted),
        Transfer::new(right, &numbers),
    ];
    copy_batch(&transfers, &stream)?;
    assert_eq!(to_bytes.read()?, [7; 5000]);
    assert_eq!(to_numbers.read()?, [2.5; 200]);
    Ok(())
}

#[test]
fn a_wrong_batch_is_refused_with_its_item_before_the_back_end_is_asked() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let from = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    let mut buffers = [(); 3].map(|()| ManagedBuffer::<u8>::zeroed(&machine, 4096).expect("room"));
    let mut gone = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    drop(gone.discard(&stream)?);
    let nowhere = CopyOptions { source_hint: Some(Device::new(9)?.into()), ..Default::default() };
    let _ = backend.take_calls();
    for wrong in 0..3 {
        let [a, b, c] = &mut buffers;
        let last = match wrong {
            0 => Transfer::new(c.range_mut(1..)?, &from),
            1 => Transfer::new(c, &gone),
            _ => Transfer::new(c, &from).with(nowhere),
        };
        let error = copy_batch(&[Transfer::new(a, &from), Transfer::new(b, &from), last], &stream)
            .unwrap_err();
        assert_eq!((error.item(), error.code()), (Some(2), None), "{error}");
    }
    let [a, ..] = &mut buffers;
    let legacy = Stream::legacy_default(&machine);
    let error = copy_batch(&[Transfer::new(a, &from)], &legacy).unwrap_err();
    assert!(error.to_string().contains("Stream::new"), "{error}");
    assert!(copy_batch(&[], &stream).is_err());
    let asked = operations(&backend);
    assert!(!asked.contains(&Operation::MemcpyBatch), "{asked:?}");
    Ok(())
}

#[test]
fn memory_that_other_code_gave_is_adopted_by_its_kind_and_no_other() -> Result<()> {
    let sim = pagewise::sim()?;
    let machine = Machine::from(&sim);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let pages = vec![0_u8; 3 * 4096];
    let start = (pages.as_ptr().expose_provenance() as u64).next_multiple_of(4096);
    let registered = Span::new(DevicePtr(start), 8192);
    // SAFETY: the memory outlives its registration.
    unsafe { sim.host_register(registered, HostRegisterFlags::PORTABLE) }?;
    let managed = sim.alloc_managed(8192, pagewise::AttachFlags::GLOBAL)?;
    let device = sim.alloc_device(Device::FIRST.id(), 8192)?;
    let pinned = sim.alloc_pinned(8192, pagewise::HostAllocFlags::empty())?;
    for (ptr, kind, words) in [
        (managed, 0, "this is managed memory"),
        (device, 1, "this is memory of a device"),
        (pinned, 2, "this is page-locked"),
        (registered.ptr, 2, "this is page-locked"),
    ] {
        // SAFETY: the memory outlives the buffers, and only one at a time uses it.
        let answers = unsafe {
            [
                ManagedBuffer::<u8>::from_raw(&machine, ptr, 8192, ()).map(drop),
                DeviceBuffer::<u8>::from_raw(&machine, ptr, 8192, ()).map(drop),
                PinnedBuffer::<u8>::from_raw(&machine, ptr, 8192, ()).map(drop),
            ]
        };
        for (wanted, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(()) => assert_eq!(wanted, kind, "{words}"),
                Err(error) => {
                    assert_ne!(wanted, kind, "{error}");
                    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
                    assert!(error.to_string().contains(words), "{error}");
                }
            }
        }
    }
    // SAFETY: the memory outlives the buffers, which alone use it. Refused ones use nothing.
    unsafe {
        assert!(DeviceBuffer::<u8>::from_raw(&machine, device, 8193, ()).is_err(), "too long");
        assert!(PinnedBuffer::<u8>::from_raw(&machine, DevicePtr(64), 1, ()).is_err());
        let mut ours = PinnedBuffer::<u32>::from_raw(&machine, registered.ptr, 2048, ())?;
        let mut theirs = DeviceBuffer::<u32>::from_raw(&machine, device, 2048, ())?;
        ours.write()?.fill(9);
        copy(&mut theirs, &ours, &stream)?;
        assert_eq!(held(&theirs, &stream)?, [9; 2048]);
        // Two buffers of one piece of memory overlap, which no borrow excludes.
        let twin = DeviceBuffer::<u32>::from_raw(&machine, device, 2048, ())?;
        let error = copy(theirs.range_mut(..1024)?, twin.range(1000..2024)?, &stream).unwrap_err();
        assert!(error.to_string().contains("overlaps"), "{error}");
        drop((ours, theirs, twin));
        sim.host_unregister(registered.ptr)?;
        sim.free(managed)?;
        sim.free(device)?;
        sim.free_pinned(pinned)?;
    }
    assert_eq!(sim.live(), []);
    Ok(())
}

#[test]
fn memory_of_resources_is_copied_and_goes_back_after_its_copies() -> Result<()> {
    let sim = pagewise::sim()?;
    let machine = Machine::from(&sim);
    let (first, second) =
        (Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?);
    let device = Arc::new(DeviceMemoryResource::current_pool(&machine, Device::FIRST)?);
    let pinned = Arc::new(PinnedMemoryResource::direct(&machine));
    let mut a = DeviceBuffer::<u16>::from_resource(device.clone(), 500, &first)?;
    let mut b = PinnedBuffer::<u16>::from_resource(pinned.clone(), 500, &first)?;
    assert!(DeviceBuffer::<u16>::from_resource(pinned, 500, &first).is_err());
    assert!(PinnedBuffer::<u16>::from_resource(device, 500, &first).is_err());
    a.fill(17, &second)?;
    b.copy_from(&a, &first)?;
    assert_eq!(b.read()?, [17; 500]);
    a.free()?;
    b.free()?;
    assert_eq!((sim.live(), machine.failures_on_drop()), (vec![], 0));
    Ok(())
}

#[test]
fn slices_of_several_pieces_arrive_whole() -> Result<()> {
    let (machine, stream) = machine()?;
    let length = SLICE_PIECE_BYTES / 4 * 2 + 777;
    let numbers: Vec<u32> = (0..length as u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    let mut device = DeviceBuffer::<u32>::new(&machine, Device::FIRST, length)?;
    copy_from_slice(&mut device, &numbers, &stream)?;
    assert!(held(&device, &stream)? == numbers);
    assert_eq!(held(device.range(length - 3..)?, &stream)?, numbers[length - 3..]);
    Ok(())
}

/// A copy of each sort.
fn copies_of_each_sort(machine: &Machine) -> Result<Vec<u32>> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let mut managed = ManagedBuffer::<u32>::zeroed(machine, 2000)?;
    let mut device = DeviceBuffer::<u32>::new(machine, Device::FIRST, 2000)?;
    fill(managed.discard(&stream)?, 3, &stream)?;
    copy(&mut device, &managed, &stream)?;
    copy_from_slice(device.range_mut(..2)?, &[1, 2], &stream)?;
    copy_batch(&[Transfer::new(&mut managed, &device)], &stream)?;
    Ok(managed.read()?[..3].to_vec())
}

#[test]
fn each_call_of_a_copy_may_fail_and_says_so() -> Result<()> {
    let swept = Sweep::new(Code::OUT_OF_MEMORY).run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        match backend.watch(|| copies_of_each_sort(&machine)) {
            Ok(seen) => assert_eq!((seen, failing), (vec![1, 2, 3], None)),
            Err(error) => assert!(failing.is_some(), "{error}"),
        }
        assert_eq!((backend.inner().live(), machine.failures_on_drop()), (vec![], 0));
        Ok(())
    })?;
    assert!(swept.calls > 15, "{swept}");
    Ok(())
}
