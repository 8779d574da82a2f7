//! A resource that gives small pieces out of a few large chunks.
//!
//! Sizes are rounded up to multiples of 256 bytes, above 1 KiB to one of four steps per power of
//! two, so that at most a fifth of a piece is waste; each size has a list of free pieces for each stream. Giving a piece and taking it back is
//! a push and a pop: no search, whatever lives. Pieces of one size are never joined.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{DevicePtr, Result, StreamHandle};

use super::memory_resource::{MemoryKind, MemoryResource, check_request};
use crate::refuse::invalid;
use crate::{Machine, Stream};

/// Smallest piece, and what addresses are multiples of.
const UNIT_BYTES: u64 = 256;

/// A resource that cuts pieces out of large chunks of another resource.
///
/// Requests of more than a quarter of a chunk go to the other resource unchanged. A piece that was
/// given back is given again at once on its own stream. Another stream gets it after it has been
/// made to wait for the first. Chunks are given back when the sub-allocator is dropped.
///
/// ```
/// use std::sync::Arc;
/// use pagewise::resource::{ManagedMemoryResource, Statistics, SubAllocator};
/// use pagewise::{Device, Machine, ManagedBuffer, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let upstream = Arc::new(Statistics::new(ManagedMemoryResource::direct(&machine)));
/// let pieces = Arc::new(SubAllocator::new(upstream.clone(), 64 << 20)?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let buffers: Result<Vec<_>, _> = (0..1000)
///     .map(|_| ManagedBuffer::<f32>::from_resource(pieces.clone(), 1000, &stream))
///     .collect();
/// assert_eq!(buffers?.len(), 1000);
/// assert_eq!(upstream.counters().allocations.total, 1, "one chunk");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct SubAllocator<R: MemoryResource> {
    inner: R,
    chunk_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<(DevicePtr, Stream)>,
    /// The rest of the newest chunk, and the stream that it came on.
    rest: Option<Rest>,
    streams: BTreeMap<StreamHandle, Free>,
}

#[derive(Debug)]
struct Rest {
    next: u64,
    end: u64,
    stream: Stream,
}

/// The free pieces of a stream, by size.
#[derive(Debug)]
struct Free {
    stream: Stream,
    by_size: Vec<Vec<u64>>,
}

/// The number of the step that a size is rounded up to, and the step: multiples of 256 up to 1024,
/// then four for each power of two.
const fn size_class(bytes: u64) -> (usize, u64) {
    if bytes <= 4 * UNIT_BYTES {
        let units = bytes.div_ceil(UNIT_BYTES);
        return (units as usize - 1, units * UNIT_BYTES);
    }
    let power = (bytes - 1).ilog2();
    let quarter = 1 << (power - 2);
    let quarters = bytes.div_ceil(quarter);
    let class = 4 + (power as usize - 10) * 4 + (quarters as usize - 5);
    (class, quarters * quarter)
}

impl<R: MemoryResource> SubAllocator<R> {
    /// Cuts up chunks of this many bytes. The first is taken with the first request.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) unless chunks are 64 KiB or more, in whole KiB.
    ///
    /// ```
    /// # use pagewise::{Machine, resource::{ManagedMemoryResource, SubAllocator}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// assert!(SubAllocator::new(ManagedMemoryResource::direct(&machine), 100).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new(inner: R, chunk_bytes: u64) -> Result<Self> {
        if chunk_bytes < 64 << 10 || !chunk_bytes.is_multiple_of(1024) {
            return Err(invalid("sub-allocate", "chunks are 64 KiB or more, in whole KiB"));
        }
        Ok(Self { inner, chunk_bytes, state: Mutex::default() })
    }

    /// Bytes that it holds of the other resource, in chunks.
    ///
    /// ```
    /// # use pagewise::{Machine, resource::{ManagedMemoryResource, SubAllocator}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let pieces = SubAllocator::new(ManagedMemoryResource::direct(&machine), 1 << 20)?;
    /// assert_eq!(pieces.reserved_bytes(), 0);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.locked().chunks.len() as u64 * self.chunk_bytes
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of a fresh chunk, or of the rest of the newest. The rest that is left when a new one
    /// is needed stays unused: less than a quarter of a chunk.
    fn cut(&self, state: &mut State, bytes: u64, stream: &Stream) -> Result<u64> {
        let fits = |rest: &Rest| rest.end - rest.next >= bytes;
        if !state.rest.as_ref().is_some_and(fits) {
            let ptr = self.inner.allocate(self.chunk_bytes, stream)?;
            state.chunks.push((ptr, stream.clone()));
            let end = ptr.0 + self.chunk_bytes;
            state.rest = Some(Rest { next: ptr.0, end, stream: stream.clone() });
        }
        let Some(rest) = &mut state.rest else {
            return Err(super::memory_resource::out_of_memory("no chunk is left".into()));
        };
        if rest.stream != *stream {
            stream.wait_for(&rest.stream)?;
        }
        let piece = rest.next;
        rest.next += bytes;
        Ok(piece)
    }
}

