//! Lowering: from steps to operations that are safe, whatever the steps.

mod copies;
mod pools;

use pagewise_hal::{
    Advice, BLOCK_BYTES, DeviceAccess, DriverVersion, Location, LocationKind, PAGE_BYTES,
};

use super::bounds::{MAX_LIVE_BUFFERS, MAX_LIVE_BYTES, MAX_SERIAL_ACCESSES};
use super::step::{AttachPart, BatchStep, Grid, Range, Starts, Step, Stretch};
use crate::format::{Batch, LocationArg, Op, Part, Stream};

/// An address that belongs to nothing, and the id that stands for no buffer.
const WILD: Part = Part { buf: 77, offset: 0x1234_5678_9000, bytes: PAGE_BYTES };

/// The devices and the entry points that a back end offers to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// How many devices there are.
    pub devices: u32,
    /// Entry points of this version are used. Before 12.2 places are ordinals; before 13.0 a
    /// batch becomes single prefetches, as back ends may but need not offer it.
    pub version: DriverVersion,
}

/// Turns steps into operations. Steps that make no sense where they stand are left out.
#[must_use]
pub fn lower(steps: &[Step], offers: Offers) -> Vec<Op> {
    let mut lowering = Lowering {
        offers,
        ops: Vec::new(),
        live: Vec::new(),
        freed: Vec::new(),
        pools: Vec::new(),
        next: 0,
        discarded: false,
    };
    lowering.alloc_managed(4 << 20, 1);
    steps.iter().for_each(|step| lowering.step(step));
    lowering.ops
}

/// A buffer that lives if the driver does what it is known to do.
#[derive(Debug, Clone, Copy)]
struct Buffer {
    id: u32,
    bytes: u64,
    kind: Kind,
    /// Whether some of it may be read-mostly.
    read_mostly: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Managed,
    Device,
    Pinned,
    /// From the pool at this place of the list.
    Pool(usize),
}

#[derive(Debug, Clone, Copy)]
struct Pool {
    id: u32,
    /// Whether allocations succeed and host and devices reach them.
    open: bool,
}

struct Lowering {
    offers: Offers,
    ops: Vec<Op>,
    live: Vec<Buffer>,
    freed: Vec<Buffer>,
    pools: Vec<Pool>,
    next: u32,
    discarded: bool,
}

/// The nth, modulo their number.
fn nth<T: Copy>(items: &[T], nth: u16) -> Option<T> {
    items.get(usize::from(nth).checked_rem(items.len())?).copied()
}

impl Lowering {
    fn step(&mut self, step: &Step) {
        match step {
            &Step::AllocManaged { bytes, attach_flags } => self.alloc_managed(bytes, attach_flags),
            &Step::AllocDevice { bytes } => {
                self.alloc_other(Kind::Device, bytes, |buf| Op::AllocDevice {
                    buf,
                    bytes,
                    device: 0,
                });
            }
            &Step::AllocPinned { bytes } => {
                self.alloc_other(Kind::Pinned, bytes, |buf| Op::AllocPinned {
                    buf,
                    bytes,
                    flags: 0,
                });
            }
            &Step::Free { nth: which } => self.free(which),
            &Step::Advise { range, advice, location } => {
                let (Some(part), location) = (self.any(range), self.location_arg(location)) else {
                    return;
                };
                let advised = self.live.iter_mut().find(|buffer| buffer.id == part.buf);
                if let Some(buffer) = advised.filter(|_| advice == Advice::SET_READ_MOSTLY) {
                    buffer.read_mostly = true;
                }
                self.moving(Op::Advise { part, advice, location });
            }
            &Step::Prefetch { range, location, flags } => {
                let (Some(part), location) = (self.any(range), self.location_arg(location)) else {
                    return;
                };
                let flags = flags.filter(|_| matches!(location, LocationArg::Location(_)));
                self.moving(Op::Prefetch { part, location, flags });
            }
            &Step::HostTouch { .. } | &Step::DeviceTouch { .. } => self.touch(step),
            Step::Memset { .. } | Step::MemsetD16 { .. } | Step::MemsetD32 { .. } => {
                self.fill(step);
            }
            &Step::Memcpy { to, from } => self.memcpy(to, from),
            Step::MemcpyBatch(batch) => self.memcpy_batch(batch),
            &Step::StreamAttach { nth, part, flags, stream } => {
                self.attach(nth, part, flags, stream);
            }
            &Step::RangeAttributes { range } => {
                let Some(part) = self.any(range) else { return };
                self.ops.push(Op::RangeAttributes { part, slots: None });
            }
            &Step::PointerAttributes { range } => {
                let Some(Part { buf, offset, .. }) = self.any(range) else { return };
                self.ops.push(Op::PointerAttributes { buf, offset });
            }
            Step::PrefetchBatch(_) | Step::DiscardPrefetchBatch(_) | Step::DiscardBatch { .. } => {
                self.batch_call(step);
            }
            _ => self.pool_step(step),
        }
    }

