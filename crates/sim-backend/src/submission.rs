//! Work of streams as values, which can be checked before it is carried out.
//!
//! The simulator completes work before a call returns. A driver over it may have to let work wait:
//! behind a function of the host that has not returned. It answers the call at once by
//! [`SimBackend::check_submission`], keeps the value, and submits it when its turn comes.

use pagewise_hal::{
    AttachFlags, Backend, CopyAttributes, DevicePtr, DeviceTouch, Location, Result, Span, SpanCopy,
    StreamHandle,
};

use crate::backend::SimBackend;
use crate::copies::Pattern;

/// Work of a stream, with all its arguments.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Submission {
    /// [`Backend::memcpy`]
    Copy(SpanCopy),
    /// [`Backend::memcpy_batch`]
    CopyBatch {
        /// The copies.
        copies: Vec<SpanCopy>,
        /// Their attributes.
        attributes: Vec<CopyAttributes>,
        /// The first copy that each of the attributes is for.
        starts: Vec<usize>,
    },
    /// [`Backend::memset`]
    Fill8(Span, u8),
    /// [`Backend::memset_d16`]
    Fill16(Span, u16),
    /// [`Backend::memset_d32`]
    Fill32(Span, u32),
    /// [`Backend::prefetch_ordinal`]
    PrefetchOrdinal(Span, i32),
    /// [`Backend::prefetch`]
    Prefetch {
        /// The range.
        span: Span,
        /// Where it goes.
        location: Location,
        /// Must be 0.
        flags: u32,
    },
    /// [`Backend::prefetch_batch`]
    PrefetchBatch(Targets),
    /// [`Backend::discard_batch`]
    DiscardBatch {
        /// The ranges.
        spans: Vec<Span>,
        /// Must be 0.
        flags: u64,
    },
    /// [`Backend::discard_prefetch_batch`]
    DiscardPrefetchBatch(Targets),
    /// [`Backend::stream_attach`]
    Attach(Span, AttachFlags),
    /// [`Backend::free_async`]
    Free(DevicePtr),
    /// [`Backend::device_touch`], without the sum of what it read.
    Touch(DeviceTouch),
}

/// Ranges, with the locations that they go to.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "these are the arguments of a call")]
pub struct Targets {
    /// The ranges.
    pub spans: Vec<Span>,
    /// The locations.
    pub locations: Vec<Location>,
    /// The first range that each of the locations is for.
    pub starts: Vec<usize>,
    /// Must be 0.
    pub flags: u64,
}

impl Submission {
    /// Makes the call.
    ///
    /// # Errors
    /// Those of the call.
    ///
    /// # Safety
    /// As the call: no other code may use memory that is written, freed or discarded.
    pub unsafe fn submit(&self, to: &dyn Backend, on: StreamHandle) -> Result<()> {
        // SAFETY: each call asks what this function asks.
        unsafe {
            match self {
                Self::Copy(copy) => to.memcpy(copy.destination, copy.source, copy.bytes, on),
                Self::CopyBatch { copies, attributes, starts } => {
                    to.memcpy_batch(copies, attributes, starts, on)
                }
                Self::Fill8(span, value) => to.memset(*span, *value, on),
                Self::Fill16(span, value) => to.memset_d16(*span, *value, on),
                Self::Fill32(span, value) => to.memset_d32(*span, *value, on),
                Self::PrefetchOrdinal(span, ordinal) => to.prefetch_ordinal(*span, *ordinal, on),
                Self::Prefetch { span, location, flags } => {
                    to.prefetch(*span, *location, *flags, on)
                }
                Self::PrefetchBatch(Targets { spans, locations, starts, flags }) => {
                    to.prefetch_batch(spans, locations, starts, *flags, on)
                }
                Self::DiscardBatch { spans, flags } => to.discard_batch(spans, *flags, on),
                Self::DiscardPrefetchBatch(Targets { spans, locations, starts, flags }) => {
                    to.discard_prefetch_batch(spans, locations, starts, *flags, on)
                }
                Self::Attach(span, flags) => to.stream_attach(on, *span, *flags),
                Self::Free(ptr) => to.free_async(*ptr, on),
                Self::Touch(touch) => to.device_touch(*touch, on).map(drop),
            }
        }
    }
}

