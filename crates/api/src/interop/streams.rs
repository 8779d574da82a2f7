//! Streams of cudarc's for machines, and streams of machines for cudarc.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream};
use pagewise_hal::{HostViews, Result, StreamHandle};

use super::adopted::Adopted;
use super::fence::{check_managed, converted};
use crate::refuse::unsupported;
use crate::{Device, Machine, ManagedBuffer, Stream};

const OTHER_DRIVER: &str =
    "the machine is not of the driver that cudarc uses: open it with `BackendKind::Cuda`";

/// Streams of machines that cudarc uses. Each lives until cudarc has no value of it any more; those
/// that it has none of go with the next call.
static LENT: Mutex<Vec<Lent>> = Mutex::new(Vec::new());

struct Lent {
    cudarc: Arc<CudaStream>,
    stream: Stream,
}

/// Looks a stream up among those that cudarc uses, and takes out those that it uses no more.
fn lent<T>(find: impl FnOnce(&mut Vec<Lent>) -> T) -> T {
    let mut all = LENT.lock().unwrap_or_else(PoisonError::into_inner);
    // An exclusive reference shows that no other strong or weak one exists.
    let over: Vec<Lent> =
        all.extract_if(.., |one| Arc::get_mut(&mut one.cudarc).is_some()).collect();
    let found = find(&mut all);
    drop(all);
    // Without the lock: a stream is destroyed, which calls the driver.
    drop(over);
    found
}

/// Makes a stream of cudarc's one of a machine: for prefetches, discards and pools in the order of
/// cudarc's work. The stream lives as long as the last clone of either. Each side goes on using it.
///
/// # Errors
/// Without a CUDA code: `Unsupported` if the machine is not of the driver that cudarc uses, such as
/// a simulator; if the context is not the device's primary one, as `CudaContext::new` makes it; for
/// the default stream of a device other than 0; and without concurrent managed access. Errors of an
/// allocation, which is made to find out about the driver.
///
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use pagewise::{Device, Machine, ManagedBuffer, interop};
///
/// let machine = Machine::open()?;
/// let theirs = CudaContext::new(0)?.new_stream()?;
/// let stream = interop::adopt_stream(&machine, &theirs)?;
/// let mut buffer = ManagedBuffer::<f32>::zeroed(&machine, 1000)?;
/// buffer.prefetch(Device::FIRST, &stream)?; // comes before the work that is lent
/// interop::lend(&theirs, &mut buffer, |mut view| theirs.memset_zeros(&mut view))??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn adopt_stream(machine: &Machine, stream: &Arc<CudaStream>) -> Result<Stream> {
    const OPERATION: &str = "adopt cudarc's stream";
    let own = lent(|all| {
        let mut all = all.iter();
        all.find(|one| Arc::ptr_eq(&one.cudarc, stream)).map(|one| one.stream.clone())
    });
    if let Some(own) = own.filter(|own| own.machine() == machine) {
        return Ok(own);
    }
    let device = check_same_driver(OPERATION, machine, stream.context())?;
    let raw = stream.cu_stream().addr() as u64;
    if StreamHandle::checked(raw).is_default() {
        if raw <= StreamHandle::LEGACY.as_raw() && device == Device::FIRST {
            return Ok(Stream::legacy_default(machine));
        }
        let why = "this default stream is of another device than 0, or another one on each thread: \
                   make one with new_stream";
        return Err(unsupported(OPERATION, why));
    }
    let adopted = Adopted::new(stream, device);
    // SAFETY: `from_raw` asks for a live stream of the back end's driver: `check_same_driver` has
    // found that it is cudarc's. It stays live as long as the handle is used: the `Stream` keeps
    // it, and keeps it for ever once it gives a copy of the handle to other code. Back ends use a
    // handle only in the call that they get it in (`HostAddresses`).
    Ok(unsafe { Stream::adopt(machine, StreamHandle::from_raw(raw), adopted) })
}

/// Makes a stream of a machine one of cudarc's, in a context of the stream's device. The stream
/// lives until cudarc has no value of it any more, whatever becomes of `stream`.
///
/// cudarc does not count such a stream: with it alone it tracks no uses of memory. Views from
/// [`lend`](super::lend) are waited for all the same.
///
/// # Errors
/// As [`adopt_stream`]. `Unsupported` (no CUDA code) also for a stream of another device than the
/// context's, and for one [from elsewhere](Stream::from_raw).
///
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use pagewise::{Device, Machine, ManagedBuffer, Stream, interop};
///
/// let machine = Machine::open()?;
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let theirs = interop::cudarc_stream(&CudaContext::new(0)?, &stream)?;
/// drop(stream);
/// theirs.synchronize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cudarc_stream(context: &Arc<CudaContext>, stream: &Stream) -> Result<Arc<CudaStream>> {
    const OPERATION: &str = "stream for cudarc";
    let device = check_same_driver(OPERATION, stream.machine(), context)?;
    if stream.is_legacy_default() && device == Device::FIRST {
        return Ok(context.default_stream());
    }
    if stream.device() != Some(device) {
        let why = "the stream is of another device than the context, or from elsewhere: make one \
                   with Stream::new";
        return Err(unsupported(OPERATION, why));
    }
    if let Some(adopted) = stream.adopted() {
        return Ok(adopted.stream());
    }
    let raw = std::ptr::without_provenance_mut(stream.raw().as_raw() as usize);
    Ok(lent(|all| {
        if let Some(known) = all.iter().find(|one| one.stream == *stream) {
            return Arc::clone(&known.cudarc);
        }
        // SAFETY: cudarc asks for a live stream of the context: `Stream::new` made it on the
        // context's device, and the back end promised (`HostAddresses`) that it is the driver's. It
        // stays alive as long as cudarc has a
        // value of it, because `LENT` holds the `Stream` until then.
        let cudarc = unsafe { context.wrap_borrowed_stream(raw) };
        all.push(Lent { cudarc: Arc::clone(&cudarc), stream: stream.clone() });
        cudarc
    }))
}

/// The device of a context. Refuses a machine that is not of the driver that cudarc uses, which
/// shows in an allocation: the machine makes it, and that driver knows it.
fn check_same_driver(
    operation: &'static str,
    machine: &Machine,
    context: &Arc<CudaContext>,
) -> Result<Device> {
    if machine.host_views() != HostViews::Direct {
        return Err(unsupported(operation, OTHER_DRIVER));
    }
    if !machine.capabilities().concurrent_managed_access {
        let why = "this machine has no concurrent managed access, and has to know all work in \
                   streams: keep to streams of its own";
        return Err(unsupported(operation, why));
    }
    let device = Device::new(u32::try_from(context.ordinal()).unwrap_or(u32::MAX))?;
    machine.check_device(operation, device)?;
    let primary = CudaContext::new(context.ordinal());
    if primary.map_err(|error| converted(operation, error))?.cu_ctx() != context.cu_ctx() {
        let why = "the context is not the device's primary one: make it with CudaContext::new";
        return Err(unsupported(operation, why));
    }
    let probe = ManagedBuffer::<u8>::new(machine, 1)?;
    let known = check_managed(operation, context, probe.span());
    pagewise_cuda::interop::forget_current_context();
    known
        .map_err(|error| match error.code() {
            Some(_) => error,
            None => unsupported(operation, OTHER_DRIVER),
        })
        .map(|()| device)
}
