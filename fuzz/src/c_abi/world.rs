//! The state of a hostile program, and how it chooses arguments.

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{null_mut, without_provenance_mut};

use memmap2::MmapMut;
use pagewise_driver::{
    Blob, MemLocation, MemPoolProps, cuCtxDestroy_v2, cuCtxPopCurrent_v2, cuCtxSetCurrent,
    cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain, cuEventCreate, cuEventDestroy_v2,
    cuMemFree_v2, cuMemFreeAsync, cuMemFreeHost, cuMemHostUnregister, cuMemPoolCreate,
    cuMemPoolDestroy, cuStreamCreate, cuStreamDestroy_v2, cuStreamEndCapture, cuStreamSynchronize,
    cuThreadExchangeStreamCaptureMode, pagewise_driver_recover,
};

use super::made::Made;
use super::mappings::VirtualMemory;
use super::programs;
use super::rooms::Rooms;
use crate::Choices;

/// Makes one hostile call and returns its `CUresult`.
pub(super) type Attempt = fn(&mut World<'_, '_>) -> c_int;

/// The longest allocation that is meant to succeed, and the length of the host's buffer.
pub(super) const LONGEST: usize = 4 << 20;

/// Where sizes begin that no machine has.
const ABSURD: u64 = 1 << 47;

/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

/// How many allocations live at a time.
const LIVE_MAX: usize = 10;

/// A range of memory that the program knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Its first byte.
    pub ptr: u64,
    /// Its length.
    pub bytes: usize,
    /// Whether it migrates, as far as the program knows.
    pub(super) managed: bool,
}

/// The memory and handles of a hostile program.
#[derive(Debug)]
pub struct World<'a, 'b> {
    pub(super) choices: &'a mut Choices<'b>,
    /// Allocations of every kind.
    pub(super) live: Vec<Memory>,
    /// Addresses and handles of what is gone.
    pub(super) stale: Vec<u64>,
    pub(super) pools: Vec<usize>,
    pub(super) streams: Vec<usize>,
    pub(super) events: Vec<usize>,
    /// Contexts that this program created.
    pub(super) contexts: Vec<usize>,
    pub(super) blobs: Vec<Blob>,
    pub(super) descriptors: Vec<c_int>,
    /// Addresses of imported memory, once for each import that was not ended.
    pub(super) imports: Vec<u64>,
    /// Registered parts of the buffer.
    pub(super) registered: Vec<Memory>,
    pub(super) virtual_memory: VirtualMemory,
    /// The memory around the buffer. Linux clears its pages when they are accessed, which most
    /// programs do to few of them.
    _room: MmapMut,
    /// Memory of this program, of [`LONGEST`] bytes: the driver reads and writes it by address.
    pub(super) buffer: *mut u8,
    /// Room for results.
    places: Box<[u64; 64]>,
    /// Handles of other types.
    pub(super) made: Made,
    /// Places for calls by signature.
    pub(super) rooms: Box<[u64]>,
    context: *mut c_void,
    /// How often this program retained the context of device 0.
    pub(super) retained: u32,
}

/// The bytes of a buffer with as much room before it and twice as much behind it. A copy takes any
/// memory that the process has mapped, so a range that leaves the buffer, by at most [`LONGEST`] and
/// the steps of an address, must not reach memory of others. Absurd lengths are mapped nowhere.
const ROOM: usize = 4 * LONGEST;

impl<'a, 'b> World<'a, 'b> {
    pub(super) fn new(choices: &'a mut Choices<'b>) -> Self {
        let mut room = MmapMut::map_anon(ROOM).expect("room for a buffer");
        let buffer = room.as_mut_ptr().wrapping_add(LONGEST);
        let mut world = Self {
            choices,
            live: Vec::new(),
            stale: Vec::new(),
            pools: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            contexts: Vec::new(),
            blobs: Vec::new(),
            descriptors: Vec::new(),
            imports: Vec::new(),
            registered: Vec::new(),
            virtual_memory: VirtualMemory::default(),
            _room: room,
            buffer,
            places: Box::new([0; 64]),
            made: Made::default(),
            rooms: Rooms::memory(),
            context: null_mut(),
            retained: 0,
        };
        world.make_current();
        world.furnish();
        world
    }