    /// An operation that may move pages, and then time enough that no page is taken to thrash:
    /// what thrashes depends on real time, which no two back ends share.
    fn moving(&mut self, op: Op) {
        self.ops.push(op);
        self.ops.push(Op::Sleep { ms: 1 });
    }

    // ---- allocation ---------------------------------------------------------------------------

    fn next_id(&mut self) -> u32 {
        // Ids are never used again; 77 stays free.
        let id = self.next;
        self.next += if id + 1 == WILD.buf { 2 } else { 1 };
        id
    }

    fn has_room(&self, bytes: u64) -> bool {
        let held: u64 = self.live.iter().map(|buffer| buffer.bytes).sum();
        self.live.len() < MAX_LIVE_BUFFERS && held + bytes <= MAX_LIVE_BYTES
    }

    fn alloc_managed(&mut self, bytes: u64, attach_flags: u32) {
        if !self.has_room(bytes) {
            return;
        }
        let buf = self.next_id();
        self.ops.push(Op::AllocManaged { buf, bytes, attach_flags });
        if bytes > 0 && matches!(attach_flags, 1 | 2) {
            self.live.push(Buffer { id: buf, bytes, kind: Kind::Managed, read_mostly: false });
        }
    }

    fn alloc_other(&mut self, kind: Kind, bytes: u64, op: impl FnOnce(u32) -> Op) {
        if bytes > 0 && self.has_room(bytes) {
            let buf = self.next_id();
            self.ops.push(op(buf));
            self.live.push(Buffer { id: buf, bytes, kind, read_mostly: false });
        }
    }

    fn free(&mut self, which: u16) {
        let candidates = self.of_kind(|kind| !matches!(kind, Kind::Pool(_)));
        let Some(buffer) = nth(&candidates, which) else { return };
        self.ops.push(Op::Free { buf: buffer.id });
        // The call refuses pinned memory, which the end of the case frees.
        if buffer.kind != Kind::Pinned {
            self.forget(buffer);
        }
    }

    fn forget(&mut self, buffer: Buffer) {
        self.live.retain(|other| other.id != buffer.id);
        self.freed.push(buffer);
    }

    fn of_kind(&self, wanted: impl Fn(Kind) -> bool) -> Vec<Buffer> {
        self.live.iter().copied().filter(|buffer| wanted(buffer.kind)).collect()
    }

    // ---- ranges and places --------------------------------------------------------------------

    /// A part of any live buffer, or one that is wrong.
    fn any(&self, range: Range) -> Option<Part> {
        match range.part {
            Stretch::Wild => Some(WILD),
            Stretch::Freed => {
                let buffer = nth(&self.freed, range.nth)?;
                Some(Part { buf: buffer.id, offset: 0, bytes: buffer.bytes })
            }
            part => Some(part_of(nth(&self.live, range.nth)?, part)),
        }
    }

    /// A part that is not empty of a buffer that host and devices reach.
    fn touchable(&self, range: Range) -> Option<Part> {
        self.reachable(range, |kind| matches!(kind, Kind::Managed | Kind::Pool(_)))
    }

