//! Contexts: the primary one of each device and those that programs create, with their streams,
//! events and memory; and the stack of contexts of each thread.
//!
//! Source of the figures: a probe of driver 580 on an H200 (defaults of limits, flags and ids).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint};

use pagewise_hal::{Code, DeviceId, DevicePtr};

use crate::outcome::Outcome;
use crate::stream_attributes::StreamAttributes;

/// `CUDA_ERROR_INVALID_CONTEXT`
pub(crate) const INVALID_CONTEXT: c_int = 201;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`
pub(crate) const CONTEXT_IS_DESTROYED: c_int = 709;
/// `CUDA_ERROR_UNSUPPORTED_LIMIT`
const UNSUPPORTED_LIMIT: c_int = 215;

/// `CU_CTX_MAP_HOST`, which every primary context has.
pub(crate) const MAP_HOST: c_uint = 8;

thread_local! {
    /// The context that is current on this thread, as a handle; 0 for none. It outlives the thread's
    /// destructors: those of a program's static objects come later, and free memory.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// The contexts below it, which become current again.
    static BELOW: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The context that is current on this thread; 0 for none.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Makes a context current in place of the current one; 0 pops that.
pub(crate) fn set_current(handle: usize) {
    CURRENT.set(if handle != 0 { handle } else { take_below() });
}

/// Makes a context current; the one before becomes current again when it is popped.
pub(crate) fn push(handle: usize) {
    let before = CURRENT.replace(handle);
    if before != 0 {
        // A thread that has ended but for destructors has only the current one.
        _ = BELOW.try_with(|below| below.borrow_mut().push(before));
    }
}

/// Takes the current context from the stack.
pub(crate) fn pop() -> Outcome<usize> {
    match current() {
        0 => Err(INVALID_CONTEXT),
        _ => Ok(CURRENT.replace(take_below())),
    }
}

fn take_below() -> usize {
    BELOW.try_with(|below| below.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// How memory of a context is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By `cuMemFree`.
    Memory,
    /// By `cuMemFreeHost`; with the flags that `cuMemHostGetFlags` reports.
    Pinned(c_uint),
    /// By `cuMemHostUnregister`; with the flags that `cuMemHostGetFlags` reports.
    Registered(c_uint),
    /// By `cuIpcCloseMemHandle`, once for each time that it was opened.
    Opened,
}

/// A stream that was created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    pub(crate) device: c_int,
    pub(crate) flags: c_uint,
    pub(crate) priority: c_int,
    pub(crate) id: u64,
    pub(crate) attributes: StreamAttributes,
}

/// A context that exists.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: c_int,
    pub(crate) flags: c_uint,
    /// Unique in the process.
    pub(crate) id: u64,
    /// The numbers of its default streams: the legacy one and the threads' own, which share one.
    pub(crate) default_ids: [u64; 2],
    /// The attributes of its default streams, in the same order.
    pub(crate) default_attributes: [StreamAttributes; 2],
    limits: BTreeMap<c_int, usize>,
    pub(crate) cache_config: c_int,
    /// Contexts with memory that the device of this one reaches (CONTRACT-125).
    pub(crate) peers: BTreeSet<usize>,
}

/// Limits of a context: number, default, and the most that can be set.
const LIMITS: [(c_int, usize, usize); 7] = [
    // Bytes of a thread's stack: the CUDA programming guide gives a thread 512 KiB of local memory.
    (0, 1024, 512 << 10),
    // Bytes for `printf`.
    (1, 8_650_752, usize::MAX),
    // Bytes of the heap of kernels.
    (2, 8 << 20, usize::MAX),
    // Launches that kernels may have outstanding.
    (4, 2048, usize::MAX),
    // Bytes that a fetch into the L2 cache takes.
    (5, 64, 128),
    // Bytes of the L2 cache for data that is kept.
    (6, 11_796_480, 39_321_600),
    // Bytes of shared memory.
    (7, 232_448, 232_448),
];

/// Bytes of the L2 cache for data that is kept come in multiples of this.
const PERSISTING_UNIT: usize = 3_932_160;

/// The least bytes for `printf`.
const PRINTF_BYTES_MIN: usize = 512 << 10;

impl Context {
    fn new(device: c_int, flags: c_uint, id: u64, default_ids: [u64; 2]) -> Self {
        Self {
            device,
            flags,
            id,
            default_ids,
            default_attributes: [StreamAttributes::default(); 2],
            limits: LIMITS.iter().map(|&(limit, default, _)| (limit, default)).collect(),
            cache_config: 0,
            peers: BTreeSet::new(),
        }
    }

    /// `cuCtxGetLimit`
    pub(crate) fn limit(&self, limit: c_int) -> Outcome<usize> {
        match limit {
            // Graphics contexts in CUDA: none.
            8 => Ok(0),
            3 | 9 => Err(UNSUPPORTED_LIMIT),
            _ => self.limits.get(&limit).copied().ok_or(Code::INVALID_VALUE),
        }
    }

    /// `cuCtxSetLimit`: too large a stack is refused, other values are brought into their range.
    pub(crate) fn set_limit(&mut self, limit: c_int, value: usize) -> Outcome {
        if [3, 9].contains(&limit) {
            return Err(UNSUPPORTED_LIMIT);
        }
        let known = LIMITS.iter().find(|&&(known, _, _)| known == limit);
        let &(_, _, most) = known.ok_or(Code::INVALID_VALUE)?;
        let value = match limit {
            0 | 6 | 7 if value > most => return Err(Code::INVALID_VALUE),
            1 => value.max(PRINTF_BYTES_MIN),
            6 => value.next_multiple_of(PERSISTING_UNIT),
            _ => value.min(most),
        };
        self.limits.insert(limit, value);
        Ok(())
    }
}

/// The contexts of a driver and all that belongs to them.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// How often each device's primary context is retained.
    pub(crate) retained: BTreeMap<c_int, u64>,
    /// Flags that primary contexts get.
    pub(crate) primary_flags: BTreeMap<c_int, c_uint>,
    /// Live contexts by handle.
    live: BTreeMap<usize, Context>,
    /// Handles of contexts that were destroyed.
    gone: BTreeSet<usize>,
    /// Streams that were created, by handle.
    pub(crate) streams: BTreeMap<usize, Stream>,
    /// Events: by handle, the context and whether other processes may use it.
    pub(crate) events: BTreeMap<usize, (usize, bool)>,
    /// Memory by address: the context in which it was allocated, and how it is freed.
    pub(crate) memory: BTreeMap<u64, (usize, Kind)>,
    /// The last number that was given to a context, and to a stream.
    last_ids: (u64, u64),
    created: usize,
}

/// Streams, events and memory of a destroyed context, for the simulator to end.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    pub(crate) context: usize,
    /// Contexts with memory that it reached.
    pub(crate) peers: BTreeSet<usize>,
    pub(crate) streams: Vec<usize>,
    pub(crate) events: Vec<usize>,
    pub(crate) memory: Vec<(u64, Kind)>,
}

impl Contexts {
    /// A number that no stream has had.
    fn next_stream_id(&mut self) -> u64 {
        self.last_ids.1 = self.last_ids.1.saturating_add(1);
        self.last_ids.1
    }

    /// A context comes to be.
    pub(crate) fn open(&mut self, handle: usize, device: c_int, flags: c_uint) {
        self.last_ids.0 = self.last_ids.0.saturating_add(1);
        let default_ids = [self.next_stream_id(), self.next_stream_id()];
        self.gone.remove(&handle);
        self.live.insert(handle, Context::new(device, flags, self.last_ids.0, default_ids));
    }

    /// How many contexts were created so far, this one included.
    pub(crate) fn count(&mut self) -> usize {
        self.created = self.created.saturating_add(1);
        self.created
    }

    /// A live context.
    pub(crate) fn get(&self, handle: usize) -> Outcome<&Context> {
        self.live.get(&handle).ok_or_else(|| self.absent(handle))
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, handle: usize) -> Outcome<&mut Context> {
        let absent = self.absent(handle);
        self.live.get_mut(&handle).ok_or(absent)
    }

    /// The answer for a handle of no live context.
    fn absent(&self, handle: usize) -> c_int {
        if self.gone.contains(&handle) { CONTEXT_IS_DESTROYED } else { INVALID_CONTEXT }
    }

    /// A context is gone with all that belongs to it.
    pub(crate) fn close(&mut self, handle: usize) -> Remains {
        let closed = self.live.remove(&handle);
        self.gone.insert(handle);
        // A context that takes the handle over is another one.
        self.live.values_mut().for_each(|context| _ = context.peers.remove(&handle));
        let streams = taken(&mut self.streams, |stream| stream.context == handle);
        let events = taken(&mut self.events, |event| event.0 == handle);
        let memory = taken(&mut self.memory, |memory| memory.0 == handle);
        Remains {
            context: handle,
            peers: closed.map(|context| context.peers).unwrap_or_default(),
            streams: streams.into_iter().map(|(stream, _)| stream).collect(),
            events: events.into_iter().map(|(event, _)| event).collect(),
            memory: memory.into_iter().map(|(ptr, (_, kind))| (ptr, kind)).collect(),
        }
    }

    /// Memory of `cuMemAlloc` in a context, and the devices that have a context which enabled access
    /// to it.
    pub(crate) fn reached(&self, handle: usize) -> (Vec<DevicePtr>, Vec<DeviceId>) {
        let is_here = |(_, owned): &(_, &(usize, Kind))| **owned == (handle, Kind::Memory);
        let memory = self.memory.iter().filter(is_here).map(|(&ptr, _)| DevicePtr(ptr));
        (memory.collect(), self.devices_that_reach(handle))
    }

    /// The devices that have a context which enabled access to the memory of this one.
    pub(crate) fn devices_that_reach(&self, handle: usize) -> Vec<DeviceId> {
        let enabled = self.live.values().filter(|context| context.peers.contains(&handle));
        enabled.map(|context| DeviceId(context.device)).collect()
    }

    /// Notes a stream.
    pub(crate) fn add_stream(
        &mut self,
        handle: usize,
        (context, device): (usize, c_int),
        (flags, priority): (c_uint, c_int),
    ) {
        let id = self.next_stream_id();
        let attributes = StreamAttributes::default();
        let stream = Stream { context, device, flags, priority, id, attributes };
        self.streams.insert(handle, stream);
    }
}

/// Takes the entries with such a value out of a map.
fn taken<K: Copy + Ord, V: Copy>(
    map: &mut BTreeMap<K, V>,
    is_wanted: impl Fn(&V) -> bool,
) -> Vec<(K, V)> {
    let mut taken = Vec::new();
    map.retain(|&key, value| {
        let wanted = is_wanted(value);
        taken.extend(wanted.then_some((key, *value)));
        !wanted
    });
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_keeps_its_limits_in_their_range() {
        let mut context = Context::new(0, 0, 1, [1, 2]);
        let mut set = |limit, value| {
            let code = context.set_limit(limit, value);
            (code, context.limit(limit))
        };
        // As an H200 answered.
        assert_eq!(set(0, 1 << 40), (Err(1), Ok(1024)));
        assert_eq!(set(1, 0), (Ok(()), Ok(524_288)));
        assert_eq!(set(2, 1 << 23), (Ok(()), Ok(1 << 23)));
        assert_eq!(set(3, 2), (Err(215), Err(215)));
        assert_eq!(set(6, 0), (Ok(()), Ok(0)));
        assert_eq!(set(6, 123_457), (Ok(()), Ok(3_932_160)));
        assert_eq!(set(6, 1 << 40), (Err(1), Ok(3_932_160)));
        assert_eq!(set(99, 1), (Err(1), Err(1)));
    }

    #[test]
    fn a_context_takes_its_own_memory_with_it_and_no_other() {
        let mut contexts = Contexts::default();
        contexts.open(1, 0, 0);
        contexts.open(5, 0, 0);
        contexts.memory.insert(0x1000, (1, Kind::Memory));
        contexts.memory.insert(0x2000, (5, Kind::Pinned(2)));
        contexts.add_stream(0x10, (5, 0), (0, 0));
        let remains = contexts.close(5);
        assert_eq!(remains.memory, [(0x2000, Kind::Pinned(2))]);
        assert_eq!(remains.streams, [0x10]);
        assert_eq!(contexts.get(5).map(|_| ()), Err(CONTEXT_IS_DESTROYED));
        assert_eq!(contexts.get(9).map(|_| ()), Err(INVALID_CONTEXT));
        assert!(contexts.get(1).is_ok() && contexts.memory.contains_key(&0x1000));
    }
}
