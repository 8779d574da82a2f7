//! Windows: managed memory larger than the device's, brought there part by part.
//!
//! The array is allocated whole; of its chunks the one in use and the next are on the device. A
//! chunk that comes early costs no fault, and one that leaves by hand costs no eviction.

use pagewise::{DevicePtr, Host, ManagedBuffer, Span, Stream};

use super::array::Array;
use super::error::{ManagerError, Result};

impl Array {
    /// The bytes of a chunk of an array in windows.
    ///
    /// # Errors
    /// [`ManagerError::WrongMemory`] if it is not in windows, as where all of it fits;
    /// [`ManagerError::ChunkOutOfRange`], [`ManagerError::ArrayGone`].
    pub fn window(&self, chunk: u64) -> Result<Span> {
        let why = "it is not in windows: ask for `oversubscribe`, and more than fits";
        let window =
            self.windows().ok_or(ManagerError::WrongMemory { memory: self.memory(), why })?;
        let runs = window.parameters.range(chunk)?;
        let start = self.span()?.ptr.0 + runs.start * window.bytes_per_run;
        Ok(Span::new(DevicePtr(start), (runs.end - runs.start) * window.bytes_per_run))
    }

    /// Whether it is allocated whole and brought to the device in windows.
    #[must_use]
    pub fn is_windowed(&self) -> bool {
        self.windows().is_some()
    }

    /// Moves the windows to a chunk: it and the next go to the device, and the one before leaves
    /// it, in the order of the stream. Chunks are entered in order; the first also brings itself.
    ///
    /// Pages prefetched early cost no faults; pages that leave by hand cost no eviction. Pages on
    /// the border of two chunks belong to the later one.
    ///
    /// # Errors
    /// As [`window`](Self::window) and [`Region::prefetch`](pagewise::Region::prefetch). Nothing is
    /// lost then: pages that were not moved are moved by faults.
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// use pagewise_managers::manager::{ArrayMemory, ArrayRequest, Dtype, Leaving, LimitMode, ManagerOptions};
    /// let options = ManagerOptions::new().total_bytes(8 << 20).limit_mode(LimitMode::Active);
    /// # let machine = manager.machine();
    /// let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    /// let id = manager.register(Registration::new())?;
    /// let request = ArrayRequest::new(Dtype::U8, [16, 1 << 20]).chunk_axis(0).total_runs(16);
    /// let request = request.memory(ArrayMemory::Managed).oversubscribe(true);
    /// manager.queue_request(id, [("x", request)])?;
    /// let allocated = manager.allocate_queue(id)?;
    /// let (x, stream) = (&allocated.responses[&id].arr["x"], manager.get_stream(id)?);
    /// for chunk in 0..allocated.parameters.chunks() {
    ///     x.enter_chunk(chunk, Leaving::Kept, &stream)?;
    ///     let here = x.window(chunk)?; // Launch a kernel on it.
    ///     assert_eq!(here.bytes, 4 << 20);
    /// }
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn enter_chunk(&self, chunk: u64, before: Leaving, stream: &Stream) -> Result<()> {
        let now = self.window(chunk)?;
        let next = self.window(chunk + 1).ok();
        let last = chunk.checked_sub(1).map(|last| self.window(last)).transpose()?;
        let device = self.device();
        let span = self.span()?;
        let range = |part: Span| {
            let start = usize::try_from(part.ptr.0 - span.ptr.0).unwrap_or(usize::MAX);
            start..start.saturating_add(usize::try_from(part.bytes).unwrap_or(usize::MAX))
        };
        self.managed(|buffer| {
            if let Some(last) = last {
                leave(buffer, range(last), before, stream)?;
            } else {
                buffer.range(range(now))?.prefetch(device, stream)?;
            }
            if let Some(next) = next {
                buffer.range(range(next))?.prefetch(device, stream)?;
            }
            Ok(())
        })
    }
}

/// The treatment of a chunk that is not needed on the device any more.
///
/// ```
/// use pagewise_managers::manager::Leaving;
/// assert_eq!(Leaving::default(), Leaving::Kept);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Leaving {
    /// Its contents go to the host.
    #[default]
    Kept,
    /// Its contents are worthless: its whole pages are discarded, and cost no copy. Needs CUDA 13.
    Discarded,
}

fn leave(
    buffer: &mut ManagedBuffer<u8>,
    range: std::ops::Range<usize>,
    leaving: Leaving,
    stream: &Stream,
) -> Result<()> {
    match leaving {
        Leaving::Kept => buffer.range(range)?.prefetch(Host::Any, stream)?,
        Leaving::Discarded => {
            // A caller that writes the contents again, on a device, says so with `assume_written`.
            let _ = buffer.range_mut(range)?.discard(stream)?;
        }
    }
    Ok(())
}
