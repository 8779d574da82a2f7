//! Buffers that are used again: staging for chunks on their way between host and device.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::error::Result;
use super::host_array::HostArray;
use super::memory_manager::MemoryManager;
use super::request::Dtype;
use super::spill::system_memory;
use crate::sync::{Condvar, Mutex, lock};

/// The most buffers of a name that are outstanding at once, unless the pool is told otherwise.
const DEPTH: u64 = 8;

/// Page-locked buffers by name. An unused buffer of a name serves any shape and type that fits.
/// A caller that asks for more than the pool may have waits until a buffer comes back: at most 8 of
/// a name, the limit in bytes, and the manager's [budget](MemoryManager::pinned_budget_bytes). A name
/// without an outstanding buffer gets one all the same, so that no caller waits for itself.
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
    depth: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Buffers>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct Buffers {
    free: BTreeMap<String, Vec<HostArray>>,
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
        Self { manager: Arc::clone(manager), shared: Arc::default(), limit_bytes, depth: DEPTH }
    }

    /// The same pool with another limit. Outstanding and free buffers count.
    #[must_use]
    pub fn limit_bytes(mut self, bytes: u64) -> Self {
        self.limit_bytes = bytes;
        self
    }

    /// The same pool with another number of outstanding buffers for each name; 0 counts as 1.
    #[must_use]
    pub fn depth(mut self, buffers: u64) -> Self {
        self.depth = buffers.max(1);
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

    /// Hands a buffer out: one that was given back and fits, or a new one. What it holds is whatever
    /// it was last used for, zeros if it is new. Unused buffers of the name that are too small go.
    /// May wait for others to give theirs back.
    ///
    /// # Errors
    /// As [`MemoryManager::create_host_array`].
    pub fn acquire(&self, name: &str, shape: &[u64], dtype: Dtype) -> Result<ChunkBuffer> {
        let wanted = shape.iter().copied().fold(dtype.size_bytes(), u64::saturating_mul);
        let mut buffers = lock(&self.shared.state);
        loop {
            let found = buffers.take(name, wanted);
            let outstanding = buffers.out.get(name).copied().unwrap_or(0);
            let bytes = found.as_ref().map_or(wanted, HostArray::capacity);
            let is_over = buffers.used_bytes.saturating_add(bytes) > self.limit_bytes;
            let may_make = found.is_some() || outstanding == 0;
            if may_make || (outstanding < self.depth && !is_over) {
                // Counted before it is made, so that two threads cannot pass the limits together.
                let spare = buffers.lend(name, bytes, self.limit_bytes, found.is_some());
                drop(buffers);
                drop(spare);
                let lent = self.lent(found, shape, dtype, outstanding == 0);
                match lent {
                    Ok(Some(array)) => {
                        let (name, shared) = (name.to_owned(), Arc::clone(&self.shared));
                        return Ok(ChunkBuffer { array: Some(array), name, bytes, shared });
                    }
                    Ok(None) => self.shared.give_back(name, bytes, None),
                    Err(error) => {
                        self.shared.give_back(name, bytes, None);
                        return Err(error);
                    }
                }
                buffers = lock(&self.shared.state);
                // All others came back meanwhile: nothing would wake this caller.
                if !buffers.out.contains_key(name) {
                    continue;
                }
            }
            let waited = self.shared.given_back.wait(buffers);
            buffers = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// The buffer that was found, or a new one; `None` if the manager's budget has no room and the
    /// name has another.
    fn lent(
        &self,
        found: Option<HostArray>,
        shape: &[u64],
        dtype: Dtype,
        is_first: bool,
    ) -> Result<Option<HostArray>> {
        match found {
            Some(mut array) => array.reshape(shape, dtype).map(|()| Some(array)),
            None => self.manager.pinned_array(shape, dtype, is_first),
        }
    }

    /// Gives the memory of unused buffers back.
    pub fn clear(&self) {
        let spare = lock(&self.shared.state).empty();
        drop(spare);
    }
}

type Free = BTreeMap<String, Vec<HostArray>>;

impl Buffers {
    /// Takes an unused buffer of a name that has room.
    fn take(&mut self, name: &str, bytes: u64) -> Option<HostArray> {
        let free = self.free.get_mut(name)?;
        let place = free.iter().position(|array| array.capacity() >= bytes)?;
        let found = free.swap_remove(place);
        self.free_bytes -= found.capacity();
        Some(found)
    }

    /// Counts a buffer as outstanding. Returns unused ones that go: those of its name if it is new,
    /// as they are too small, and all if the pool has no room for them beside it.
    fn lend(&mut self, name: &str, bytes: u64, limit_bytes: u64, is_old: bool) -> Free {
        *self.out.entry(name.to_owned()).or_default() += 1;
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        let own = if is_old { None } else { self.free.remove_entry(name) };
        let too_small: Free = own.into_iter().collect();
        let gone = too_small.values().flatten().map(HostArray::capacity);
        self.free_bytes -= gone.sum::<u64>();
        if self.used_bytes.saturating_add(self.free_bytes) <= limit_bytes {
            return too_small;
        }
        let mut all = self.empty();
        all.extend(too_small);
        all
    }

    fn empty(&mut self) -> Free {
        self.free_bytes = 0;
        std::mem::take(&mut self.free)
    }
}

impl Shared {
    fn give_back(&self, name: &str, bytes: u64, array: Option<HostArray>) {
        let mut buffers = lock(&self.state);
        buffers.used_bytes = buffers.used_bytes.saturating_sub(bytes);
        if let Some(count) = buffers.out.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                buffers.out.remove(name);
            }
        }
        if let Some(array) = array {
            buffers.free_bytes += array.capacity();
            buffers.free.entry(name.to_owned()).or_default().push(array);
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
    name: String,
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
        self.shared.give_back(&self.name, self.bytes, self.array.take());
    }
}
