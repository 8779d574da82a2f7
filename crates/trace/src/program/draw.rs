//! Drawing the arguments of steps.

use pagewise_hal::{
    Advice, CopyAttributes, CopyFlags, DeviceAccess, DeviceId, HostAccess, Location, LocationKind,
    PAGE_BYTES, SourceOrder,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

use super::step::{
    AttachPart, BatchStep, CopyBatchStep, FillStart, Grid, Range, Starts, Step, Stretch,
};
use crate::format::{LocationArg, Stream};

const MIB: u64 = 1 << 20;

/// How well-formed arguments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// Nearly always right.
    Right,
    /// Often wrong, in one of several ways.
    Loose,
}

impl Care {
    /// Weight of each way to be wrong, where right arguments have 12 to 20.
    fn wrong(self) -> u32 {
        match self {
            Self::Right => 0,
            Self::Loose => 2,
        }
    }
}

/// A union that takes weights of 0.
fn weighted<T: std::fmt::Debug + 'static>(
    options: Vec<(u32, BoxedStrategy<T>)>,
) -> BoxedStrategy<T> {
    Union::new_weighted(options.into_iter().filter(|(weight, _)| *weight > 0).collect()).boxed()
}

/// Bytes of a buffer: slab sizes, whole blocks, and what lies between.
pub(super) fn managed_bytes() -> BoxedStrategy<u64> {
    weighted(vec![
        (2, (1..=4096u64).boxed()),
        (3, (1..=16u64).prop_map(|pages| pages * PAGE_BYTES).boxed()),
        (2, (4097..2 * MIB).boxed()),
        (4, (1..=4u64).prop_map(|blocks| blocks * 2 * MIB).boxed()),
        (3, (2 * MIB..9 * MIB).boxed()),
    ])
}

pub(super) fn alloc_managed(care: Care) -> BoxedStrategy<Step> {
    let flags = weighted(vec![
        (10, Just(1).boxed()),
        (2, Just(2).boxed()),
        (care.wrong(), select(vec![0, 3, 4, 5, 8]).boxed()),
    ]);
    let bytes = weighted(vec![(12, managed_bytes()), (care.wrong(), Just(0).boxed())]);
    (bytes, flags)
        .prop_map(|(bytes, attach_flags)| Step::AllocManaged { bytes, attach_flags })
        .boxed()
}

pub(super) fn stretch(care: Care) -> BoxedStrategy<Stretch> {
    let wrong = care.wrong();
    let pages = (any::<u16>(), any::<u16>());
    weighted(vec![
        (5, Just(Stretch::Whole).boxed()),
        (8, pages.prop_map(|(start, length)| Stretch::Pages { start, length }).boxed()),
        (
            2,
            (any::<u16>(), any::<u16>())
                .prop_map(|(start, length)| Stretch::Bytes { start, length })
                .boxed(),
        ),
        (wrong, Just(Stretch::Empty).boxed()),
        (wrong, Just(Stretch::Past).boxed()),
        (wrong, Just(Stretch::Freed).boxed()),
        (wrong, Just(Stretch::Wild).boxed()),
    ])
}

pub(super) fn range(care: Care) -> BoxedStrategy<Range> {
    (any::<u16>(), stretch(care)).prop_map(|(nth, part)| Range { nth, part }).boxed()
}

// ---- places -----------------------------------------------------------------------------------

pub(super) fn location(devices: u32, care: Care) -> BoxedStrategy<Location> {
    let raw = |kind, id| Location { kind: LocationKind(kind), id };
    let wrong = care.wrong();
    weighted(vec![
        (8, device(devices).prop_map(|id| Location::device(DeviceId(id))).boxed()),
        (6, Just(Location::HOST).boxed()),
        (1, Just(Location::host_numa(0)).boxed()),
        (1, Just(Location::HOST_NUMA_CURRENT).boxed()),
        (wrong, select(vec![9, 31, -1]).prop_map(|id| Location::device(DeviceId(id))).boxed()),
        (wrong, select(vec![raw(3, 5), raw(0, 0), raw(2, 5), raw(5, 0), raw(7, 0)]).boxed()),
    ])
}

