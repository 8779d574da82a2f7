//! The contexts of a driver, and the memory that belongs to them.

use std::ffi::{c_int, c_uint};

use pagewise_hal::{Backend, Code, DeviceId, DevicePtr, EventHandle, Result, StreamHandle};

use super::Driver;
use crate::contexts::{self, Contexts, INVALID_CONTEXT, Kind, Remains};
use crate::outcome::Outcome;

impl Driver {
    /// The handle of a device's primary context: never null, never a valid address.
    pub(crate) fn handle_of(&self, device: c_int) -> Outcome<usize> {
        let mut devices = self.options.ordinals();
        devices.find(|&known| known == device).ok_or(Code::INVALID_DEVICE)?;
        // The simulator has at most 32 devices.
        Ok((self.number << 16 | device.cast_unsigned() as usize) << 4 | 1)
    }

    pub(crate) fn retain(&self, device: c_int) -> Outcome<usize> {
        let handle = self.handle_of(device)?;
        let is_last = self.contexts().retained.get(&device) == Some(&1);
        if is_last {
            self.deferred.wait_context(handle)?;
        }
        let mut contexts = self.contexts();
        let count = contexts.retained.entry(device).or_default();
        let first = *count == 0;
        *count = count.saturating_add(1);
        if first {
            let flags = contexts.primary_flags.get(&device).copied().unwrap_or_default();
            contexts.open(handle, device, flags);
        }
        Ok(handle)
    }

