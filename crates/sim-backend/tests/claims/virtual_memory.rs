//! Virtual memory management: random programs beside a plain model, and the memory of the device.

use std::collections::BTreeMap;

use pagewise_hal::{
    AccessFlags, Backend, BackendExt, Code, DeviceAccess, DeviceId, DevicePtr, DeviceTouch,
    DriverVersion, Granularity, HandleTypes, Location, MemoryAccess, MemoryHandle, MemoryProps,
    Span, StreamHandle,
};
use pagewise_sim::{GpuProfile, PeerLink, SimBackend, SimConfig};
use proptest::prelude::*;

use crate::oversubscription::{CAPACITY, WrittenMemory, small_gpu};

const UNIT: u64 = 2 << 20;
const GPU: Location = Location::device(DeviceId(0));
const STREAM: StreamHandle = StreamHandle::PER_THREAD;

fn code<T>(answer: pagewise_hal::Result<T>) -> i32 {
    answer.map_or_else(|error| error.code().unwrap_or(-1), |_| Code::SUCCESS)
}

fn taken(sim: &SimBackend) -> u64 {
    let info = sim.memory_info(DeviceId(0)).unwrap();
    info.total_bytes - info.free_bytes
}

fn touch(sim: &SimBackend, span: Span, access: DeviceAccess) -> pagewise_hal::Result<u64> {
    let device = DeviceId(0);
    let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
    // SAFETY: only the test uses the memory, from one thread.
    unsafe { sim.device_touch(touch, STREAM) }
}

/// PAGING-217: managed pages make way for physical memory from its creation on, mapped or not, as
/// for a plain allocation.
#[test]
fn managed_pages_make_way_for_physical_memory_as_for_a_plain_allocation() {
    let evicted = |take: fn(&SimBackend)| {
        let memory = WrittenMemory::new(small_gpu(CAPACITY), CAPACITY);
        take(&memory.sim);
        memory.counted(|| memory.sim.prefetch_to(memory.span, GPU).unwrap()).by_eviction.bytes
    };
    let none = evicted(|_| {});
    let plain = evicted(|sim| {
        sim.alloc_device(DeviceId(0), CAPACITY / 2).unwrap();
    });
    let physical = |sim: &SimBackend| sim.memory_create(CAPACITY / 2, MemoryProps::at(GPU));
    let created = evicted(|sim| {
        sim.memory_create(CAPACITY / 2, MemoryProps::at(GPU)).unwrap();
    });
    assert_eq!((none, created), (0, plain));
    assert!(plain > 0);
    let sim = SimBackend::new(SimConfig::new(small_gpu(CAPACITY))).unwrap();
    let made = physical(&sim).unwrap();
    assert!(physical(&sim).is_ok());
    assert_eq!(code(physical(&sim)), Code::OUT_OF_MEMORY);
    // SAFETY: the handle is not used again.
    unsafe { sim.memory_release(made) }.unwrap();
    assert!(physical(&sim).is_ok(), "there is room again");
}

#[test]
fn only_peers_get_access_to_memory_of_another_device() {
    let linked = GpuProfile::h200();
    let apart = GpuProfile { peer_link: PeerLink::None, ..linked.clone() };
    for (gpu, expected) in [(apart, Code::INVALID_DEVICE), (linked, Code::SUCCESS)] {
        let sim = SimBackend::new(SimConfig::new(gpu).devices(2)).unwrap();
        let span = Span::new(sim.address_reserve(UNIT, 0, DevicePtr::NULL).unwrap(), UNIT);
        let memory = sim.memory_create(UNIT, MemoryProps::at(GPU)).unwrap();
        let location = Location::device(DeviceId(1));
        let wanted = [MemoryAccess { location, access: AccessFlags::READ }];
        // SAFETY: only the test uses the memory.
        let answer = unsafe {
            sim.memory_map(span, 0, memory).unwrap();
            sim.memory_set_access(span, &wanted)
        };
        assert_eq!(code(answer), expected);
        let access = if expected == 0 { AccessFlags::READ } else { AccessFlags::NONE };
        assert_eq!(sim.memory_access(span.ptr, location), Ok(access));
    }
}

