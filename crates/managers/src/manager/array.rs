//! An array that the manager gave out.

use std::sync::Arc;

use bytemuck::Pod;
use pagewise::resource::{Allocation, MemoryKind, MemoryResource};
use pagewise::{
    Device, DevicePtr, HostViews, Machine, ManagedBuffer, MemoryAdvice, Place, Span, Stream, use_on,
};

use super::array_memory::ArrayMemory;
use super::chunking::ChunkParameters;
use super::error::{ManagerError, Result};
use super::pinned_blocks::pinned_bytes;
use super::request::{ArrayRequest, Dtype};
use crate::sync::{Mutex, lock};

/// A handle on an array's memory. Clones are the same array.
///
/// The manager holds one too. Memory goes back when the manager lets go of it (frees, replaces,
/// invalidates or evicts it), also if a handle is left: such a handle refuses to be used with
/// [`ManagerError::ArrayGone`]. Arrays made by [`MemoryManager::allocate`] have no other owner and
/// go with their last handle.
///
/// [`MemoryManager::allocate`]: super::MemoryManager::allocate
///
/// ```
/// use pagewise_managers::manager::{ArrayMemory, ArrayRequest, Dtype, MemoryManager};
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let manager = MemoryManager::new(&machine, Device::FIRST)?;
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let request = ArrayRequest::new(Dtype::F32, [3]).memory(ArrayMemory::Managed);
/// let array = manager.allocate(&request, &stream)?;
/// array.write(&[1.0_f32, 2.0, 3.0])?;
/// assert_eq!(array.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Array(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dtype: Dtype,
    shape: Vec<u64>,
    memory: ArrayMemory,
    /// How many chunks there is room for, one after the other.
    slots: u64,
    /// From the start of one chunk to the start of the next.
    slot_bytes: u64,
    /// All its slots; its memory may be more if it was another array's before.
    bytes: u64,
    window: Option<Window>,
    is_along_runs: bool,
    machine: Machine,
    device: Device,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    held: Held,
    /// A stream with copies of this array that the host has not waited for. One is enough: when a
    /// group changes streams the new one waits for the old.
    copies: Option<Stream>,
}

impl State {
    /// The host is about to use the memory.
    fn wait(&mut self) -> Result<()> {
        if let Some(stream) = &self.copies {
            stream.synchronize()?;
        }
        self.copies = None;
        Ok(())
    }

    /// Gives the memory back, after copies that are on their way.
    fn let_go(&mut self) {
        let copies = self.copies.take();
        match std::mem::replace(&mut self.held, Held::Gone) {
            Held::Bytes(allocation) => match copies {
                Some(copies) => allocation.free_after(&copies),
                None => drop(allocation),
            },
            // It has been told of each stream that uses it.
            Held::Managed(buffer) => drop(buffer),
            Held::Empty | Held::Promised | Held::Gone => {}
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// The state of an array that is brought to the device in parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) parameters: ChunkParameters,
    pub(super) bytes_per_run: u64,
}

#[derive(Debug)]
enum Held {
    /// No bytes were asked for.
    Empty,
    Bytes(Allocation),
    Managed(ManagedBuffer<u8>),
    /// The array that this one replaces hands its memory over.
    Promised,
    Gone,
}

/// The layout of an array to be made, sizes checked.
pub(crate) struct Layout {
    pub(crate) shape: Vec<u64>,
    pub(crate) slots: u64,
    pub(crate) slot_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) window: Option<ChunkParameters>,
    pub(crate) is_along_runs: bool,
}

impl Array {
    /// Takes the memory from a resource. Managed memory is named in messages after the label, or
    /// after the place that asked for it if there is none.
    #[track_caller]
    pub(crate) fn new(
        label: &str,
        request: &ArrayRequest,
        layout: Layout,
        resource: &Arc<dyn MemoryResource>,
        device: Device,
        stream: &Stream,
    ) -> Result<Self> {
        let bytes = layout.bytes;
        let held = match (bytes, resource.memory_kind()) {
            (0, _) => Held::Empty,
            (_, MemoryKind::Managed) => {
                let len = usize::try_from(bytes).unwrap_or(usize::MAX);
                let buffer = ManagedBuffer::from_resource(resource.clone(), len, stream)?;
                Held::Managed(if label.is_empty() { buffer } else { buffer.named(label) })
            }
            _ => Held::Bytes(Allocation::new(resource.clone(), bytes, stream)?),
        };
        Ok(Self::with(held, request, layout, resource, device))
    }