    /// The memory that was allocated and not freed.
    pub fn live(&self) -> &[Memory] {
        &self.live
    }

    /// The places that results go to.
    pub fn places(&self) -> &[u64] {
        self.places.as_slice()
    }

    /// The context of device 0 is current on this thread afterwards.
    pub(super) fn make_current(&mut self) {
        if !self.context.is_null() && cuCtxSetCurrent(self.context) == 0 {
            return;
        }
        // SAFETY: the result goes to a local that outlives the call.
        if unsafe { cuDevicePrimaryCtxRetain(&raw mut self.context, 0) } == 0 {
            self.retained += 1;
            cuCtxSetCurrent(self.context);
        }
    }

    /// The program has a pool of device memory that can be exported, one of managed memory, mapped
    /// memory, a module, a stream and an event, unless it has some already.
    pub(super) fn furnish(&mut self) {
        let device = MemLocation { kind: 1, id: 0 };
        for (allocation_type, handle_types) in [(1, 1), (2, 0)] {
            let props = MemPoolProps {
                allocation_type,
                handle_types,
                location: device,
                win32_security_attributes: null_mut(),
                max_bytes: 0,
                reserved: [0; 56],
            };
            if self.pools.len() >= 2 {
                break;
            }
            let mut pool = null_mut();
            // SAFETY: the result goes to a local, and the properties are another; both outlive the
            // call.
            if unsafe { cuMemPoolCreate(&raw mut pool, &raw const props) } == 0 {
                self.pools.push(pool.addr());
            }
        }
        self.virtual_memory.furnish();
        programs::furnish(&mut self.made);
        let mut handle = null_mut();
        // SAFETY: the result goes to a local that outlives the call.
        if self.streams.is_empty() && unsafe { cuStreamCreate(&raw mut handle, 1) } == 0 {
            self.streams.push(handle.addr());
        }
        // SAFETY: the result goes to a local that outlives the call.
        if self.events.is_empty() && unsafe { cuEventCreate(&raw mut handle, 0) } == 0 {
            self.events.push(handle.addr());
        }
    }

    /// Frees the oldest allocations if there are many.
    pub(super) fn make_room(&mut self) {
        while self.live.len() > LIVE_MAX {
            let oldest = self.live.remove(0);
            self.free(oldest);
        }
        if self.stale.len() > 32 {
            self.stale.drain(..16);
        }
        if self.descriptors.len() > 8 {
            self.close_descriptors();
        }
        self.blobs.truncate(8);
        self.virtual_memory.make_room();
        let ended = self.made.make_room();
        self.stale.extend(ended);
        for (handles, destroy) in [
            (&mut self.pools, destroy_pool as fn(usize)),
            (&mut self.streams, destroy_stream),
            (&mut self.events, destroy_event),
            (&mut self.contexts, destroy_context),
        ] {
            if handles.len() > 6 {
                destroy(handles.remove(0));
            }
        }
    }

    /// Memory appeared.
    pub(super) fn appeared(&mut self, ptr: u64, bytes: usize, managed: bool) {
        if ptr != 0 {
            self.live.push(Memory { ptr, bytes, managed });
        }
    }

    /// Memory that starts here is gone.
    pub(super) fn gone(&mut self, ptr: u64) {
        self.live.retain(|memory| memory.ptr != ptr);
        self.imports.retain(|&import| import != ptr);
        self.stale.push(ptr);
    }

    /// Frees an allocation of whatever kind, after its imports.
    fn free(&mut self, Memory { ptr, .. }: Memory) {
        let imports = self.imports.iter().filter(|&&import| import == ptr).count();
        // SAFETY: this program does not use the memory again. A call refuses memory of a kind that
        // it does not free.
        unsafe {
            for _ in 0..imports {
                cuMemFreeAsync(ptr, null_mut());
            }
            let done = cuMemFreeAsync(ptr, null_mut()) == 0 || cuMemFree_v2(ptr) == 0;
            if !done {
                cuMemFreeHost(without_provenance_mut(ptr as usize));
            }
        }
        self.gone(ptr);
    }

