//! Operations over many regions.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector, sweep};
use pagewise::intercept::Operation;
use pagewise::{
    BatchSupport, Capabilities, Code, Device, DevicePtr, DriverVersion, Error, ErrorKind, Host,
    Location, Machine, ManagedBuffer, MemoryAdvice, Place, Region, Result, Rounding, SimBackend,
    SimConfig, Stream, advise, discard, discard_prefetch, prefetch,
};
use pagewise_hal::mock::{MockBackend, permit_free};

const MIB: usize = 1 << 20;
const GPU: Place = Place::Device(Device::FIRST);

fn three(machine: &Machine) -> Result<Vec<ManagedBuffer<u8>>> {
    (0..3).map(|_| ManagedBuffer::new(machine, 2 * MIB)).collect()
}

fn regions(buffers: &[ManagedBuffer<u8>]) -> Vec<Region<'_>> {
    buffers.iter().map(ManagedBuffer::region).collect()
}

fn of_version(version: DriverVersion) -> Result<Arc<FaultInjector<SimBackend>>> {
    let sim = SimBackend::new(SimConfig::h200().driver_version(version))?;
    Ok(Arc::new(FaultInjector::around(sim)))
}

#[test]
fn places_are_broadcast_or_paired_on_every_driver() -> Result<()> {
    for version in [DriverVersion::CUDA_12_0, DriverVersion::CUDA_12_2, DriverVersion::CUDA_13_0] {
        let machine = Machine::from(of_version(version)?);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let buffers = three(&machine)?;
        let last = || -> Result<Vec<_>> {
            buffers.iter().map(ManagedBuffer::last_prefetch_location).collect()
        };
        prefetch(regions(&buffers), GPU, &stream)?;
        assert_eq!(last(), Ok(vec![Some(GPU); 3]), "{version}");
        let places = [Place::HOST, GPU, Place::HOST];
        prefetch(regions(&buffers), places, &stream)?;
        assert_eq!(last(), Ok(places.map(Some).to_vec()), "{version}");
    }
    Ok(())
}

#[test]
fn one_region_is_a_list_of_one() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let (legacy, stream) =
        (Stream::legacy_default(&machine), Stream::new(&machine, Device::FIRST)?);
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, MIB)?;
    prefetch(&buffer, GPU, &legacy)?;
    prefetch(buffer.region(), [Place::HOST], &stream)?;
    assert_eq!(buffer.last_prefetch_location()?, Some(Place::HOST));
    advise(&buffer, MemoryAdvice::SetReadMostly)?;
    assert!(buffer.read_mostly()?);
    discard(&mut buffer, &stream)?;
    discard_prefetch([buffer.region_mut()], vec![GPU], &stream)?;
    assert_eq!(buffer.last_prefetch_location()?, Some(GPU));
    Ok(())
}

