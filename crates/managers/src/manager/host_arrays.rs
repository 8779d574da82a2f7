//! The manager's calls that make arrays on the host.

use super::error::{ManagerError, Result};
use super::host_array::{HostArray, HostMemory, Storage};
use super::instance_id::InstanceId;
use super::memory_manager::MemoryManager;
use super::request::Dtype;
use super::spill_file::SpillFile;
use crate::sync::Mutex;

impl MemoryManager {
    /// Makes an array on the host: of zeros, or with the elements of another of the same type and
    /// size. Page-locked memory beyond the [budget](Self::pinned_budget_bytes), or that the driver
    /// has no room for, is ordinary memory; [`HostArray::memory`] says which it is.
    ///
    /// # Errors
    /// [`ManagerError::InvalidRequest`] for a size beyond the address space,
    /// [`ManagerError::Mismatch`] for one that is not like `like`, [`ManagerError::Spill`] for a
    /// file that cannot be made or filled, [`ManagerError::WrongMemory`] for page-locked memory of
    /// a back end with addresses that are not the host's; `OutOfMemory`.
    pub fn create_host_array(
        &self,
        shape: &[u64],
        dtype: Dtype,
        memory: HostMemory,
        like: Option<&HostArray>,
    ) -> Result<HostArray> {
        let directory = self.spill_directory(None);
        self.host_array(shape, dtype, memory, like, &directory)
    }

    /// The same for an instance, in memory that
    /// [`choose_host_memory_type`](Self::choose_host_memory_type) chooses.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; as [`create_host_array`](Self::create_host_array).
    pub fn create_host_array_for(
        &self,
        id: InstanceId,
        shape: &[u64],
        dtype: Dtype,
        like: Option<&HostArray>,
    ) -> Result<HostArray> {
        let bytes = bytes_of(shape, dtype)?;
        let memory = self.choose_host_memory_type(Some(id), bytes as u64, true)?;
        let directory = self.spill_directory(Some(id));
        self.host_array(shape, dtype, memory, like, &directory)
    }

    fn host_array(
        &self,
        shape: &[u64],
        dtype: Dtype,
        memory: HostMemory,
        like: Option<&HostArray>,
        directory: &std::path::Path,
    ) -> Result<HostArray> {
        let bytes = bytes_of(shape, dtype)?;
        if let Some(like) = like.filter(|like| like.dtype != dtype || like.bytes != bytes) {
            let why = format!("{bytes} bytes of {dtype:?}, to be like {like:?}");
            return Err(ManagerError::Mismatch { item: 0, why });
        }
        let storage = match memory {
            _ if bytes == 0 => Storage::Empty,
            HostMemory::Pinned => match self.pinned(bytes, false)? {
                Some(block) => Storage::Pinned(block),
                None => Storage::Host(zeros(bytes)?),
            },
            HostMemory::Host => Storage::Host(zeros(bytes)?),
            HostMemory::Memmap => Storage::Memmap(SpillFile::new(directory, bytes)?),
        };
        let shape = shape.to_vec();
        let mut array = HostArray { dtype, shape, bytes, storage, copies: Mutex::new(None) };
        match like {
            Some(like) => {
                like.wait()?;
                array.bytes_mut().copy_from_slice(like.bytes());
            }
            // Files and vectors are zeros already.
            None if memory == HostMemory::Pinned => array.bytes_mut().fill(0),
            None => {}
        }
        Ok(array)
    }

    /// A page-locked buffer; `None` if the budget or the driver has no room, unless it is forced.
    pub(crate) fn pinned_array(
        &self,
        shape: &[u64],
        dtype: Dtype,
        is_forced: bool,
    ) -> Result<Option<HostArray>> {
        let bytes = bytes_of(shape, dtype)?;
        let storage = match bytes {
            0 => Some(Storage::Empty),
            _ => self.pinned(bytes, is_forced)?.map(Storage::Pinned),
        };
        let shape = shape.to_vec();
        let made = |storage| HostArray { dtype, shape, bytes, storage, copies: Mutex::new(None) };
        Ok(storage.map(made).map(|mut array| {
            array.bytes_mut().fill(0);
            array
        }))
    }
}

fn bytes_of(shape: &[u64], dtype: Dtype) -> Result<usize> {
    let mut lengths = shape.iter();
    let bytes = match shape.contains(&0) {
        true => Some(0),
        false => lengths.try_fold(dtype.size_bytes(), |bytes, &length| bytes.checked_mul(length)),
    };
    let bytes = bytes.and_then(|bytes| isize::try_from(bytes).ok());
    bytes.map(isize::unsigned_abs).ok_or_else(|| ManagerError::InvalidRequest {
        label: "host array".to_owned(),
        why: "its size is beyond the address space".to_owned(),
    })
}

/// At least this many bytes of zeros, in words; an error if the system has too little memory.
fn zeros(bytes: usize) -> Result<Vec<u64>> {
    let words = bytes.div_ceil(size_of::<u64>());
    let mut vector = Vec::new();
    vector.try_reserve_exact(words).map_err(|_| {
        pagewise::Error::new("create_host_array", pagewise::ErrorKind::OutOfMemory)
            .with_detail(format!("the host has no {bytes} bytes"))
    })?;
    vector.resize(words, 0);
    Ok(vector)
}
