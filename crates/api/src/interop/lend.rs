//! Buffers lent to cudarc for the time of a closure.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaStream, CudaView, CudaViewMut, DeviceRepr};
use pagewise_cuda::interop::CudarcBuffer;
use pagewise_hal::{Result, Span};

use super::fence::{Fence, check_managed};
use crate::memory::Memory;
use crate::refuse::unsupported;
use crate::{ManagedBuffer, ManagedRange, ManagedRangeMut};

const OPERATION: &str = "lend to cudarc";

/// Lends memory to cudarc, and waits for cudarc's work with it before it returns.
///
/// `memory` is a buffer or a range, shared or exclusive, or a tuple of up to eight of them. The
/// closure gets as many views in the same order: a [`CudaView`] for each that is shared, a
/// [`CudaViewMut`] for each that is exclusive. `stream` is the stream that the views belong to.
///
/// The wait is for all work of all devices that cudarc uses, because cudarc lets views be used on
/// any stream. It takes place when the closure panics, too. So no view of the host sees contents
/// that a device is about to change, and no memory is freed while a device uses it.
///
/// Memory of a pool is waited for first, as the stream that it was allocated on is another one.
///
/// # Limits
///
/// A graph that the closure captures holds plain addresses: launching it later is a matter of the
/// caller, as with memory of cudarc's own. If a stream of the context is being captured when the
/// closure ends, the driver lets nothing wait for the whole context. Then only `stream` is waited
/// for, so use the views on no other stream meanwhile.
/// Launching a kernel is `unsafe` in cudarc, and the caller answers for what the kernel accesses.
/// If cudarc uses several devices, open the back end with `CudaBuilder::foreign_contexts`.
///
/// # Errors
/// Nothing was lent:
/// - `InvalidValue` (no CUDA code): contents were discarded and not written since.
/// - `Unsupported` (no CUDA code): the memory is not the driver's, as a simulator's or a mock's; the
///   machine has no concurrent managed access, where the host must keep away from all managed memory
///   meanwhile.
///
/// The closure ran: failures of work on the device, with the driver's code; 900 if the stream is
/// being captured, which ends the capture.
///
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use pagewise::{Machine, ManagedBuffer, interop};
///
/// let machine = Machine::open()?;
/// let from = ManagedBuffer::from_slice(&machine, &[1.0_f32, 2.0, 3.0])?;
/// let mut to = ManagedBuffer::<f32>::zeroed(&machine, 3)?;
///
/// let stream = CudaContext::new(0)?.new_stream()?;
/// interop::lend(&stream, (&from, &mut to), |(from, mut to)| stream.memcpy_dtod(&from, &mut to))??;
/// assert_eq!(to.read()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A view that outlives the closure does not compile:
///
/// ```compile_fail
/// # use std::sync::Arc;
/// fn keep(stream: &Arc<cudarc::driver::CudaStream>, buffer: &pagewise::ManagedBuffer<f32>) {
///     let view = pagewise::interop::lend(stream, buffer, |view| view);
/// }
/// ```
pub fn lend<L: Lend, R>(
    stream: &Arc<CudaStream>,
    memory: L,
    run: impl for<'v> FnOnce(L::Views<'v>) -> R,
) -> Result<R> {
    // Dropped last: when no view is left, also by a panic.
    let fence = Fence::new(OPERATION, stream);
    let mut held = memory.hold(stream)?;
    let answer = run(L::views(&mut held)?);
    drop(held);
    fence.wait()?;
    Ok(answer)
}

/// Memory that [`lend`] takes: `&ManagedBuffer`, `&mut ManagedBuffer`, [`ManagedRange`],
/// [`ManagedRangeMut`], and tuples of them.
///
/// Elements are plain data for cudarc, too ([`DeviceRepr`]).
pub trait Lend: Sized + sealed::Hold {
    /// The views that the closure gets.
    type Views<'v>;

    #[doc(hidden)]
    fn views(held: &mut Self::Held) -> Result<Self::Views<'_>>;
}

mod sealed {
    use super::{Arc, CudaStream, Result};

    /// Memory that is made ready, and then used by cudarc.
    pub trait Hold {
        /// The memory as cudarc's own, with what was borrowed.
        type Held;

        fn hold(self, stream: &Arc<CudaStream>) -> Result<Self::Held>;
    }
}

