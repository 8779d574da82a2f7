//! Buffers that are used again: staging for chunks on their way between host and device.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::error::Result;
use super::host_array::{HostArray, HostMemory};
use super::memory_manager::MemoryManager;
use super::request::Dtype;
use super::spill::system_memory;
use crate::sync::{Condvar, Mutex, lock};

type Key = (String, Vec<u64>, Dtype);

/// Page-locked buffers by name, shape and type. A caller that asks for more than the pool may have
/// waits until a buffer comes back. A name without an outstanding buffer gets one all the same, so
/// that no caller waits for itself.
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::manager::{ChunkBufferPool, Dtype, MemoryManager};
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let manager = Arc::new(MemoryManager::new(machine, Device::FIRST)?);
/// let pool = ChunkBufferPool::new(&manager).limit_bytes(1 << 20);
/// let mut buffer = pool.acquire("state", &[64], Dtype::F32)?;
/// buffer.as_mut_slice::<f32>()?.fill(1.0);
/// drop(buffer);
/// assert_eq!((pool.free_bytes(), pool.used_bytes()), (256, 0));
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ChunkBufferPool {
    manager: Arc<MemoryManager>,
    shared: Arc<Shared>,
    limit_bytes: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Buffers>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct Buffers {
    free: BTreeMap<Key, Vec<HostArray>>,
    /// By name, how many are outstanding.
    out: BTreeMap<String, u64>,
    free_bytes: u64,
    used_bytes: u64,
}

impl ChunkBufferPool {
    /// An empty pool, of at most 80 % of the memory that the system has available now; unlimited
    /// where that is unknown.
    #[must_use]
    pub fn new(manager: &Arc<MemoryManager>) -> Self {
        let limit_bytes = system_memory().map_or(u64::MAX, |memory| memory.available_bytes / 5 * 4);
        Self { manager: Arc::clone(manager), shared: Arc::default(), limit_bytes }
    }

    /// The same pool with another limit. Outstanding and free buffers count.
    #[must_use]
    pub fn limit_bytes(mut self, bytes: u64) -> Self {
        self.limit_bytes = bytes;
        self
    }

    /// Bytes of unused buffers.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        lock(&self.shared.state).free_bytes
    }

    /// Bytes of outstanding buffers.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        lock(&self.shared.state).used_bytes
    }

    /// Hands a buffer out: one that was given back, or a new one. What it holds is whatever it was
    /// last used for, zeros if it is new. May wait for others to give theirs back.
    ///
    /// # Errors
    /// As [`MemoryManager::create_host_array`].
    pub fn acquire(&self, name: &str, shape: &[u64], dtype: Dtype) -> Result<ChunkBuffer> {
        let lengths = shape.iter().copied().fold(dtype.size_bytes(), u64::saturating_mul);
        let key = (name.to_owned(), shape.to_vec(), dtype);
        let mut buffers = lock(&self.shared.state);
        let found = loop {
            if let Some(buffer) = buffers.free.get_mut(&key).and_then(Vec::pop) {
                buffers.free_bytes -= buffer.nbytes();
                break Some(buffer);
            }
            let used = buffers.used_bytes.saturating_add(lengths);
            if used > self.limit_bytes && buffers.out.contains_key(name) {
                let waited = self.shared.given_back.wait(buffers);
                buffers = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
                continue;
            }
            break None;
        };
        // Counted before it is made, so that two threads cannot pass the limit together.
        *buffers.out.entry(key.0.clone()).or_default() += 1;
        buffers.used_bytes = buffers.used_bytes.saturating_add(lengths);
        let over = buffers.used_bytes.saturating_add(buffers.free_bytes) > self.limit_bytes;
        let spare = if over && found.is_none() { buffers.empty() } else { BTreeMap::new() };
        drop(buffers);
        drop(spare);
        let make = || self.manager.create_host_array(shape, dtype, HostMemory::Pinned, None);
        match found.map_or_else(make, Ok) {
            Ok(array) => {
                let shared = Arc::clone(&self.shared);
                Ok(ChunkBuffer { array: Some(array), key, bytes: lengths, shared })
            }
            Err(error) => {
                self.shared.give_back(key, lengths, None);
                Err(error)
            }
        }
    }

    /// Gives the memory of unused buffers back.
    pub fn clear(&self) {
        let spare = lock(&self.shared.state).empty();
        drop(spare);
    }
}

impl Buffers {
    fn empty(&mut self) -> BTreeMap<Key, Vec<HostArray>> {
        self.free_bytes = 0;
        std::mem::take(&mut self.free)
    }
}

impl Shared {
    fn give_back(&self, key: Key, bytes: u64, array: Option<HostArray>) {
        let mut buffers = lock(&self.state);
        buffers.used_bytes = buffers.used_bytes.saturating_sub(bytes);
        if let Some(count) = buffers.out.get_mut(&key.0) {
            *count -= 1;
            if *count == 0 {
                buffers.out.remove(&key.0);
            }
        }
        if let Some(array) = array {
            buffers.free_bytes += array.nbytes();
            buffers.free.entry(key).or_default().push(array);
        }
        drop(buffers);
        self.given_back.notify_all();
    }
}

/// A buffer of a pool, which goes back there.
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::manager::{ChunkBufferPool, Dtype, MemoryManager};
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let manager = Arc::new(MemoryManager::new(machine, Device::FIRST)?);
/// let buffer = ChunkBufferPool::new(&manager).acquire("state", &[64], Dtype::F32)?;
/// assert_eq!(buffer.shape(), [64]);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug)]
pub struct ChunkBuffer {
    /// There until it goes back.
    array: Option<HostArray>,
    key: Key,
    bytes: u64,
    shared: Arc<Shared>,
}

impl Deref for ChunkBuffer {
    type Target = HostArray;

    fn deref(&self) -> &HostArray {
        self.array.as_ref().expect("it is there until the buffer is dropped")
    }
}

impl DerefMut for ChunkBuffer {
    fn deref_mut(&mut self) -> &mut HostArray {
        self.array.as_mut().expect("it is there until the buffer is dropped")
    }
}

impl Drop for ChunkBuffer {
    fn drop(&mut self) {
        self.shared.give_back(self.key.clone(), self.bytes, self.array.take());
    }
}
