//! Pointers as managers give them: the kind of memory, its owner, and its end.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagewise::refuse::invalid;
use pagewise::{DevicePtr, Machine, Result, Span};

use super::access::Access;
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
/// [Host views](Self::read) and [handles for other processes](super::IpcHandle) hold the memory:
/// it stays until they are gone.
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
    pub(super) memory: Arc<Memory>,
    span: Span,
}

pub(super) struct Memory {
    machine: Machine,
    kind: PointerKind,
    /// The distance from the device's address of a byte to the host's, modulo 2^64.
    host_offset: Option<u64>,
    state: Mutex<State>,
    owned: AtomicUsize,
}

enum State {
    Live(Live),
    Freed,
}

#[derive(Default)]
struct Live {
    finalizer: Option<Finalizer>,
    owner: Option<Owner>,
    access: Access,
    /// Host views and handles for other processes: the memory stays while there are some.
    holds: usize,
    /// Its last owner has gone, but something holds it.
    is_doomed: bool,
}

impl MemoryPointer {
    /// A pointer to memory that `finalizer` gives back, or no function. Its address is the host's
    /// too if the host reaches the memory, unless [`with_device_ptr`](Self::with_device_ptr)
    /// says otherwise.
    #[must_use]
    pub fn new(
        machine: impl Into<Machine>,
        kind: PointerKind,
        span: Span,
        finalizer: Option<Finalizer>,
    ) -> Self {
        let state = Mutex::new(State::Live(Live { finalizer, ..Live::default() }));
        let host_offset = kind.is_host_accessible().then_some(0);
        let (machine, owned) = (machine.into(), AtomicUsize::new(0));
        Self { memory: Arc::new(Memory { machine, kind, host_offset, state, owned }), span }
    }

    /// The same pointer, to memory of which devices reach the first byte by another address than
    /// the host does. Only a pointer without clones, views and owners takes it; another stays as it
    /// was.
    ///
    /// ```
    /// use pagewise_managers::emm::{MemoryPointer, PointerKind};
    /// use pagewise::{DevicePtr, Machine, Span};
    ///
    /// let span = Span::new(DevicePtr(0x7000), 100);
    /// let mapped = MemoryPointer::new(pagewise::sim()?, PointerKind::Mapped, span, None);
    /// let mapped = mapped.with_device_ptr(DevicePtr(0x10_0000));
    /// let part = mapped.view(16, None)?;
    /// assert_eq!((part.device_ptr().0, part.host_address()), (0x10_0010, Some(0x7010)));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn with_device_ptr(mut self, first_byte: DevicePtr) -> Self {
        if let Some(memory) = Arc::get_mut(&mut self.memory) {
            let further = self.span.ptr.0.wrapping_sub(first_byte.0);
            memory.host_offset = memory.host_offset.map(|offset| offset.wrapping_add(further));
            self.span.ptr = first_byte;
        }
        self
    }

    /// The same pointer with an owner, which it keeps until the finalizer has run, or for ever if
    /// the finalizer fails.
    #[must_use]
    pub fn with_owner(self, keep: Owner) -> Self {
        // Dropping it may run foreign code, so it is dropped after the lock is released.
        let let_go = match &mut *self.memory.locked() {
            State::Live(live) => live.owner.replace(keep),
            State::Freed => Some(keep),
        };
        drop(let_go);
        self
    }

    /// The address by which devices reach the first byte.
    #[must_use]
    pub fn device_ptr(&self) -> DevicePtr {
        self.span.ptr
    }

    /// The address by which the host reaches the first byte; `None` for device memory.
    #[must_use]
    pub fn host_address(&self) -> Option<u64> {
        self.memory.host_offset.map(|offset| self.span.ptr.0.wrapping_add(offset))
    }

    /// How many bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.span.bytes
    }

    /// The bytes, by the address of devices.
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
            _ if self.is_freed() => FREED,
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
    /// `InvalidValue` (no CUDA code) if it was freed before, or if host views or handles for other
    /// processes hold it: drop them first, nothing has changed. Of the finalizer, and then it
    /// counts as freed all the same.
    pub fn free(&self) -> Result<()> {
        let refused = |why: String| Err(invalid("free", why).with_span(self.span));
        match self.memory.take(Asked::ByCaller) {
            Taken::Live(live) => live.give_back(),
            Taken::Held(holds) => refused(format!(
                "{holds} host views or handles for other processes hold the memory: drop them first"
            )),
            Taken::Freed => refused("the memory was freed before".into()),
        }
    }

    /// Lets something in under the lock if the memory is live, and keeps the memory until the
    /// answer goes.
    pub(super) fn hold(
        &self,
        operation: &'static str,
        admit: impl FnOnce(&mut Access) -> Result<(), &'static str>,
    ) -> Result<Hold> {
        let mut state = self.memory.locked();
        let admitted = match &mut *state {
            State::Live(live) if !live.is_doomed => {
                admit(&mut live.access).inspect(|()| live.holds += 1)
            }
            _ => Err(FREED),
        };
        drop(state);
        match admitted {
            Ok(()) => Ok(Hold(self.clone())),
            Err(why) => Err(invalid(operation, why).with_span(self.span)),
        }
    }

    /// Notes what is known of the memory's use.
    pub(super) fn with_access(self, access: Access) -> Self {
        if let State::Live(live) = &mut *self.memory.locked() {
            live.access = access;
        }
        self
    }
}

const FREED: &str = "the memory was freed";

/// Keeps memory from being freed until it goes.
pub(super) struct Hold(MemoryPointer);

impl Hold {
    pub(super) fn pointer(&self) -> &MemoryPointer {
        &self.0
    }

    /// Changes what is known of the memory's use.
    pub(super) fn update(&self, change: impl FnOnce(&mut Access)) {
        if let State::Live(live) = &mut *self.0.memory.locked() {
            change(&mut live.access);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let memory = &self.0.memory;
        let is_due = match &mut *memory.locked() {
            State::Live(live) => {
                live.holds -= 1;
                live.is_doomed && live.holds == 0
            }
            State::Freed => false,
        };
        if is_due {
            memory.free_quietly();
        }
    }
}

/// The party that wants memory to be freed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A caller, who is told what holds the memory.
    ByCaller,
    /// A destructor: held memory goes when it is held no more.
    ByDestructor,
}

/// The answer to a party that wants memory to be freed.
enum Taken {
    Live(Live),
    Held(usize),
    Freed,
}

impl Live {
    /// Runs the finalizer, then lets the owner go if that worked.
    fn give_back(self) -> Result<()> {
        if let Err(error) = self.finalizer.map_or(Ok(()), run) {
            // The driver may still use what the owner holds, such as pages that it did not
            // unlock: better never freed than freed under it.
            mem::forget(self.owner);
            return Err(error);
        }
        run(move || {
            drop(self.owner);
            Ok(())
        })
    }
}

impl Memory {
    fn locked(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn take(&self, asked: Asked) -> Taken {
        let mut state = self.locked();
        if let State::Live(live) = &mut *state
            && live.holds > 0
        {
            live.is_doomed |= asked == Asked::ByDestructor;
            return Taken::Held(live.holds);
        }
        match mem::replace(&mut *state, State::Freed) {
            State::Live(live) => Taken::Live(live),
            State::Freed => Taken::Freed,
        }
    }

    fn free_quietly(&self) {
        self.machine.on_drop(|| match self.take(Asked::ByDestructor) {
            Taken::Live(live) => live.give_back(),
            Taken::Held(_) | Taken::Freed => Ok(()),
        });
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
