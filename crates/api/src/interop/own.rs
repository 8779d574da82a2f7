//! Managed memory of cudarc's as a buffer.

use bytemuck::Pod;
use cudarc::driver::sys::CUmemAttach_flags;
use cudarc::driver::{CudaSlice, DevicePtr, UnifiedSlice};
use pagewise_hal::{DevicePtr as Address, Result, Span};

use super::fence::{Fence, check_managed};
use crate::refuse::unsupported;
use crate::{Machine, ManagedBuffer};

const OPERATION: &str = "own cudarc's memory";

/// Memory that [`own`] takes: a [`UnifiedSlice`], or a [`CudaSlice`] of managed memory, as
/// `upgrade_device_ptr` makes one. Other slices are refused.
pub trait CudarcMemory<T>: DevicePtr<T> + Send + Sync + 'static + sealed::Memory {}

mod sealed {
    use super::Result;

    /// Only cudarc's own slices: `DevicePtr` is a safe trait, so any type could make an address up.
    pub trait Memory {
        fn check_attached(&self) -> Result<()>;
    }
}

impl<T> sealed::Memory for UnifiedSlice<T> {
    fn check_attached(&self) -> Result<()> {
        if self.attach_mode() == CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL {
            return Ok(());
        }
        let why = "the memory is attached to a stream or to the host: attach it globally";
        Err(unsupported(OPERATION, why))
    }
}

impl<T> sealed::Memory for CudaSlice<T> {
    fn check_attached(&self) -> Result<()> {
        Ok(())
    }
}

impl<T: 'static> CudarcMemory<T> for UnifiedSlice<T> {}
impl<T: 'static> CudarcMemory<T> for CudaSlice<T> {}

/// Makes managed memory of cudarc's a buffer of a machine, after all work of cudarc's with it. The
/// slice is dropped with the buffer, and cudarc frees the memory then.
///
/// # Errors
/// The slice is dropped then, too. `Unsupported` (no CUDA code): memory that is not managed, such as
/// that of `alloc_zeros`; memory that is attached to a stream or to the host. As
/// [`ManagedBuffer::from_raw`]: with code 1 for a machine that does not know the memory, such as a
/// simulator. Failures of cudarc's work, with the driver's code.
///
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use pagewise::{Device, Machine, Stream, interop};
///
/// let machine = Machine::open()?;
/// let context = CudaContext::new(0)?;
/// // SAFETY: any bytes are a `f32`.
/// let slice = unsafe { context.alloc_unified::<f32>(1000, true)? };
/// let buffer = interop::own(&machine, slice)?;
/// buffer.prefetch(Device::FIRST, &Stream::new(&machine, Device::FIRST)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn own<T: Pod, M: CudarcMemory<T>>(
    machine: impl Into<Machine>,
    memory: M,
) -> Result<ManagedBuffer<T>> {
    memory.check_attached()?;
    let stream = memory.stream().clone();
    let len = memory.len();
    let (address, used) = memory.device_ptr(&stream);
    drop(used);
    let span = Span::new(Address(address), (len as u64).saturating_mul(size_of::<T>() as u64));
    check_managed(OPERATION, stream.context(), span)?;
    Fence::new(OPERATION, &stream).wait()?;
    // SAFETY: the memory stays allocated as long as the slice, which the buffer keeps. The slice is
    // given up by its owner, so no other code uses the memory through it; cudarc's earlier work has
    // ended. The driver has just said that all of the range is managed memory.
    unsafe { ManagedBuffer::from_raw(machine, Address(address), len, memory) }
}