/// An H200 without an IMEX channel answers 800 to memory for fabric handles, and takes bits that
/// name no type of handle.
#[test]
fn memory_for_fabric_handles_is_not_permitted() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let create = |handle_types| {
        code(sim.memory_create(UNIT, MemoryProps { handle_types, ..MemoryProps::at(GPU) }))
    };
    assert_eq!(create(HandleTypes::FABRIC), Code::NOT_PERMITTED);
    assert_eq!(create(HandleTypes::from_bits_retain(16)), Code::SUCCESS);
    let mut gpu = GpuProfile::h200();
    gpu.attributes.mempool_supported_handle_types = 0;
    let sim = SimBackend::new(SimConfig::new(gpu)).unwrap();
    let handle_types = HandleTypes::POSIX_FILE_DESCRIPTOR;
    let refused = sim.memory_create(UNIT, MemoryProps { handle_types, ..MemoryProps::at(GPU) });
    assert_eq!(code(refused), Code::NOT_SUPPORTED);
}

#[test]
fn addresses_beside_an_aligned_reservation_stay_free() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let reserve = |align, hint| sim.address_reserve(UNIT, align, hint).unwrap();
    let first = reserve(0, DevicePtr::NULL);
    let aligned = reserve(64 * UNIT, DevicePtr::NULL);
    assert_eq!(aligned.0, (first.0 + UNIT).next_multiple_of(64 * UNIT));
    let [before, after] = [first, aligned].map(|ptr| ptr.offset(UNIT));
    for free in [before, after].into_iter().filter(|ptr| *ptr != aligned) {
        assert_eq!(reserve(0, free), free);
    }
}

#[test]
fn a_hint_that_is_not_aligned_as_asked_is_not_taken() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let reserve = |bytes, align, hint| sim.address_reserve(bytes, align, hint).unwrap();
    let all = Span::new(reserve(128 * UNIT, 64 * UNIT, DevicePtr::NULL), 128 * UNIT);
    // SAFETY: the test does not use the addresses.
    unsafe { sim.address_free(all) }.unwrap();
    for offset in [1, 63] {
        let hint = all.ptr.offset(offset * UNIT);
        let ptr = reserve(UNIT, 64 * UNIT, hint);
        assert!(ptr != hint && ptr.0.is_multiple_of(64 * UNIT), "{ptr:?} for {hint:?}");
    }
    let hint = all.ptr.offset(256 * UNIT);
    assert_eq!(reserve(UNIT, 64 * UNIT, hint), hint);
}

/// Fills and copies that cross from one mapping into the next, of memory that has its bytes at
/// another address.
#[test]
fn fills_and_copies_reach_memory_through_every_mapping_of_it() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let base = sim.address_reserve(4 * UNIT, 0, DevicePtr::NULL).unwrap();
    let at = |offset, bytes| Span::new(base.offset(offset), bytes);
    let admitted = [MemoryAccess { location: GPU, access: AccessFlags::READ_WRITE }];
    let memories = [(); 2].map(|()| sim.memory_create(UNIT, MemoryProps::at(GPU)).unwrap());
    // SAFETY: only this test knows the memory and its addresses, and it has one thread.
    unsafe {
        // The first two units show the same memory as the last two.
        for (place, memory) in [0, 1, 2, 3].into_iter().zip(memories.iter().cycle()) {
            sim.memory_map(at(place * UNIT, UNIT), 0, *memory).unwrap();
        }
        sim.memory_set_access(at(0, 4 * UNIT), &admitted).unwrap();
    }
    let sum = |span| touch(&sim, span, DeviceAccess::Read).unwrap();
    let crossing = |start| at(start + UNIT - 8192, 16384);
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.memset(crossing(0), 1, STREAM) }.unwrap();
    assert_eq!((sum(crossing(0)), sum(crossing(2 * UNIT))), (4, 4));
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.memset_d16(crossing(0), 0x0202, STREAM) }.unwrap();
    assert_eq!((sum(crossing(0)), sum(crossing(2 * UNIT))), (8, 8));
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.memset_d32(crossing(0), 0x0303_0303, STREAM) }.unwrap();
    assert_eq!((sum(crossing(0)), sum(crossing(2 * UNIT))), (12, 12));
    let (from, to) = (at(UNIT - 4096, 8192), at(2 * UNIT + 65536, 8192));
    // SAFETY: only this test uses the memory, from one thread, and the ranges are apart.
    unsafe { sim.memcpy(to.ptr, from.ptr, 8192, STREAM) }.unwrap();
    assert_eq!((sum(to), sum(at(65536, 8192))), (6, 6));
}

