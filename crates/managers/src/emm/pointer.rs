//! Pointers as managers give them: the kind of memory, its owner, and its end.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagewise::refuse::invalid;
use pagewise::{DevicePtr, Machine, Result, Span};

use super::pending::run;
use crate::sync::{Mutex, MutexGuard, lock};

/// The function that runs when memory goes: once, on any thread, and never under a lock.
pub type Finalizer = Box<dyn FnOnce() -> Result<()> + Send>;

/// Something that has to stay while memory is used, such as the array with the pinned pages.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// The kind of a pointer.
///
/// ```
/// use pagewise_managers::emm::PointerKind;
/// assert!(PointerKind::Managed.is_auto_free() && !PointerKind::Memory.is_auto_free());
/// assert!(PointerKind::Pinned.is_host_accessible());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PointerKind {
    /// Device memory that goes with the pointer.
    Memory,
    /// Device memory that goes with its last [`OwnedPointer`].
    AutoFree,
    /// Managed memory; it goes like `AutoFree`.
    Managed,
    /// Page-locked host memory that devices reach; it goes like `AutoFree`.
    Mapped,
    /// Page-locked host memory.
    Pinned,
}

impl PointerKind {
    /// Whether it goes with its last [`OwnedPointer`], not only with the pointer itself.
    #[must_use]
    pub const fn is_auto_free(self) -> bool {
        matches!(self, Self::AutoFree | Self::Managed | Self::Mapped)
    }

    /// Whether the host reaches it by its address.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        matches!(self, Self::Managed | Self::Mapped | Self::Pinned)
    }
}

/// A pointer to memory of a manager. Clones and views are the same memory, which goes when
/// a caller [frees](Self::free) it, with the last of them, or as its [kind](PointerKind) says.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use pagewise_managers::emm::{MemoryPointer, PointerKind};
/// use pagewise::{DevicePtr, Machine, Span};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let gone = Arc::new(AtomicBool::new(false));
/// let told = Arc::clone(&gone);
/// let finalizer = Box::new(move || { told.store(true, Ordering::Relaxed); Ok(()) });
/// let span = Span::new(DevicePtr(4096), 100);
/// let pointer = MemoryPointer::new(&machine, PointerKind::Memory, span, Some(finalizer));
/// let view = pointer.view(10, Some(30))?;
/// assert_eq!(view.span(), Span::new(DevicePtr(4106), 20));
/// drop(pointer);
/// assert!(!gone.load(Ordering::Relaxed), "the view is of the same memory");
/// view.free()?;
/// assert!(gone.load(Ordering::Relaxed) && view.free().is_err(), "once");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryPointer {
    memory: Arc<Memory>,
    span: Span,
}

struct Memory {
    machine: Machine,
    kind: PointerKind,
    state: Mutex<State>,
    owned: AtomicUsize,
}

enum State {
    Live { finalizer: Option<Finalizer>, owner: Option<Owner> },
    Freed,
}

impl MemoryPointer {
    /// A pointer to memory that `finalizer` gives back, or no function.
    #[must_use]
    pub fn new(
        machine: impl Into<Machine>,
        kind: PointerKind,
        span: Span,
        finalizer: Option<Finalizer>,
    ) -> Self {
        let state = Mutex::new(State::Live { finalizer, owner: None });
        let owned = AtomicUsize::new(0);
        Self { memory: Arc::new(Memory { machine: machine.into(), kind, state, owned }), span }
    }

    /// The same pointer with an owner, which it keeps until the finalizer has run, or for ever if
    /// the finalizer fails.
    #[must_use]
    pub fn with_owner(self, keep: Owner) -> Self {
        // Dropping it may run foreign code, so it is dropped after the lock is released.
        let let_go = match &mut *self.memory.locked() {
            State::Live { owner, .. } => owner.replace(keep),
            State::Freed => Some(keep),
        };
        drop(let_go);
        self
    }

    /// The address of the first byte.
    #[must_use]
    pub fn device_ptr(&self) -> DevicePtr {
        self.span.ptr
    }