pub(super) fn device(devices: u32) -> BoxedStrategy<i32> {
    (0..devices.max(1).cast_signed()).boxed()
}

pub(super) fn location_arg(devices: u32, care: Care) -> BoxedStrategy<LocationArg> {
    let ordinal = weighted(vec![
        (8, device(devices)),
        (5, Just(Location::ORDINAL_HOST).boxed()),
        (care.wrong(), select(vec![-2, 9, 31]).boxed()),
    ]);
    prop_oneof![
        ordinal.prop_map(LocationArg::Ordinal),
        location(devices, care).prop_map(LocationArg::Location)
    ]
    .boxed()
}

pub(super) fn stream(care: Care) -> BoxedStrategy<Stream> {
    weighted(vec![
        (14, Just(Stream::NonBlocking).boxed()),
        (care.wrong(), Just(Stream::Legacy).boxed()),
    ])
}

fn flags(care: Care) -> BoxedStrategy<u64> {
    weighted(vec![(14, Just(0).boxed()), (care.wrong(), select(vec![1, 2, 1 << 40]).boxed())])
}

// ---- calls ------------------------------------------------------------------------------------

pub(super) fn advise(devices: u32, care: Care) -> BoxedStrategy<Step> {
    let known = select(Advice::ALL.to_vec()).boxed();
    let unknown = select(vec![Advice(0), Advice(7), Advice(99)]).boxed();
    let advice = weighted(vec![(20, known), (care.wrong(), unknown)]);
    (range(care), advice, location_arg(devices, care))
        .prop_map(|(range, advice, location)| Step::Advise { range, advice, location })
        .boxed()
}

pub(super) fn prefetch(devices: u32, care: Care) -> BoxedStrategy<Step> {
    let flags = weighted(vec![(14, Just(0u32).boxed()), (care.wrong(), Just(1u32).boxed())]);
    (range(care), location_arg(devices, care), flags)
        .prop_map(|(range, location, flags)| {
            let flags = matches!(location, LocationArg::Location(_)).then_some(flags);
            Step::Prefetch { range, location, flags }
        })
        .boxed()
}

fn starts(care: Care) -> BoxedStrategy<Starts> {
    weighted(vec![
        (20, Just(Starts::Even).boxed()),
        (care.wrong(), select(vec![Starts::NotFromZero, Starts::Repeated, Starts::Past]).boxed()),
    ])
}

pub(super) fn batch(devices: u32, care: Care) -> BoxedStrategy<BatchStep> {
    let least = usize::from(care == Care::Right);
    (
        prop::collection::vec(range(care), least..=4),
        prop::collection::vec(location(devices, care), least..=3),
        starts(care),
        flags(care),
        stream(care),
    )
        .prop_map(|(ranges, locations, starts, flags, stream)| BatchStep {
            ranges,
            locations,
            starts,
            flags,
            stream,
        })
        .boxed()
}

pub(super) fn discard(care: Care) -> BoxedStrategy<Step> {
    let least = usize::from(care == Care::Right);
    (prop::collection::vec(range(care), least..=3), flags(care), stream(care))
        .prop_map(|(ranges, flags, stream)| Step::DiscardBatch { ranges, flags, stream })
        .boxed()
}

// ---- accesses ---------------------------------------------------------------------------------

fn stride() -> BoxedStrategy<u64> {
    weighted(vec![
        (8, Just(PAGE_BYTES).boxed()),
        (3, Just(2 * PAGE_BYTES).boxed()),
        (3, Just(65_536).boxed()),
        (2, (1..200_000u64).boxed()),
    ])
}

pub(super) fn host_touch() -> BoxedStrategy<Step> {
    let access = prop_oneof![Just(HostAccess::Read), any::<u8>().prop_map(HostAccess::Write)];
    (range(Care::Right), stride(), access)
        .prop_map(|(range, stride, access)| Step::HostTouch { range, stride, access })
        .boxed()
}

