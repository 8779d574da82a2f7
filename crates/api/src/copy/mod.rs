//! Copies and fills, ordered by a stream.
//!
//! | from or to | type | made by |
//! | --- | --- | --- |
//! | managed memory | [`ManagedBuffer`](crate::ManagedBuffer) and its ranges | `new`, a resource, `from_raw` |
//! | memory of a device | [`DeviceBuffer`](crate::DeviceBuffer) and its ranges | `new`, a resource, `from_raw` |
//! | page-locked host memory, also registered | [`PinnedBuffer`](crate::PinnedBuffer) and its ranges | `new`, a resource, `from_raw` |
//! | any other host memory | slices | [`copy_from_slice`], [`copy_to_slice`] |
//!
//! [`copy()`] and [`copy_batch`] copy between any two buffers, [`fill`] writes one value everywhere.
//!
//! # When they are done
//!
//! The calls return before a driver has carried them out. The memory knows the streams that use it,
//! and whatever this crate does with it next comes after them:
//!
//! - views of the host, discards, kernels and device programs wait on the host;
//! - copies and fills on other streams wait there, by an event;
//! - memory is freed when the streams are done with it. If that cannot be waited for, it stays
//!   allocated, and the failure counts in
//!   [`Machine::failures_on_drop`](crate::Machine::failures_on_drop).
//!
//! No value stands for a copy in flight, so there is none to forget. Code that gives addresses to
//! the driver by itself orders its work by itself, as always.
//!
//! Slices are the host's, and only the borrow tells how long they live. So copies from and to them
//! go through page-locked memory of the crate's own, in pieces of at most
//! [`SLICE_PIECE_BYTES`], and are done when the call returns.
//!
//! # Discarded contents
//!
//! A source must have contents: discarded bytes are refused. A destination gets some: discarded
//! bytes that a copy or fill writes are readable afterwards.
//!
//! ```
//! use pagewise::{Device, Machine, ManagedBuffer, Stream, copy, fill};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let mut buffer = ManagedBuffer::<u32>::zeroed(&machine, 4096)?;
//! let mut other = ManagedBuffer::<u32>::zeroed(&machine, 4096)?;
//! drop(buffer.discard(&stream)?);
//! assert!(copy(&mut other, &buffer, &stream).is_err());
//! fill(&mut buffer, 9, &stream)?;
//! copy(&mut other, &buffer, &stream)?;
//! assert!(other.read()?.iter().all(|&n| n == 9));
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! # Misuse that does not compile
//!
//! Copying a buffer onto itself:
//!
//! ```compile_fail,E0502
//! use pagewise::{Machine, ManagedBuffer, Stream, copy};
//! let machine = Machine::from(pagewise::sim()?);
//! let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2)?;
//! copy(buffer.range_mut(..1)?, buffer.range(1..)?, &Stream::legacy_default(&machine))?;
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! Writing under a view:
//!
//! ```compile_fail,E0502
//! use pagewise::{Machine, ManagedBuffer, Stream, fill};
//! let machine = Machine::from(pagewise::sim()?);
//! let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2)?;
//! let view = buffer.read()?;
//! fill(&mut buffer, 1, &Stream::legacy_default(&machine))?;
//! println!("{}", view[0]);
//! # Ok::<(), pagewise::Error>(())
//! ```

mod elements;
mod fill;
mod methods;
mod slices;
mod transfer;

pub(crate) use elements::Part;
pub use elements::{Elements, ElementsMut};
pub use fill::fill;
pub use slices::{SLICE_PIECE_BYTES, copy_from_slice, copy_to_slice};
pub use transfer::{CopyOptions, ReadOrder, Transfer, copy, copy_batch};
