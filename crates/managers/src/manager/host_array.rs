//! Arrays on the host, for copies to and from a device.

use std::fmt;

use bytemuck::Pod;
use pagewise::{DevicePtr, Stream};

use super::error::{ManagerError, Result, named};
use super::pinned_blocks::{PinnedBlock, pinned_bytes};
use super::request::Dtype;
use super::spill_file::SpillFile;
use crate::sync::{Mutex, lock};

/// Where a host array lives.
///
/// ```
/// use pagewise_managers::manager::HostMemory;
/// assert_eq!("pinned".parse::<HostMemory>()?, HostMemory::Pinned);
/// assert!("device".parse::<HostMemory>().is_err());
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HostMemory {
    /// Page-locked: copied without the processor, and scarce.
    #[default]
    Pinned,
    /// Ordinary memory: copied by way of a page-locked buffer.
    Host,
    /// A file that is mapped: for more than the system has.
    Memmap,
}

named!(HostMemory, "kind of host memory", {
    "pinned" => Pinned,
    "host" => Host,
    "memmap" => Memmap,
});

pub(super) enum Storage {
    Empty,
    Pinned(PinnedBlock),
    /// In words, so that every element type is aligned.
    Host(Vec<u64>),
    Memmap(SpillFile),
}

/// An array on the host.
///
/// Copies to and from a device run on while the program goes on; a reader of the array, and
/// its destructor, waits for those that concern it.
///
/// ```
/// use pagewise_managers::manager::{Dtype, HostMemory, MemoryManager};
/// use pagewise::{Device, Machine};
///
/// let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
/// let mut a = manager.create_host_array(&[2, 3], Dtype::F32, HostMemory::Pinned, None)?;
/// a.as_mut_slice::<f32>()?[5] = 1.5;
/// let b = manager.create_host_array(&[2, 3], Dtype::F32, HostMemory::Host, Some(&a))?;
/// assert_eq!(b.as_slice::<f32>()?, [0.0, 0.0, 0.0, 0.0, 0.0, 1.5]);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
pub struct HostArray {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    pub(super) bytes: usize,
    pub(super) storage: Storage,
    /// A stream with copies that have not been waited for.
    pub(super) copies: Mutex<Option<Stream>>,
}

impl HostArray {
    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its lengths, the last one running fastest.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Its bytes.
    #[must_use]
    pub fn nbytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Where it lives.
    #[must_use]
    pub fn memory(&self) -> HostMemory {
        match self.storage {
            Storage::Pinned(_) => HostMemory::Pinned,
            Storage::Memmap(_) => HostMemory::Memmap,
            Storage::Host(_) | Storage::Empty => HostMemory::Host,
        }
    }

    /// Its elements.
    ///
    /// # Errors
    /// [`ManagerError::Mismatch`] for another element type; failures of copies that it waits for.
    pub fn as_slice<T: Pod>(&self) -> Result<&[T]> {
        self.check::<T>()?;
        self.wait()?;
        // No bytes have no address, and so no alignment.
        Ok(if self.bytes == 0 { &[] } else { bytemuck::cast_slice(self.bytes()) })
    }

    /// Its elements, to be changed.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        self.check::<T>()?;
        self.wait()?;
        Ok(if self.bytes == 0 { &mut [] } else { bytemuck::cast_slice_mut(self.bytes_mut()) })
    }

    fn check<T: Pod>(&self) -> Result<()> {
        if Dtype::of::<T>() == Some(self.dtype) {
            return Ok(());
        }
        let why = format!("elements are {:?}, not {}", self.dtype, std::any::type_name::<T>());
        Err(ManagerError::Mismatch { item: 0, why })
    }

    /// Waits for copies to or from it.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut copies = lock(&self.copies);
        if let Some(stream) = &*copies {
            stream.synchronize()?;
        }
        *copies = None;
        Ok(())
    }

    /// A copy in a stream is about to use it. Copies in another are waited for, so that there is
    /// one stream to wait for later.
    pub(crate) fn copied_on(&self, stream: &Stream) -> Result<()> {
        let mut copies = lock(&self.copies);
        if let Some(other) = copies.as_ref().filter(|other| *other != stream) {
            stream.wait_for(other)?;
        }
        *copies = Some(stream.clone());
        Ok(())
    }

    /// The machine that it is page-locked for.
    pub(crate) fn machine(&self) -> Option<&pagewise::Machine> {
        match &self.storage {
            Storage::Pinned(allocation) => Some(allocation.machine()),
            _ => None,
        }
    }

    /// Where a device reaches it, if it does.
    pub(crate) fn pinned(&self) -> Option<DevicePtr> {
        match &self.storage {
            Storage::Pinned(allocation) => Some(allocation.device_ptr()),
            _ => None,
        }
    }

    /// The bytes that it has room for.
    pub(crate) fn capacity(&self) -> u64 {
        match &self.storage {
            Storage::Pinned(block) => block.span().bytes,
            _ => self.nbytes(),
        }
    }

    /// Gives it another type and other lengths, if it has room for them.
    pub(crate) fn reshape(&mut self, shape: &[u64], dtype: Dtype) -> Result<()> {
        let lengths = shape.iter().copied().fold(dtype.size_bytes(), u64::saturating_mul);
        if lengths > self.capacity() {
            let why = format!("room for {} bytes, {lengths} are asked for", self.capacity());
            return Err(ManagerError::Mismatch { item: 0, why });
        }
        self.wait()?;
        self.shape = shape.to_vec();
        self.dtype = dtype;
        self.bytes = usize::try_from(lengths).unwrap_or(usize::MAX);
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Empty => &[],
            // SAFETY: the memory is live for as long as `self`, and the host reaches it (`pinned`
            // has asked). It is not written while `self` is borrowed: copies into it borrow `self`
            // exclusively, and were waited for.
            Storage::Pinned(allocation) => unsafe { &*pinned_bytes(allocation.span(), self.bytes) },
            Storage::Host(words) => &bytemuck::cast_slice(words)[..self.bytes],
            Storage::Memmap(file) => &file.bytes()[..self.bytes],
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Empty => &mut [],
            // SAFETY: the memory is live for as long as `self`, and the host reaches it (`pinned`
            // has asked). `self` is borrowed exclusively, so no other reference to the memory
            // exists, and copies of it were waited for.
            Storage::Pinned(allocation) => unsafe {
                &mut *pinned_bytes(allocation.span(), self.bytes)
            },
            Storage::Host(words) => &mut bytemuck::cast_slice_mut(words)[..self.bytes],
            Storage::Memmap(file) => &mut file.bytes_mut()[..self.bytes],
        }
    }
}

impl Drop for HostArray {
    fn drop(&mut self) {
        let copies = lock(&self.copies).as_ref().map(|stream| stream.machine().clone());
        if let Some(machine) = copies {
            let mut waited = false;
            machine.on_drop(|| {
                let answer = self.wait();
                waited = answer.is_ok();
                answer.map_err(Into::into)
            });
            // A copy may be under way still.
            if let (false, Storage::Pinned(block)) = (waited, &mut self.storage) {
                block.never_again();
            }
        }
    }
}

impl fmt::Debug for HostArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostArray({:?}, {:?}, {:?})", self.dtype, self.shape, self.memory())
    }
}