/// A range of units, each mapped to the memory of the same number, that the device may write.
fn mapped(sim: &SimBackend, memories: &[MemoryHandle]) -> Span {
    let bytes = memories.len() as u64 * UNIT;
    let span = Span::new(sim.address_reserve(bytes, 0, DevicePtr::NULL).unwrap(), bytes);
    for (ptr, memory) in (0..).map(|unit| span.ptr.offset(unit * UNIT)).zip(memories) {
        // SAFETY: only the test uses the memory.
        unsafe { sim.memory_map(Span::new(ptr, UNIT), 0, *memory) }.unwrap();
    }
    let wanted = [MemoryAccess { location: GPU, access: AccessFlags::READ_WRITE }];
    // SAFETY: only the test uses the memory.
    unsafe { sim.memory_set_access(span, &wanted) }.unwrap();
    span
}

#[test]
fn memory_keeps_its_bytes_in_whichever_order_its_mappings_go() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let sim = SimBackend::new(SimConfig::h200()).unwrap();
        let memory = sim.memory_create(UNIT, MemoryProps::at(GPU)).unwrap();
        let span = mapped(&sim, &[memory; 3]);
        let at = |place: u64| Span::new(span.ptr.offset(place * UNIT), UNIT);
        touch(&sim, at(0), DeviceAccess::Write(5)).unwrap();
        for (gone, place) in order.into_iter().enumerate() {
            for &left in &order[gone..] {
                assert_eq!(touch(&sim, at(left), DeviceAccess::Read), Ok(5 * UNIT / 4096));
            }
            // SAFETY: only the test uses the memory.
            unsafe { sim.memory_unmap(at(place)) }.unwrap();
        }
        let again = mapped(&sim, &[memory]);
        assert_eq!(touch(&sim, again, DeviceAccess::Read), Ok(5 * UNIT / 4096), "{order:?}");
    }
}

/// CONTRACT-120, CONTRACT-121
#[test]
fn sizes_are_whole_units_and_at_least_one() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let props = MemoryProps::at(GPU);
    for bytes in [0, 1, UNIT - 1, UNIT + 4096] {
        assert_eq!(code(sim.address_reserve(bytes, 0, DevicePtr::NULL)), Code::INVALID_VALUE);
        assert_eq!(code(sim.memory_create(bytes, props)), Code::INVALID_VALUE, "{bytes} bytes");
    }
    let granularity = |which| sim.memory_granularity(props, Granularity(which)).ok();
    assert_eq!([0, 1, 2, -1].map(granularity), [Some(UNIT), Some(UNIT), None, None]);
}

/// CONTRACT-122
#[test]
fn memory_is_mapped_as_a_whole_and_what_is_beside_it_is_not_mapped() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let base = sim.address_reserve(4 * UNIT, 0, DevicePtr::NULL).unwrap();
    let at = |offset, bytes| Span::new(base.offset(offset), bytes);
    let memory = sim.memory_create(2 * UNIT, MemoryProps::at(GPU)).unwrap();
    let all = at(UNIT, 2 * UNIT);
    // SAFETY: only the test uses the memory.
    let map = |span, offset| code(unsafe { sim.memory_map(span, offset, memory) });
    assert_eq!(map(all, UNIT), Code::NOT_SUPPORTED);
    assert_eq!(map(at(UNIT, UNIT), 0), Code::NOT_SUPPORTED);
    assert_eq!(map(all, 0), Code::SUCCESS);
    let wanted = [MemoryAccess { location: GPU, access: AccessFlags::READ_WRITE }];
    for (span, expected) in [(at(UNIT, 0), 1), (at(UNIT, UNIT), 1), (at(0, 2 * UNIT), 1), (all, 0)]
    {
        // SAFETY: only the test uses the memory.
        assert_eq!(code(unsafe { sim.memory_set_access(span, &wanted) }), expected, "{span}");
    }
    let codes = [0, UNIT - 1, UNIT, 3 * UNIT - 1, 3 * UNIT, 4 * UNIT - 1]
        .map(|offset| code(sim.memory_access(base.offset(offset), GPU)));
    assert_eq!(codes, [1, 1, 0, 0, 1, 1]);
    for (span, expected) in [(at(UNIT, 0), 1), (at(2 * UNIT, UNIT), 1), (all, 0)] {
        // SAFETY: only the test uses the memory.
        assert_eq!(code(unsafe { sim.memory_unmap(span) }), expected, "{span}");
    }
}