    /// How many bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.span.bytes
    }

    /// The bytes, by address.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> PointerKind {
        self.memory.kind
    }

    /// The machine that the memory is of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.memory.machine
    }

    /// Whether the memory was freed.
    #[must_use]
    pub fn is_freed(&self) -> bool {
        matches!(*self.memory.locked(), State::Freed)
    }

    /// Bytes from `start` to `stop`, or to the end.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) if it would end before it starts, or pass the end; or if the
    /// memory was freed.
    pub fn view(&self, start: u64, stop: Option<u64>) -> Result<Self> {
        const OPERATION: &str = "view";
        let stop = stop.unwrap_or(self.span.bytes);
        let why = match (stop.checked_sub(start), stop <= self.span.bytes) {
            _ if self.is_freed() => "the memory was freed",
            (Some(bytes), true) => {
                let span = Span::new(self.span.ptr.offset(start), bytes);
                return Ok(Self { memory: Arc::clone(&self.memory), span });
            }
            (None, _) => "it would end before it starts",
            (_, false) => "it would pass the end of the memory",
        };
        let asked = format!("bytes {start} to {stop} of {}: {why}", self.span.bytes);
        Err(invalid(OPERATION, asked).with_span(self.span))
    }

    /// One more owner. Memory of an [auto-free kind](PointerKind::is_auto_free) is freed when the
    /// last one goes, though the pointer be still there.
    ///
    /// ```
    /// use pagewise_managers::emm::{MemoryPointer, PointerKind};
    /// use pagewise::{DevicePtr, Machine, Span};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let span = Span::new(DevicePtr(4096), 100);
    /// for (kind, goes) in [(PointerKind::AutoFree, true), (PointerKind::Memory, false)] {
    ///     let pointer = MemoryPointer::new(&machine, kind, span, None);
    ///     let (one, two) = (pointer.own(), pointer.own());
    ///     drop(one);
    ///     assert!(!pointer.is_freed());
    ///     drop(two);
    ///     assert_eq!(pointer.is_freed(), goes);
    /// }
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn own(&self) -> OwnedPointer {
        self.memory.owned.fetch_add(1, Ordering::Relaxed);
        OwnedPointer { pointer: self.clone() }
    }

    /// Frees the memory now, for all clones, views and owners, and says whether that worked.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) if it was freed before; of the finalizer, and then it counts
    /// as freed all the same.
    pub fn free(&self) -> Result<()> {
        self.memory.free().unwrap_or_else(|| {
            Err(invalid("free", "the memory was freed before").with_span(self.span))
        })
    }
}

impl Memory {
    fn locked(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Runs the finalizer, then lets the owner go if that worked; `None` if that was done.
    fn free(&self) -> Option<Result<()>> {
        let before = mem::replace(&mut *self.locked(), State::Freed);
        match before {
            State::Freed => None,
            State::Live { finalizer, owner } => {
                if let Err(error) = finalizer.map_or(Ok(()), run) {
                    // The driver may still use what the owner holds, such as pages that it did not
                    // unlock: better never freed than freed under it.
                    mem::forget(owner);
                    return Some(Err(error));
                }
                Some(run(move || {
                    drop(owner);
                    Ok(())
                }))
            }
        }
    }

    fn free_quietly(&self) {
        self.machine.on_drop(|| self.free().unwrap_or(Ok(())));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.free_quietly();
    }
}

impl fmt::Debug for MemoryPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryPointer({}, {:?})", self.span, self.memory.kind)
    }
}

/// An owner of memory: see [`MemoryPointer::own`].
#[derive(Debug)]
pub struct OwnedPointer {
    pointer: MemoryPointer,
}

impl std::ops::Deref for OwnedPointer {
    type Target = MemoryPointer;

    fn deref(&self) -> &MemoryPointer {
        &self.pointer
    }
}

impl Drop for OwnedPointer {
    fn drop(&mut self) {
        let memory = &self.pointer.memory;
        // The last owner's drop comes after what the others did with the memory.
        if memory.owned.fetch_sub(1, Ordering::AcqRel) == 1 && memory.kind.is_auto_free() {
            memory.free_quietly();
        }
    }
}