impl SimBackend {
    /// Checks work as its call would, and carries nothing out. It takes no time and has no records.
    ///
    /// ```
    /// use pagewise_hal::{BackendExt, Code, Span, StreamHandle};
    /// use pagewise_sim::{SimBackend, SimConfig, Submission};
    ///
    /// let sim = SimBackend::new(SimConfig::h200())?;
    /// let span = sim.alloc(4096)?;
    /// let fill = Submission::Fill8(span, 1);
    /// assert_eq!(sim.check_submission(&fill, StreamHandle::NULL), Ok(()));
    /// let beyond = Submission::Fill8(Span::new(span.ptr, 8192), 1);
    /// let refused = sim.check_submission(&beyond, StreamHandle::NULL);
    /// assert_eq!(refused.unwrap_err().code(), Some(Code::INVALID_VALUE));
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the call.
    pub fn check_submission(&self, work: &Submission, on: StreamHandle) -> Result<()> {
        let fill = |span, pattern| {
            self.machine().rehearse("check_submission", |sim| sim.memset(span, pattern, on))
        };
        match work {
            Submission::Fill8(span, value) => fill(*span, Pattern::new([*value])),
            Submission::Fill16(span, value) => fill(*span, Pattern::new(value.to_le_bytes())),
            Submission::Fill32(span, value) => fill(*span, Pattern::new(value.to_le_bytes())),
            other => self.machine().rehearse("check_submission", |sim| match other {
                Submission::Copy(copy) => sim.memcpy(*copy, on),
                Submission::CopyBatch { copies, attributes, starts } => {
                    sim.memcpy_batch(copies, attributes, starts, on, &mut None)
                }
                Submission::PrefetchOrdinal(span, ordinal) => {
                    sim.prefetch_ordinal(*span, *ordinal, on)
                }
                Submission::Prefetch { span, location, flags } => {
                    sim.prefetch(*span, *location, *flags, on)
                }
                Submission::PrefetchBatch(Targets { spans, locations, starts, flags }) => {
                    sim.prefetch_batch(spans, locations, starts, *flags, on)
                }
                Submission::DiscardBatch { spans, flags } => sim.discard_batch(spans, *flags, on),
                Submission::DiscardPrefetchBatch(Targets { spans, locations, starts, flags }) => {
                    sim.discard_prefetch_batch(spans, locations, starts, *flags, on)
                }
                Submission::Attach(span, flags) => sim.stream_attach(on, *span, *flags),
                Submission::Free(ptr) => sim.free_async(*ptr, on),
                Submission::Touch(touch) => sim.device_touch(*touch, on).map(drop),
                _ => Ok(()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::{BackendExt, Code, DeviceAccess, DeviceId, RangeAttribute};

    use super::*;
    use crate::config::SimConfig;

    #[test]
    fn checked_work_answers_as_its_call_and_leaves_the_machine_as_it_was() {
        let sim = SimBackend::new(SimConfig::h200()).unwrap();
        let stream = sim.stream_create(DeviceId(0), pagewise_hal::StreamFlags::empty()).unwrap();
        let span = sim.alloc(4 << 20).unwrap();
        let pool = sim
            .pool_current(Location::device(DeviceId(0)), pagewise_hal::AllocationType::PINNED)
            .unwrap();
        let pooled = sim.pool_alloc(pool, 4096, stream).unwrap();
        let targets = |spans: Vec<Span>| Targets {
            spans,
            locations: vec![Location::device(DeviceId(0))],
            starts: vec![0],
            flags: 0,
        };
        let location = Location::device(DeviceId(0));
        let touch = |span| {
            let (device, access) = (DeviceId(0), DeviceAccess::Write(7));
            DeviceTouch { device, span, stride_bytes: 512, access, blocks: 2, threads: 32 }
        };
        let fine = [
            Submission::Copy(SpanCopy::new(span.ptr, DevicePtr(span.ptr.0 + 4096), 4096)),
            Submission::Fill32(span, 7),
            Submission::PrefetchOrdinal(span, 0),
            Submission::Prefetch { span, location, flags: 0 },
            Submission::PrefetchBatch(targets(vec![span])),
            Submission::DiscardBatch { spans: vec![span], flags: 0 },
            Submission::DiscardPrefetchBatch(targets(vec![span])),
            Submission::Attach(span, AttachFlags::HOST),
            Submission::Touch(touch(span)),
            Submission::Free(pooled),
        ];
        let nowhere = Span::new(DevicePtr(4096), 4096);
        let wrong = [
            Submission::Copy(SpanCopy::new(span.ptr, nowhere.ptr, 4096)),
            Submission::Fill8(nowhere, 0),
            Submission::PrefetchOrdinal(span, 9),
            Submission::Prefetch { span: nowhere, location, flags: 0 },
            Submission::DiscardBatch { spans: vec![nowhere], flags: 0 },
            Submission::Attach(nowhere, AttachFlags::HOST),
            Submission::Free(span.ptr),
            Submission::Free(DevicePtr(pooled.0 + 1)),
            Submission::Touch(touch(nowhere)),
            Submission::Touch(DeviceTouch { threads: 0, ..touch(span) }),
        ];
        let before = sim.state();
        for work in &fine {
            assert_eq!(sim.check_submission(work, stream), Ok(()), "{work:?}");
        }
        for work in &wrong {
            let checked = sim.check_submission(work, stream).unwrap_err();
            // SAFETY: the call is refused.
            let called = unsafe { work.submit(&sim, stream) }.unwrap_err();
            assert_eq!(checked.code(), called.code(), "{work:?}");
        }
        assert_eq!(sim.state(), before);
        for work in &fine {
            // SAFETY: no other code uses the memory.
            assert_eq!(unsafe { work.submit(&sim, stream) }, Ok(()), "{work:?}");
        }
        assert_eq!(sim.range_attribute(span, RangeAttribute::LAST_PREFETCH_LOCATION), Ok(0));
        let again = sim.check_submission(&Submission::Free(pooled), stream);
        assert_eq!(again.unwrap_err().code(), Some(Code::INVALID_VALUE), "it was freed");
    }
}