    /// A part that many threads may touch, widened to whole va_blocks where they fault: which pages
    /// come along when they touch some of a block, is chance. `None` if a block has other owners,
    /// and for read-mostly memory: whether a write finds a page duplicated is chance as well.
    fn whole_blocks(&self, part: Part) -> Option<Part> {
        let buffer = self.live.iter().find(|buffer| buffer.id == part.buf)?;
        match buffer.kind {
            Kind::Device | Kind::Pinned => Some(part),
            Kind::Managed if buffer.bytes >= BLOCK_BYTES && !buffer.read_mostly => {
                let start = part.offset / BLOCK_BYTES * BLOCK_BYTES;
                let end = (part.offset + part.bytes).next_multiple_of(BLOCK_BYTES);
                Some(Part { offset: start, bytes: end.min(buffer.bytes) - start, ..part })
            }
            Kind::Managed | Kind::Pool(_) => None,
        }
    }

    /// A range of a buffer of any kind that copies can reach.
    fn copyable(&self, range: Range) -> Option<Part> {
        self.reachable(range, |_| true)
    }

    fn reachable(&self, range: Range, wanted: impl Fn(Kind) -> bool) -> Option<Part> {
        let closed = |kind| matches!(kind, Kind::Pool(at) if !self.pools[at].open);
        let buffers = self.of_kind(|kind| wanted(kind) && !closed(kind));
        let part = match range.part {
            right @ (Stretch::Whole | Stretch::Pages { .. } | Stretch::Bytes { .. }) => right,
            _ => Stretch::Whole,
        };
        Some(part_of(nth(&buffers, range.nth)?, part))
    }

    fn location_arg(&self, arg: LocationArg) -> LocationArg {
        match arg {
            LocationArg::Location(location) if self.offers.version < DriverVersion::CUDA_12_2 => {
                ordinal_of(location).map_or(arg, LocationArg::Ordinal)
            }
            arg => arg,
        }
    }

    // ---- accesses -----------------------------------------------------------------------------

    fn touch(&mut self, step: &Step) {
        match *step {
            Step::HostTouch { range, stride, access } => {
                let Some(part) = self.touchable(range) else { return };
                let stride = stride.max(part.bytes.div_ceil(MAX_SERIAL_ACCESSES));
                self.moving(Op::HostTouch { part, stride, access, value: value_of_host(access) });
            }
            Step::DeviceTouch { device, range, stride, access, grid } => {
                let Some(part) = self.touchable(range) else { return };
                let (part, blocks, threads, stride) = match (grid, self.whole_blocks(part)) {
                    (Grid::Parallel { blocks, threads }, Some(whole)) => {
                        (whole, blocks, threads, stride.min(PAGE_BYTES))
                    }
                    _ => (part, 1, 1, stride.max(part.bytes.div_ceil(MAX_SERIAL_ACCESSES))),
                };
                let (access, part) = match (access, whole_values(part, 4)) {
                    (DeviceAccess::AtomicAdd, Some(words)) if !self.discarded => (access, words),
                    (DeviceAccess::AtomicAdd, _) => (DeviceAccess::Write(1), part),
                    (access, _) => (access, part),
                };
                let value = match access {
                    DeviceAccess::Write(value) => Some(value),
                    _ => None,
                };
                self.moving(Op::DeviceTouch {
                    device,
                    part,
                    stride,
                    access,
                    value,
                    blocks,
                    threads,
                });
            }
            _ => unreachable!("a touch"),
        }
    }

    fn attach(&mut self, which: u16, part: AttachPart, flags: u32, stream: Stream) {
        let managed = self.of_kind(|kind| kind == Kind::Managed);
        let Some(buffer) = nth(&managed, which) else { return };
        if !matches!(flags, 1 | 2 | 4) {
            return;
        }
        let (offset, bytes) = match part {
            AttachPart::SecondPage if buffer.bytes > PAGE_BYTES => (PAGE_BYTES, 0),
            AttachPart::Zero | AttachPart::SecondPage => (0, 0),
            AttachPart::Whole => (0, buffer.bytes),
            AttachPart::FirstPage => (0, buffer.bytes.min(PAGE_BYTES)),
        };
        let part = Part { buf: buffer.id, offset, bytes };
        self.moving(Op::StreamAttach { part, flags, stream: Some(stream) });
    }

    // ---- batches ------------------------------------------------------------------------------