    /// An array without memory yet: the one that it replaces will hand over its own.
    pub(crate) fn promised(
        request: &ArrayRequest,
        layout: Layout,
        resource: &Arc<dyn MemoryResource>,
        device: Device,
    ) -> Self {
        Self::with(Held::Promised, request, layout, resource, device)
    }

    fn with(
        held: Held,
        request: &ArrayRequest,
        layout: Layout,
        resource: &Arc<dyn MemoryResource>,
        device: Device,
    ) -> Self {
        let Layout { shape, slots, slot_bytes, bytes, window, is_along_runs } = layout;
        let window = window.map(|parameters| Window {
            parameters,
            bytes_per_run: bytes / parameters.runs().max(1),
        });
        Self(Arc::new(Inner {
            dtype: request.dtype,
            shape,
            memory: request.memory,
            slots,
            slot_bytes,
            bytes,
            window,
            is_along_runs,
            machine: resource.machine().clone(),
            device,
            state: Mutex::new(State { held, copies: None }),
        }))
    }

    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// Its lengths, of one chunk if it is divided.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.0.shape
    }

    /// Where it lives.
    #[must_use]
    pub fn memory(&self) -> ArrayMemory {
        self.0.memory
    }

    /// How many chunks it has room for: 1, or as many as
    /// [`ChunkPolicy::buffers`](super::ChunkPolicy::buffers) if it is divided.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.0.slots
    }

    /// Bytes of one chunk, or of all if it is not divided: its shape times the element size.
    #[must_use]
    pub fn nbytes(&self) -> u64 {
        self.0.shape.iter().product::<u64>().saturating_mul(self.0.dtype.size_bytes())
    }

    /// Bytes allocated, all slots together, and what is left over of the memory of an array that
    /// this one replaced.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        match &lock(&self.0.state).held {
            Held::Bytes(allocation) => allocation.span().bytes,
            Held::Managed(buffer) => buffer.span().bytes,
            Held::Empty | Held::Promised | Held::Gone => 0,
        }
    }

    /// The bytes that it takes of the device: none if it lives on the host, two windows if it is in
    /// windows.
    pub(crate) fn device_bytes(&self) -> u64 {
        match (self.0.memory.is_on_device(), self.0.window) {
            (false, _) => 0,
            (true, None) => self.allocated_bytes(),
            (true, Some(window)) => {
                let runs = window.parameters.chunk_length().saturating_mul(2);
                runs.saturating_mul(window.bytes_per_run).min(self.allocated_bytes())
            }
        }
    }

    /// Whether the memory was given back.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(lock(&self.0.state).held, Held::Gone)
    }

    /// All its bytes by address, every slot; of no bytes at address 0 if it is empty. They are
    /// valid until the manager lets go of the array, so work on a device has to be in the order of
    /// the group's stream, or between [`begin_submission`] and [`end_submission`].
    ///
    /// [`begin_submission`]: super::MemoryManager::begin_submission
    /// [`end_submission`]: super::MemoryManager::end_submission
    ///
    /// # Errors
    /// [`ManagerError::ArrayGone`].
    pub fn span(&self) -> Result<Span> {
        match &lock(&self.0.state).held {
            Held::Bytes(allocation) => Ok(Span::new(allocation.span().ptr, self.0.bytes)),
            Held::Managed(buffer) => Ok(buffer.span()),
            Held::Empty => Ok(Span::new(DevicePtr(0), 0)),
            Held::Promised | Held::Gone => Err(ManagerError::ArrayGone),
        }
    }

    /// The bytes that a chunk uses; chunks take turns.
    ///
    /// # Errors
    /// [`ManagerError::ArrayGone`].
    pub fn slot_span(&self, chunk: u64) -> Result<Span> {
        self.span().map(|whole| self.slot_of(whole, chunk))
    }

    fn slot_of(&self, whole: Span, chunk: u64) -> Span {
        let start = (chunk % self.0.slots.max(1)).saturating_mul(self.0.slot_bytes);
        Span::new(DevicePtr(whole.ptr.0 + start), self.nbytes())
    }

    /// Copies elements from the host into the first slot, of memory that the host reaches. For
    /// memory of a device see [`to_device`](super::MemoryManager::to_device).
    ///
    /// # Errors
    /// [`ManagerError::WrongMemory`] for memory of a device, [`ManagerError::Mismatch`] for a
    /// type or length that is not the array's, [`ManagerError::ArrayGone`]; what a view reports.
    pub fn write<T: Pod>(&self, values: &[T]) -> Result<()> {
        self.check_elements::<T>(values.len())?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut state = lock(&self.0.state);
        state.wait()?;
        match &mut state.held {
            Held::Managed(buffer) => {
                buffer.range_mut(..bytes.len())?.write()?.copy_from_slice(bytes);
                Ok(())
            }
            Held::Bytes(allocation) => {
                self.check_host_reaches()?;
                allocation.wait()?;
                // SAFETY: the memory is live, has as many bytes as the array (checked above), and
                // the host reaches it. No reference to it outlives this lock, and copies of it were
                // waited for.
                unsafe { &mut *pinned_bytes(allocation.span(), bytes.len()) }
                    .copy_from_slice(bytes);
                Ok(())
            }
            Held::Empty => Ok(()),
            Held::Promised | Held::Gone => Err(ManagerError::ArrayGone),
        }
    }

    /// Copies the elements of the first slot to the host. As [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn to_vec<T: Pod>(&self) -> Result<Vec<T>> {
        let len = self.nbytes() / (size_of::<T>().max(1) as u64);
        let mut values = vec![T::zeroed(); usize::try_from(len).unwrap_or(usize::MAX)];
        self.check_elements::<T>(values.len())?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        let mut state = lock(&self.0.state);
        state.wait()?;
        match &state.held {
            Held::Managed(buffer) => bytes.copy_from_slice(buffer.range(..bytes.len())?.read()?),
            Held::Bytes(allocation) => {
                self.check_host_reaches()?;
                allocation.wait()?;
                // SAFETY: the memory is live, has as many bytes as the array (checked above), and
                // the host reaches it. No reference to it outlives this lock, and copies of it were
                // waited for.
                bytes.copy_from_slice(unsafe { &*pinned_bytes(allocation.span(), bytes.len()) });
            }
            Held::Empty => {}
            Held::Promised | Held::Gone => return Err(ManagerError::ArrayGone),
        }
        Ok(values)
    }

    fn check_elements<T: Pod>(&self, len: usize) -> Result<()> {
        let bytes = size_of::<T>() as u128 * len as u128;
        if Dtype::of::<T>() == Some(self.0.dtype) && bytes == u128::from(self.nbytes()) {
            return Ok(());
        }
        let name = std::any::type_name::<T>();
        let why = format!(
            "{len} elements of {name} for an array of {:?} and {} bytes",
            self.0.dtype,
            self.nbytes()
        );
        Err(ManagerError::Mismatch { item: 0, why })
    }

    fn check_host_reaches(&self) -> Result<()> {
        let memory = self.0.memory;
        if memory == ArrayMemory::Device {
            let why = "the host does not reach it: use `from_device` and `to_device`";
            return Err(ManagerError::WrongMemory { memory, why });
        }
        if self.0.machine.host_views() == HostViews::Absent {
            let why = "addresses of this back end are not the host's";
            return Err(ManagerError::WrongMemory { memory, why });
        }
        Ok(())
    }

    /// Gives advice on managed memory.
    ///
    /// # Errors
    /// [`ManagerError::WrongMemory`] for any other; as [`Region::advise`](pagewise::Region::advise).
    pub fn advise(&self, advice: MemoryAdvice) -> Result<()> {
        self.managed(|buffer| Ok(buffer.region().advise(advice)?))
    }

    /// Prefetches managed memory.
    ///
    /// # Errors
    /// [`ManagerError::WrongMemory`] for any other; as [`Region::prefetch`](pagewise::Region::prefetch).
    pub fn prefetch(&self, to: impl Into<Place>, stream: &Stream) -> Result<()> {
        self.managed(|buffer| Ok(buffer.prefetch(to, stream)?))
    }

    pub(super) fn managed<T>(
        &self,
        act: impl FnOnce(&mut ManagedBuffer<u8>) -> Result<T>,
    ) -> Result<T> {
        match &mut lock(&self.0.state).held {
            Held::Managed(buffer) => act(buffer),
            Held::Promised | Held::Gone => Err(ManagerError::ArrayGone),
            Held::Bytes(_) | Held::Empty => {
                let why = "only managed memory moves by pages";
                Err(ManagerError::WrongMemory { memory: self.0.memory, why })
            }
        }
    }

    /// Says that a device has written all that was discarded, so that the host may read it.
    ///
    /// # Errors
    /// [`ManagerError::WrongMemory`] for memory that is not managed; failures of discards that it
    /// waits for.
    ///
    /// # Safety
    /// As [`ManagedRangeMut::assume_written`](pagewise::ManagedRangeMut::assume_written).
    pub unsafe fn assume_written(&self) -> Result<()> {
        // SAFETY: a range asks that every page has been written since it was discarded; the caller
        // of this method promised that of the whole buffer.
        self.managed(|buffer| Ok(unsafe { buffer.range_mut(..)?.assume_written() }?))
    }

    pub(super) fn windows(&self) -> Option<Window> {
        self.0.window
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.0.machine
    }

    pub(super) fn device(&self) -> Device {
        self.0.device
    }

    /// Whether it is divided along the run axis, or would be.
    pub(crate) fn is_along_runs(&self) -> bool {
        self.0.is_along_runs
    }

    /// Hands the memory to the array that replaces this one, if it was promised to it; gives it
    /// back if not.
    pub(crate) fn hand_over(&self, successor: &Self) {
        let mut new = lock(&successor.0.state);
        let mut old = lock(&self.0.state);
        if matches!(new.held, Held::Promised) {
            new.held = std::mem::replace(&mut old.held, Held::Gone);
            new.copies = old.copies.take();
        } else {
            drop(new);
            old.let_go();
        }
    }

    /// Gives the memory back. Called with or without the manager's lock, never the array's.
    pub(crate) fn release(&self) {
        lock(&self.0.state).let_go();
    }

    /// Makes another stream the one that memory goes back on.
    ///
    /// # Safety
    /// The stream is of the same machine, and has been made to wait for the present work of the
    /// stream that the memory would have gone back on.
    pub(crate) unsafe fn move_to(&self, stream: &Stream) {
        match &mut lock(&self.0.state).held {
            // SAFETY: the allocation asks that the stream comes after all work on it; the caller of
            // this method promised that.
            Held::Bytes(allocation) => unsafe { allocation.set_stream_unchecked(stream) },
            // SAFETY: the buffer asks that the stream comes after all work on it; the caller of
            // this method promised that.
            Held::Managed(buffer) => unsafe { buffer.set_stream_unchecked(stream) },
            Held::Empty | Held::Promised | Held::Gone => {}
        }
    }

    /// Gives the bytes of a slot to a copy in a stream. They stay until the copy is in the stream,
    /// and are not given back before the stream has passed it. `writes` is how many of them, from
    /// the first on, the copy writes, if it does.
    pub(crate) fn copy(
        &self,
        slot: u64,
        stream: &Stream,
        writes: Option<u64>,
        copy: impl FnOnce(Span) -> Result<()>,
    ) -> Result<()> {
        let mut state = lock(&self.0.state);
        let whole = match &state.held {
            Held::Managed(buffer) => {
                use_on(buffer, stream)?;
                buffer.region().wait_for_discards()?;
                buffer.span()
            }
            Held::Bytes(allocation) => {
                allocation.use_on(stream)?;
                allocation.span()
            }
            Held::Empty => return Ok(()),
            Held::Promised | Held::Gone => return Err(ManagerError::ArrayGone),
        };
        // The host waits for one stream only, so that has to come after any other.
        if let Some(other) = state.copies.as_ref().filter(|other| *other != stream) {
            stream.wait_for(other)?;
        }
        state.copies = Some(stream.clone());
        let slot = self.slot_of(whole, slot);
        copy(slot)?;
        if let (Held::Managed(buffer), Some(bytes)) = (&mut state.held, writes) {
            let first = index(slot.ptr.0 - whole.ptr.0);
            let written = first..first.saturating_add(index(bytes));
            if !written.is_empty() {
                // SAFETY: every page has to be written before it is read. Discards were waited for
                // above, the copy that is in the stream now writes these bytes, and views of the
                // host wait for copies (`State::wait`).
                unsafe { buffer.range_mut(written)?.forget_discards() };
            }
        }
        Ok(())
    }
}

/// An offset in bytes as an index of a buffer of bytes, which is never longer than `usize` counts.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
