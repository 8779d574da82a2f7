//! The streams of a driver: their contexts, captures and functions of the host.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{Code, DeviceId, StreamFlags, StreamHandle};

use super::Driver;
use crate::contexts;
use crate::deferred::{Entry, Lane, Order, Work};
use crate::graphs::{Key, this_thread};
use crate::outcome::Outcome;

impl Driver {
    pub(crate) fn add_stream(&self, stream: StreamHandle, device: DeviceId, how: (c_uint, c_int)) {
        let of = (contexts::current(), device.0);
        self.contexts().add_stream(stream.as_raw() as usize, of, how);
    }

    pub(crate) fn remove_stream(&self, stream: StreamHandle) {
        self.contexts().streams.remove(&(stream.as_raw() as usize));
    }

    /// The properties of a stream that was created.
    pub(crate) fn created_stream(&self, stream: StreamHandle) -> Outcome<contexts::Stream> {
        let stream = self.contexts().streams.get(&(stream.as_raw() as usize)).copied();
        stream.ok_or(Code::INVALID_HANDLE)
    }

    /// The device that a stream belongs to; default streams belong to the current context.
    pub(crate) fn device_of_stream(&self, stream: StreamHandle) -> Outcome<DeviceId> {
        if stream.is_default() {
            return self.device();
        }
        self.created_stream(stream).map(|stream| DeviceId(stream.device))
    }

    /// A stream of the caller, if it has a context: default streams belong to the current one, of
    /// which there must be one; other streams bring theirs.
    pub(crate) fn stream(&self, raw: *mut c_void) -> Outcome<StreamHandle> {
        let on = stream(raw);
        if on.is_default() {
            self.device()?;
        }
        self.submittable(on)?;
        // The simulator has a stream until its work is done; programs do not.
        if self.deferred.is_stream_pending(on.as_raw()) && !on.is_default() {
            self.created_stream(on)?;
        }
        Ok(on)
    }

    /// Calls the functions of user objects without references, on the thread of functions of the
    /// host.
    pub(crate) fn drop_objects(&self) {
        let due = self.graphs().objects.take_due();
        for call in due {
            let work = move || {
                let call = call;
                if let Some(function) = call.function {
                    // SAFETY: the program promised that the function can be called with its data.
                    unsafe { function(call.data) };
                }
            };
            // Without a thread the function is not called; the driver promises no time for it.
            _ = self.deferred.submit(Entry {
                lane: Lane::OBJECTS,
                work: Work::Function(Box::new(work)),
                records: None,
                waits_for: None,
            });
        }
    }

    /// A stream as captures know it; the legacy default stream never captures.
    pub(crate) fn key_of(&self, stream: StreamHandle) -> Option<Key> {
        let handle = stream.as_raw();
        if stream.is_legacy() {
            return None;
        }
        if stream.is_default() {
            let context = contexts::current();
            return Some(Key { handle, context, thread: this_thread(), blocks: true });
        }
        let contexts::Stream { context, flags, .. } = self.created_stream(stream).ok()?;
        let blocks = flags & StreamFlags::NON_BLOCKING.bits() == 0;
        Some(Key { handle, context, thread: 0, blocks })
    }

    /// A stream that captures, as captures know it.
    pub(crate) fn capturing(&self, stream: StreamHandle) -> Option<Key> {
        let key = self.key_of(stream)?;
        self.graphs().captures.of(key).map(|_| key)
    }

    /// Refuses work of the legacy default stream while a stream that it waits for captures.
    pub(crate) fn check_legacy(&self, stream: StreamHandle) -> Outcome {
        if !stream.is_legacy() {
            return Ok(());
        }
        self.graphs().captures.check_legacy(contexts::current())
    }

    /// Refuses work that no node can be made of in a stream that captures.
    pub(crate) fn submittable(&self, stream: StreamHandle) -> Outcome {
        match self.key_of(stream) {
            Some(key) => self.graphs().captures.refuse(key),
            None => self.check_legacy(stream),
        }
    }

    /// Refuses to wait for a context while a stream of it captures, or beside captures.
    pub(crate) fn check_captures(&self, context: usize) -> Outcome {
        let mut graphs = self.graphs();
        graphs.captures.check_context(context)?;
        graphs.captures.check_unsafe()
    }

    /// Refuses a call that is unsafe beside the captures that run.
    pub(crate) fn check_unsafe(&self) -> Outcome {
        self.graphs().captures.check_unsafe()
    }

    /// A stream as its order with other streams needs it.
    pub(crate) fn lane(&self, stream: StreamHandle) -> Lane {
        if stream.is_legacy() {
            return Lane {
                context: contexts::current(),
                stream: 0,
                thread: 0,
                order: Order::Legacy,
            };
        }
        match self.key_of(stream) {
            Some(Key { handle, context, thread, blocks }) => {
                let order = if blocks { Order::Blocking } else { Order::Alone };
                Lane { context, stream: handle, thread, order }
            }
            // No stream has this handle, and so it has no work either.
            None => Lane { stream: stream.as_raw(), ..Lane::OBJECTS },
        }
    }

    pub(crate) fn context_of_stream(&self, stream: StreamHandle) -> Outcome<usize> {
        if stream.is_default() {
            return self.device().map(|_| contexts::current());
        }
        self.created_stream(stream).map(|stream| stream.context)
    }

    /// The stream on which the simulator does the work of a stream of a device.
    pub(crate) fn working(&self, stream: StreamHandle, device: DeviceId) -> Outcome<StreamHandle> {
        if !stream.is_default() || device == DeviceId(0) {
            return Ok(stream);
        }
        let stands_in = usize::try_from(device.0).ok().and_then(|at| self.defaults.get(at));
        stands_in.copied().ok_or(Code::INVALID_DEVICE)
    }
}

/// A stream of the caller: the simulator looks it up and refuses what it did not make.
pub(crate) fn stream(raw: *mut c_void) -> StreamHandle {
    // SAFETY: `from_raw` asks for a handle that the back end can take. The simulator looks every
    // handle up in its table of live streams and dereferences none, so any number is sound.
    unsafe { StreamHandle::from_raw(raw.addr() as u64) }
}