    fn batch_call(&mut self, step: &Step) {
        match step {
            Step::PrefetchBatch(batch) if self.offers.version < DriverVersion::CUDA_13_0 => {
                self.single_prefetches(batch);
            }
            Step::PrefetchBatch(batch) => {
                let batch = self.batch(batch);
                self.moving(Op::PrefetchBatch(batch));
            }
            Step::DiscardPrefetchBatch(batch) => {
                let batch = self.batch(batch);
                self.discarded = true;
                self.moving(Op::DiscardPrefetchBatch(batch));
            }
            Step::DiscardBatch { ranges, flags, stream } => {
                let ranges = self.parts(ranges);
                self.discarded = true;
                self.moving(Op::DiscardBatch { ranges, flags: *flags, stream: *stream });
            }
            _ => unreachable!("a batch call"),
        }
    }

    fn parts(&self, ranges: &[Range]) -> Vec<Part> {
        ranges.iter().filter_map(|&range| self.any(range)).collect()
    }

    fn batch(&self, step: &BatchStep) -> Batch {
        let ranges = self.parts(&step.ranges);
        // More locations than ranges cannot be dealt out; none at all is a case of its own.
        let most = step.locations.len().min(ranges.len().max(1));
        let locations = step.locations[..most].to_vec();
        let (ranges_count, places) = (ranges.len() as u64, locations.len() as u64);
        let location_starts = starts_of(ranges_count, places, step.starts);
        Batch { ranges, locations, location_starts, flags: step.flags, stream: step.stream }
    }

    fn single_prefetches(&mut self, batch: &BatchStep) {
        for (&range, &location) in batch.ranges.iter().zip(batch.locations.iter().cycle()) {
            let Some(part) = self.any(range) else { continue };
            let location = self.location_arg(LocationArg::Location(location));
            let flags = matches!(location, LocationArg::Location(_)).then_some(0);
            self.moving(Op::Prefetch { part, location, flags });
        }
    }
}

/// The values of `width` bytes that lie wholly in a part: what atomics may touch of it, and fills.
fn whole_values(part: Part, width: u64) -> Option<Part> {
    let start = part.offset.next_multiple_of(width);
    let end = (part.offset + part.bytes) / width * width;
    (start < end).then(|| Part { offset: start, bytes: end - start, ..part })
}

/// The first of `items` of each of `groups`, dealt out evenly or wrong as asked.
fn starts_of(items: u64, groups: u64, how: Starts) -> Vec<u64> {
    let mut starts: Vec<u64> = (0..groups).map(|at| at * items / groups).collect();
    match (how, starts.as_mut_slice()) {
        (Starts::NotFromZero, [first, ..]) => *first += 1,
        (Starts::Repeated, [.., before, last]) => *last = *before,
        (Starts::Past, [.., last]) => *last = items,
        _ => {}
    }
    starts
}

fn value_of_host(access: pagewise_hal::HostAccess) -> Option<u8> {
    match access {
        pagewise_hal::HostAccess::Read => None,
        pagewise_hal::HostAccess::Write(value) => Some(value),
    }
}

/// The ordinal that names the same place, if one does.
fn ordinal_of(location: Location) -> Option<i32> {
    match location.kind {
        LocationKind::DEVICE => Some(location.id),
        LocationKind::HOST => Some(Location::ORDINAL_HOST),
        _ => None,
    }
}

fn part_of(buffer: Buffer, part: Stretch) -> Part {
    let Buffer { id: buf, bytes: size, .. } = buffer;
    let share = |of: u64, fraction: u16| of * u64::from(fraction) / 65_536;
    let (offset, bytes) = match part {
        Stretch::Pages { start, length } => {
            let pages = size.div_ceil(PAGE_BYTES);
            let first = share(pages, start);
            let offset = first * PAGE_BYTES;
            let bytes = (1 + share(pages - first, length)) * PAGE_BYTES;
            (offset, bytes.min(size - offset))
        }
        Stretch::Bytes { start, length } => {
            let offset = share(size, start);
            (offset, (1 + share(size - offset, length)).min(size - offset))
        }
        Stretch::Empty => (0, 0),
        Stretch::Past => (0, size + 1),
        Stretch::Whole | Stretch::Freed | Stretch::Wild => (0, size),
    };
    Part { buf, offset, bytes }
}

#[cfg(test)]
mod tests;
