//! Buffers, streams and contexts shared with cudarc.
//!
//! Memory of this crate goes to cudarc as a [`CudarcBuffer`] with views of cudarc's own types
//! [`CudaView`] and [`CudaViewMut`]: launches, copies, fills, cuBLAS and whatever else takes them
//! work, with cudarc's own events between streams. Streams and contexts go both ways:
//! [`CudaBackend::device_of`], [`CudaBackend::stream_of`], [`CudaBackend::cudarc_stream`].
//!
//! Nothing here names a type of cudarc with a shape that depends on the version of CUDA that cudarc
//! was built for, so an application may choose any (`cuda-12000` and later). Without a choice cudarc
//! asks the `nvcc` in the search path, and takes its newest bindings where there is none.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use pagewise_cuda::{CudaBackend, interop::CudarcBuffer};
//! use pagewise_hal::BackendExt;
//!
//! let cuda = CudaBackend::open()?;
//! let context = CudaContext::new(0)?;
//! let stream = context.new_stream()?;
//! let span = cuda.alloc(4096)?;
//! // SAFETY: the range stays live, because the buffer is dropped before the memory is freed, and
//! // no other code uses it meanwhile.
//! let mut buffer = unsafe { CudarcBuffer::adopt(&stream, span)? };
//! stream.memset_zeros(&mut buffer.view_mut::<f32>()?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DeviceRepr, DriverError,
};
use pagewise_hal::{Code, DeviceId, Error, ErrorKind, Result, Span, StreamHandle};

use crate::backend::CudaBackend;

/// Memory of this crate that cudarc uses.
///
/// Costs two events of cudarc's while it lives. Dropping it frees nothing: it makes the stream
/// wait for what cudarc did with the memory. Then synchronise that stream and free the memory.
pub struct CudarcBuffer {
    span: Span,
    /// Never dropped as a slice, which would free the memory as cudarc's own.
    slice: ManuallyDrop<CudaSlice<u8>>,
}

impl CudarcBuffer {
    /// Lets cudarc use a range.
    ///
    /// # Errors
    /// The driver's, if the stream's context is unusable.
    ///
    /// # Safety
    /// The range must be live memory that the stream's device reaches, for as long as the buffer
    /// and work on its views live. No other code and no other work may use it meanwhile.
    pub unsafe fn adopt(stream: &Arc<CudaStream>, span: Span) -> Result<Self> {
        const OPERATION: &str = "adopt for cudarc";
        let context = stream.context();
        context.bind_to_thread().map_err(|error| converted(OPERATION, error))?;
        // cudarc panics if it cannot make its events, so whether it can is tried first.
        context.new_event(None).map_err(|error| converted(OPERATION, error))?;
        // SAFETY: the caller promised that the range stays live, within the device's reach and
        // unused by other code. Any bytes are a valid `u8`. cudarc never frees the range, because
        // `slice` is never dropped.
        let slice = unsafe { stream.upgrade_device_ptr(span.ptr.0, span.bytes as usize) };
        Ok(Self { span, slice: ManuallyDrop::new(slice) })
    }

    /// The range.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// The range as cudarc's own type, for what takes no view.
    #[must_use]
    pub fn bytes(&self) -> &CudaSlice<u8> {
        &self.slice
    }

    /// The range as elements, as many as fit.
    ///
    /// # Errors
    /// `InvalidValue` if the range is not aligned for them, or holds none.
    pub fn view<T: DeviceRepr + AnyBitPattern>(&self) -> Result<CudaView<'_, T>> {
        let length = self.length::<T>()?;
        // SAFETY: any bytes are a valid `T`, the range is aligned for `T`, and `length` of them fit
        // into it.
        unsafe { self.slice.transmute(length) }.ok_or_else(misfit::<T>)
    }

    /// The bytes as elements that can be written.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_mut<T: DeviceRepr + AnyBitPattern>(&mut self) -> Result<CudaViewMut<'_, T>> {
        let length = self.length::<T>()?;
        // SAFETY: any bytes are a valid `T`, the range is aligned for `T`, and `length` of them fit
        // into it. `self` is borrowed exclusively for as long as the view lives.
        unsafe { self.slice.transmute_mut(length) }.ok_or_else(misfit::<T>)
    }

    fn length<T>(&self) -> Result<usize> {
        let fits = (self.span.bytes as usize).checked_div(size_of::<T>());
        let aligned = (self.span.ptr.0 as usize).is_multiple_of(align_of::<T>());
        match fits {
            Some(length @ 1..) if aligned => Ok(length),
            _ => Err(misfit::<T>().with_span(self.span)),
        }
    }
}

