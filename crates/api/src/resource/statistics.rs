//! A resource that counts what it gives out.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{DevicePtr, Result};

use super::memory_resource::{MemoryKind, MemoryResource};
use crate::refuse::invalid;
use crate::{Machine, Stream};

/// A counter with its present value, its peak and its total.
///
/// ```
/// use pagewise::resource::Counter;
/// assert_eq!(Counter::default().peak, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Counter {
    /// The present value. It is below 0 in a [scope](Statistics::push) that gave back memory from
    /// before the scope.
    pub current: i64,
    /// The largest value that it had, and at least 0.
    pub peak: i64,
    /// The sum of all that was added.
    pub total: u64,
}

impl Counter {
    fn add(&mut self, amount: u64) {
        self.current = self.current.saturating_add_unsigned(amount);
        self.peak = self.peak.max(self.current);
        self.total = self.total.saturating_add(amount);
    }

    fn take(&mut self, amount: u64) {
        self.current = self.current.saturating_sub_unsigned(amount);
    }

    /// Adds an ended scope to the one around it, which stood at `self` when it began.
    fn absorb(&mut self, inner: Self) {
        self.peak = self.peak.max(self.current.saturating_add(inner.peak));
        self.current = self.current.saturating_add(inner.current);
        self.total = self.total.saturating_add(inner.total);
    }
}

/// The counters of a resource.
///
/// ```
/// use pagewise::resource::ResourceCounters;
/// assert_eq!(ResourceCounters::default().allocations.total, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ResourceCounters {
    /// Bytes.
    pub bytes: Counter,
    /// Allocations.
    pub allocations: Counter,
}

/// A resource that counts the memory that it gives and takes back. Refused requests do not count.
///
/// Counters are a stack: [`push`](Self::push) begins a scope with counters at 0, [`pop`](Self::pop)
/// ends it and adds it to the one around it.
///
/// ```
/// use std::sync::Arc;
/// use pagewise::resource::{Allocation, DeviceMemoryResource, Statistics};
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let pool = DeviceMemoryResource::current_pool(&machine, Device::FIRST)?;
/// let resource = Arc::new(Statistics::new(pool));
/// let kept = Allocation::new(resource.clone(), 100, &stream)?;
/// resource.push();
/// drop(Allocation::new(resource.clone(), 50, &stream)?);
/// let scope = resource.pop()?;
/// assert_eq!((scope.bytes.peak, scope.bytes.current), (50, 0));
/// let all = resource.counters();
/// assert_eq!((all.bytes.current, all.bytes.peak, all.bytes.total), (100, 150, 150));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct Statistics<R> {
    inner: R,
    stack: Mutex<Stack>,
}

#[derive(Debug, Default)]
struct Stack {
    top: ResourceCounters,
    below: Vec<ResourceCounters>,
}

impl<R: MemoryResource> Statistics<R> {
    /// Counts what a resource gives from now on.
    pub fn new(inner: R) -> Self {
        Self { inner, stack: Mutex::default() }
    }

    fn locked(&self) -> MutexGuard<'_, Stack> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of the innermost scope.
    #[must_use]
    pub fn counters(&self) -> ResourceCounters {
        self.locked().top
    }

    /// Begins a scope.
    ///
    /// ```
    /// # use pagewise::{Machine, resource::{ManagedMemoryResource, Statistics}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Statistics::new(ManagedMemoryResource::direct(&machine));
    /// resource.push();
    /// assert!(resource.pop().is_ok());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn push(&self) {
        let mut stack = self.locked();
        let before = std::mem::take(&mut stack.top);
        stack.below.push(before);
    }

    /// Ends the innermost scope and returns its counters.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) if none was begun.
    ///
    /// ```
    /// # use pagewise::{Machine, resource::{ManagedMemoryResource, Statistics}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Statistics::new(ManagedMemoryResource::direct(&machine));
    /// assert!(resource.pop().is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn pop(&self) -> Result<ResourceCounters> {
        let mut stack = self.locked();
        let Some(mut outer) = stack.below.pop() else {
            return Err(invalid("pop", "no scope was begun: call `push` first"));
        };
        let ended = stack.top;
        outer.bytes.absorb(ended.bytes);
        outer.allocations.absorb(ended.allocations);
        stack.top = outer;
        Ok(ended)
    }
}

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time;
// the inner resource gives it and made that promise.
unsafe impl<R: MemoryResource> MemoryResource for Statistics<R> {
    fn machine(&self) -> &Machine {
        self.inner.machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        self.inner.memory_kind()
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        let ptr = self.inner.allocate(bytes, stream)?;
        let mut stack = self.locked();
        stack.top.bytes.add(bytes);
        stack.top.allocations.add(1);
        Ok(ptr)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()> {
        {
            let mut stack = self.locked();
            stack.top.bytes.take(bytes);
            stack.top.allocations.take(1);
        }
        // SAFETY: the memory came from the inner resource with the same size, and the caller
        // promised that no other work uses it.
        unsafe { self.inner.deallocate(ptr, bytes, stream) }
    }
}