/// CONTRACT-122
#[test]
fn a_mapping_gives_the_handle_of_its_memory_which_is_released_once_more() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let before = taken(&sim);
    let base = sim.address_reserve(4 * UNIT, 0, DevicePtr::NULL).unwrap();
    let memory = sim.memory_create(2 * UNIT, MemoryProps::at(GPU)).unwrap();
    let retain = |offset| sim.memory_retain(base.offset(offset)).ok();
    // SAFETY: the handle is used afterwards, and the simulator refuses it then.
    let release = || code(unsafe { sim.memory_release(memory) });
    let span = |offset| Span::new(base.offset(offset), 2 * UNIT);
    // SAFETY: only the test uses the memory.
    let map = |offset| code(unsafe { sim.memory_map(span(offset), 0, memory) });
    assert_eq!(retain(0), None, "nothing is mapped");
    assert_eq!(map(0), Code::SUCCESS);
    let found = [0, UNIT + 12_345, 2 * UNIT - 1, 2 * UNIT].map(retain);
    assert_eq!(found, [Some(memory), Some(memory), Some(memory), None]);
    assert_eq!([(); 3].map(|()| release()), [Code::SUCCESS; 3]);
    assert_eq!(map(2 * UNIT), Code::SUCCESS, "one reference is left");
    assert_eq!([release(), release()], [Code::SUCCESS, Code::INVALID_VALUE]);
    assert_eq!(retain(0), Some(memory), "the mapping keeps the memory");
    assert_eq!(taken(&sim), before + 2 * UNIT);
    assert_eq!(release(), Code::SUCCESS);
    // SAFETY: only the test uses the memory.
    assert_eq!(code(unsafe { sim.memory_unmap(Span::new(base, 4 * UNIT)) }), Code::SUCCESS);
    assert_eq!((release(), retain(0), taken(&sim)), (Code::INVALID_VALUE, None, before));
    assert_eq!(code(sim.memory_retain(DevicePtr::NULL)), Code::INVALID_VALUE);
}

/// CONTRACT-120
#[test]
fn memory_of_the_host_takes_a_driver_that_has_it_and_as_a_whole_is_not_exported() {
    let fd = HandleTypes::POSIX_FILE_DESCRIPTOR;
    for (version, node, whole) in [(12_000, 1, 1), (12_020, 0, 1), (12_090, 0, 1), (13_000, 0, 0)] {
        let config = SimConfig::h200().driver_version(DriverVersion(version));
        let sim = SimBackend::new(config).unwrap();
        let create = |location, handle_types| {
            code(sim.memory_create(UNIT, MemoryProps { handle_types, ..MemoryProps::at(location) }))
        };
        let none = HandleTypes::empty();
        let numa = Location::host_numa(0);
        assert_eq!([create(numa, none), create(numa, fd)], [node; 2], "CUDA {version}");
        assert_eq!([create(Location::HOST, none), create(Location::HOST, fd)], [whole, 1]);
        let windows = [HandleTypes::WIN32, HandleTypes::WIN32_KMT].map(|types| create(GPU, types));
        assert_eq!(windows, [1, 1]);
    }
}

