//! Claims about `pagewise::interop`, the safe way to share memory with cudarc.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use pagewise::inject::FaultInjector;
use pagewise::interop::{adopt_stream, cudarc_stream, lend, own};
use pagewise::resource::ManagedMemoryResource;
use pagewise::{
    AllocationType, Backend, CudaBackend, Device, DeviceId, ErrorKind, Host, Location, Machine,
    ManagedBuffer, Stream, StreamHandle,
};

type Outcome = Result<(), Box<dyn Error>>;

/// Checks all claims on the driver's first device.
pub(crate) fn check(context: &Arc<CudaContext>) -> Outcome {
    let machine = Machine::from(Arc::new(CudaBackend::open()?));
    let stream = context.new_stream()?;
    for claim in [
        buffers_are_filled_and_copied_by_cudarc,
        ranges_and_many_buffers_are_lent_together,
        a_panic_in_the_closure_leaves_the_buffer_usable,
        discarded_and_simulated_memory_is_refused,
        memory_of_a_pool_is_lent,
        work_on_other_streams_than_the_lent_one_is_waited_for,
        unified_memory_becomes_a_buffer_and_other_memory_is_refused,
        a_stream_of_cudarc_s_orders_work_of_both_and_lives_with_either,
        a_stream_of_a_machine_lives_as_long_as_cudarc_has_it,
    ] {
        claim(&machine, &stream)?;
    }
    let injector = FaultInjector::around(Arc::new(CudaBackend::open()?));
    let any: Arc<dyn Backend> = Arc::new(injector);
    buffers_are_filled_and_copied_by_cudarc(&Machine::from(any), &stream)
}

fn buffers_are_filled_and_copied_by_cudarc(machine: &Machine, stream: &Arc<CudaStream>) -> Outcome {
    let numbers: Vec<u32> = (0..100_000).collect();
    let from = ManagedBuffer::from_slice(machine, &numbers)?;
    let mut to = ManagedBuffer::<u32>::zeroed(machine, numbers.len())?;
    lend(stream, (&from, &mut to), |(from, mut to)| stream.memcpy_dtod(&from, &mut to))??;
    assert_eq!(to.read()?, numbers);
    lend(stream, &mut to, |mut to| stream.memset_zeros(&mut to))??;
    assert!(to.read()?.iter().all(|&number| number == 0));
    let copied = lend(stream, &from, |from| stream.clone_dtoh(&from))??;
    assert_eq!(copied, numbers);
    Ok(())
}

fn ranges_and_many_buffers_are_lent_together(
    machine: &Machine,
    stream: &Arc<CudaStream>,
) -> Outcome {
    let ones = ManagedBuffer::from_slice(machine, &[1_u8; 5000])?;
    let twos = ManagedBuffer::from_slice(machine, &[2_u8; 5000])?;
    let mut sink = ManagedBuffer::<u8>::zeroed(machine, 5000)?;
    let (left, right) = sink.range_mut(..)?.split_at(3000)?;
    let parts = (ones.range(1000..4000)?, &twos, left, right);
    lend(stream, parts, |(ones, twos, mut left, mut right)| {
        stream.memcpy_dtod(&ones, &mut left)?;
        stream.memcpy_dtod(&twos.slice(..2000), &mut right)
    })??;
    assert!(sink.read()?[..3000].iter().all(|&byte| byte == 1));
    assert!(sink.read()?[3000..].iter().all(|&byte| byte == 2));
    Ok(())
}

fn a_panic_in_the_closure_leaves_the_buffer_usable(
    machine: &Machine,
    stream: &Arc<CudaStream>,
) -> Outcome {
    let mut buffer = ManagedBuffer::<u8>::zeroed(machine, 1 << 20)?;
    let run = AssertUnwindSafe(|| {
        lend(stream, &mut buffer, |mut view| -> () {
            stream.memcpy_htod(&vec![7; 1 << 20], &mut view).expect("it fits");
            std::mem::forget(view);
            std::panic::resume_unwind(Box::new("expected"));
        })
    });
    assert!(catch_unwind(run).is_err());
    assert!(buffer.read()?.iter().all(|&byte| byte == 7), "the work was waited for");
    buffer.write()?[0] = 1;
    Ok(buffer.free()?)
}

fn discarded_and_simulated_memory_is_refused(
    machine: &Machine,
    stream: &Arc<CudaStream>,
) -> Outcome {
    let mut buffer = ManagedBuffer::<u8>::zeroed(machine, 8192)?;
    if machine.capabilities().discard {
        _ = buffer.discard(&Stream::new(machine, Device::FIRST)?)?;
        let error = lend(stream, &mut buffer, |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue, "{error}");
        assert!(error.detail().contains("discarded"), "{error}");
    }
    let simulated = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 8192)?;
    let error = lend(stream, &simulated, |_| ()).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None), "{error}");
    assert!(error.detail().contains("not on the simulator"), "{error}");
    Ok(())
}

fn memory_of_a_pool_is_lent(machine: &Machine, stream: &Arc<CudaStream>) -> Outcome {
    if !machine.capabilities().location_pools {
        return Ok(());
    }
    let own = Stream::new(machine, Device::FIRST)?;
    let pool = ManagedMemoryResource::new_pool(machine, Some(Device::FIRST.into()))?;
    let mut buffer = ManagedBuffer::<f32>::from_resource(Arc::new(pool), 1000, &own)?;
    lend(stream, &mut buffer, |mut view| stream.memset_zeros(&mut view))??;
    assert_eq!(buffer.read()?, [0.0; 1000]);
    Ok(())
}