    pub(crate) fn release(&self, device: c_int) -> Outcome {
        let handle = self.handle_of(device)?;
        let mut contexts = self.contexts();
        let count = contexts.retained.get_mut(&device).ok_or(INVALID_CONTEXT)?;
        *count = count.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if *count == 0 {
            let remains = contexts.close(handle);
            drop(contexts);
            self.end(remains);
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxReset`: all that belongs to the context is gone, and it stays
    /// retained as often.
    pub(crate) fn reset_primary(&self, device: c_int) -> Outcome {
        let handle = self.handle_of(device)?;
        self.deferred.wait_context(handle)?;
        let mut contexts = self.contexts();
        if contexts.get(handle).is_err() {
            return Ok(());
        }
        let remains = contexts.close(handle);
        let flags = contexts.primary_flags.get(&device).copied().unwrap_or_default();
        contexts.open(handle, device, flags);
        drop(contexts);
        self.end(remains);
        Ok(())
    }

    /// A context of a program comes to be.
    pub(crate) fn create_context(&self, device: c_int, flags: c_uint) -> usize {
        let mut contexts = self.contexts();
        let handle = self.number << 40 | contexts.count() << 4 | 2;
        contexts.open(handle, device, flags);
        handle
    }

    /// A context of a program is gone, with all that belongs to it.
    pub(crate) fn destroy_context(&self, handle: usize) -> Outcome {
        let device = self.contexts().get(handle)?.device;
        if self.handle_of(device) == Ok(handle) {
            return Err(INVALID_CONTEXT);
        }
        self.deferred.wait_context(handle)?;
        let remains = self.contexts().close(handle);
        self.end(remains);
        Ok(())
    }

    /// Ends what a destroyed context left behind. The program gave all of it up with the context.
    fn end(&self, Remains { context, peers, streams, events, memory }: Remains) {
        peers.into_iter().for_each(|peer| self.grant_peers(&self.contexts(), peer));
        self.graphs().forget_context(context);
        let variables = self.programs().remove_context(context);
        for handle in streams {
            // SAFETY: `stream_destroy` asks that the handle is not used again; the simulator
            // refuses a handle of a destroyed stream.
            _ = unsafe { self.sim.stream_destroy(StreamHandle::from_raw(handle as u64)) };
        }
        for handle in events {
            // SAFETY: `event_destroy` asks that the handle is not used again; the simulator refuses
            // a handle of a destroyed event.
            _ = unsafe { self.sim.event_destroy(EventHandle::from_raw(handle as u64)) };
        }
        let variables = variables.into_iter().map(|ptr| (ptr, Kind::Memory));
        for (ptr, kind) in memory.into_iter().chain(variables) {
            // SAFETY: all of these ask that no code uses the memory any more: the program
            // destroyed the context that it belonged to.
            _ = unsafe {
                match kind {
                    Kind::Memory => self.sim.free(DevicePtr(ptr)),
                    Kind::Pinned(_) => self.sim.free_pinned(DevicePtr(ptr)),
                    Kind::Registered(_) => self.sim.host_unregister(DevicePtr(ptr)),
                    Kind::Opened => self.close_opened(DevicePtr(ptr)),
                }
            };
        }
    }

    /// Closes memory of another process as often as it was opened.
    ///
    /// # Safety
    /// No code may use the memory any more.
    unsafe fn close_opened(&self, ptr: DevicePtr) -> Result<()> {
        // SAFETY: this function's contract is that of `ipc_close_mem_handle`.
        while unsafe { self.sim.ipc_close_mem_handle(ptr) }.is_ok() {}
        Ok(())
    }

    /// Memory was allocated, registered or opened in the current context.
    pub(crate) fn own(&self, ptr: DevicePtr, kind: Kind) {
        let current = contexts::current();
        let mut contexts = self.contexts();
        contexts.memory.insert(ptr.0, (current, kind));
        let devices = contexts.devices_that_reach(current);
        if kind == Kind::Memory && !devices.is_empty() {
            self.grant(&[ptr], &devices);
        }
    }

    /// Lets devices reach the memory of a context as contexts have it enabled now. The lock of the
    /// contexts is held, so that the last change is the one that counts.
    pub(crate) fn grant_peers(&self, contexts: &Contexts, context: usize) {
        let (memory, devices) = contexts.reached(context);
        self.grant(&memory, &devices);
    }

    fn grant(&self, memory: &[DevicePtr], devices: &[DeviceId]) {
        // The devices exist: they have contexts.
        _ = self.machine.simulator.set_peer_access(memory, devices);
    }

    /// Whether memory of another process was opened in another context: one context of a device has
    /// it (CONTRACT-126).
    pub(crate) fn is_opened_elsewhere(&self, ptr: DevicePtr) -> bool {
        let opened = self.contexts().memory.get(&ptr.0).copied();
        opened.is_some_and(|(context, _)| context != contexts::current())
    }

    /// Memory was freed.
    pub(crate) fn disown(&self, ptr: DevicePtr) {
        self.contexts().memory.remove(&ptr.0);
    }

    /// Whether a device has a primary context.
    pub(crate) fn is_retained(&self, device: c_int) -> Outcome<bool> {
        self.handle_of(device)?;
        Ok(self.contexts().retained.get(&device).is_some_and(|count| *count > 0))
    }

    /// How often contexts are retained, over all devices.
    pub(crate) fn retained(&self) -> u64 {
        self.contexts().retained.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub(crate) fn set_current(&self, handle: usize) -> Outcome {
        if handle != 0 {
            self.live(handle)?;
        }
        contexts::set_current(handle);
        Ok(())
    }

    pub(crate) fn current() -> usize {
        contexts::current()
    }

    pub(crate) fn live(&self, handle: usize) -> Outcome<DeviceId> {
        self.contexts().get(handle).map(|context| DeviceId(context.device))
    }

    /// The device of the current context; calls that need one start with this.
    pub(crate) fn device(&self) -> Outcome<DeviceId> {
        self.live(contexts::current())
    }

    /// A context of the caller, or the current one if it names none.
    pub(crate) fn context_or_current(&self, handle: usize) -> Outcome<usize> {
        let handle = if handle == 0 { contexts::current() } else { handle };
        self.live(handle).map(|_| handle)
    }
}
