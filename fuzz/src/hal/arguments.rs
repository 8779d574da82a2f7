//! The arguments of calls: live, freed, wild and extreme values.

use pagewise_hal::{
    Advice, DeviceId, DevicePtr, EventHandle, Location, LocationKind, PAGE_BYTES, PoolHandle, Span,
    StreamHandle,
};

use super::known::Known;
use super::round::Round;

/// Most bytes that one call is told to touch, move or fill: such calls take time by the byte, on a
/// driver as on the simulator.
pub(super) const TOUCHED_MAX: u64 = 8 << 20;
impl Round<'_, '_> {
    /// An item that is known, or `None` for a wild one.
    fn pick<T: Copy>(&mut self, items: impl Fn(&Known) -> &[T]) -> Option<T> {
        let count = items(&self.known).len() as u64;
        if count == 0 || self.choices.chance(1, 12) {
            return None;
        }
        let at = self.choices.below(count) as usize;
        items(&self.known).get(at).copied()
    }

    /// An address: mostly the first byte of something that lives.
    pub(super) fn ptr(&mut self) -> DevicePtr {
        if self.choices.chance(1, 10)
            && let Some(freed) = self.pick(|known| &known.freed)
        {
            return freed;
        }
        match self.pick(|known| &known.live) {
            Some(live) if self.choices.chance(1, 8) => live.ptr.offset(self.choices.edge()),
            Some(live) => live.ptr,
            None => DevicePtr(self.choices.edge()),
        }
    }

    /// A range: mostly of something that lives, whole or in part; else of any length.
    pub(super) fn span(&mut self) -> Span {
        if self.choices.chance(1, 6) {
            let (ptr, bytes) = (self.ptr(), self.choices.edge());
            return Span::new(ptr, bytes);
        }
        let Some(live) = self.pick(|known| &known.live) else {
            return Span::new(self.ptr(), 1 + self.choices.below(PAGE_BYTES));
        };
        match self.choices.below(4) {
            0 => live,
            1 => {
                let offset = self.choices.below(live.bytes);
                Span::new(live.ptr.offset(offset), 1 + self.choices.below(live.bytes - offset))
            }
            2 => {
                let pages = live.bytes.div_ceil(PAGE_BYTES);
                let first = self.choices.below(pages) * PAGE_BYTES;
                let most = (live.bytes - first).div_ceil(PAGE_BYTES);
                let bytes = (1 + self.choices.below(most)) * PAGE_BYTES;
                Span::new(live.ptr.offset(first), bytes.min(live.bytes - first))
            }
            _ => Span::new(live.ptr.offset(self.choices.below(2 << 20)), live.bytes),
        }
    }

    /// A range for a call that takes time by the byte: short, or so long that nothing holds it.
    pub(super) fn touched_span(&mut self) -> Span {
        let mut span = self.span();
        if span.bytes > TOUCHED_MAX && span.bytes < 1 << 60 {
            span.bytes %= TOUCHED_MAX;
        }
        span
    }

    pub(super) fn stream(&mut self) -> StreamHandle {
        match self.pick(|known| &known.streams) {
            Some(stream) => stream,
            None => StreamHandle::checked(self.choices.edge()),
        }
    }

    pub(super) fn event(&mut self) -> EventHandle {
        match self.pick(|known| &known.events) {
            Some(event) => event,
            None => EventHandle::checked(self.choices.edge()),
        }
    }

    pub(super) fn pool_handle(&mut self) -> PoolHandle {
        match self.pick(|known| &known.pools) {
            Some(pool) => pool,
            None => PoolHandle::checked(self.choices.edge()),
        }
    }

    /// A device, mostly one that exists.
    pub(super) fn device(&mut self) -> DeviceId {
        if self.choices.chance(1, 12) {
            return DeviceId(self.choices.one_of(&[-1, -2, i32::MIN, i32::MAX, 64]));
        }
        DeviceId(self.choices.below(u64::from(self.known.devices)) as i32)
    }

    pub(super) fn location(&mut self) -> Location {
        match self.choices.below(10) {
            0..=3 => Location::device(self.device()),
            4..=6 => Location::HOST,
            7 => Location::host_numa(self.choices.one_of(&[0, 1, -1, i32::MAX])),
            8 => Location::HOST_NUMA_CURRENT,
            _ => Location {
                kind: LocationKind(self.choices.one_of(&[0, 5, 6, 7, -1, i32::MIN, i32::MAX])),
                id: self.choices.edge() as i32,
            },
        }
    }

    pub(super) fn advice(&mut self) -> Advice {
        Advice(self.choices.one_of(&[1, 2, 3, 4, 5, 6, 1, 3, 5, 0, 7, -1, i32::MIN]))
    }

    /// A small number or an extreme one.
    pub(super) fn small_i32(&mut self) -> i32 {
        if self.choices.chance(1, 8) {
            return self.choices.edge() as i32;
        }
        self.choices.below(24) as i32 - 2
    }
}
