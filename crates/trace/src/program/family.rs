//! Families of random programs: the steps that they draw, and how often.

use std::fmt;
use std::str::FromStr;

use pagewise_hal::AllocationType;
use proptest::prelude::*;
use proptest::sample::select;

use super::draw::{self, Care};
use super::step::Step;

/// The subject of a random program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Arguments, right and wrong, of every call on all kinds of memory; hardly any page moves.
    Calls,
    /// Advice and what it does to faults.
    Advice,
    /// Prefetches, faults of one and of many threads, fills and copies.
    Movement,
    /// Discarding, with and without prefetch.
    Discard,
    /// Memory pools of all types and locations, and moving managed pool memory.
    Pool,
    /// Fills and copies of managed, device and pinned memory.
    Contents,
    /// Memory that belongs to the host or to a stream.
    Attach,
    /// Advice and movement between two devices and more.
    Peer,
    /// Fills with values of 1, 2 and 4 bytes, copies, and batches of copies.
    Copies,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Calls,
        Self::Advice,
        Self::Movement,
        Self::Discard,
        Self::Pool,
        Self::Contents,
        Self::Attach,
        Self::Peer,
        Self::Copies,
    ];

    /// The name, as on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Advice => "advice",
            Self::Movement => "movement",
            Self::Discard => "discard",
            Self::Pool => "pool",
            Self::Contents => "contents",
            Self::Attach => "attach",
            Self::Peer => "peer",
            Self::Copies => "copies",
        }
    }

    /// The subject in a few words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Calls => "right and wrong arguments of every call on all kinds of memory",
            Self::Advice => "advice, and what it does to faults",
            Self::Movement => "prefetches, faults of one and of many threads, fills and copies",
            Self::Discard => "discarding, with and without prefetch",
            Self::Pool => "memory pools of all types and locations",
            Self::Contents => "fills and copies of managed, device and pinned memory",
            Self::Attach => "memory that belongs to the host or to a stream",
            Self::Peer => "advice and movement between two devices and more",
            Self::Copies => "fills with values of 1, 2 and 4 bytes, copies, and batches of copies",
        }
    }

    /// Devices without which its programs show nothing.
    #[must_use]
    pub const fn least_devices(self) -> u32 {
        match self {
            Self::Peer => 2,
            _ => 1,
        }
    }

    /// Draws one step for a machine with so many devices.
    pub(super) fn step(self, devices: u32) -> BoxedStrategy<Step> {
        match self {
            Self::Calls => calls(devices),
            Self::Advice => advice(devices),
            Self::Movement => movement(devices),
            Self::Discard => discard(devices),
            Self::Pool => pool(devices),
            Self::Contents => contents(devices),
            Self::Attach => attach(),
            Self::Peer => peer(devices),
            Self::Copies => copies(devices),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|family| family.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{name}` is no family: there are {names}")
        })
    }
}

fn free() -> BoxedStrategy<Step> {
    any::<u16>().prop_map(|nth| Step::Free { nth }).boxed()
}

fn reads(care: Care) -> BoxedStrategy<Step> {
    draw::range(care).prop_map(|range| Step::RangeAttributes { range }).boxed()
}

fn calls(devices: u32) -> BoxedStrategy<Step> {
    let care = Care::Loose;
    let other = || prop_oneof![Just(65_536u64), 1..3_000_000u64];
    prop_oneof![
        4 => draw::alloc_managed(care),
        1 => other().prop_map(|bytes| Step::AllocDevice { bytes }),
        1 => other().prop_map(|bytes| Step::AllocPinned { bytes }),
        2 => free(),
        8 => draw::advise(devices, care),
        6 => draw::prefetch(devices, care),
        3 => draw::batch(devices, care).prop_map(Step::PrefetchBatch),
        2 => draw::batch(devices, care).prop_map(Step::DiscardPrefetchBatch),
        2 => draw::discard(care),
        7 => reads(care),
        3 => draw::range(care).prop_map(|range| Step::PointerAttributes { range }),
        1 => draw::host_touch(),
    ]
    .boxed()
}

fn advice(devices: u32) -> BoxedStrategy<Step> {
    let care = Care::Right;
    prop_oneof![
        2 => draw::alloc_managed(care),
        1 => free(),
        8 => draw::advise(devices, care),
        5 => draw::host_touch(),
        5 => draw::device_touch(devices, 0),
        2 => draw::prefetch(devices, care),
        3 => reads(care),
    ]
    .boxed()
}

fn movement(devices: u32) -> BoxedStrategy<Step> {
    let care = Care::Right;
    prop_oneof![
        2 => draw::alloc_managed(care),
        1 => free(),
        5 => draw::host_touch(),
        6 => draw::device_touch(devices, 1),
        5 => draw::prefetch(devices, care),
        2 => draw::batch(devices, care).prop_map(Step::PrefetchBatch),
        1 => draw::memset(),
        1 => draw::memcpy(),
        1 => draw::advise(devices, care),
    ]
    .boxed()
}

fn discard(devices: u32) -> BoxedStrategy<Step> {
    let care = Care::Right;
    prop_oneof![
        2 => draw::alloc_managed(care),
        1 => free(),
        5 => draw::host_touch(),
        5 => draw::device_touch(devices, 0),
        2 => draw::prefetch(devices, care),
        4 => draw::discard(care),
        3 => draw::batch(devices, care).prop_map(Step::DiscardPrefetchBatch),
        1 => draw::advise(devices, care),
        1 => reads(care),
    ]
    .boxed()
}

fn contents(devices: u32) -> BoxedStrategy<Step> {
    let care = Care::Right;
    prop_oneof![
        3 => draw::alloc_managed(care),
        1 => draw::managed_bytes().prop_map(|bytes| Step::AllocDevice { bytes }),
        1 => draw::managed_bytes().prop_map(|bytes| Step::AllocPinned { bytes }),
        1 => free(),
        5 => draw::memset(),
        6 => draw::memcpy(),
        4 => draw::host_touch(),
        3 => draw::device_touch(devices, 0),
        2 => draw::prefetch(devices, care),
        2 => draw::advise(devices, care),
    ]
    .boxed()
}

fn attach() -> BoxedStrategy<Step> {
    let care = Care::Right;
    let host = draw::managed_bytes();
    prop_oneof![
        1 => draw::alloc_managed(care),
        2 => host.prop_map(|bytes| Step::AllocManaged { bytes, attach_flags: 2 }),
        1 => free(),
        6 => draw::stream_attach(),
        4 => draw::host_touch(),
        4 => draw::device_touch(1, 0),
        3 => draw::prefetch(1, care),
        1 => draw::memset(),
        1 => draw::memcpy(),
        2 => reads(care),
    ]
    .boxed()
}

fn peer(devices: u32) -> BoxedStrategy<Step> {
    let care = Care::Right;
    prop_oneof![
        2 => draw::alloc_managed(care),
        1 => free(),
        3 => draw::host_touch(),
        9 => draw::device_touch(devices, 0),
        5 => draw::prefetch(devices, care),
        1 => draw::batch(devices, care).prop_map(Step::PrefetchBatch),
        5 => draw::advise(devices, care),
        2 => reads(care),
    ]
    .boxed()
}

fn copies(devices: u32) -> BoxedStrategy<Step> {
    let care = Care::Right;
    prop_oneof![
        4 => draw::alloc_managed(care),
        1 => draw::managed_bytes().prop_map(|bytes| Step::AllocDevice { bytes }),
        1 => draw::managed_bytes().prop_map(|bytes| Step::AllocPinned { bytes }),
        1 => free(),
        1 => draw::memset(),
        4 => draw::memset_d16(),
        4 => draw::memset_d32(),
        1 => draw::memcpy(),
        8 => draw::memcpy_batch(devices, Care::Loose),
        4 => draw::host_touch(),
        3 => draw::device_touch(devices, 0),
        2 => draw::prefetch(devices, care),
        1 => draw::advise(devices, care),
    ]
    .boxed()
}

fn pool(devices: u32) -> BoxedStrategy<Step> {
    let care = Care::Right;
    let nth = any::<u16>;
    let bytes = || prop_oneof![4 => draw::managed_bytes(), 1 => 9_000_000..40_000_000u64];
    let threshold = || select(vec![0, 1, 2 << 20, 32 << 20, 48 << 20, 64 << 20, u64::MAX]);
    prop_oneof![
        2 => pool_create(devices),
        6 => (nth(), bytes()).prop_map(|(nth, bytes)| Step::PoolAlloc { nth, bytes }),
        3 => nth().prop_map(|nth| Step::PoolFree { nth }),
        6 => draw::prefetch(devices, care),
        5 => draw::host_touch(),
        4 => draw::device_touch(1, 0),
        1 => draw::memset(),
        3 => reads(care),
        1 => draw::range(care).prop_map(|range| Step::PointerAttributes { range }),
        3 => nth().prop_map(|nth| Step::PoolAttributes { nth }),
        1 => (nth(), 1..=8i32, threshold())
            .prop_map(|(nth, attribute, value)| Step::PoolSetAttribute { nth, attribute, value }),
        1 => (nth(), threshold()).prop_map(|(nth, bytes)| Step::PoolTrimTo { nth, bytes }),
        1 => (nth(), draw::location(devices, Care::Loose), select(vec![0, 1, 3]))
            .prop_map(|(nth, location, access)| Step::PoolSetAccess { nth, location, access }),
        1 => (nth(), draw::location(devices, Care::Loose))
            .prop_map(|(nth, location)| Step::PoolGetAccess { nth, location }),
    ]
    .boxed()
}

fn pool_create(devices: u32) -> BoxedStrategy<Step> {
    let kind = prop_oneof![
        1 => Just(AllocationType::PINNED),
        3 => Just(AllocationType::MANAGED),
    ];
    let max_bytes = prop_oneof![6 => Just(0u64), 1 => select(vec![100u64, 33 << 20, 64 << 20])];
    let handle_types = prop_oneof![8 => Just(0u32), 1 => 1..=2u32];
    (kind, draw::location(devices, Care::Right), handle_types, max_bytes)
        .prop_map(|(kind, location, handle_types, max_bytes)| Step::PoolCreate {
            kind,
            location,
            handle_types,
            max_bytes,
        })
        .boxed()
}