fn refused(answer: Result<()>, kind: ErrorKind, item: Option<usize>, says: &str) {
    let error = answer.unwrap_err();
    assert_eq!((error.kind(), error.code(), error.item()), (kind, None, item), "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn lists_that_do_not_fit_are_refused_before_anything_is_done() -> Result<()> {
    use ErrorKind::{InvalidDevice, InvalidValue};
    let backend = of_version(DriverVersion::CUDA_13_0)?;
    let machine = Machine::from(&backend);
    machine.device_count()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffers = three(&machine)?;
    let other = Machine::from(pagewise::sim()?);
    let foreign = ManagedBuffer::<u8>::new(&other, 100)?;
    let _ = backend.take_calls();
    let all = regions(&buffers);
    refused(prefetch([], GPU, &stream), InvalidValue, None, "at least one");
    refused(advise([], MemoryAdvice::SetReadMostly), InvalidValue, None, "at least one");
    refused(discard([], &stream), InvalidValue, None, "at least one");
    refused(discard_prefetch([], GPU, &stream), InvalidValue, None, "at least one");
    let short = prefetch(all.clone(), [GPU; 2], &stream);
    refused(short, InvalidValue, None, "2 places for 3 regions");
    refused(prefetch(all.clone(), [GPU; 0], &stream), InvalidValue, None, "0 places");
    let unknown = [GPU, Device::new(7)?.into(), GPU];
    refused(prefetch(all.clone(), unknown, &stream), InvalidDevice, Some(1), "device 7");
    let exact = [all[0], all[1], buffers[2].range(..5)?.rounded(Rounding::Exact)];
    refused(prefetch(exact, GPU, &stream), InvalidValue, Some(2), "whole pages");
    refused(advise(exact, MemoryAdvice::SetReadMostly), InvalidValue, Some(2), "whole pages");
    refused(prefetch([all[0], foreign.region()], GPU, &stream), InvalidValue, Some(1), "machine");
    let node = MemoryAdvice::SetAccessedBy(Host::node(0)?.into());
    refused(advise(all.clone(), node), InvalidValue, None, "accessed-by takes no host node 0");
    let split = [buffers[0].range(..100)?.region(), buffers[0].range(100..)?.region()];
    let apart = prefetch(split, [GPU, Place::HOST], &stream);
    refused(apart, InvalidValue, Some(1), "shares a page");
    prefetch(split, GPU, &stream)?;
    let _ = backend.take_calls();
    let mut mutable: Vec<_> = buffers.iter_mut().map(ManagedBuffer::region_mut).collect();
    let last = mutable.pop().expect("three");
    mutable.push(last.rounded(Rounding::Exact));
    let short = discard_prefetch(mutable, [GPU], &stream);
    refused(short, InvalidValue, None, "1 places for 3 regions");
    let mutable: Vec<_> = buffers.iter_mut().map(ManagedBuffer::region_mut).collect();
    let legacy = Stream::legacy_default(&machine);
    refused(discard(mutable, &legacy), InvalidValue, None, "legacy");
    assert_eq!(backend.take_calls(), [], "the back end was asked for nothing");
    Ok(())
}

#[test]
fn a_page_is_discarded_and_prefetched_to_one_place_only() -> Result<()> {
    let backend = of_version(DriverVersion::CUDA_13_0)?;
    let machine = Machine::from(&backend);
    machine.device_count()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::from_slice(&machine, &[7_u8; 3 * 4096])?;
    let halves = |buffer: &mut ManagedBuffer<u8>, at: usize| {
        let (left, right) = buffer.range_mut(..)?.split_at(at)?;
        let _ = backend.take_calls();
        discard_prefetch([left.into_region(), right.into_region()], [GPU, Place::HOST], &stream)
    };
    refused(halves(&mut buffer, 5000), ErrorKind::InvalidValue, Some(1), "shares a page");
    assert_eq!(backend.take_calls(), [], "the back end was asked for nothing");
    assert_eq!(buffer.read()?, [7; 3 * 4096], "no contents count as discarded");
    halves(&mut buffer, 4096)?;
    assert_eq!(buffer.range(..4096)?.last_prefetch_location()?, Some(GPU));
    assert_eq!(buffer.range(4096..)?.last_prefetch_location()?, Some(Place::HOST));
    Ok(())
}

#[test]
fn overlaps_hidden_by_a_shorter_region_are_found() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let buffer = ManagedBuffer::<u8>::new(&machine, 100 * 4096)?;
    let pages =
        |from: usize, to: usize| Ok::<_, Error>(buffer.range(from * 4096..to * 4096)?.region());
    let list = [pages(0, 100)?, pages(50, 60)?, pages(70, 80)?];
    let error = prefetch(list, [GPU, GPU, Place::HOST], &stream).unwrap_err();
    assert_eq!(error.item(), Some(2), "{error}");
    Ok(())
}

#[test]
fn equal_neighbours_of_places_are_merged() -> Result<()> {
    let mut mock = MockBackend::new();
    let mut next = 0x20_0000;
    mock.expect_capabilities()
        .returning(|| Capabilities::of_driver("mock", DriverVersion::CUDA_13_0));
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_alloc_managed().returning(move |bytes, _| {
        next += bytes;
        Ok(DevicePtr(next))
    });
    mock.expect_stream_create()
        // SAFETY: `from_raw` asks for a handle that the back end can take; the mock dereferences
        // none.
        .returning(|_, _| Ok(unsafe { pagewise::StreamHandle::from_raw(77) }));
    mock.expect_stream_destroy().returning(|_| Ok(()));
    mock.expect_prefetch_batch()
        .withf(|spans, locations, starts, flags, _| {
            let gpu = Location::from(GPU);
            spans.len() == 4
                && locations == [gpu, Location::HOST, gpu]
                && starts == [0, 2, 3]
                && *flags == 0
        })
        .times(1)
        .returning(|_, _, _, _, _| Ok(()));
    permit_free(&mut mock);
    let machine = Machine::from(Arc::new(mock));
    let stream = Stream::new(&machine, Device::FIRST)?;
    let buffers: Result<Vec<_>> =
        (0..4).map(|_| ManagedBuffer::<u8>::new(&machine, 2 * MIB)).collect();
    let buffers = buffers?;
    prefetch(regions(&buffers), [GPU, GPU, Place::HOST, GPU], &stream)
}

