//! Access programs of one access to managed memory: most calls of a program that touches page by
//! page. They take a short way.
//!
//! What the call answers, its time and its effects are those of [`Sim::device_touch`] and
//! [`Sim::host_touch`], which do whatever is not done here.

use pagewise_hal::{DeviceTouch, HostTouch, Processor, Span, StreamHandle};

use crate::cost::Call;
use crate::locate::processor_of;
use crate::pager::Access;
use crate::paging::Walk;
use crate::sim::Sim;

impl Sim {
    /// A device access program, if there is a short way for it; the stream and the program are
    /// checked. `None`, and nothing is done, otherwise.
    #[inline]
    pub(crate) fn device_touch_at_once(
        &mut self,
        touch: &DeviceTouch,
        stream: StreamHandle,
        call: Call,
    ) -> Option<u64> {
        let is_fine = touch.is_serial()
            && self.topology.has_device(touch.device)
            && self.streams.check_for(stream, touch.device).is_ok()
            && touch.check().is_ok();
        if !is_fine {
            return None;
        }
        let access = touch.access.into();
        let by = processor_of(touch.device);
        self.access_at_once(by, touch.span, touch.stride_bytes, access, call)?;
        Some(self.touched_by_device(touch))
    }

    /// A host access program, if there is a short way for it. `None`, and nothing is done,
    /// otherwise.
    #[inline]
    pub(crate) fn host_touch_at_once(&mut self, touch: &HostTouch, call: Call) -> Option<u64> {
        let access = touch.access.into();
        self.access_at_once(Processor::HOST, touch.span, touch.stride_bytes, access, call)?;
        Some(self.touched_by_host(touch))
    }

    /// Makes an access, if it is the only one of its program.
    #[inline]
    fn access_at_once(
        &mut self,
        by: Processor,
        span: Span,
        stride_bytes: u64,
        access: Access,
        call: Call,
    ) -> Option<()> {
        if span.bytes == 0 || stride_bytes < span.bytes || !self.space.is_managed(span) {
            return None;
        }
        let has_rules = self.exclusive.is_some() || self.host_view.is_some();
        if has_rules || self.launch_moves() || self.pager.has_holdings() {
            return None;
        }
        let walk = Walk { by, first_byte: span.ptr.0, bytes: span.bytes, stride_bytes, access };
        let pace_ns = self.pace.as_ref().map(|(pace_ns, _)| *pace_ns);
        self.clock_ns = self.pager.access_at_once(call, &walk, self.clock_ns, pace_ns)?;
        if pace_ns.is_some() {
            self.pace = None;
        }
        self.settle_contents();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::{
        Advice, Backend, BackendExt, DeviceAccess, DeviceId, DevicePtr, HostAccess, Location, Span,
        StreamFlags,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::{MemoryContents, SimBackend, SimConfig};

    const BYTES: u64 = 4 << 20;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Host(HostTouch),
        Device(DeviceTouch, bool),
        Prefetch(Span, Location),
        /// Maps what is elsewhere to a device.
        Map(Span, DeviceId),
        Sleep(u64),
        Pace(u64),
    }

    /// Touches of one place near page boundaries, of either end, and of several.
    fn spans() -> impl Strategy<Value = Span> {
        let offsets = prop_oneof![0..4 * 4096u64, BYTES - 8..BYTES + 2];
        (offsets, prop_oneof![8 => 0..=4u64, 1 => 4096..9000u64])
            .prop_map(|(offset, bytes)| Span::new(DevicePtr(offset), bytes))
    }

    fn steps() -> impl Strategy<Value = Step> {
        let strides = prop_oneof![Just(4096u64), 0..6u64];
        let host =
            (spans(), strides.clone(), any::<bool>()).prop_map(|(span, stride_bytes, write)| {
                let access = if write { HostAccess::Write(3) } else { HostAccess::Read };
                Step::Host(HostTouch { span, stride_bytes, access })
            });
        let device = (spans(), strides, 0..3u8, 0..3u32, 0..3i32, any::<bool>()).prop_map(
            |(span, stride_bytes, access, threads, device, on_stream)| {
                let access = [DeviceAccess::Read, DeviceAccess::Write(5), DeviceAccess::AtomicAdd]
                    [usize::from(access)];
                let device = DeviceId(device.saturating_sub(1));
                let touch = DeviceTouch { device, span, stride_bytes, access, blocks: 1, threads };
                Step::Device(touch, on_stream)
            },
        );
        let places = prop_oneof![
            Just(Location::HOST),
            (0..2i32).prop_map(|n| { Location::device(DeviceId(n)) })
        ];
        prop_oneof![
            8 => host,
            8 => device,
            1 => (spans(), places).prop_map(|(span, place)| Step::Prefetch(span, place)),
            1 => (spans(), 0..2i32).prop_map(|(span, n)| Step::Map(span, DeviceId(n))),
            1 => (0..3_000_000u64).prop_map(Step::Sleep),
            1 => (0..3_000_000u64).prop_map(Step::Pace),
        ]
    }

    /// Makes a step on a machine; returns what it answered.
    fn made(
        (sim, base, stream): &(SimBackend, Span, StreamHandle),
        step: Step,
    ) -> Result<u64, Option<i32>> {
        let at = |span: Span| Span::new(base.ptr.offset(span.ptr.0), span.bytes);
        let answer = match step {
            Step::Host(touch) => {
                let touch = HostTouch { span: at(touch.span), ..touch };
                // SAFETY: one thread uses the memory.
                unsafe { sim.host_touch(touch) }
            }
            Step::Device(touch, on_stream) => {
                let stream = if on_stream { *stream } else { StreamHandle::NULL };
                let touch = DeviceTouch { span: at(touch.span), ..touch };
                // SAFETY: one thread uses the memory.
                unsafe { sim.device_touch(touch, stream) }
            }
            Step::Prefetch(span, place) => sim.prefetch_to(at(span), place).map(|()| 0),
            Step::Map(span, device) => {
                let to = Location::device(device);
                sim.advise(at(span), Advice::SET_ACCESSED_BY, to).map(|()| 0)
            }
            Step::Sleep(duration_ns) => {
                sim.sleep_ns(duration_ns);
                Ok(0)
            }
            Step::Pace(duration_ns) => {
                sim.pace_next_op(duration_ns, [(1000, 2000)]);
                Ok(0)
            }
        };
        answer.map_err(|error| error.code())
    }

    proptest! {
        #[test]
        fn the_short_way_answers_and_leaves_what_the_long_one_does(
            steps in prop::collection::vec(steps(), 1..60),
            contents in prop_oneof![Just(MemoryContents::Skipped), Just(MemoryContents::Described)],
        ) {
            let machines = [false, true].map(|observed| {
                let sim = SimBackend::new(SimConfig::h200().devices(2).contents(contents)).unwrap();
                let span = sim.alloc(BYTES).unwrap();
                let stream = sim.stream_create(DeviceId(1), StreamFlags::empty()).unwrap();
                if observed {
                    sim.observe_costs(); // Observed calls take the long way.
                }
                (sim, span, stream)
            });
            let [short, long] = machines;
            for step in steps {
                prop_assert_eq!(made(&short, step), made(&long, step), "{:?}", step);
                let (short, long) = (&short.0, &long.0);
                prop_assert_eq!(short.clock_ns(), long.clock_ns());
                prop_assert_eq!(short.counters(), long.counters());
            }
        }
    }
}
