//! Copies from and to slices of the host.
//!
//! A driver reads pageable memory when it likes, also after its call has returned on systems where
//! devices reach such memory. A slice is borrowed for the call only. So every piece goes through
//! page-locked memory that this module owns: if the stream cannot be waited for, that memory stays
//! allocated, and the slice is not in use.

use bytemuck::Pod;
use pagewise_hal::{Result, Span};

use super::elements::{Elements, ElementsMut};
use super::transfer::copy;
use crate::refuse::invalid;
use crate::{Machine, PinnedBuffer, Stream};

/// The most bytes of a slice that are copied at once, and so the most page-locked memory that a copy
/// of a slice takes.
pub const SLICE_PIECE_BYTES: usize = 4 << 20;

/// Elements of a piece. An element larger than a piece is copied alone.
fn piece_len<T>() -> usize {
    (SLICE_PIECE_BYTES / size_of::<T>().max(1)).max(1)
}

fn staging<T: Pod>(machine: &Machine, len: usize) -> Result<PinnedBuffer<u8>> {
    PinnedBuffer::new(machine, len.min(piece_len::<T>()) * size_of::<T>())
}

fn check_lengths(operation: &'static str, slice: usize, memory: usize) -> Result<()> {
    if slice == memory {
        return Ok(());
    }
    let why =
        format!("the slice has {slice} elements and the memory {memory}: take as many of both");
    Err(invalid(operation, why))
}

/// Copies a slice to elements of a buffer, in stream order, and returns when it is done.
///
/// # Errors
/// `InvalidValue` (no CUDA code) for a slice of another length; `Unsupported` (no CUDA code) if the
/// host does not reach the back end's memory; as [`copy()`]; `OutOfMemory` for the page-locked memory.
/// After an error from the back end the first pieces may have been copied.
///
/// ```
/// use pagewise::{Device, DeviceBuffer, Machine, Stream, copy};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = DeviceBuffer::<f32>::new(&machine, Device::FIRST, 3)?;
/// copy::copy_from_slice(&mut buffer, &[1.0, 2.0, 3.0], &stream)?;
/// let mut back = [0.0; 2];
/// copy::copy_to_slice(&mut back, buffer.range(1..)?, &stream)?;
/// assert_eq!(back, [2.0, 3.0]);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn copy_from_slice<'b, T: Pod>(
    to: impl Into<ElementsMut<'b, T>>,
    from: &[T],
    stream: &Stream,
) -> Result<()> {
    const OPERATION: &str = "copy_from_slice";
    let to = to.into();
    let memory = to.part.memory;
    let copied = || {
        check_lengths(OPERATION, from.len(), to.len())?;
        memory.machine.check_stream(OPERATION, stream)?;
        let mut staging = staging::<T>(&memory.machine, from.len())?;
        let mut next = to.part.span.ptr;
        for piece in from.chunks(piece_len::<T>()) {
            let piece: &[u8] = bytemuck::cast_slice(piece);
            // The view waits for the copy of the piece before.
            staging.write()?[..piece.len()].copy_from_slice(piece);
            let part = ElementsMut::<u8>::of(memory, Span::new(next, piece.len() as u64));
            copy(part, staging.range(..piece.len())?, stream)?;
            next = next.offset(piece.len() as u64);
        }
        stream.synchronize()
    };
    copied().map_err(|error| memory.name_in(error, memory.span))
}

/// Copies elements of a buffer to a slice, in stream order, and returns when it is done.
///
/// # Errors
/// As [`copy_from_slice`]. After an error from the back end the first pieces of the slice may have
/// been written.
pub fn copy_to_slice<'b, T: Pod>(
    to: &mut [T],
    from: impl Into<Elements<'b, T>>,
    stream: &Stream,
) -> Result<()> {
    const OPERATION: &str = "copy_to_slice";
    let from = from.into();
    let memory = from.part.memory;
    let mut copied = || {
        check_lengths(OPERATION, to.len(), from.len())?;
        memory.machine.check_stream(OPERATION, stream)?;
        let mut staging = staging::<T>(&memory.machine, to.len())?;
        let mut next = from.part.span.ptr;
        for piece in to.chunks_mut(piece_len::<T>()) {
            let piece: &mut [u8] = bytemuck::cast_slice_mut(piece);
            let part = Elements::<u8>::of(memory, Span::new(next, piece.len() as u64));
            copy(staging.range_mut(..piece.len())?, part, stream)?;
            // The view waits for the copy.
            piece.copy_from_slice(&staging.read()?[..piece.len()]);
            next = next.offset(piece.len() as u64);
        }
        Ok(())
    };
    copied().map_err(|error| memory.name_in(error, memory.span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_as_many_whole_elements_as_its_bytes_hold_and_at_least_one() {
        assert_eq!((piece_len::<u8>(), piece_len::<[u8; 3]>()), (4_194_304, 1_398_101));
        assert_eq!((piece_len::<u32>(), piece_len::<[u64; 1 << 20]>()), (1_048_576, 1));
        assert_eq!(piece_len::<()>(), SLICE_PIECE_BYTES);
    }
}