#[test]
fn a_loop_says_which_item_failed_and_what_became_of_the_others() -> Result<()> {
    let mut capabilities = Capabilities::of_driver("mock", DriverVersion::CUDA_12_0);
    capabilities.prefetch_batch = BatchSupport::Absent;
    let mut mock = MockBackend::new();
    let mut next = 0x20_0000;
    mock.expect_capabilities().returning(move || capabilities.clone());
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_alloc_managed().returning(move |bytes, _| {
        next += bytes;
        Ok(DevicePtr(next))
    });
    mock.expect_prefetch_ordinal().times(2).returning(|_, _, _| Ok(()));
    mock.expect_prefetch_ordinal()
        .times(1)
        .returning(|_, _, _| Err(Error::from_code("prefetch_ordinal", Code::OUT_OF_MEMORY)));
    permit_free(&mut mock);
    let machine = Machine::from(Arc::new(mock));
    let buffers = [(); 4].map(|()| ManagedBuffer::<u8>::new(&machine, 2 * MIB));
    let buffers: Vec<_> = buffers.into_iter().collect::<Result<_>>()?;
    let answer = prefetch(regions(&buffers), GPU, &Stream::legacy_default(&machine));
    let error = answer.unwrap_err();
    assert_eq!((error.code(), error.item()), (Some(Code::OUT_OF_MEMORY), Some(2)));
    assert_eq!(error.span(), Some(buffers[2].span()));
    assert!(error.to_string().contains("the 2 regions before this one were submitted"), "{error}");
    Ok(())
}

#[test]
fn the_back_end_s_own_loop_names_the_item_too() -> Result<()> {
    let backend = of_version(DriverVersion::CUDA_12_0)?;
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let buffers = three(&machine)?;
    // A range that is no longer managed, which only the back end can know.
    // SAFETY: the buffer is forgotten below, and no code uses its memory again.
    unsafe { pagewise::Backend::free(&*backend, buffers[1].device_ptr())? };
    let error = prefetch(regions(&buffers), GPU, &stream).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, Some(Code::INVALID_VALUE)));
    assert_eq!((error.item(), error.span()), (Some(1), Some(buffers[1].span())), "{error}");
    assert_eq!(buffers[0].last_prefetch_location()?, None, "checked as a whole");
    buffers.into_iter().for_each(std::mem::forget);
    Ok(())
}

#[test]
fn advice_that_fails_midway_says_what_was_advised() -> Result<()> {
    let fresh = || SimBackend::new(SimConfig::h200());
    let sites = sweep(Code::OUT_OF_MEMORY, fresh, |backend, failing| {
        let machine = Machine::from(backend);
        let buffers = three(&machine)?;
        let answer = backend.watch(|| advise(regions(&buffers), MemoryAdvice::SetReadMostly));
        let advised: Result<Vec<bool>> = buffers.iter().map(ManagedBuffer::read_mostly).collect();
        match (failing, answer) {
            (None, answer) => answer?,
            (Some(n), answer) => {
                let error = answer.unwrap_err();
                let n = n as usize;
                assert_eq!(error.item(), Some(n));
                let says = format!("the {n} regions before this one were advised");
                assert!(error.to_string().contains(&says), "{error}");
                assert_eq!(advised?, (0..3).map(|item| item < n).collect::<Vec<_>>());
            }
        }
        Ok(())
    })?;
    assert_eq!(sites, 3);
    Ok(())
}

#[test]
fn a_batch_that_fails_as_one_call_did_nothing() -> Result<()> {
    for version in [DriverVersion::CUDA_12_0, DriverVersion::CUDA_13_0] {
        let backend = of_version(version)?;
        let machine = Machine::from(&backend);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let buffers = three(&machine)?;
        backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::PrefetchBatch));
        let error = prefetch(regions(&buffers), GPU, &stream).unwrap_err();
        assert_eq!(error.code(), Some(Code::OUT_OF_MEMORY));
        for buffer in &buffers {
            assert_eq!(buffer.last_prefetch_location()?, None);
        }
    }
    Ok(())
}

#[test]
fn pages_in_part_move_with_a_discard_unless_they_are_left_out() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    for (rounding, edges_move) in [(None, true), (Some(Rounding::Inward), false)] {
        let mut buffer = ManagedBuffer::from_slice(&machine, &[6_u8; 3 * 4096])?;
        let part = buffer.range_mut(100..2 * 4096 + 100)?;
        let part = match rounding {
            Some(rounding) => part.rounded(rounding),
            None => part,
        };
        drop(part.discard_prefetch(GPU, &stream)?);
        let last =
            |page: usize| buffer.range(page * 4096..(page + 1) * 4096)?.last_prefetch_location();
        let edge = edges_move.then_some(GPU);
        assert_eq!([last(0)?, last(1)?, last(2)?], [edge, Some(GPU), edge]);
        assert_eq!(buffer.range(..4096)?.read()?, [6; 4096]);
        assert!(buffer.range(4096..4097)?.read().is_err());
    }
    let mut small = ManagedBuffer::<u8>::zeroed(&machine, 100)?;
    let none = small.region_mut().rounded(Rounding::Inward);
    let error = discard_prefetch(none, GPU, &stream).unwrap_err();
    assert_eq!((error.kind(), error.item()), (ErrorKind::InvalidValue, Some(0)));
    Ok(())
}
