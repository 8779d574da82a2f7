//! A back end around a back end, which notes the calls that it gets.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{Backend, DevicePtr, PoolHandle, Result, Span, StreamHandle};

use super::file::{CaseFile, Written};
use super::ids::GivenValue;
use super::journal::Journal;
use super::log::Log;
use crate::format::{Case, Header, MAX_ID, Observed, Op};
use crate::replay::code::coded;

/// A back end that notes every call on memory and pools as a case of a trace: the call, its result,
/// and the observations after it.
///
/// It behaves like the back end in it, except for time and order. Calls are carried out one after
/// another, whichever threads make them. After each asynchronous call its stream is waited for,
/// because a trace is defined so. If that wait fails, the trace says so of the call, and the caller
/// gets the call's own answer: what it did is done.
///
/// It does not note calls without an effect that a trace holds (streams, events, devices), accesses
/// that do not go through a back end unless [they are handed over](Self::access_undeclared), and
/// calls that a trace cannot express. The latter count in
/// [`left_out`](Self::left_out): freeing an address that is not the start of a live buffer, filling
/// or copying memory that the case does not know, other calls that reach such memory by its address,
/// reserving addresses, creating and mapping physical memory, launching a kernel on a back end that
/// does not say what it accessed ([`traced_launches`](pagewise_hal::Capabilities::traced_launches)), or
/// that accessed memory which the case does not know, such as variables of a module, pools and memory
/// of other processes, registering host memory that is registered in part, the contents of host memory when it was registered (unless they were zeros),
/// and sleeps of less than 1 ms.
///
/// A case takes memory until it ends: its operations and records, and after each operation the page
/// tables of all live buffers of at most [`MAX_MAPPED_BYTES`](crate::format::MAX_MAPPED_BYTES). It
/// grows to what a reader accepts ([`MAX_CASE_OPS`](crate::reader::MAX_CASE_OPS),
/// [`MAX_CASE_BYTES`](crate::reader::MAX_CASE_BYTES)). Later calls are left out, and so are the
/// records of one operation that are too many for a line, or the operation itself if its ranges are.
/// A replay has no memory of other processes, so bytes that a program copied from there differ.
///
/// ```
/// use pagewise_hal::mock::{MockBackend, permit_free};
/// use pagewise_hal::{AttachFlags, Backend, Capabilities, DevicePtr, DriverVersion};
/// use pagewise_trace::record::Recorder;
///
/// let mut mock = MockBackend::new();
/// mock.expect_capabilities()
///     .returning(|| Capabilities::of_driver("mock", DriverVersion::CUDA_13_0));
/// mock.expect_device_count().returning(|| Ok(1));
/// mock.expect_clock_ns().returning(|| 0);
/// mock.expect_alloc_managed().returning(|_, _| Ok(DevicePtr(0x20_0000)));
/// permit_free(&mut mock);
///
/// let recorder = Recorder::new(mock);
/// let ptr = recorder.alloc_managed(4096, AttachFlags::GLOBAL)?;
/// // SAFETY: `free` asks that no other code uses the allocation; only this example knows it.
/// unsafe { recorder.free(ptr)? };
/// let case = recorder.take_case("alloc and free");
/// let ops: Vec<_> = case.ops.iter().map(|line| line.recorded.op.name()).collect();
/// assert_eq!(ops, ["alloc_managed", "free"]);
/// # Ok::<(), pagewise_hal::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder<B: Backend> {
    pub(super) inner: B,
    pub(super) devices: u32,
    log: Mutex<Log>,
}

impl<B: Backend> Recorder<B> {
    /// Notes calls on `inner`, which must hold no buffers that it will be asked about.
    pub fn new(inner: B) -> Self {
        let log = Log::new(&inner);
        Self::with_log(inner, log)
    }

    fn with_log(inner: B, log: Log) -> Self {
        let devices = inner.device_count().unwrap_or(0);
        Self { inner, devices, log: Mutex::new(log) }
    }

    /// Notes calls on `inner` in a new file. Its compression is as
    /// [`TraceWriter::by_extension`](crate::writer::TraceWriter::by_extension) says, and it appears
    /// when it is complete: at [`finish`](Self::finish). Of a recorder that is dropped before,
    /// there is no file.
    ///
    /// A case that has become long (10,000 operations or 4 MiB) goes to the file as soon as none of
    /// its memory and pools lives, and another one begins.
    ///
    /// # Errors
    /// If there can be no such file.
    pub fn to_file(inner: B, path: &Path, header: &Header) -> io::Result<Self> {
        let file = CaseFile::create(path, header)?;
        let log = Log::new(&inner).into_file(file);
        Ok(Self::with_log(inner, log))
    }