pub(super) fn device_touch(devices: u32, parallel: u32) -> BoxedStrategy<Step> {
    let access = prop_oneof![
        3 => Just(DeviceAccess::Read),
        4 => any::<u8>().prop_map(DeviceAccess::Write),
        1 => Just(DeviceAccess::AtomicAdd),
    ];
    let grids = select(vec![(1, 32), (4, 64), (16, 256), (132, 256)]);
    let several = grids.prop_map(|(blocks, threads)| Grid::Parallel { blocks, threads }).boxed();
    let grid = weighted(vec![(8, Just(Grid::Serial).boxed()), (parallel, several)]);
    (device(devices), range(Care::Right), stride(), access, grid)
        .prop_map(|(device, range, stride, access, grid)| Step::DeviceTouch {
            device,
            range,
            stride,
            access,
            grid,
        })
        .boxed()
}

pub(super) fn memset() -> BoxedStrategy<Step> {
    (range(Care::Right), any::<u8>())
        .prop_map(|(range, value)| Step::Memset { range, value })
        .boxed()
}

fn fill_start() -> BoxedStrategy<FillStart> {
    prop_oneof![6 => Just(FillStart::Aligned), 1 => Just(FillStart::Misaligned)].boxed()
}

pub(super) fn memset_d16() -> BoxedStrategy<Step> {
    (range(Care::Right), any::<u16>(), fill_start())
        .prop_map(|(range, value, start)| Step::MemsetD16 { range, value, start })
        .boxed()
}

pub(super) fn memset_d32() -> BoxedStrategy<Step> {
    (range(Care::Right), any::<u32>(), fill_start())
        .prop_map(|(range, value, start)| Step::MemsetD32 { range, value, start })
        .boxed()
}

pub(super) fn memcpy() -> BoxedStrategy<Step> {
    (range(Care::Right), range(Care::Right))
        .prop_map(|(to, from)| Step::Memcpy { to, from })
        .boxed()
}

pub(super) fn memcpy_batch(devices: u32, care: Care) -> BoxedStrategy<Step> {
    let least = usize::from(care == Care::Right);
    let part = || {
        let some = range(Care::Right);
        let none = any::<u16>().prop_map(|nth| Range { nth, part: Stretch::Empty });
        weighted(vec![(40, some), (care.wrong(), none.boxed())])
    };
    (
        prop::collection::vec((part(), part()), least..=4),
        prop::collection::vec(copy_attributes(devices, care), least..=3),
        starts(care),
        stream(care),
    )
        .prop_map(|(copies, attributes, starts, stream)| {
            Step::MemcpyBatch(CopyBatchStep { copies, attributes, starts, stream })
        })
        .boxed()
}

fn copy_attributes(devices: u32, care: Care) -> BoxedStrategy<CopyAttributes> {
    let hint = || {
        // Of hints the driver checks the kind, and the number of a device.
        let no_place = Location { kind: LocationKind(5), id: 0 };
        let wrong = select(vec![no_place, Location::device(DeviceId(9))]);
        weighted(vec![
            (8, Just(Location::NONE).boxed()),
            (8, location(devices, Care::Right)),
            (care.wrong() / 2, wrong.boxed()),
        ])
    };
    let order =
        weighted(vec![(20, (1..=3).boxed()), (care.wrong() / 2, select(vec![0, 4]).boxed())]);
    let flags = weighted(vec![(20, (0..=1u32).boxed()), (care.wrong() / 2, Just(2).boxed())]);
    (order, hint(), hint(), flags)
        .prop_map(|(order, source_hint, destination_hint, flags)| CopyAttributes {
            source_order: SourceOrder(order),
            source_hint,
            destination_hint,
            flags: CopyFlags::from_bits_retain(flags),
        })
        .boxed()
}

pub(super) fn stream_attach() -> BoxedStrategy<Step> {
    let part = prop_oneof![
        4 => Just(AttachPart::Zero),
        3 => Just(AttachPart::Whole),
        1 => Just(AttachPart::FirstPage),
        1 => Just(AttachPart::SecondPage),
    ];
    (any::<u16>(), part, select(vec![1, 2, 4]), stream(Care::Loose))
        .prop_map(|(nth, part, flags, stream)| Step::StreamAttach { nth, part, flags, stream })
        .boxed()
}
