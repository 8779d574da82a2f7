//! A program that shares memory, a stream and a context between pagewise and cudarc, and checks the
//! bytes.
//!
//! Needs `libcuda.so.1`: a driver, or the simulated one under that name in the search path.

mod claims;

use cudarc::driver::CudaContext;
use pagewise_cuda::CudaBackend;
use pagewise_cuda::interop::CudarcBuffer;
use pagewise_cudarc_interop::copy;
use pagewise_hal::{
    Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, StreamFlags, StreamHandle,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cuda = CudaBackend::open()?;
    let context = CudaContext::new(0)?;
    assert_eq!(cuda.device_of(&context)?, DeviceId(0));
    let (from, to) = (cuda.alloc(1 << 20)?, cuda.alloc(1 << 20)?);

    // cudarc's stream on both sides.
    let stream = context.new_stream()?;
    {
        // SAFETY: the ranges stay live, because the buffers are dropped before the memory is freed,
        // and no other code uses them meanwhile.
        let mut buffers =
            unsafe { [CudarcBuffer::adopt(&stream, from)?, CudarcBuffer::adopt(&stream, to)?] };
        assert!(buffers[0].view::<u64>().is_ok());
        let [from, to] = &mut buffers;
        let copied = copy(&stream, from, to)?;
        assert!(copied.iter().enumerate().all(|(index, &number)| number == index as u32));
    }
    // SAFETY: the stream outlives all uses of the handle.
    let handle = unsafe { cuda.stream_of(&stream) }?;
    cuda.prefetch_ordinal(to, 0, handle)?;
    let expected: u64 = (0..to.bytes as u32 / 4).flat_map(u32::to_le_bytes).map(u64::from).sum();
    assert_eq!(read(&cuda, to, handle)?, expected);

    // A stream of pagewise on both sides.
    let own = cuda.stream_create(DeviceId(0), StreamFlags::NON_BLOCKING)?;
    // SAFETY: the stream has to outlive cudarc's use; it is destroyed below, after cudarc's own
    // values are dropped.
    let borrowed = unsafe { cuda.cudarc_stream(&context, own) }?;
    {
        // SAFETY: the range stays live, because the buffer is dropped before the memory is freed,
        // and no other code uses it meanwhile.
        let mut buffer = unsafe { CudarcBuffer::adopt(&borrowed, to)? };
        borrowed.memset_zeros(&mut buffer.view_mut::<u8>()?)?;
    }
    drop(borrowed);
    assert_eq!(read(&cuda, to, own)?, 0);
    // SAFETY: neither the memory nor the stream is used again.
    unsafe {
        cuda.stream_destroy(own)?;
        cuda.free(from.ptr)?;
        cuda.free(to.ptr)?;
    }
    claims::check(&context)?;
    println!("cudarc and pagewise share memory, streams and contexts");
    Ok(())
}

/// The sum of all bytes, read by the device.
fn read(
    cuda: &CudaBackend,
    span: pagewise_hal::Span,
    stream: StreamHandle,
) -> pagewise_hal::Result<u64> {
    let (device, access) = (DeviceId(0), DeviceAccess::Read);
    let touch = DeviceTouch { device, span, stride_bytes: 1, access, blocks: 16, threads: 64 };
    // SAFETY: no other code uses the memory.
    unsafe { cuda.device_touch(touch, stream) }
}