impl fmt::Debug for CudarcBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudarcBuffer({})", self.span)
    }
}

impl Drop for CudarcBuffer {
    fn drop(&mut self) {
        // SAFETY: `take` asks that the value is not used again, and the drop of `self` is the only
        // place that takes it.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        _ = slice.leak();
    }
}

#[cold]
fn misfit<T>() -> Error {
    Error::from_code("view for cudarc", Code::INVALID_VALUE).with_detail(format!(
        "the range is not aligned for {} or holds none of it",
        std::any::type_name::<T>()
    ))
}

/// Other code may have changed the context that is current on this thread: the next call of a back
/// end asks the driver which one it is.
pub fn forget_current_context() {
    crate::context::forget_current();
}

/// cudarc's error by its number. Printing it instead would need the driver.
fn converted(operation: &'static str, error: DriverError) -> Error {
    Error::from_code(operation, error.0 as i32)
}

impl CudaBackend {
    /// The device of a cudarc context, which from now on may be current on threads that call this
    /// back end.
    ///
    /// # Errors
    /// `InvalidDevice` if the back end has no such device; `Unsupported` if the context is not the
    /// device's primary one, which both sides share.
    pub fn device_of(&self, context: &CudaContext) -> Result<DeviceId> {
        const OPERATION: &str = "device of a cudarc context";
        let ordinal = i32::try_from(context.ordinal()).unwrap_or(-1);
        let device = self.device(OPERATION, DeviceId(ordinal))?;
        self.expect_foreign_contexts();
        if device.context.as_raw().addr() == context.cu_ctx().addr() {
            return Ok(DeviceId(ordinal));
        }
        Err(Error::new(OPERATION, ErrorKind::Unsupported).with_detail(
            "the context is not the device's primary one: make it with CudaContext::new",
        ))
    }

    /// A cudarc stream, for calls of this back end.
    ///
    /// # Errors
    /// As [`device_of`](Self::device_of); `Unsupported` for a default stream of a device other
    /// than 0: here default streams are device 0's.
    ///
    /// # Safety
    /// The stream must stay alive for as long as the handle is used.
    pub unsafe fn stream_of(&self, stream: &CudaStream) -> Result<StreamHandle> {
        const OPERATION: &str = "stream of cudarc";
        let device = self.device_of(stream.context())?;
        let raw = stream.cu_stream().addr() as u64;
        if raw <= StreamHandle::PER_THREAD.as_raw() && device != DeviceId(0) {
            return Err(Error::new(OPERATION, ErrorKind::Unsupported)
                .with_detail("default streams are device 0's here: make one with new_stream"));
        }
        // SAFETY: the borrow shows that cudarc's stream lives now, and the caller promised that it
        // stays alive for as long as the handle is used. The stream is of a device of this back
        // end.
        Ok(unsafe { StreamHandle::from_raw(raw) })
    }

    /// A stream of this back end, for cudarc. Dropping it destroys nothing.
    ///
    /// # Errors
    /// As [`device_of`](Self::device_of).
    ///
    /// # Safety
    /// The stream must be the context's and stay alive for as long as cudarc uses it.
    pub unsafe fn cudarc_stream(
        &self,
        context: &Arc<CudaContext>,
        stream: StreamHandle,
    ) -> Result<Arc<CudaStream>> {
        self.device_of(context)?;
        let raw = std::ptr::without_provenance_mut(stream.as_raw() as usize);
        // SAFETY: the caller promised that the stream is of this context and stays alive for as
        // long as cudarc uses it. cudarc borrows it and does not destroy it.
        Ok(unsafe { context.wrap_borrowed_stream(raw) })
    }
}
