//! Copies and fills as methods of the buffers.

use bytemuck::Pod;
use pagewise_hal::Result;

use super::elements::{Elements, ElementsMut};
use super::{copy, fill};
use crate::plain::{PlainBuffer, PlainKind};
use crate::{ManagedBuffer, Stream};

/// The methods of a type of buffers, each a function of this module.
macro_rules! methods {
    (impl<$($generic:ident: $bound:ident),+> $buffer:ty) => {
        impl<$($generic: $bound),+> $buffer {
            /// Copies elements of any buffer to all elements of this one, in stream order. See
            /// [`copy()`].
            ///
            /// # Errors
            /// As [`copy()`].
            pub fn copy_from<'b>(
                &'b mut self,
                from: impl Into<Elements<'b, T>>,
                stream: &Stream,
            ) -> Result<()> {
                copy(self, from, stream)
            }

            /// Copies all elements to elements of any buffer, in stream order. See [`copy()`].
            ///
            /// # Errors
            /// As [`copy()`].
            pub fn copy_to<'b>(
                &'b self,
                to: impl Into<ElementsMut<'b, T>>,
                stream: &Stream,
            ) -> Result<()> {
                copy(to, self, stream)
            }

            /// Writes a value to every element, by a device, in stream order. See [`fill`].
            ///
            /// # Errors
            /// As [`fill`].
            ///
            /// ```
            /// use pagewise::{Device, DeviceBuffer, Machine, ManagedBuffer, Stream};
            ///
            /// let machine = Machine::from(pagewise::sim()?);
            /// let stream = Stream::new(&machine, Device::FIRST)?;
            /// let mut from = DeviceBuffer::<i16>::new(&machine, Device::FIRST, 100)?;
            /// let mut to = ManagedBuffer::<i16>::new(&machine, 100)?;
            /// from.fill(-3, &stream)?;
            /// from.copy_to(&mut to, &stream)?;
            /// assert_eq!(to.read()?, [-3; 100]);
            /// # Ok::<(), pagewise::Error>(())
            /// ```
            pub fn fill(&mut self, value: T, stream: &Stream) -> Result<()> {
                fill(self, value, stream)
            }
        }
    };
}

methods!(impl<T: Pod> ManagedBuffer<T>);
methods!(impl<T: Pod, K: PlainKind> PlainBuffer<T, K>);