/// CONTRACT-123
#[test]
fn without_a_link_devices_reach_their_own_memory_and_the_hosts_and_the_host_its_own() {
    let answer = |version, home, location| {
        let gpu = GpuProfile { peer_link: PeerLink::None, ..GpuProfile::h200() };
        let config = SimConfig::new(gpu).devices(2).driver_version(DriverVersion(version));
        let sim = SimBackend::new(config).unwrap();
        let span = Span::new(sim.address_reserve(UNIT, 0, DevicePtr::NULL).unwrap(), UNIT);
        let memory = sim.memory_create(UNIT, MemoryProps::at(home)).unwrap();
        let wanted = [MemoryAccess { location, access: AccessFlags::READ }];
        // SAFETY: only the test uses the memory.
        code(unsafe {
            sim.memory_map(span, 0, memory).unwrap();
            sim.memory_set_access(span, &wanted)
        })
    };
    let (second, node) = (Location::device(DeviceId(1)), Location::host_numa(0));
    for (home, location, expected) in [
        (GPU, GPU, Code::SUCCESS),
        (GPU, second, Code::INVALID_DEVICE),
        (GPU, node, Code::NOT_SUPPORTED),
        (GPU, Location::HOST, Code::NOT_SUPPORTED),
        (node, second, Code::SUCCESS),
        (node, node, Code::SUCCESS),
        (node, Location::HOST, Code::SUCCESS),
    ] {
        assert_eq!(answer(13_000, home, location), expected, "{location:?} of {home:?}");
    }
    assert_eq!(answer(12_000, GPU, Location::HOST), Code::INVALID_VALUE, "an unknown place");
}

