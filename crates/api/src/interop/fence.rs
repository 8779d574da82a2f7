//! Waiting for cudarc's work, and cudarc's errors.

use std::sync::Arc;

use cudarc::driver::sys::CUpointer_attribute as Attribute;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use pagewise_hal::{Code, Error, Result, Span};

use crate::refuse::{invalid, unsupported};

/// cudarc's error by its number. Printing it instead would need the driver.
pub(super) fn converted(operation: &'static str, error: DriverError) -> Error {
    Error::from_code(operation, error.0 as i32)
}

/// Whether a wait was refused because a stream is being captured.
fn is_capture(error: DriverError) -> bool {
    (900..=908).contains(&(error.0 as i32))
}

/// A wait for all work that cudarc may have begun, at the latest when this is dropped: also by a
/// panic.
#[derive(Debug)]
pub(super) struct Fence<'a> {
    operation: &'static str,
    stream: &'a Arc<CudaStream>,
    is_over: bool,
}

impl<'a> Fence<'a> {
    pub(super) fn new(operation: &'static str, stream: &'a Arc<CudaStream>) -> Self {
        Self { operation, stream, is_over: false }
    }

    /// Waits. After an error the device does nothing any more.
    pub(super) fn wait(mut self) -> Result<()> {
        self.is_over = true;
        self.wait_everywhere().map_err(|error| converted(self.operation, error))
    }

    /// A view can be used on any stream of any device: cudarc tracks uses by one event for reads
    /// and one for writes, and by none between contexts. So all of them are waited for.
    fn wait_everywhere(&self) -> Result<(), DriverError> {
        let waited = self.wait_here();
        for ordinal in 0..CudaContext::device_count()? {
            if ordinal as usize != self.stream.context().ordinal() && is_in_use(ordinal)? {
                wait_for(&*CudaContext::new(ordinal as usize)?)?;
            }
        }
        // The context may be another one than the back end thinks, by now.
        pagewise_cuda::interop::forget_current_context();
        waited
    }

    fn wait_here(&self) -> Result<(), DriverError> {
        match wait_for(self.stream.context()) {
            // A capture elsewhere forbids to wait for a context, and not to wait for a stream.
            // SAFETY: the driver dereferences the stream, which `self` keeps alive.
            Err(error) if is_capture(error) => unsafe {
                result::stream::synchronize(self.stream.cu_stream())
            },
            waited => waited,
        }
    }
}

impl Drop for Fence<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // A panic is on its way and says more. After an error the device does nothing any more.
            _ = self.wait_everywhere();
        }
    }
}

/// Waits for a context. cudarc's own method does not, while an earlier error is recorded.
fn wait_for(context: &CudaContext) -> Result<(), DriverError> {
    // SAFETY: the driver dereferences the context, which the borrow keeps alive.
    unsafe { result::ctx::set_current(context.cu_ctx()) }?;
    result::ctx::synchronize()
}

/// Whether a device has a primary context. Making one only to wait for it would take memory.
fn is_in_use(ordinal: i32) -> Result<bool, DriverError> {
    let device = result::device::get(ordinal)?;
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the driver itself named the device, and writes two numbers to locals that outlive the
    // call.
    unsafe { sys::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) }.result()?;
    Ok(active != 0)
}

/// Refuses memory that cudarc's driver does not know as managed memory, such as a simulator's. So a
/// back end cannot make cudarc use an address that it made up.
pub(super) fn check_managed(
    operation: &'static str,
    context: &CudaContext,
    span: Span,
) -> Result<()> {
    context.bind_to_thread().map_err(|error| converted(operation, error))?;
    let ask = |attribute: Attribute| {
        let mut answer = 0_u64;
        let data = (&raw mut answer).cast();
        // SAFETY: the driver checks the address itself, and writes at most the 8 bytes of the local
        // for the attributes that are asked for here.
        unsafe { sys::cuPointerGetAttribute(data, attribute, span.ptr.0) }.result().map(|()| answer)
    };
    let known = ask(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED);
    if matches!(known, Err(error) if error.0 as i32 == Code::INVALID_VALUE) {
        let why = "cudarc's driver does not know this memory: make the buffer on a machine of the \
                   CUDA driver, not on the simulator";
        return Err(unsupported(operation, why).with_span(span));
    }
    let asked = known.and_then(|known| {
        let start = ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)?;
        Ok((known, start, ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE)?))
    });
    let (known, start, bytes) = asked.map_err(|error| converted(operation, error))?;
    if known == 0 {
        let why = "the memory is not managed: allocate it with `alloc_unified`";
        return Err(unsupported(operation, why).with_span(span));
    }
    let end = start.saturating_add(bytes);
    if span.ptr.0 < start || span.end().is_none_or(|last| last > end) {
        let why = "the range passes the end of its allocation";
        return Err(invalid(operation, why).with_span(span));
    }
    Ok(())
}
