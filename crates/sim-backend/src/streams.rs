//! Streams and events: the live handles, and the time of each event's record.
//!
//! The simulator completes work before a call returns, so a stream is never busy and an event that
//! was recorded has happened.

use std::collections::BTreeMap;

use pagewise_hal::{DeviceId, EventFlags, EventHandle, StreamFlags, StreamHandle};

use crate::refusal::{Checked, bad_handle, invalid};

#[derive(Debug)]
struct Event {
    flags: EventFlags,
    recorded_ns: Option<u64>,
}

/// Live streams and events.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: BTreeMap<u64, DeviceId>,
    events: BTreeMap<u64, Event>,
    next: u64,
}

impl Streams {
    /// 0, 1 and 2 are the default streams.
    const FIRST_HANDLE: u64 = 0x10;

    pub(crate) fn new() -> Self {
        Self { streams: BTreeMap::new(), events: BTreeMap::new(), next: Self::FIRST_HANDLE }
    }

    fn next_handle(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn create(&mut self, device: DeviceId, flags: StreamFlags) -> Checked<u64> {
        if !StreamFlags::NON_BLOCKING.contains(flags) {
            return invalid("stream flags other than NON_BLOCKING do not exist");
        }
        let handle = self.next_handle();
        self.streams.insert(handle, device);
        Ok(handle)
    }

    pub(crate) fn destroy(&mut self, stream: StreamHandle) -> Checked<()> {
        match self.streams.remove(&stream.as_raw()) {
            Some(_) => Ok(()),
            None => bad_handle("only a live stream that was created can be destroyed"),
        }
    }

    /// Whether work can be submitted to the stream.
    #[inline]
    pub(crate) fn check(&self, stream: StreamHandle) -> Checked<()> {
        if stream.is_default() || self.streams.contains_key(&stream.as_raw()) {
            return Ok(());
        }
        bad_handle("the stream was never created, or was destroyed")
    }

    /// Whether a program of a device can be submitted to the stream: each device has default
    /// streams of its own, other streams belong to one device.
    #[inline]
    pub(crate) fn check_for(&self, stream: StreamHandle, device: DeviceId) -> Checked<()> {
        if stream.is_default() {
            return Ok(());
        }
        self.check(stream)?;
        match self.streams.get(&stream.as_raw()) {
            Some(owner) if *owner != device => bad_handle("the stream is another device's"),
            _ => Ok(()),
        }
    }

    /// The device that a stream's work runs on; default streams belong to device 0.
    pub(crate) fn device_of(&self, stream: StreamHandle) -> Checked<DeviceId> {
        self.check(stream)?;
        Ok(self.streams.get(&stream.as_raw()).copied().unwrap_or_default())
    }

    pub(crate) fn create_event(&mut self, flags: EventFlags) -> Checked<u64> {
        if !(EventFlags::BLOCKING_SYNC | EventFlags::DISABLE_TIMING).contains(flags) {
            return invalid("event flags other than BLOCKING_SYNC and DISABLE_TIMING do not exist");
        }
        let handle = self.next_handle();
        self.events.insert(handle, Event { flags, recorded_ns: None });
        Ok(handle)
    }

    pub(crate) fn destroy_event(&mut self, event: EventHandle) -> Checked<()> {
        match self.events.remove(&event.as_raw()) {
            Some(_) => Ok(()),
            None => bad_handle("the event was never created, or was destroyed"),
        }
    }

    fn event(&self, event: EventHandle) -> Checked<&Event> {
        match self.events.get(&event.as_raw()) {
            Some(event) => Ok(event),
            None => bad_handle("the event was never created, or was destroyed"),
        }
    }

    pub(crate) fn check_event(&self, event: EventHandle) -> Checked<()> {
        self.event(event).map(|_| ())
    }

    pub(crate) fn record(
        &mut self,
        event: EventHandle,
        stream: StreamHandle,
        now_ns: u64,
    ) -> Checked<()> {
        self.check(stream)?;
        self.check_event(event)?;
        if let Some(event) = self.events.get_mut(&event.as_raw()) {
            event.recorded_ns = Some(now_ns);
        }
        Ok(())
    }

    pub(crate) fn elapsed_ns(&self, start: EventHandle, end: EventHandle) -> Checked<u64> {
        let time = |handle| match self.event(handle)? {
            event if event.flags.contains(EventFlags::DISABLE_TIMING) => {
                bad_handle("the event was created without timing")
            }
            Event { recorded_ns: Some(at), .. } => Ok(*at),
            _ => bad_handle("the event was never recorded"),
        };
        Ok(time(end)?.saturating_sub(time(start)?))
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::Code;

    use super::*;

    #[test]
    fn a_destroyed_stream_is_refused_and_the_default_streams_never_are() {
        let mut streams = Streams::new();
        let raw = streams.create(DeviceId(0), StreamFlags::NON_BLOCKING).unwrap();
        let stream = StreamHandle::checked(raw);
        assert_eq!(streams.check(stream), Ok(()));
        assert_eq!(streams.destroy(stream), Ok(()));
        assert_eq!(streams.check(stream).unwrap_err().code, Some(Code::INVALID_HANDLE));
        for default in [StreamHandle::NULL, StreamHandle::LEGACY, StreamHandle::PER_THREAD] {
            assert_eq!(streams.check(default), Ok(()));
            assert!(streams.destroy(default).is_err());
        }
    }

    #[test]
    fn elapsed_time_needs_two_recorded_events_with_timing() {
        let mut streams = Streams::new();
        let mut event = |flags| {
            let raw = streams.create_event(flags).unwrap();
            EventHandle::checked(raw)
        };
        let (a, b) = (event(EventFlags::empty()), event(EventFlags::empty()));
        let untimed = event(EventFlags::DISABLE_TIMING);
        streams.record(a, StreamHandle::NULL, 100).unwrap();
        assert!(streams.elapsed_ns(a, b).is_err());
        streams.record(b, StreamHandle::NULL, 350).unwrap();
        streams.record(untimed, StreamHandle::NULL, 350).unwrap();
        assert_eq!(streams.elapsed_ns(a, b), Ok(250));
        assert!(streams.elapsed_ns(a, untimed).is_err());
    }
}
