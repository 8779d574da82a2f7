//! From steps to operations that are safe, whatever the steps.

use pagewise_hal::{
    AllocationType, DeviceAccess, DriverVersion, Location, LocationKind, PAGE_BYTES,
};

use super::step::{AttachPart, BatchStep, Grid, Range, Starts, Step, Stretch};
use super::{MAX_LIVE_BUFFERS, MAX_LIVE_BYTES, MAX_SERIAL_ACCESSES};
use crate::format::{Batch, Op, Part, Place, Stream};

/// An address that belongs to nothing, and the id that stands for no buffer.
const WILD: Part = Part { buf: 77, offset: 0x1234_5678_9000, bytes: PAGE_BYTES };

/// What the machine offers that runs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// How many devices there are.
    pub devices: u32,
    /// The version whose entry points are used. Before 12.2 places are ordinals; before 13.0 a
    /// batch becomes single prefetches, as back ends may but need not offer it.
    pub version: DriverVersion,
}

/// Turns steps into operations. Steps that make no sense where they stand are left out.
#[must_use]
pub fn lower(steps: &[Step], machine: Machine) -> Vec<Op> {
    let mut lowering = Lowering {
        machine,
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
    machine: Machine,
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
            &Step::Advise { range, advice, place } => {
                let (Some(part), place) = (self.any(range), self.place(place)) else { return };
                self.moving(Op::Advise { part, advice, place });
            }
            &Step::Prefetch { range, place, flags } => {
                let (Some(part), place) = (self.any(range), self.place(place)) else { return };
                let flags = flags.filter(|_| matches!(place, Place::Location(_)));
                self.moving(Op::Prefetch { part, place, flags });
            }
            &Step::HostTouch { .. } | &Step::DeviceTouch { .. } => self.touch(step),
            &Step::Memset { range, value } => {
                let Some(part) = self.touchable(range) else { return };
                self.moving(Op::Memset { part, value, stream: Some(Stream::NonBlocking) });
            }
            &Step::Memcpy { to, from } => self.memcpy(to, from),
            &Step::StreamAttach { nth, part, flags, stream } => {
                self.attach(nth, part, flags, stream);
            }
            &Step::RangeAttributes { range } => {
                let Some(part) = self.any(range) else { return };
                self.ops.push(Op::RangeAttributes { part });
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
            self.live.push(Buffer { id: buf, bytes, kind: Kind::Managed });
        }
    }

    fn alloc_other(&mut self, kind: Kind, bytes: u64, op: impl FnOnce(u32) -> Op) {
        if bytes > 0 && self.has_room(bytes) {
            let buf = self.next_id();
            self.ops.push(op(buf));
            self.live.push(Buffer { id: buf, bytes, kind });
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
        let buffers = self.of_kind(|kind| match kind {
            Kind::Managed => true,
            Kind::Pool(at) => self.pools[at].open,
            Kind::Device | Kind::Pinned => false,
        });
        let part = match range.part {
            right @ (Stretch::Whole | Stretch::Pages { .. } | Stretch::Bytes { .. }) => right,
            _ => Stretch::Whole,
        };
        Some(part_of(nth(&buffers, range.nth)?, part))
    }

    fn place(&self, place: Place) -> Place {
        match place {
            Place::Location(location) if self.machine.version < DriverVersion::CUDA_12_2 => {
                ordinal_of(location).map_or(place, Place::Ordinal)
            }
            place => place,
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
                let access = match access {
                    DeviceAccess::AtomicAdd if self.discarded => DeviceAccess::Write(1),
                    access => access,
                };
                let value = match access {
                    DeviceAccess::Write(value) => Some(value),
                    _ => None,
                };
                let (blocks, threads, stride) = match grid {
                    Grid::Serial => (1, 1, stride.max(part.bytes.div_ceil(MAX_SERIAL_ACCESSES))),
                    Grid::Parallel { blocks, threads } => (blocks, threads, stride),
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

    fn memcpy(&mut self, to: Range, from: Range) {
        let (Some(to), Some(from)) = (self.touchable(to), self.touchable(from)) else { return };
        let bytes = to.bytes.min(from.bytes);
        let apart = |a: Part, b: Part| a.offset + bytes <= b.offset;
        if to.buf != from.buf || apart(to, from) || apart(from, to) {
            let (to, from) = ((to.buf, to.offset), (from.buf, from.offset));
            self.moving(Op::Memcpy { to, from, bytes, stream: Some(Stream::NonBlocking) });
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
            Step::PrefetchBatch(batch) if self.machine.version < DriverVersion::CUDA_13_0 => {
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
        let even = |at: u64| at * ranges_count / places;
        let mut location_starts: Vec<u64> = (0..places).map(even).collect();
        match (step.starts, location_starts.as_mut_slice()) {
            (Starts::NotFromZero, [first, ..]) => *first += 1,
            (Starts::Repeated, [.., before, last]) => *last = *before,
            (Starts::Past, [.., last]) => *last = ranges_count,
            _ => {}
        }
        Batch { ranges, locations, location_starts, flags: step.flags, stream: step.stream }
    }

    fn single_prefetches(&mut self, batch: &BatchStep) {
        for (&range, &location) in batch.ranges.iter().zip(batch.locations.iter().cycle()) {
            let Some(part) = self.any(range) else { continue };
            let place = self.place(Place::Location(location));
            let flags = matches!(place, Place::Location(_)).then_some(0);
            self.moving(Op::Prefetch { part, place, flags });
        }
    }

    // ---- pools --------------------------------------------------------------------------------

    fn pool_step(&mut self, step: &Step) {
        if let &Step::PoolCreate { kind, location, handle_types, max_bytes } = step {
            self.pool_create(kind, location, handle_types, max_bytes);
            return;
        }
        if self.pools.is_empty() {
            self.pool_create(AllocationType::MANAGED, Location::HOST, 0, 0);
        }
        let count = self.pools.len();
        let at = |which: &u16| usize::from(*which) % count;
        match step {
            Step::PoolAlloc { nth: which, bytes } => self.pool_alloc(at(which), *bytes),
            Step::PoolFree { nth: which } => {
                let buffers = self.of_kind(|kind| matches!(kind, Kind::Pool(_)));
                let Some(buffer) = nth(&buffers, *which) else { return };
                self.moving(Op::PoolFree { buf: buffer.id });
                self.forget(buffer);
            }
            Step::PoolAttributes { nth } => {
                self.ops.push(Op::PoolAttributes { pool: self.pools[at(nth)].id });
            }
            &Step::PoolSetAttribute { ref nth, attribute, value } => {
                let pool = self.pools[at(nth)].id;
                self.ops.push(Op::PoolSetAttribute { pool, attribute, value });
            }
            &Step::PoolTrimTo { ref nth, bytes } => {
                self.ops.push(Op::PoolTrimTo { pool: self.pools[at(nth)].id, bytes });
            }
            &Step::PoolSetAccess { ref nth, location, access } => {
                let pool = &mut self.pools[at(nth)];
                // Whoever has no access any more must not touch; nobody says whose it is.
                pool.open &= access == 3;
                self.ops.push(Op::PoolSetAccess { pool: pool.id, location, access });
            }
            &Step::PoolGetAccess { ref nth, location } => {
                self.ops.push(Op::PoolGetAccess { pool: self.pools[at(nth)].id, location });
            }
            _ => unreachable!("a pool step"),
        }
    }

    fn pool_create(
        &mut self,
        kind: AllocationType,
        location: Location,
        handle_types: u32,
        max_bytes: u64,
    ) {
        let id = self.pools.len() as u32;
        self.ops.push(Op::PoolCreate { pool: id, kind, location, handle_types, max_bytes });
        let known = match location.kind {
            LocationKind::DEVICE => (0..self.machine.devices.cast_signed()).contains(&location.id),
            LocationKind::HOST_NUMA => location.id == 0,
            LocationKind::HOST | LocationKind::HOST_NUMA_CURRENT | LocationKind::INVALID => true,
            _ => false,
        };
        let open = known
            && kind == AllocationType::MANAGED
            && handle_types == 0
            && max_bytes == 0
            && self.machine.version >= DriverVersion::CUDA_13_0;
        self.pools.push(Pool { id, open });
    }

    fn pool_alloc(&mut self, at: usize, bytes: u64) {
        if bytes == 0 || !self.has_room(bytes) {
            return;
        }
        let buf = self.next_id();
        self.moving(Op::PoolAlloc { buf, pool: self.pools[at].id, bytes });
        self.live.push(Buffer { id: buf, bytes, kind: Kind::Pool(at) });
    }
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
            let count = 1 + share(pages - first, length);
            let offset = first * PAGE_BYTES;
            (offset, (count * PAGE_BYTES).min(size - offset))
        }
        Stretch::Bytes { start, length } => {
            let offset = share(size, start);
            (offset, 1 + share(size - offset, length))
        }
        Stretch::Empty => (0, 0),
        Stretch::Past => (0, size + 1),
        Stretch::Whole | Stretch::Freed | Stretch::Wild => (0, size),
    };
    Part {
        buf,
        offset,
        bytes: bytes.min(if part == Stretch::Past { u64::MAX } else { size - offset }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::{Family, RandomProgram};
    use super::*;

    fn programs() -> impl Strategy<Value = Vec<Op>> {
        let version = prop::sample::select(vec![12000, 12020, 12080, 13000]);
        (any::<u64>(), prop::sample::select(Family::ALL.to_vec()), 1..=2u32, version).prop_map(
            |(seed, family, devices, version)| {
                let machine = Machine { devices, version: DriverVersion(version) };
                let case = RandomProgram::new(family, seed, 0, 60, machine).case();
                case.ops.into_iter().map(|line| line.record.op).collect()
            },
        )
    }

    /// Sizes of the managed buffers that live, by id.
    fn managed_at_each(ops: &[Op]) -> Vec<BTreeMap<u32, u64>> {
        let mut live = BTreeMap::new();
        let after = |op: &Op| {
            match *op {
                Op::AllocManaged { buf, bytes, attach_flags: 1 | 2 } if bytes > 0 => {
                    live.insert(buf, bytes);
                }
                Op::PoolAlloc { buf, bytes, .. } => _ = live.insert(buf, bytes),
                Op::Free { buf } | Op::PoolFree { buf } => _ = live.remove(&buf),
                _ => {}
            }
            live.clone()
        };
        ops.iter().map(after).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn accesses_stay_within_live_buffers_and_end_soon(ops in programs()) {
            for (op, live) in ops.iter().zip(managed_at_each(&ops)) {
                let inside = |part: Part| {
                    live.get(&part.buf).is_some_and(|&size| part.offset + part.bytes <= size)
                };
                match *op {
                    Op::HostTouch { part, stride, .. } => {
                        prop_assert!(inside(part) && part.bytes > 0);
                        prop_assert!(part.bytes.div_ceil(stride) <= MAX_SERIAL_ACCESSES);
                    }
                    Op::DeviceTouch { part, stride, blocks, threads, .. } => {
                        prop_assert!(inside(part) && part.bytes > 0);
                        let serial = blocks * threads == 1;
                        let few = part.bytes.div_ceil(stride) <= MAX_SERIAL_ACCESSES;
                        prop_assert!(!serial || few);
                    }
                    Op::Memset { part, .. } => prop_assert!(inside(part)),
                    Op::Memcpy { to, from, bytes, .. } => {
                        let part = |(buf, offset)| Part { buf, offset, bytes };
                        prop_assert!(inside(part(to)) && inside(part(from)));
                        prop_assert!(to.0 != from.0 || to.1.abs_diff(from.1) >= bytes);
                    }
                    _ => {}
                }
            }
        }

        #[test]
        fn memory_is_bounded_and_ids_are_used_once(ops in programs()) {
            for live in managed_at_each(&ops) {
                prop_assert!(live.values().sum::<u64>() <= MAX_LIVE_BYTES);
                prop_assert!(live.len() <= MAX_LIVE_BUFFERS);
            }
            let ids: Vec<u32> = ops.iter().filter_map(Op::allocates).collect();
            prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(!ids.contains(&WILD.buf));
        }

        #[test]
        fn what_would_end_the_process_is_never_asked(ops in programs()) {
            let mut discarded = false;
            for (op, live) in ops.iter().zip(managed_at_each(&ops)) {
                discarded |= matches!(op, Op::DiscardBatch { .. } | Op::DiscardPrefetchBatch(_));
                match op {
                    Op::StreamAttach { part, flags, .. } => {
                        prop_assert!(matches!(flags, 1 | 2 | 4) && live.contains_key(&part.buf));
                    }
                    Op::DeviceTouch { access: DeviceAccess::AtomicAdd, .. } => {
                        prop_assert!(!discarded);
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn every_part_of_a_program_is_a_program() {
        let machine = Machine { devices: 2, version: DriverVersion::CUDA_13_0 };
        for family in Family::ALL {
            let mut program = RandomProgram::new(family, 1, 2, 40, machine);
            let mut sizes = Vec::new();
            // Everything fails: what is left is the smallest program there is.
            let smallest = program.shrink(10_000, |case| {
                sizes.push(case.ops.len());
                true
            });
            assert!(smallest.ops.len() <= 4, "{family}: {:?}", smallest.ops);
            assert!(sizes.len() > 5, "{family}");
        }
    }

    #[test]
    fn the_same_seed_and_number_give_the_same_program_and_others_another() {
        let machine = Machine { devices: 1, version: DriverVersion::CUDA_13_0 };
        let case =
            |seed, number| RandomProgram::new(Family::Movement, seed, number, 40, machine).case();
        assert_eq!(case(5, 7), case(5, 7));
        assert_ne!(case(5, 7).ops, case(5, 8).ops);
        assert_ne!(case(5, 7).ops, case(6, 7).ops);
    }
}
