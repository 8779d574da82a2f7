//! Processors by dense number, sets of them, and how they reach each other's memory.
//!
//! Number 0 is the host, n + 1 is GPU n: the driver breaks ties by the lowest number, so this
//! order is part of the policy. [`Relations`] is data; nothing here decides what is done with it.
//! PAGING-8 to PAGING-10 are the driver's rules.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "the host is -1 outside and 0 here, devices follow; an empty set has no lowest"
)]

use pagewise_hal::Processor;

use crate::link::{HostLink, PeerLink};

/// A processor: 0 the host, n + 1 GPU n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcId(pub(crate) u8);

impl ProcId {
    /// The host.
    pub(crate) const HOST: Self = Self(0);

    /// Whether this is the host.
    #[inline]
    pub(crate) fn is_host(self) -> bool {
        self == Self::HOST
    }

    /// Position in tables that have one entry per processor.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl From<Processor> for ProcId {
    #[inline]
    fn from(processor: Processor) -> Self {
        Self((processor.as_raw() + 1) as u8)
    }
}

impl From<ProcId> for Processor {
    #[inline]
    fn from(id: ProcId) -> Self {
        match id.0 {
            0 => Self::HOST,
            n => Self::device(u32::from(n) - 1),
        }
    }
}

/// A set of at most 64 processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProcSet(u64);

impl ProcSet {
    /// No processor.
    pub(crate) const EMPTY: Self = Self(0);

    /// One processor.
    pub(crate) fn single(id: ProcId) -> Self {
        Self(1 << id.0)
    }

    /// The first `count` processors.
    pub(crate) fn first(count: usize) -> Self {
        Self(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// Whether a processor is in the set.
    pub(crate) fn contains(self, id: ProcId) -> bool {
        self.0 >> id.0 & 1 != 0
    }

    /// Adds a processor.
    pub(crate) fn insert(&mut self, id: ProcId) {
        self.0 |= 1 << id.0;
    }

    /// Removes a processor.
    pub(crate) fn remove(&mut self, id: ProcId) {
        self.0 &= !(1 << id.0);
    }

    /// The set with one more processor.
    pub(crate) fn with(mut self, id: ProcId) -> Self {
        self.insert(id);
        self
    }

    /// The set without a processor.
    pub(crate) fn without(mut self, id: ProcId) -> Self {
        self.remove(id);
        self
    }

    /// The members of either set.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members of both sets.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether every processor of this set is in `other`.
    pub(crate) fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The processor with the lowest number.
    pub(crate) fn lowest(self) -> Option<ProcId> {
        (self.0 != 0).then(|| ProcId(self.0.trailing_zeros() as u8))
    }

    /// The processors, lowest number first.
    pub(crate) fn iter(mut self) -> impl Iterator<Item = ProcId> {
        std::iter::from_fn(move || {
            let id = self.lowest()?;
            self.0 &= self.0 - 1;
            Some(id)
        })
    }

    /// The GPUs, as a bit mask by ordinal.
    pub(crate) fn gpu_bits(self) -> u64 {
        self.0 >> 1
    }
}

/// How the processors of one machine reach each other's memory. One entry per processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relations {
    /// The processors with memory that the processor can access.
    access: Vec<ProcSet>,
    /// The processors with native atomics on the processor's memory.
    native_atomics: Vec<ProcSet>,
    /// The processors with memory that can be copied into the processor's without a detour.
    copies_from: Vec<ProcSet>,
    /// To whom the processor has a fast link, itself included.
    fast_link: Vec<ProcSet>,
}

impl Relations {
    /// A host with `gpus` GPUs that are linked so (PAGING-8). NVLink peers are peers from the
    /// first call on (PAGING-9).
    pub(crate) fn new(host_link: HostLink, peer_link: PeerLink, gpus: usize) -> Self {
        let host = ProcSet::single(ProcId::HOST);
        let all_gpus = ProcSet::first(gpus + 1).without(ProcId::HOST);
        let peers_of = |gpu: ProcId| match peer_link {
            PeerLink::Nvlink { .. } => all_gpus,
            PeerLink::None => ProcSet::single(gpu),
        };
        // What a property that crosses the host link adds, if it does.
        let host_if = |crosses: bool| if crosses { host } else { ProcSet::EMPTY };
        let gpus_if = |crosses: bool| if crosses { all_gpus } else { ProcSet::EMPTY };
        let coherent = host_link.is_coherent();
        let atomics = host_link.has_native_atomics();
        let table = |of_host: ProcSet, also: ProcSet| {
            let of_gpu = (1..=gpus).map(|n| peers_of(ProcId(n as u8)).or(also));
            std::iter::once(of_host).chain(of_gpu).collect()
        };
        Self {
            access: table(host.or(gpus_if(coherent)), host),
            native_atomics: table(host.or(gpus_if(atomics)), host_if(atomics)),
            copies_from: table(host.or(all_gpus), host),
            fast_link: table(host.or(gpus_if(coherent)), host_if(coherent)),
        }
    }

    /// A PCIe host with `gpus` GPUs that are NVLink peers of each other, as the H200's.
    #[cfg(test)]
    pub(crate) fn pcie_with_nvlink(gpus: usize) -> Self {
        let host_link = HostLink::Pcie { generation: 5, lanes: 16 };
        Self::new(host_link, PeerLink::Nvlink { generation: 4 }, gpus)
    }

    /// How many processors there are.
    pub(crate) fn count(&self) -> usize {
        self.access.len()
    }

