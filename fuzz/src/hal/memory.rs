//! Calls that allocate, free, advise and move.

use pagewise_hal::{AttachFlags, DevicePtr, HostAllocFlags, HostRegisterFlags, Location, Span};

use super::arguments::TOUCHED_MAX;
use super::round::Round;

/// Most live allocations of a round.
const LIVE_MAX: usize = 24;

impl Round<'_, '_> {
    pub(super) fn allocate(&mut self) {
        if self.known.live.len() >= LIVE_MAX {
            return self.free();
        }
        let bytes = match self.choices.below(6) {
            0 => self.choices.edge(),
            1 => 1 + self.choices.below(8192),
            _ => 1 + self.choices.below(6 << 20),
        };
        let flags = self.choices.one_of(&[1, 1, 1, 1, 1, 2, 2, 0, 4, u32::MAX]);
        let made = match self.choices.below(10) {
            0 => {
                let device = self.device();
                self.call("alloc_device", |sim| sim.alloc_device(device, bytes))
            }
            1 => {
                let flags = HostAllocFlags::from_bits_retain(flags);
                self.call("alloc_pinned", |sim| sim.alloc_pinned(bytes, flags))
            }
            2 => return self.register(bytes),
            _ => {
                let flags = AttachFlags::from_bits_retain(flags);
                self.call("alloc_managed", |sim| sim.alloc_managed(bytes, flags))
            }
        };
        self.known.live.extend(made.filter(|ptr| !ptr.is_null()).map(|ptr| Span::new(ptr, bytes)));
    }

    /// Host memory of the round, whole or in part; or nothing, or what ends beyond all addresses.
    fn register(&mut self, bytes: u64) {
        let start = self.known.host_start();
        let offset = self.choices.below(32 << 10);
        let length = 1 + bytes % (16 << 10);
        let span = match self.choices.below(6) {
            0 => Span::new(DevicePtr::NULL, bytes),
            1 => Span::new(DevicePtr(start), 0),
            2 => Span::new(DevicePtr(start + offset), u64::MAX - start),
            _ => Span::new(DevicePtr(start + offset), length),
        };
        let flags =
            HostRegisterFlags::from_bits_retain(self.choices.one_of(&[0, 0, 0, 0, 1, 2, 4, 8, 16]));
        // SAFETY: the memory lives as long as the round. The simulator refuses spans that are no
        // memory.
        let made = self.call("host_register", |sim| unsafe { sim.host_register(span, flags) });
        self.known.live.extend(made.map(|()| span));
    }

    pub(super) fn free(&mut self) {
        let ptr = self.ptr();
        let stream = self.stream();
        let freed = match self.choices.below(6) {
            // SAFETY: only this round uses the memory, and it does not use freed memory again.
            0 => self.call("free_pinned", |sim| unsafe { sim.free_pinned(ptr) }),
            // SAFETY: only this round uses the memory, and it does not use freed memory again.
            1 => self.call("free_async", |sim| unsafe { sim.free_async(ptr, stream) }),
            // SAFETY: only this round uses the memory, and it does not use freed memory again.
            2 => self.call("host_unregister", |sim| unsafe { sim.host_unregister(ptr) }),
            // SAFETY: only this round uses the memory, and it does not use freed memory again.
            _ => self.call("free", |sim| unsafe { sim.free(ptr) }),
        };
        if freed.is_some() {
            // Imported memory stands twice, at one address. Its import ends first.
            if let Some(last) = self.known.live.iter().rposition(|live| live.ptr == ptr) {
                self.known.live.remove(last);
            }
            self.known.freed.push(ptr);
            if self.known.freed.len() > LIVE_MAX {
                self.known.freed.remove(0);
            }
        }
    }

    pub(super) fn advise(&mut self) {
        let (span, advice) = (self.touched_span(), self.advice());
        if self.choices.chance(1, 2) {
            let location = self.location();
            self.call("advise", |sim| sim.advise(span, advice, location));
        } else {
            let ordinal = self.device().0;
            self.call("advise_ordinal", |sim| sim.advise_ordinal(span, advice, ordinal));
        }
    }

    pub(super) fn prefetch(&mut self) {
        let (span, stream) = (self.touched_span(), self.stream());
        match self.choices.below(6) {
            0 | 1 => {
                let location = self.location();
                let flags = self.choices.one_of(&[0, 0, 0, 1, u32::MAX]);
                self.call("prefetch", |sim| sim.prefetch(span, location, flags, stream));
            }
            2 => {
                let ordinal = self.device().0;
                self.call("prefetch_ordinal", |sim| sim.prefetch_ordinal(span, ordinal, stream));
            }
            3 => {
                let flags = AttachFlags::from_bits_retain(self.choices.one_of(&[1, 2, 4, 0, 8]));
                // Work in the stream brings all of it.
                if self.known.live.iter().any(|l| l.ptr == span.ptr && l.bytes > TOUCHED_MAX) {
                    return;
                }
                let span = Span::new(span.ptr, self.choices.one_of(&[0, 1, span.bytes]));
                // SAFETY: only this round uses the memory, through calls of the simulator, which
                // refuses what an attachment does not allow.
                self.call("stream_attach", |sim| unsafe { sim.stream_attach(stream, span, flags) });
            }
            _ => self.batch(),
        }
    }

    fn batch(&mut self) {
        let count = if self.choices.chance(1, 12) { 0 } else { 1 + self.choices.below(3) };
        let spans: Vec<Span> = (0..count).map(|_| self.touched_span()).collect();
        let places = if self.choices.chance(1, 12) { 0 } else { 1 + self.choices.below(count) };
        let locations: Vec<Location> = (0..places).map(|_| self.location()).collect();
        let starts: Vec<usize> = (0..locations.len())
            .map(|at| if self.choices.chance(1, 8) { self.choices.edge() as usize } else { at })
            .collect();
        let flags = self.choices.one_of(&[0, 0, 0, 0, 1, u64::MAX]);
        let stream = self.stream();
        match self.choices.below(3) {
            0 => self.call("prefetch_batch", |sim| {
                sim.prefetch_batch(&spans, &locations, &starts, flags, stream)
            }),
            1 => self.call("discard_batch", |sim| {
                // SAFETY: only this round uses the memory, and what it holds does not matter to it.
                unsafe { sim.discard_batch(&spans, flags, stream) }
            }),
            _ => self.call("discard_prefetch_batch", |sim| {
                // SAFETY: only this round uses the memory, and what it holds does not matter to it.
                unsafe { sim.discard_prefetch_batch(&spans, &locations, &starts, flags, stream) }
            }),
        };
    }
}