impl State {
    /// A free piece of this size: of the stream itself, or of another that it then waits for.
    fn reuse(&mut self, class: usize, stream: &Stream) -> Result<Option<u64>> {
        let own = self.streams.get_mut(&stream.raw());
        if let Some(piece) = own.and_then(|free| free.by_size.get_mut(class)?.pop()) {
            return Ok(Some(piece));
        }
        let has = |free: &&mut Free| free.by_size.get(class).is_some_and(|list| !list.is_empty());
        let Some(other) = self.streams.values_mut().find(has) else { return Ok(None) };
        stream.wait_for(&other.stream)?;
        Ok(other.by_size[class].pop())
    }

    fn give(&mut self, class: usize, piece: u64, stream: &Stream) {
        let free = self.streams.entry(stream.raw());
        let free = free.or_insert_with(|| Free { stream: stream.clone(), by_size: Vec::new() });
        if free.by_size.len() <= class {
            free.by_size.resize_with(class + 1, Vec::new);
        }
        free.by_size[class].push(piece);
    }
}

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time.
// Pieces lie in chunks of the inner resource, which are held until this value is dropped. A piece
// is either in a list or given, never both. Sizes are multiples of 256, and chunks start at such an
// address.
unsafe impl<R: MemoryResource> MemoryResource for SubAllocator<R> {
    fn machine(&self) -> &Machine {
        self.inner.machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        self.inner.memory_kind()
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        check_request(self.machine(), bytes, stream)?;
        if bytes > self.chunk_bytes / 4 {
            return self.inner.allocate(bytes, stream);
        }
        let (class, bytes) = size_class(bytes);
        let mut state = self.locked();
        if let Some(piece) = state.reuse(class, stream)? {
            return Ok(DevicePtr(piece));
        }
        self.cut(&mut state, bytes, stream).map(DevicePtr)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()> {
        if bytes > self.chunk_bytes / 4 {
            // SAFETY: a request of this size was passed to the inner resource unchanged, and the
            // caller promised that no other work uses the memory.
            return unsafe { self.inner.deallocate(ptr, bytes, stream) };
        }
        let (class, _) = size_class(bytes);
        self.locked().give(class, ptr.0, stream);
        Ok(())
    }
}

impl<R: MemoryResource> Drop for SubAllocator<R> {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        let machine = self.inner.machine();
        for (ptr, stream) in state.chunks {
            // Pieces were given back on any of these, and their work may still use the chunk. If it
            // cannot be waited for, the chunk stays allocated.
            machine.on_drop(|| {
                state.streams.values().try_for_each(|free| stream.follow(&free.stream))?;
                // SAFETY: the chunk came from the inner resource. All of its pieces were given
                // back, because an owner of one holds this value alive, and `stream` waits for
                // their streams.
                unsafe { self.inner.deallocate(ptr, self.chunk_bytes, &stream) }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_ascending_steps_that_waste_a_fifth_at_most() {
        let mut last = (0, UNIT_BYTES);
        for bytes in 1..100_000 {
            let (class, size) = size_class(bytes);
            assert!(size >= bytes, "{bytes}");
            assert!(bytes <= 4 * UNIT_BYTES || size - bytes <= size / 5, "{bytes} in {size}");
            assert!(size.is_multiple_of(UNIT_BYTES), "{size}");
            assert!(class == last.0 && size == last.1 || class == last.0 + 1 && size > last.1);
            last = (class, size);
        }
    }
}