    /// Notes calls on `inner` in a journal: a plain file that has each call as soon as it is made,
    /// also if the process crashes. [`recover`](super::recover) makes the recording of it, equal to
    /// the file that [`to_file`](Self::to_file) would have given. A journal that can no longer be
    /// written ends; the calls go on.
    ///
    /// # Errors
    /// If there can be no such file.
    pub fn to_journal(inner: B, journal: &Path, header: &Header) -> io::Result<Self> {
        let journal = Journal::create(journal, header)?;
        let log = Log::new(&inner).into_journal(journal);
        Ok(Self::with_log(inner, log))
    }

    /// Ends the recording, and its file if it has one. From then on calls are passed on, one after
    /// another, and not noted.
    ///
    /// # Errors
    /// If the file cannot be written; there is none then, or the older one. `InvalidInput` if there
    /// is no file: it was ended before, or cases are to be [taken](Self::take_case).
    pub fn finish(&self) -> io::Result<Written> {
        let (file, left_out) = {
            let mut log = self.locked();
            (log.end(&self.inner), log.left_out)
        };
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "the recording has no open file");
        file.ok_or_else(none)?.keep(left_out)
    }

    /// Ends the case and returns it. Live buffers and pools are unknown from then on, because a
    /// case of a trace starts with none. A recorder [to a file](Self::to_file) writes the case there,
    /// and returns one without operations.
    #[must_use]
    pub fn take_case(&self, name: impl Into<String>) -> Case {
        self.locked().take_case(&self.inner, name.into())
    }

    /// The number of calls with an effect that no trace can express, so that a replay will differ.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.locked().left_out
    }

    /// The back end inside.
    #[must_use]
    pub fn into_inner(self) -> B {
        self.inner
    }

    pub(super) fn locked(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log, prepared for a call that is not a further read of attributes.
    pub(super) fn next_call(&self) -> MutexGuard<'_, Log> {
        let mut log = self.locked();
        log.next_call(&self.inner);
        log
    }

    /// Makes a call and measures it.
    pub(super) fn timed<T>(&self, call: impl FnOnce(&B) -> T) -> (T, u64) {
        let before = self.inner.clock_ns();
        let answer = call(&self.inner);
        (answer, self.inner.clock_ns().saturating_sub(before))
    }

    /// Makes a call and waits for its stream, and measures both. The observation is the first
    /// failure of the two.
    pub(super) fn waited<T>(
        &self,
        stream: StreamHandle,
        call: impl FnOnce(&B) -> Result<T>,
    ) -> (Result<T>, Observed, u64) {
        let ((answer, waited), ns) = self.timed(|inner| {
            let answer = call(inner);
            (answer, inner.stream_synchronize(stream))
        });
        let observed = if answer.is_ok() { coded(&waited) } else { coded(&answer) };
        (answer, observed, ns)
    }

    /// Makes a call and notes it as an operation on ids that exist before the call.
    pub(super) fn plain<T>(
        &self,
        op: impl FnOnce(&Log) -> Op,
        call: impl FnOnce(&B) -> Result<T>,
    ) -> Result<T> {
        let mut log = self.next_call();
        let op = op(&log);
        let (answer, ns) = self.timed(call);
        log.note(&self.inner, op, coded(&answer), ns);
        answer
    }

    /// Makes an asynchronous call, waits for its stream, and notes it as an operation on ids that
    /// exist before the call.
    pub(super) fn streamed<T>(
        &self,
        stream: StreamHandle,
        op: impl FnOnce(&Log) -> Op,
        call: impl FnOnce(&B) -> Result<T>,
    ) -> Result<T> {
        let mut log = self.next_call();
        let op = op(&log);
        let (answer, observed, ns) = self.waited(stream, call);
        log.note(&self.inner, op, observed, ns);
        answer
    }

    /// Makes a call that returns a handle for other processes.
    pub(super) fn share<T: Copy>(
        &self,
        op: impl FnOnce(&Log, u32) -> Option<Op>,
        call: impl FnOnce(&B) -> Result<T>,
        share: impl FnOnce(T) -> GivenValue,
    ) -> Result<T> {
        let mut log = self.next_call();
        let id = log.ids.next_share();
        let Some(op) = op(&log, id) else {
            return self.left(&mut log, call);
        };
        let (answer, ns) = self.timed(call);
        if let Ok(given) = answer {
            log.ids.shared(id, share(given));
        }
        log.note(&self.inner, op, coded(&answer), ns);
        answer
    }

    /// Makes a call that takes a handle for other processes, and notes it with the handle's id. A
    /// handle that is not of this case is noted only if the call refuses it.
    pub(super) fn take<T>(
        &self,
        share: GivenValue,
        op: impl FnOnce(&mut Log, &Result<T>, u32) -> Option<(Op, Observed)>,
        call: impl FnOnce(&B) -> Result<T>,
    ) -> Result<T> {
        let mut log = self.next_call();
        let known = log.ids.share(share);
        let (answer, ns) = self.timed(call);
        let id = known.or(answer.is_err().then_some(MAX_ID));
        match id.and_then(|id| op(&mut log, &answer, id)) {
            Some((op, observed)) => log.note(&self.inner, op, observed, ns),
            None => log.leave_out(),
        }
        answer
    }

    /// Makes a call that a trace cannot express.
    pub(super) fn left<T>(&self, log: &mut Log, call: impl FnOnce(&B) -> T) -> T {
        log.leave_out();
        call(&self.inner)
    }

    /// Makes a call that a trace cannot hold. If it is refused, there is nothing to hold.
    pub(super) fn unnoted<T>(&self, call: impl FnOnce(&B) -> Result<T>) -> Result<T> {
        let mut log = self.next_call();
        let answer = call(&self.inner);
        if answer.is_ok() {
            log.leave_out();
        }
        answer
    }

    pub(super) fn allocate(
        &self,
        bytes: u64,
        op: impl FnOnce(u32) -> Op,
        call: impl FnOnce(&B) -> Result<DevicePtr>,
    ) -> Result<DevicePtr> {
        let mut log = self.next_call();
        let buf = log.ids.next_buffer();
        let (answer, ns) = self.timed(call);
        let op = op(buf);
        let mut observed = coded(&answer);
        if let Ok(ptr) = answer {
            log.ids.allocated(buf, Span::new(ptr, bytes));
            let managed = matches!(op, Op::AllocManaged { .. });
            observed.offset_in_2mib = managed.then_some(ptr.0 % pagewise_hal::BLOCK_BYTES);
        }
        log.note(&self.inner, op, observed, ns);
        answer
    }

    pub(super) fn release(
        &self,
        ptr: DevicePtr,
        op: impl FnOnce(u32) -> Op,
        call: impl FnOnce(&B) -> Result<()>,
    ) -> Result<()> {
        let mut log = self.next_call();
        let Some(buf) = log.ids.starting_at(ptr) else {
            return self.left(&mut log, call);
        };
        let (answer, ns) = self.timed(call);
        if answer.is_ok() {
            log.ids.forget(ptr);
        }
        log.note(&self.inner, op(buf), coded(&answer), ns);
        answer
    }

    pub(super) fn on_pool<T>(
        &self,
        pool: PoolHandle,
        op: impl FnOnce(u32) -> Op,
        call: impl FnOnce(&B) -> Result<T>,
        observe: impl FnOnce(&Result<T>) -> Observed,
    ) -> Result<T> {
        let mut log = self.next_call();
        let Some(id) = log.ids.pool(pool) else {
            return self.left(&mut log, call);
        };
        let (answer, ns) = self.timed(call);
        log.note(&self.inner, op(id), observe(&answer), ns);
        answer
    }

    pub(super) fn find_pool(
        &self,
        op: impl FnOnce(u32) -> Op,
        call: impl FnOnce(&B) -> Result<PoolHandle>,
    ) -> Result<PoolHandle> {
        let mut log = self.next_call();
        let id = log.ids.next_pool();
        let (answer, ns) = self.timed(call);
        let op = op(id);
        let mut observed = coded(&answer);
        if let Ok(handle) = answer {
            let same_as = log.ids.pool_found(id, handle);
            observed.same_as = (!matches!(op, Op::PoolCreate { .. })).then_some(same_as);
        }
        log.note(&self.inner, op, observed, ns);
        answer
    }
}
