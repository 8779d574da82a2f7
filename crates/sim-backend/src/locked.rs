//! A machine while one thread has it.

use std::ops::{Deref, DerefMut};

use crate::patient::{Guard, Mutex};
use crate::sim::Sim;

/// The machine of one thread, until it lets it go. Takes back what a call lent before that.
#[derive(Debug)]
pub(crate) struct Locked<'a>(Guard<'a, Sim>);

impl<'a> Locked<'a> {
    /// Waits for the machine. A panic while another thread had it is a bug that was reported there
    /// and then; the state is still the best there is.
    #[inline]
    pub(crate) fn wait(sim: &'a Mutex<Sim>) -> Self {
        Self(sim.lock())
    }

    /// Takes the machine, if no thread has it.
    #[inline]
    pub(crate) fn at_once(sim: &'a Mutex<Sim>) -> Option<Self> {
        sim.try_lock().map(Self)
    }
}

impl Deref for Locked<'_> {
    type Target = Sim;

    #[inline]
    fn deref(&self) -> &Sim {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Sim {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.lends {
            self.0.end_lending();
        }
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::{
        Advice, AttachFlags, Backend, BackendExt, DeviceAccess, DeviceId, DevicePtr, DeviceTouch,
        HostAccess, HostTouch, KernelAccess, KernelAccesses, KernelWalk, Location,
        PointerAttribute, RangeAttribute, Span, SpanCopy, StreamHandle, StridedSpan,
    };

    use super::*;
    use crate::book::Book;
    use crate::copies::Pattern;
    use crate::cost::Call;
    use crate::reads_beside::GROUPS_MAX;
    use crate::refusal::Checked;
    use crate::{SimBackend, SimConfig};

    const STREAM: StreamHandle = StreamHandle::PER_THREAD;

    fn machine() -> (SimBackend, Span) {
        let sim = SimBackend::new(SimConfig::h200()).expect("address space");
        let span = sim.alloc(1 << 20).expect("address space");
        (sim, span)
    }

    /// The last prefetch location that a read beside finds.
    fn destination(sim: &Sim, span: Span) -> Option<i32> {
        let attribute = RangeAttribute::LAST_PREFETCH_LOCATION;
        let answer = |book: Book<'_>| book.range_attribute(span, attribute);
        sim.reads_beside.read(Call::RangeAttribute, answer)?.ok()
    }

    type Long = fn(&mut Sim, Span) -> Checked<()>;

    const STRIDE: u64 = 4096;

    const LONG_CALLS: [(&str, Long); 11] = [
        ("host_touch", |sim, span| {
            let access = HostAccess::Write(1);
            sim.host_touch(HostTouch { span, stride_bytes: STRIDE, access }).map(drop)
        }),
        ("device_touch", |sim, span| {
            let (device, access) = (DeviceId(0), DeviceAccess::Read);
            let (blocks, threads) = (1, 1);
            let touch = DeviceTouch { device, span, stride_bytes: STRIDE, access, blocks, threads };
            sim.device_touch(touch, STREAM).map(drop)
        }),
        ("kernel_accesses", |sim, span| {
            let range = StridedSpan { span, stride_bytes: STRIDE };
            let walk = KernelWalk { access: KernelAccess::Load, places: vec![range] };
            let kernel =
                KernelAccesses { device: DeviceId(0), blocks: 4, threads: 32, walks: vec![walk] };
            sim.kernel_accesses(&kernel, STREAM)
        }),
        ("memset", |sim, span| sim.memset(span, Pattern::new([1]), STREAM)),
        ("memcpy", |sim, span| {
            let half = span.bytes / 2;
            sim.memcpy(SpanCopy::new(span.ptr.offset(half), span.ptr, half), STREAM)
        }),
        ("advise", |sim, span| sim.advise(span, Advice::SET_READ_MOSTLY, Location::HOST)),
        ("prefetch", |sim, span| sim.prefetch(span, Location::HOST, 0, STREAM)),
        ("prefetch_batch", |sim, span| {
            sim.prefetch_batch(&[span], &[Location::HOST], &[0], 0, STREAM)
        }),
        ("free", |sim, _| {
            let freed = sim.alloc_managed(128 << 20, AttachFlags::GLOBAL)?;
            sim.free(freed)
        }),
        ("discard_batch", |sim, span| sim.discard_batch(&[span], 0, STREAM)),
        ("discard_prefetch_batch", |sim, span| {
            sim.discard_prefetch_batch(&[span], &[Location::HOST], &[0], 0, STREAM)
        }),
    ];

    #[test]
    fn every_long_call_lends_the_book_and_takes_it_back() {
        for (name, call) in LONG_CALLS {
            let (backend, span) = machine();
            let mut sim = backend.machine().lock();
            assert_eq!(destination(&sim, span), None, "{name}: nothing is lent before");
            assert!(call(&mut sim, span).is_ok(), "{name}");
            let expected = if name.contains("prefetch") { -1 } else { -2 };
            assert_eq!(destination(&sim, span), Some(expected), "{name}");
            let beside = sim.reads_beside.clone();
            drop(sim);
            let attribute = RangeAttribute::READ_MOSTLY;
            let answer = |book: Book<'_>| book.range_attribute(span, attribute);
            assert!(beside.read(Call::RangeAttribute, answer).is_none(), "{name}: taken back");
            backend.advise(span, Advice::SET_READ_MOSTLY, Location::HOST).expect("managed memory");
            assert_eq!(backend.range_attribute(span, attribute), Ok(1));
        }
    }

    #[test]
    fn a_panic_in_a_long_call_takes_the_book_back() {
        let (backend, span) = machine();
        let panicked = std::thread::scope(|threads| {
            let call = threads.spawn(|| {
                let mut sim = backend.machine().lock();
                sim.lend();
                assert_eq!(destination(&sim, span), Some(-2));
                panic!("in a call");
            });
            call.join().is_err()
        });
        assert!(panicked);
        let before_ns = backend.clock_ns();
        assert!(before_ns > 0, "the time of the read passed");
        assert_eq!(destination(&backend.machine().lock(), span), None);
    }

    #[test]
    fn reads_beyond_the_room_are_answered_and_count_by_kind() {
        let (backend, span) = machine();
        let mut sim = backend.machine().lock();
        sim.lend();
        let calls = [Call::RangeAttribute, Call::PointerAttribute];
        for (nth, call) in calls.iter().cycle().take(2 * GROUPS_MAX).enumerate() {
            let unknown = nth % 5 == 4;
            let attribute = PointerAttribute(if unknown { 99 } else { 8 });
            let answer = |book: Book<'_>| book.pointer_attribute(span.ptr, attribute);
            let read = sim.reads_beside.read(*call, answer);
            assert_eq!(read.map(|answer| answer.is_err()), Some(unknown));
        }
        let made = sim.reads_beside.collect(true).expect("they were noted");
        assert!(made.len() < GROUPS_MAX + 4);
        assert_eq!(made.iter().map(|group| group.times).sum::<u64>(), 2 * GROUPS_MAX as u64);
        assert_eq!(sim.reads_beside.collect(true), None, "each is handed over once");
    }

    #[test]
    fn memory_that_is_not_there_is_refused_beside_a_call_too() {
        let (backend, span) = machine();
        let mut sim = backend.machine().lock();
        sim.lend();
        let answer = |book: Book<'_>| {
            book.pointer_attribute(DevicePtr(span.ptr.0 - 1), PointerAttribute::IS_MANAGED)
        };
        let read = sim.reads_beside.read(Call::PointerAttribute, answer);
        assert!(read.is_some_and(|answer| answer.is_err()));
    }
}
