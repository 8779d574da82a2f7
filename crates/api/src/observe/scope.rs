//! The calls that an observation counts.

use pagewise_hal::{CallRecords, EventsSince, Result, StreamHandle, ThreadNumber};

use crate::refuse::unsupported;
use crate::{Machine, Stream};

/// The calls that an observation counts: all calls on a machine, those of one thread, or those on
/// one stream. Whatever takes a `Scope` takes a machine or a back end for all calls, and a
/// [`Stream`] for those on the stream.
///
/// A call counts with all that it moved, also other buffers' pages that it evicted.
///
/// | back end | behaviour |
/// | --- | --- |
/// | simulator | it knows the call of each record |
/// | driver | its records do not say which call they are due to: observe the whole machine |
///
/// ```
/// use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Scope, Stream, assert_faults};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
/// let read = DeviceProgram::read(Device::FIRST).stride(4096);
/// assert_faults!(stream, 6, buffer.run_on_device(read, &stream)?);
/// assert_faults!(stream, 0, buffer.write()?[0] = 1); // the fault of the host is on no stream
/// assert_faults!(Scope::this_thread(&machine), 6, buffer.run_on_device(read, &stream)?);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    machine: Machine,
    calls: Calls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calls {
    All,
    OfThread(ThreadNumber),
    OnStream(StreamHandle),
}

impl Scope {
    /// The calls that the present thread makes. Threads that it starts are not included.
    #[must_use]
    pub fn this_thread(machine: impl Into<Machine>) -> Self {
        Self { machine: machine.into(), calls: Calls::OfThread(ThreadNumber::current()) }
    }

    /// The calls that name a stream, of all threads: prefetches, discards, copies, fills and
    /// programs of devices. The same as `Scope::from(&stream)`.
    #[must_use]
    pub fn stream(stream: &Stream) -> Self {
        Self { machine: stream.machine().clone(), calls: Calls::OnStream(stream.raw()) }
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether it leaves calls out.
    pub(super) fn is_part(&self) -> bool {
        self.calls != Calls::All
    }

    /// The sums and the present position, if the back end can tell what the scope asks for.
    pub(super) fn begin(&self) -> Result<EventsSince> {
        let before = self.machine.backend().events_since(u64::MAX)?;
        if self.is_part() && before.calls.is_none() {
            let why = "this back end cannot tell which calls its records are due to: observe the \
                       whole machine";
            return Err(unsupported("observe", why));
        }
        Ok(before)
    }

    /// The records since a position. Of a part of the calls, the sums are those of the records
    /// that are left.
    pub(super) fn since(&self, before: &EventsSince) -> Result<EventsSince> {
        let mut seen = self.machine.backend().events_since(before.position)?;
        if self.is_part() {
            self.keep_own(&mut seen);
        } else {
            seen.counters = seen.counters.since(&before.counters);
        }
        Ok(seen)
    }

    fn keep_own(&self, seen: &mut EventsSince) {
        let (calls, all) =
            (seen.calls.take().unwrap_or_default(), std::mem::take(&mut seen.events));
        for (call, events) in CallRecords::split(&calls, &all) {
            if self.includes(call) {
                seen.events.extend_from_slice(events);
            }
        }
        seen.counters = seen.events.iter().collect();
        seen.calls = Some(calls.into_iter().filter(|call| self.includes(call)).collect());
    }

    fn includes(&self, call: &CallRecords) -> bool {
        match self.calls {
            Calls::All => true,
            Calls::OfThread(thread) => call.thread == thread,
            // The legacy default stream has two numbers.
            Calls::OnStream(own) => call
                .call
                .stream
                .is_some_and(|stream| stream == own || (stream.is_legacy() && own.is_legacy())),
        }
    }
}

impl<M: Into<Machine>> From<M> for Scope {
    fn from(machine: M) -> Self {
        Self { machine: machine.into(), calls: Calls::All }
    }
}

impl From<&Stream> for Scope {
    fn from(stream: &Stream) -> Self {
        Self::stream(stream)
    }
}

impl From<&Self> for Scope {
    fn from(scope: &Self) -> Self {
        scope.clone()
    }
}

/// Macros borrow their argument, which may be a reference already.
impl From<&&Stream> for Scope {
    fn from(stream: &&Stream) -> Self {
        Self::stream(stream)
    }
}

/// Macros borrow their argument, which may be a reference already.
impl From<&&Self> for Scope {
    fn from(scope: &&Self) -> Self {
        (*scope).clone()
    }
}
