//! The lifetimes of handles: calls hold those that they use, and the last such call destroys them.

use pagewise_hal::{
    Code, Error, EventHandle, MemoryHandle, ModuleHandle, PoolHandle, Result, StreamHandle,
};

use crate::abi::handle;
use crate::backend::CudaBackend;
use crate::live::{Ending, Kind};
use crate::uses::Taken;

type InUse<'a> = crate::live::InUse<'a, CudaBackend>;

const NO_STREAM: &str = "no live stream of this back end: destroyed, or of another one";
const NO_EVENT: &str = "no live event of this back end: null, destroyed, or of another one";
const NO_POOL: &str = "no live pool of this driver: null, destroyed, or of another one";
const NO_MEMORY: &str = "no live physical memory: null, released, or of another back end";

impl Ending for CudaBackend {
    #[cold]
    fn end(&self, kind: Kind, raw: u64) {
        // Its user was told that it is destroyed.
        _ = match kind {
            Kind::Stream => self.stream_end(StreamHandle::checked(raw)),
            Kind::Event => self.event_end(EventHandle::checked(raw)),
            Kind::Pool => self.pool_end(PoolHandle::checked(raw)),
            Kind::Memory => self.memory_end(MemoryHandle::checked(raw)),
            Kind::Module => self.module_end(ModuleHandle::checked(raw)),
        };
    }
}

#[cold]
fn refuse<T>(operation: &'static str, code: i32, why: &'static str) -> Result<T> {
    Err(Error::from_code(operation, code).with_detail(why))
}

impl CudaBackend {
    fn unkept(&self, kind: Kind) -> InUse<'_> {
        InUse { kind, raw: 0, owner: self, counter: None }
    }

    /// Keeps a stream live for a call.
    #[inline]
    pub(crate) fn use_stream(
        &self,
        operation: &'static str,
        stream: StreamHandle,
    ) -> Result<InUse<'_>> {
        if stream.is_default() || stream.is_vouched() {
            return Ok(self.unkept(Kind::Stream));
        }
        match self.streams.find(stream.as_raw(), self) {
            Some(found) => Ok(found),
            None => refuse(operation, Code::INVALID_HANDLE, NO_STREAM),
        }
    }

    /// Keeps an event live for a call.
    #[inline]
    pub(crate) fn use_event(
        &self,
        operation: &'static str,
        event: EventHandle,
    ) -> Result<InUse<'_>> {
        if event.is_vouched() {
            return Ok(self.unkept(Kind::Event));
        }
        match self.events.find(event.as_raw(), self) {
            Some(found) => Ok(found),
            None => refuse(operation, Code::INVALID_HANDLE, NO_EVENT),
        }
    }

    /// Keeps a pool live for a call.
    pub(crate) fn use_pool(&self, operation: &'static str, pool: PoolHandle) -> Result<InUse<'_>> {
        if pool.is_vouched() {
            return Ok(self.unkept(Kind::Pool));
        }
        match self.driver.pools.live.find(pool.as_raw(), self) {
            Some(found) => Ok(found),
            None => refuse(operation, Code::INVALID_VALUE, NO_POOL),
        }
    }

    /// Keeps physical memory live for a call.
    pub(crate) fn use_memory(
        &self,
        operation: &'static str,
        memory: MemoryHandle,
    ) -> Result<InUse<'_>> {
        if memory.is_vouched() {
            return Ok(self.unkept(Kind::Memory));
        }
        match self.memories.live.find(memory.as_raw(), self) {
            Some(found) => Ok(found),
            None => refuse(operation, Code::INVALID_VALUE, NO_MEMORY),
        }
    }

    /// # Safety
    /// As [`Backend::memory_release`](pagewise_hal::Backend::memory_release).
    pub(crate) unsafe fn memory_release(&self, memory: MemoryHandle) -> Result<()> {
        match self.memories.live.take(memory.as_raw()) {
            Taken::InUse => Ok(()),
            Taken::Unknown if !memory.is_vouched() => {
                refuse("memory_release", Code::INVALID_VALUE, NO_MEMORY)
            }
            _ => self.memory_end(memory),
        }
    }

    /// # Safety
    /// As [`Backend::stream_destroy`](pagewise_hal::Backend::stream_destroy).
    pub(crate) unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        const OPERATION: &str = "stream_destroy";
        if stream.is_default() {
            return refuse(OPERATION, Code::INVALID_HANDLE, "default streams cannot be destroyed");
        }
        match self.streams.take(stream.as_raw()) {
            Taken::InUse => Ok(()),
            Taken::Unknown if !stream.is_vouched() => {
                refuse(OPERATION, Code::INVALID_HANDLE, NO_STREAM)
            }
            _ => self.stream_end(stream),
        }
    }

    /// Destroys a stream that is in the set no more. It stays out of it if the driver answers with
    /// an error, which may be one of earlier work.
    fn stream_end(&self, stream: StreamHandle) -> Result<()> {
        const OPERATION: &str = "stream_destroy";
        let destroy = self.driver.table.stream_destroy;
        // SAFETY: the driver asks for a live stream that no call uses. It was taken from the set of
        // live ones, which succeeds once and only while no call uses it; for a stream that was not
        // in the set, the caller of `stream_destroy` promised it.
        self.context_of(OPERATION, stream)?
            .call(OPERATION, || unsafe { destroy(handle(stream.as_raw())) })
    }

    /// # Safety
    /// As [`Backend::event_destroy`](pagewise_hal::Backend::event_destroy).
    pub(crate) unsafe fn event_destroy(&self, event: EventHandle) -> Result<()> {
        match self.events.take(event.as_raw()) {
            Taken::InUse => Ok(()),
            Taken::Unknown if !event.is_vouched() => {
                refuse("event_destroy", Code::INVALID_HANDLE, NO_EVENT)
            }
            _ => self.event_end(event),
        }
    }

    /// Destroys an event that is in the set no more, in the same way.
    fn event_end(&self, event: EventHandle) -> Result<()> {
        let destroy = self.driver.table.event_destroy;
        // SAFETY: the driver asks for a live event that no call uses. It was taken from the set of
        // live ones, which succeeds once and only while no call uses it; for an event that was not
        // in the set, the caller of `event_destroy` promised it.
        self.home.context.call("event_destroy", || unsafe { destroy(handle(event.as_raw())) })
    }

    /// # Safety
    /// As [`Backend::pool_destroy`](pagewise_hal::Backend::pool_destroy).
    pub(crate) unsafe fn pool_destroy(&self, pool: PoolHandle) -> Result<()> {
        match self.driver.pools.live.take(pool.as_raw()) {
            Taken::InUse => Ok(()),
            Taken::Unknown if !pool.is_vouched() => {
                refuse("pool_destroy", Code::INVALID_VALUE, NO_POOL)
            }
            _ => self.pool_end(pool),
        }
    }
}