    /// Ends captures that calls began, and lets no other one refuse the end of this program.
    fn end_captures(&self) {
        let mut relaxed = 2;
        // SAFETY: the place is a local that outlives the call.
        unsafe { cuThreadExchangeStreamCaptureMode(&raw mut relaxed) };
        for &stream in self.streams.iter().chain(&[PER_THREAD]) {
            // SAFETY: the graph goes nowhere, so the driver destroys it.
            unsafe { cuStreamEndCapture(without_provenance_mut(stream), null_mut()) };
        }
    }

    fn close_descriptors(&mut self) {
        for descriptor in self.descriptors.drain(..) {
            // SAFETY: the descriptor has to be open and this program's to close. The driver made it
            // for this program, which keeps it in one list only.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }

    // ---- arguments ----------------------------------------------------------------------------

    /// A place for a result: seldom null, sometimes not aligned. Holds the last result until the
    /// next call.
    pub(super) fn place<T>(&mut self) -> *mut T {
        let first = self.places.as_mut_ptr().cast::<u8>();
        match self.choices.below(16) {
            15 => null_mut(),
            at @ 12..15 => first.wrapping_add(at as usize - 11).cast(),
            at => first.wrapping_add(32 * at as usize).cast(),
        }
    }

    /// A length that is meant to be of use, or one of the absurd.
    pub(super) fn size(&mut self) -> usize {
        match self.choices.below(8) {
            0 => limited(self.choices.edge()) as usize,
            1 | 2 => self.choices.below(8192) as usize,
            _ => self.choices.below(LONGEST as u64 + 1) as usize,
        }
    }

    /// Any device address: of something live, at its edges, freed, or wild.
    pub(super) fn address(&mut self) -> u64 {
        let memory = self.memory();
        match self.choices.below(10) {
            0 => self.choices.edge(),
            1 => self.stale_number(),
            2 => memory.ptr.wrapping_add(memory.bytes as u64),
            3 => memory.ptr.wrapping_sub(1),
            4 => memory.ptr.wrapping_add(self.choices.below(memory.bytes as u64)),
            _ => memory.ptr,
        }
    }

    /// Any range: mostly within something live.
    pub(super) fn range(&mut self) -> (u64, usize) {
        let memory = self.memory();
        match self.choices.below(8) {
            0 => (self.address(), self.size()),
            1 => (memory.ptr, memory.bytes.wrapping_add(1)),
            2 => (memory.ptr, limited(self.choices.edge()) as usize),
            3 | 4 => {
                let from = self.choices.below(memory.bytes as u64 + 1);
                let length = self.choices.below(memory.bytes as u64 - from + 1);
                (memory.ptr.wrapping_add(from), length as usize)
            }
            _ => (memory.ptr, memory.bytes),
        }
    }

    /// A range that is mostly a whole managed allocation.
    pub(super) fn managed_range(&mut self) -> (u64, usize) {
        match self.live.iter().find(|memory| memory.managed) {
            Some(&Memory { ptr, bytes, .. }) if self.choices.chance(3, 4) => (ptr, bytes),
            _ => self.range(),
        }
    }

    /// Something live, or nothing at all.
    fn memory(&mut self) -> Memory {
        if self.live.is_empty() {
            return Memory { ptr: 0, bytes: 0, managed: false };
        }
        self.choices.one_of(&self.live)
    }

    pub(super) fn stale_number(&mut self) -> u64 {
        if self.stale.is_empty() { 0 } else { self.choices.one_of(&self.stale) }
    }

    /// A handle or an address of any kind.
    pub(super) fn stranger(&mut self) -> u64 {
        let lists = [&self.pools, &self.streams, &self.events, &self.contexts];
        let known = lists.into_iter().flatten().map(|handle| *handle as u64);
        let known = known.chain(self.made.all());
        let known: Vec<u64> = known.chain(self.live.iter().map(|memory| memory.ptr)).collect();
        if known.is_empty() { 0 } else { self.choices.one_of(&known) }
    }

    pub(super) fn ordinal(&mut self) -> c_int {
        match self.choices.below(8) {
            0 => self.choices.edge() as c_int,
            1 => -1,
            2 => -2,
            3 => 1,
            4 => c_int::MIN,
            _ => 0,
        }
    }

    pub(super) fn location(&mut self) -> MemLocation {
        let kind = match self.choices.below(12) {
            0 => self.choices.edge() as c_int,
            kind @ 1..8 => kind as c_int - 1,
            _ => 2,
        };
        MemLocation { kind, id: self.ordinal() }
    }

    /// Small numbers that are mostly good, else any.
    pub(super) fn small(&mut self, bound: u64) -> u64 {
        if self.choices.chance(1, 8) { self.choices.edge() } else { self.choices.below(bound) }
    }

    /// A handle: one of these, one that is gone, or wild.
    fn handle(&mut self, own: fn(&Self) -> &[usize]) -> *mut c_void {
        let known = own(self);
        let known = (!known.is_empty()).then(|| known.to_vec());
        let raw = match (self.choices.below(6), known) {
            (0, _) => self.choices.edge() as usize,
            (1, _) => self.stale_number() as usize,
            (_, Some(known)) => self.choices.one_of(&known),
            (_, None) => 0,
        };
        without_provenance_mut(raw)
    }

    pub(super) fn pool(&mut self) -> *mut c_void {
        self.handle(|world| &world.pools)
    }

    pub(super) fn event(&mut self) -> *mut c_void {
        self.handle(|world| &world.events)
    }

    pub(super) fn stream(&mut self) -> *mut c_void {
        if self.choices.chance(1, 2) {
            return without_provenance_mut(self.choices.below(3) as usize);
        }
        self.handle(|world| &world.streams)
    }

    pub(super) fn context(&mut self) -> *mut c_void {
        match self.choices.below(4) {
            0 => without_provenance_mut(self.choices.edge() as usize),
            1 => null_mut(),
            2 if !self.contexts.is_empty() => {
                without_provenance_mut(self.choices.one_of(&self.contexts))
            }
            _ => self.context,
        }
    }

    pub(super) fn blob(&mut self) -> Blob {
        if self.blobs.is_empty() || self.choices.chance(1, 4) {
            return Blob([self.choices.byte(); 64]);
        }
        self.choices.one_of(&self.blobs)
    }
}

impl Drop for World<'_, '_> {
    fn drop(&mut self) {
        // Without the device nothing could be freed.
        pagewise_driver_recover();
        self.make_current();
        self.end_captures();
        for memory in std::mem::take(&mut self.registered) {
            // SAFETY: the simulator has no device that works by itself, so none uses the memory,
            // and the buffer is still allocated.
            unsafe { cuMemHostUnregister(without_provenance_mut(memory.ptr as usize)) };
        }
        while let Some(&memory) = self.live.first() {
            self.free(memory);
        }
        self.virtual_memory.end();
        self.made.end();
        self.close_descriptors();
        std::mem::take(&mut self.pools).into_iter().for_each(destroy_pool);
        std::mem::take(&mut self.streams).into_iter().for_each(destroy_stream);
        std::mem::take(&mut self.events).into_iter().for_each(destroy_event);
        std::mem::take(&mut self.contexts).into_iter().for_each(destroy_context);
        cuStreamSynchronize(null_mut());
        // SAFETY: the result goes nowhere.
        while unsafe { cuCtxPopCurrent_v2(null_mut()) } == 0 {}
        let mut global = 0;
        // SAFETY: the place is a local that outlives the call.
        unsafe { cuThreadExchangeStreamCaptureMode(&raw mut global) };
        for _ in 0..self.retained {
            cuDevicePrimaryCtxRelease_v2(0);
        }
    }
}

/// A number of bytes that is at most [`LONGEST`] or absurd.
pub(super) fn limited(bytes: u64) -> u64 {
    if bytes >= ABSURD { bytes } else { bytes % (LONGEST as u64 + 1) }
}

fn destroy_pool(raw: usize) {
    // SAFETY: this program does not use the handle again.
    unsafe { cuMemPoolDestroy(without_provenance_mut(raw)) };
}

fn destroy_stream(raw: usize) {
    // SAFETY: this program does not use the handle again.
    unsafe { cuStreamDestroy_v2(without_provenance_mut(raw)) };
}

fn destroy_context(raw: usize) {
    // SAFETY: this program uses nothing of the context any more.
    unsafe { cuCtxDestroy_v2(without_provenance_mut(raw)) };
}

fn destroy_event(raw: usize) {
    // SAFETY: this program does not use the handle again.
    unsafe { cuEventDestroy_v2(without_provenance_mut(raw)) };
}