    /// Whether `by` can access memory of `owner`.
    pub(crate) fn can_access(&self, by: ProcId, owner: ProcId) -> bool {
        self.access[by.index()].contains(owner)
    }

    /// The processors with memory that all of `by` can access.
    pub(crate) fn common_access(&self, by: ProcSet) -> ProcSet {
        by.iter().fold(ProcSet::first(self.count()), |set, id| set.and(self.access[id.index()]))
    }

    /// The processors with native atomics on memory of `owner`.
    pub(crate) fn native_atomics_on(&self, owner: ProcId) -> ProcSet {
        self.native_atomics[owner.index()]
    }

    /// The processors with memory that can be copied into memory of `owner` directly.
    pub(crate) fn copies_from(&self, owner: ProcId) -> ProcSet {
        self.copies_from[owner.index()]
    }

    /// The processors with a fast link to `owner`, itself included.
    pub(crate) fn fast_link_to(&self, owner: ProcId) -> ProcSet {
        self.fast_link[owner.index()]
    }

    /// The member of `set` that is closest to `to`: itself; GPUs with a fast link, then the host
    /// with one; accessible GPUs, then the host; else the lowest number (PAGING-10).
    pub(crate) fn closest(&self, to: ProcId, set: ProcSet) -> Option<ProcId> {
        if set.contains(to) {
            return Some(to);
        }
        let gpus_first = |set: ProcSet| set.without(ProcId::HOST).lowest().or_else(|| set.lowest());
        gpus_first(set.and(self.fast_link[to.index()]))
            .or_else(|| gpus_first(set.and(self.access[to.index()])))
            .or_else(|| set.lowest())
    }

    /// The members of `set`, closest to `to` first.
    pub(crate) fn by_closeness(
        &self,
        to: ProcId,
        mut set: ProcSet,
    ) -> impl Iterator<Item = ProcId> + use<'_> {
        std::iter::from_fn(move || {
            let next = self.closest(to, set)?;
            set.remove(next);
            Some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU0: ProcId = ProcId(1);
    const GPU1: ProcId = ProcId(2);

    #[test]
    fn numbers_follow_the_hal() {
        for raw in [Processor::HOST, Processor::device(0), Processor::device(7)] {
            assert_eq!(Processor::from(ProcId::from(raw)), raw);
        }
        assert_eq!(ProcId::from(Processor::device(0)), GPU0);
    }

    #[test]
    fn closest_is_itself_then_a_peer_then_the_host() {
        let relations = Relations::pcie_with_nvlink(2);
        let set = ProcSet::first(3);
        let order = |to| relations.by_closeness(to, set).collect::<Vec<_>>();
        assert_eq!(order(GPU1), [GPU1, GPU0, ProcId::HOST]);
        assert_eq!(order(ProcId::HOST), [ProcId::HOST, GPU0, GPU1]);
        assert_eq!(relations.closest(GPU0, ProcSet::EMPTY), None);
    }

    #[test]
    fn a_coherent_link_reaches_both_ways_and_carries_atomics() {
        let c2c = HostLink::NvlinkC2c { native_atomics: true };
        let relations = Relations::new(c2c, PeerLink::None, 2);
        assert!(
            relations.can_access(ProcId::HOST, GPU1) && relations.can_access(GPU1, ProcId::HOST)
        );
        assert!(relations.native_atomics_on(ProcId::HOST).contains(GPU0));
        assert!(relations.native_atomics_on(GPU0).contains(ProcId::HOST));
        assert_eq!(relations.closest(GPU1, ProcSet::first(2)), Some(ProcId::HOST));
    }

    #[test]
    fn who_can_be_copied_from_directly_is_closer_than_who_cannot() {
        let links = [
            HostLink::Pcie { generation: 5, lanes: 16 },
            HostLink::NvlinkC2c { native_atomics: false },
            HostLink::NvlinkC2c { native_atomics: true },
        ];
        for host_link in links {
            for peer_link in [PeerLink::None, PeerLink::Nvlink { generation: 4 }] {
                let relations = Relations::new(host_link, peer_link, 3);
                for to in ProcSet::first(4).iter() {
                    let order = relations.by_closeness(to, ProcSet::first(4));
                    let direct: Vec<_> =
                        order.map(|id| relations.copies_from(to).contains(id)).collect();
                    assert!(direct.is_sorted_by(|a, b| a >= b), "{host_link:?}: {direct:?}");
                }
            }
        }
    }

    #[test]
    fn without_a_peer_link_gpus_reach_each_other_through_the_host_only() {
        let pcie = HostLink::Pcie { generation: 4, lanes: 8 };
        let relations = Relations::new(pcie, PeerLink::None, 2);
        assert!(!relations.can_access(GPU0, GPU1));
        assert!(!relations.copies_from(GPU0).contains(GPU1));
        assert!(relations.copies_from(GPU0).contains(ProcId::HOST));
        assert!(!relations.native_atomics_on(GPU0).contains(GPU1));
    }

    #[test]
    fn the_host_reaches_no_gpu_memory_and_gpus_reach_everything() {
        let relations = Relations::pcie_with_nvlink(2);
        assert!(!relations.can_access(ProcId::HOST, GPU0));
        assert!(relations.can_access(GPU0, GPU1) && relations.can_access(GPU0, ProcId::HOST));
        assert!(relations.native_atomics_on(GPU0).contains(GPU1));
        assert!(!relations.native_atomics_on(ProcId::HOST).contains(GPU0));
        assert_eq!(
            relations.common_access(ProcSet::first(2)),
            ProcSet::single(ProcId::HOST),
            "host and GPU share host memory only"
        );
    }
}
