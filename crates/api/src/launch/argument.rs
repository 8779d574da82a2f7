//! Arguments of kernels: numbers and addresses, with the type that a parameter has to take.

use std::any::type_name;

use bytemuck::Pod;
use pagewise_hal::{KernelParam, ParamInfo, Result};

use super::loaded::OPERATION;
use crate::copy::{Elements, ElementsMut, Part};
use crate::refuse::invalid;
use crate::{ManagedBuffer, ManagedRange, ManagedRangeMut, PlainBuffer, PlainKind, Stream};

/// An argument as the launch needs it.
#[derive(Debug)]
pub struct Argument<'a> {
    param: KernelParam,
    align_bytes: u64,
    type_name: &'static str,
    /// The memory that it is the address of, and whether the kernel may write there.
    memory: Option<(Part<'a>, bool)>,
}

impl<'a> Argument<'a> {
    fn value<T: Pod>(value: &T) -> Self {
        Self {
            param: KernelParam::new(bytemuck::bytes_of(value)),
            align_bytes: align_of::<T>() as u64,
            type_name: type_name::<T>(),
            memory: None,
        }
    }

    fn address<T>(part: Part<'a>, writes: bool) -> Self {
        Self {
            param: KernelParam::from(part.span.ptr),
            align_bytes: 8,
            type_name: type_name::<*const T>(),
            memory: Some((part, writes)),
        }
    }

    /// Whether the parameter `index` of a kernel takes it.
    pub(super) fn check(&self, index: usize, kernel: &str, declared: ParamInfo) -> Result<()> {
        let bytes = self.param.bytes().len() as u64;
        if declared.takes(bytes, self.align_bytes) {
            return Ok(());
        }
        let ParamInfo { offset_bytes, bytes: expected } = declared;
        let given = self.type_name;
        let why = if bytes == expected {
            format!(
                "parameter {index} of `{kernel}` is at byte {offset_bytes}, which is not aligned \
                 for the {given} that is given"
            )
        } else {
            format!(
                "parameter {index} of `{kernel}` has {expected} bytes, and the {given} that is \
                 given has {bytes}"
            )
        };
        Err(invalid(OPERATION, why))
    }

    /// Refuses memory of another machine, and memory with discarded contents that is only read.
    pub(super) fn check_memory(&self, stream: &Stream) -> Result<()> {
        let Some((part, writes)) = &self.memory else { return Ok(()) };
        if part.memory.machine != *stream.machine() {
            let why = "the memory is of another machine than the stream";
            return Err(invalid(OPERATION, why).with_span(part.span));
        }
        if *writes { Ok(()) } else { part.memory.contents.check_readable(OPERATION, part.span) }
    }

    /// Lets the stream come after the work of others on the memory.
    pub(super) fn begin(&self, stream: &Stream) -> Result<()> {
        match &self.memory {
            Some((part, true)) => part.memory.begin_write(part.span, stream),
            Some((part, false)) => part.memory.begin_read(part.span, stream),
            None => Ok(()),
        }
    }

    /// Notes that the stream was given the kernel.
    pub(super) fn has_work(&self, stream: &Stream) {
        if let Some((part, writes)) = &self.memory {
            part.memory.has_work(part.span, stream, *writes);
        }
    }

    /// The bytes of the parameter.
    pub(super) fn param(&self) -> &KernelParam {
        &self.param
    }
}

/// One argument of a kernel: a number or a `struct` ([`Pod`]), passed by value, or memory, passed by
/// the address of its first element. Memory that is borrowed shared is only read by the kernel.
pub trait KernelArg {
    /// The argument as the launch needs it.
    #[doc(hidden)]
    fn argument(&self) -> Argument<'_>;
}

impl<T: Pod> KernelArg for T {
    fn argument(&self) -> Argument<'_> {
        Argument::value(self)
    }
}

impl<T: Pod> KernelArg for &ManagedBuffer<T> {
    fn argument(&self) -> Argument<'_> {
        Argument::address::<T>(Elements::from(*self).part, false)
    }
}

impl<T: Pod> KernelArg for &mut ManagedBuffer<T> {
    fn argument(&self) -> Argument<'_> {
        Argument::address::<T>(Elements::from(&**self).part, true)
    }
}

impl<T: Pod, K: PlainKind> KernelArg for &PlainBuffer<T, K> {
    fn argument(&self) -> Argument<'_> {
        Argument::address::<T>(Elements::from(*self).part, false)
    }
}

impl<T: Pod, K: PlainKind> KernelArg for &mut PlainBuffer<T, K> {
    fn argument(&self) -> Argument<'_> {
        Argument::address::<T>(Elements::from(&**self).part, true)
    }
}

impl<T: Pod> KernelArg for ManagedRange<'_, T> {
    fn argument(&self) -> Argument<'_> {
        let region = self.region();
        Argument::address::<T>(Elements::<T>::of(region.memory, region.span).part, false)
    }
}

impl<T: Pod> KernelArg for ManagedRangeMut<'_, T> {
    fn argument(&self) -> Argument<'_> {
        Argument::address::<T>(Elements::from(self).part, true)
    }
}

impl<T: Pod> KernelArg for Elements<'_, T> {
    fn argument(&self) -> Argument<'_> {
        Argument::address::<T>(self.part, false)
    }
}

impl<T: Pod> KernelArg for ElementsMut<'_, T> {
    fn argument(&self) -> Argument<'_> {
        Argument::address::<T>(self.part, true)
    }
}

/// The arguments of a kernel: a tuple of up to sixteen [`KernelArg`]s in the order of its parameters.
pub trait KernelArgs {
    /// All arguments, in order.
    #[doc(hidden)]
    fn arguments(&self) -> Vec<Argument<'_>>;
}

impl KernelArgs for () {
    fn arguments(&self) -> Vec<Argument<'_>> {
        Vec::new()
    }
}

macro_rules! arguments {
    ($($one:ident $index:tt)+) => {
        impl<$($one: KernelArg),+> KernelArgs for ($($one,)+) {
            fn arguments(&self) -> Vec<Argument<'_>> {
                vec![$(self.$index.argument()),+]
            }
        }
    };
}

/// One `impl` for each first part of a list.
macro_rules! each {
    ([$($done:tt)*]) => {};
    ([$($done:tt)*] $one:ident $index:tt $($rest:tt)*) => {
        arguments!($($done)* $one $index);
        each!([$($done)* $one $index] $($rest)*);
    };
}

each!([] A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13 O 14 P 15);