/// A step of a random program. Numbers name what there is, by its place in a list.
#[derive(Debug, Clone)]
enum Step {
    Reserve { units: u64, align: u64 },
    Unreserve { which: usize, whole: bool },
    Create { units: u64 },
    Release { which: usize },
    Map { reservation: usize, offset: u64, memory: usize },
    Unmap { which: usize, units: u64 },
    Admit { which: usize, units: u64, flags: i32 },
    Write { which: usize, units: u64, value: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = any::<usize>;
    let step = prop_oneof![
        2 => (1..5_u64, 0..4_u32).prop_map(|(units, n)| {
            Step::Reserve { units, align: if n == 0 { 0 } else { UNIT << n } }
        }),
        1 => (number(), prop::bool::weighted(0.8))
            .prop_map(|(which, whole)| Step::Unreserve { which, whole }),
        3 => (1..3_u64).prop_map(|units| Step::Create { units }),
        1 => number().prop_map(|which| Step::Release { which }),
        6 => (number(), 0..4_u64, number())
            .prop_map(|(reservation, offset, memory)| Step::Map { reservation, offset, memory }),
        2 => (number(), 1..4_u64).prop_map(|(which, units)| Step::Unmap { which, units }),
        4 => (number(), 1..4_u64, prop::sample::select(vec![3, 3, 3, 1, 0, 2]))
            .prop_map(|(which, units, flags)| Step::Admit { which, units, flags }),
        6 => (number(), 1..4_u64, any::<u8>())
            .prop_map(|(which, units, value)| Step::Write { which, units, value }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Physical memory of the model: the byte that each unit of it is filled with.
#[derive(Debug)]
struct Memory {
    held: bool,
    units: Vec<u8>,
}

/// The model: everything in units of 2 MiB.
#[derive(Debug, Default)]
struct Model {
    reserved: BTreeMap<u64, u64>,
    memories: BTreeMap<MemoryHandle, Memory>,
    /// Address to memory and access.
    mapped: BTreeMap<u64, (MemoryHandle, i32)>,
}

fn pick<T: Copy>(of: impl Iterator<Item = T>, which: usize) -> Option<T> {
    let all: Vec<T> = of.collect();
    (!all.is_empty()).then(|| all[which % all.len()])
}

impl Model {
    fn units(&self, at: u64) -> u64 {
        self.memories[&self.mapped[&at].0].units.len() as u64
    }

    /// The mappings that a range is made of, if it is made of whole ones.
    fn whole(&self, start: u64, units: u64) -> Option<Vec<u64>> {
        let (mut next, end) = (start, start + units * UNIT);
        let mut found = Vec::new();
        while next < end {
            self.mapped.get(&next)?;
            found.push(next);
            next += self.units(next) * UNIT;
        }
        (next == end).then_some(found)
    }

    /// The mappings in a range of one reservation, if none of them is cut.
    fn uncut(&self, start: u64, units: u64) -> Option<Vec<u64>> {
        let end = start + units * UNIT;
        let (at, long) = self.reserved.range(..=start).next_back()?;
        let cut =
            |(&at, end_of): (&u64, u64)| at < end && start < end_of && (at < start || end < end_of);
        let is_cut = self.mapped.keys().any(|at| cut((at, at + self.units(*at) * UNIT)));
        let may = end <= at + long * UNIT && !is_cut;
        may.then(|| self.mapped.range(start..end).map(|(&at, _)| at).collect())
    }

    /// The memory and the number of each unit of a range, with the access to it.
    fn at(&self, start: u64, units: u64) -> Option<Vec<(MemoryHandle, usize, i32)>> {
        (0..units)
            .map(|unit| {
                let address = start + unit * UNIT;
                let (&at, &(memory, flags)) = self.mapped.range(..=address).next_back()?;
                let number = (address - at) / UNIT;
                (number < self.units(at)).then_some((memory, number as usize, flags))
            })
            .collect()
    }

    fn can_map(&self, start: u64, units: u64) -> bool {
        let end = start + units * UNIT;
        let reservation = self.reserved.range(..=start).next_back();
        reservation.is_some_and(|(at, long)| end <= at + long * UNIT)
            && self.mapped.keys().all(|&at| end <= at || at + self.units(at) * UNIT <= start)
    }

    /// Memory without handle and mapping goes.
    fn forget(&mut self) {
        let is_mapped = |memory: &MemoryHandle| self.mapped.values().any(|(of, _)| of == memory);
        let gone = |(handle, memory): (&MemoryHandle, &Memory)| {
            (!memory.held && !is_mapped(handle)).then_some(*handle)
        };
        let gone: Vec<MemoryHandle> = self.memories.iter().filter_map(gone).collect();
        self.memories.retain(|handle, _| !gone.contains(handle));
    }
}

/// Carries a step out on both, and says whether the machine has to take it and whether it did.
fn carry_out(sim: &SimBackend, model: &mut Model, step: &Step) -> Option<(bool, bool)> {
    Some(match *step {
        Step::Reserve { units, align } => {
            let made = sim.address_reserve(units * UNIT, align, DevicePtr::NULL).ok()?;
            assert_eq!(made.0 % align.max(UNIT), 0);
            let apart = |(&at, &long): (&u64, &u64)| {
                made.0 + units * UNIT <= at || at + long * UNIT <= made.0
            };
            assert!(model.reserved.iter().all(apart), "addresses are reserved once");
            model.reserved.insert(made.0, units);
            (true, true)
        }
        Step::Unreserve { which, whole } => {
            let at = pick(model.reserved.keys().copied(), which)?;
            let units = model.reserved[&at];
            let end = at + units * UNIT;
            let may = whole && model.mapped.range(at..end).next().is_none();
            let bytes = if whole { units * UNIT } else { units * UNIT + 4096 };
            // SAFETY: only this program knows the memory and its addresses, and it has one thread.
            let done = unsafe { sim.address_free(Span::new(DevicePtr(at), bytes)) }.is_ok();
            if may {
                model.reserved.remove(&at);
            }
            (may, done)
        }
        Step::Create { units } => {
            let made = sim.memory_create(units * UNIT, MemoryProps::at(GPU)).ok()?;
            let memory = Memory { held: true, units: vec![0; units as usize] };
            assert!(model.memories.insert(made, memory).is_none(), "a handle is new");
            (true, true)
        }
        Step::Release { which } => {
            let handle = pick(model.memories.keys().copied(), which)?;
            // SAFETY: only this program knows the memory and its addresses, and it has one thread.
            let done = unsafe { sim.memory_release(handle) }.is_ok();
            let memory = model.memories.get_mut(&handle)?;
            let may = std::mem::replace(&mut memory.held, false);
            model.forget();
            (may, done)
        }
        Step::Map { reservation, offset, memory } => {
            let reservation = pick(model.reserved.keys().copied(), reservation)?;
            let handle = pick(model.memories.keys().copied(), memory)?;
            let (units, start) =
                (model.memories[&handle].units.len() as u64, reservation + offset * UNIT);
            let may = model.memories[&handle].held && model.can_map(start, units);
            let span = Span::new(DevicePtr(start), units * UNIT);
            // SAFETY: only this program knows the memory and its addresses, and it has one thread.
            let done = unsafe { sim.memory_map(span, 0, handle) }.is_ok();
            if may {
                model.mapped.insert(start, (handle, 0));
            }
            (may, done)
        }
        Step::Unmap { which, units } => {
            let at = pick(model.mapped.keys().copied(), which)?;
            let whole = model.uncut(at, units);
            // SAFETY: only this program knows the memory and its addresses, and it has one thread.
            let done = unsafe { sim.memory_unmap(Span::new(DevicePtr(at), units * UNIT)) }.is_ok();
            let may = whole.is_some();
            let gone = whole.unwrap_or_default();
            model.mapped.retain(|at, _| !gone.contains(at));
            model.forget();
            (may, done)
        }
        Step::Admit { which, units, flags } => {
            let at = pick(model.mapped.keys().copied(), which)?;
            let whole = model.whole(at, units).filter(|_| flags != 2);
            let wanted = [MemoryAccess { location: GPU, access: AccessFlags(flags) }];
            let span = Span::new(DevicePtr(at), units * UNIT);
            // SAFETY: only this program knows the memory and its addresses, and it has one thread.
            let done = unsafe { sim.memory_set_access(span, &wanted) }.is_ok();
            let may = whole.is_some();
            for at in whole.into_iter().flatten() {
                model.mapped.get_mut(&at)?.1 = flags;
            }
            (may, done)
        }
        Step::Write { which, units, value } => {
            let at = pick(model.mapped.keys().copied(), which)?;
            let touched = model.at(at, units);
            let may = touched.iter().flatten().all(|(.., flags)| *flags == 3) && touched.is_some();
            let span = Span::new(DevicePtr(at), units * UNIT);
            let done = touch(sim, span, DeviceAccess::Write(value)).is_ok();
            if may {
                for (memory, unit, _) in touched.into_iter().flatten() {
                    model.memories.get_mut(&memory)?.units[unit] = value;
                }
            }
            (may, done)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(16),
        ..ProptestConfig::with_cases(64)
    })]

    #[test]
    fn random_programs_of_mappings_do_what_a_plain_model_does(steps in steps()) {
        let sim = SimBackend::new(SimConfig::h200())?;
        let (mut model, before) = (Model::default(), taken(&sim));
        for step in &steps {
            let state = sim.state();
            let Some((may, done)) = carry_out(&sim, &mut model, step) else { continue };
            prop_assert_eq!(may, done, "{:?}", step);
            if !done {
                prop_assert_eq!(sim.state(), state, "{:?} was refused", step);
            }
            let units: usize = model.memories.values().map(|memory| memory.units.len()).sum();
            prop_assert_eq!(taken(&sim) - before, units as u64 * UNIT);
            for &at in model.mapped.keys() {
                let access = sim.memory_access(DevicePtr(at), GPU);
                prop_assert_eq!(access, Ok(AccessFlags(model.mapped[&at].1)));
            }
        }
        // Each address reads the bytes that were written to its memory, through whichever address.
        for (&at, &(memory, flags)) in &model.mapped {
            let units = &model.memories[&memory].units;
            let span = Span::new(DevicePtr(at), units.len() as u64 * UNIT);
            let read = touch(&sim, span, DeviceAccess::Read);
            let sum: u64 = units.iter().map(|&value| u64::from(value) * (UNIT / 4096)).sum();
            prop_assert_eq!(read.ok(), (flags != 0).then_some(sum));
        }
    }
}