/// A range that cudarc uses, and that stays borrowed meanwhile.
#[doc(hidden)]
#[derive(Debug)]
pub struct Held<B> {
    buffer: CudarcBuffer,
    borrowed: PhantomData<B>,
}

impl<B> Held<B> {
    /// `span` of `memory` is borrowed as `B` says, for as long as the value lives.
    fn new(stream: &Arc<CudaStream>, memory: &Memory, span: Span) -> Result<Self> {
        let machine = &memory.machine;
        if !machine.capabilities().concurrent_managed_access {
            let why = "this machine has no concurrent managed access, and cannot tell when cudarc's \
                       work is done: copy the contents to memory of cudarc's";
            return Err(unsupported(OPERATION, why).with_span(span));
        }
        check_managed(OPERATION, stream.context(), span)?;
        memory.prepare_device(OPERATION, span)?;
        // SAFETY: `adopt` asks for live memory that the device reaches: the driver has just said
        // that it is managed memory, and `B` borrows its owner. It asks that no other code uses the
        // range: `B` holds it exclusively, or shared and then only a `CudaView` is made, with which
        // cudarc only reads. The work of both ends before the borrow does, because `lend` waits.
        let buffer = unsafe { CudarcBuffer::adopt(stream, span) }?;
        Ok(Self { buffer, borrowed: PhantomData })
    }
}

impl<'b, T: Pod> sealed::Hold for ManagedRange<'b, T> {
    type Held = Held<Self>;

    fn hold(self, stream: &Arc<CudaStream>) -> Result<Self::Held> {
        let region = self.region();
        Held::new(stream, region.memory, region.span)
    }
}

impl<'b, T: Pod + DeviceRepr> Lend for ManagedRange<'b, T> {
    type Views<'v> = CudaView<'v, T>;

    fn views(held: &mut Held<Self>) -> Result<CudaView<'_, T>> {
        held.buffer.view()
    }
}

impl<'b, T: Pod> sealed::Hold for ManagedRangeMut<'b, T> {
    type Held = Held<Self>;

    fn hold(self, stream: &Arc<CudaStream>) -> Result<Self::Held> {
        Held::new(stream, self.region.memory, self.region.span)
    }
}

impl<'b, T: Pod + DeviceRepr> Lend for ManagedRangeMut<'b, T> {
    type Views<'v> = CudaViewMut<'v, T>;

    fn views(held: &mut Held<Self>) -> Result<CudaViewMut<'_, T>> {
        held.buffer.view_mut()
    }
}

impl<'b, T: Pod> sealed::Hold for &'b ManagedBuffer<T> {
    type Held = Held<ManagedRange<'b, T>>;

    fn hold(self, stream: &Arc<CudaStream>) -> Result<Self::Held> {
        self.range(..)?.hold(stream)
    }
}

impl<T: Pod + DeviceRepr> Lend for &ManagedBuffer<T> {
    type Views<'v> = CudaView<'v, T>;

    fn views(held: &mut Self::Held) -> Result<CudaView<'_, T>> {
        held.buffer.view()
    }
}

impl<'b, T: Pod> sealed::Hold for &'b mut ManagedBuffer<T> {
    type Held = Held<ManagedRangeMut<'b, T>>;

    fn hold(self, stream: &Arc<CudaStream>) -> Result<Self::Held> {
        self.range_mut(..)?.hold(stream)
    }
}

impl<T: Pod + DeviceRepr> Lend for &mut ManagedBuffer<T> {
    type Views<'v> = CudaViewMut<'v, T>;

    fn views(held: &mut Self::Held) -> Result<CudaViewMut<'_, T>> {
        held.buffer.view_mut()
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name: sealed::Hold),*> sealed::Hold for ($($name,)*) {
            type Held = ($($name::Held,)*);

            #[allow(non_snake_case, reason = "the names of the types")]
            fn hold(self, stream: &Arc<CudaStream>) -> Result<Self::Held> {
                let ($($name,)*) = self;
                Ok(($($name.hold(stream)?,)*))
            }
        }

        impl<$($name: Lend),*> Lend for ($($name,)*) {
            type Views<'v> = ($($name::Views<'v>,)*);

            #[allow(non_snake_case, reason = "the names of the types")]
            fn views(held: &mut Self::Held) -> Result<Self::Views<'_>> {
                let ($($name,)*) = held;
                Ok(($($name::views($name)?,)*))
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