fn work_on_other_streams_than_the_lent_one_is_waited_for(
    machine: &Machine,
    stream: &Arc<CudaStream>,
) -> Outcome {
    let mut buffer = ManagedBuffer::<u32>::zeroed(machine, 64 << 20)?;
    let other = stream.context().new_stream()?;
    // A context of another device is waited for, too, if there is one.
    let _second = (CudaContext::device_count()? > 1).then(|| CudaContext::new(1)).transpose()?;
    let last = buffer.len() - 1;
    lend(stream, &mut buffer, |mut view| {
        for byte in 1..=8 {
            other.memset_zeros(&mut view)?;
            other.memcpy_htod(&[byte], &mut view.slice_mut(last..))?;
        }
        Ok::<(), cudarc::driver::DriverError>(())
    })??;
    assert_eq!(buffer.read()?[last], 8);
    Ok(())
}

fn unified_memory_becomes_a_buffer_and_other_memory_is_refused(
    machine: &Machine,
    stream: &Arc<CudaStream>,
) -> Outcome {
    let context = stream.context();
    // SAFETY: any bytes are a `u32`.
    let mut slice = unsafe { context.alloc_unified::<u32>(5000, true)? };
    stream.memcpy_htod(&vec![9; 5000], &mut slice)?;
    let mut buffer = own(machine, slice)?;
    assert_eq!(buffer.read()?, [9; 5000]);
    buffer.prefetch(Device::FIRST, &Stream::new(machine, Device::FIRST)?)?;
    buffer.write()?[4999] = 1;
    assert_eq!(lend(stream, &buffer, |view| stream.clone_dtoh(&view))??[4998..], [9, 1]);
    buffer.free()?;

    // SAFETY: any bytes are a `u32`.
    let of_the_host = unsafe { context.alloc_unified::<u32>(5000, false)? };
    let attached = own(machine, of_the_host).unwrap_err();
    assert!(attached.detail().contains("attach it globally"), "{attached}");
    let (kind, here) = (AllocationType::PINNED, Location::device(DeviceId(0)));
    let pool = machine.backend().pool_current(here, kind)?;
    let ptr = machine.backend().pool_alloc(pool, 20_000, StreamHandle::NULL)?;
    // SAFETY: the slice is the memory's only owner, and cudarc frees it in stream order.
    let of_the_device = unsafe { stream.upgrade_device_ptr::<u32>(ptr.0, 5000) };
    let plain = own(machine, of_the_device).unwrap_err();
    assert_eq!(plain.kind(), ErrorKind::Unsupported, "{plain}");
    // SAFETY: any bytes are a `u32`.
    let slice = unsafe { context.alloc_unified::<u32>(5000, true)? };
    assert!(own(pagewise::sim()?, slice).is_err(), "the simulator does not know it");
    Ok(())
}

fn a_stream_of_cudarc_s_orders_work_of_both_and_lives_with_either(
    machine: &Machine,
    stream: &Arc<CudaStream>,
) -> Outcome {
    let mut buffer = ManagedBuffer::<u8>::zeroed(machine, 2 << 20)?;
    let theirs = stream.context().new_stream()?;
    let adopted = adopt_stream(machine, &theirs)?;
    assert_eq!(adopted.device(), Some(Device::FIRST));
    buffer.prefetch(Device::FIRST, &adopted)?;
    lend(&theirs, &mut buffer, |mut view| theirs.memcpy_htod(&[5; 2 << 20], &mut view))??;
    assert!(Arc::ptr_eq(&cudarc_stream(stream.context(), &adopted)?, &theirs));
    let alive = Arc::downgrade(&theirs);
    drop(theirs);
    buffer.prefetch(Host::Any, &adopted)?;
    adopted.synchronize()?;
    drop(adopted);
    assert_eq!(alive.strong_count(), 0, "no side has it any more");

    let theirs = stream.context().new_stream()?;
    let handle = adopt_stream(machine, &theirs)?.handle();
    drop(theirs);
    machine.backend().stream_synchronize(handle)?;

    assert!(adopt_stream(machine, &stream.context().default_stream())?.is_legacy_default());
    let simulated = Machine::from(pagewise::sim()?);
    let error = adopt_stream(&simulated, stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let foreign = Stream::new(&simulated, Device::FIRST)?;
    assert!(cudarc_stream(stream.context(), &foreign).is_err(), "its handle is made up");
    Ok(())
}

fn a_stream_of_a_machine_lives_as_long_as_cudarc_has_it(
    machine: &Machine,
    stream: &Arc<CudaStream>,
) -> Outcome {
    let context = stream.context();
    let mut buffer = ManagedBuffer::<u32>::zeroed(machine, 5000)?;
    let own = Stream::new(machine, Device::FIRST)?;
    let handle = own.handle();
    let theirs = cudarc_stream(context, &own)?;
    assert!(Arc::ptr_eq(&theirs, &cudarc_stream(context, &own)?), "one for each stream");
    assert_eq!(adopt_stream(machine, &theirs)?, own);
    drop(own);
    lend(&theirs, &mut buffer, |mut view| theirs.memcpy_htod(&[3; 5000], &mut view))??;
    assert_eq!(buffer.read()?, [3; 5000]);
    machine.backend().stream_synchronize(handle)?;
    drop(theirs);
    drop(cudarc_stream(context, &Stream::new(machine, Device::FIRST)?)?);
    let gone = machine.backend().stream_synchronize(handle).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::InvalidHandle, "{gone}");

    let own = Stream::new(machine, Device::FIRST)?;
    // SAFETY: `own` lives longer than the other value.
    let raw = unsafe { Stream::from_raw(machine, own.handle()) };
    assert_eq!(cudarc_stream(context, &raw).unwrap_err().kind(), ErrorKind::Unsupported);
    Ok(())
}
