//! Machines without concurrent managed access: Windows, WSL 2, and devices before Pascal.
//!
//! Such a device cannot fault, so what it may touch has to be there before it starts, and the host
//! has to keep away until it is done. The model:
//!
//! - Managed memory lives on the device and can fill it, but not exceed it (PAGING-260). With
//!   several devices that are no peers it lives on the host, and they reach it there.
//! - The host's accesses fault page by page with the usual prefetch tree; before each program of the
//!   device everything that it may touch comes back as a whole (PAGING-261).
//! - Until work in flight is waited for, the host may touch only managed memory that is attached to
//!   it or to an idle stream (PAGING-262). Where a real process ends with a segmentation fault, the
//!   program here is refused.
//! - Prefetching and advice that names a device fail, as do batch calls, default and current
//!   managed pools (CONTRACT-110). Other advice is remembered and changes nothing.
//!
//! None of it was compared with hardware by this project.

use std::collections::BTreeMap;

use pagewise_hal::{EventHandle, Processor, StreamHandle};

use crate::attachments::{Attached, key};
use crate::config::SimConfig;
use crate::link::PeerLink;

/// The memory of a machine without concurrent managed access.
#[derive(Debug)]
pub(crate) struct Exclusive {
    /// Where managed memory lives.
    pub(crate) home: Processor,
    /// Memory that managed memory takes there, in bytes.
    pub(crate) managed_bytes: u64,
    /// Work that was not waited for: the number of a stream's last, by stream.
    pub(crate) working: BTreeMap<u64, u64>,
    /// The work that an event waits for: stream and number of its last work, by event.
    pub(crate) recorded: BTreeMap<u64, (u64, u64)>,
    pub(crate) last_work: u64,
}

impl Exclusive {
    /// `None` if the machine's devices have concurrent managed access, or it has no devices.
    pub(crate) fn of(config: &SimConfig) -> Option<Self> {
        if config.gpu.attributes.concurrent_managed_access || config.devices == 0 {
            return None;
        }
        let peers = config.devices == 1 || config.gpu.peer_link != PeerLink::None;
        Some(Self {
            home: if peers { Processor::device(0) } else { Processor::HOST },
            managed_bytes: 0,
            working: BTreeMap::new(),
            recorded: BTreeMap::new(),
            last_work: 0,
        })
    }

    /// Memory of a processor that managed memory takes, in bytes.
    pub(crate) fn bytes_on(&self, processor: Processor) -> u64 {
        if processor == self.home { self.managed_bytes } else { 0 }
    }

    /// Work was given to a stream, and the call returns before it is done.
    pub(crate) fn started(&mut self, stream: StreamHandle) {
        self.last_work += 1;
        self.working.insert(key(stream), self.last_work);
    }

    /// An event was recorded.
    pub(crate) fn recorded(&mut self, event: EventHandle, stream: StreamHandle) {
        let stream = key(stream);
        let work = self.working.get(&stream).copied().unwrap_or(0);
        self.recorded.insert(event.as_raw(), (stream, work));
    }

    /// The program waited for an event, or learnt that it has happened.
    pub(crate) fn waited_for_event(&mut self, event: EventHandle) {
        let Some((stream, work)) = self.recorded.get(&event.as_raw()) else { return };
        if self.working.get(stream).is_some_and(|last| last <= work) {
            self.working.remove(stream);
        }
    }

    /// Whether the host has to keep away from an allocation that is attached so.
    pub(crate) fn is_in_use(&self, attached: Attached) -> bool {
        match attached {
            Attached::Global => !self.working.is_empty(),
            Attached::Host => false,
            Attached::Stream(stream) => self.working.contains_key(&stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use pagewise_hal::{CopyCause, MemoryEvent, PAGE_BYTES};

    use super::*;
    use crate::paging::{
        Access, GpuMemory, Holding, PageMask, Paging, Relations, ReportSink, Work,
    };
    use crate::profile::GpuProfile;

    const GPU: Processor = Processor::device(0);

    #[derive(Default)]
    struct Log {
        to_device_kib: Vec<u64>,
        to_host_kib: Vec<u64>,
        cpu_faults: u64,
    }

    impl ReportSink for Log {
        fn record(&mut self, record: MemoryEvent) {
            match record {
                MemoryEvent::Copy { bytes, to: GPU, cause, .. } => {
                    assert_eq!(cause, CopyCause::User);
                    self.to_device_kib.push(bytes / 1024);
                }
                MemoryEvent::Copy { bytes, .. } => self.to_host_kib.push(bytes / 1024),
                MemoryEvent::CpuFault { .. } => self.cpu_faults += 1,
                other => panic!("unexpected record {other:?}"),
            }
        }

        fn work(&mut self, _: &Work) -> u64 {
            0
        }

        fn fault_latency_ns(&mut self, _: Processor, _: u64) -> u64 {
            0
        }

        fn holding(&mut self, _: u64, _: PageMask, _: Processor, _: Holding) {}
    }

    /// `y = x + y` over 2 x 2^20 floats, as NVIDIA's "Unified Memory for CUDA Beginners" prints it
    /// for a K80, and public nvprof logs of the same program for a TITAN X, an 840M and an M1200: 6
    /// copies to the device of at most 2 MiB, 8 MiB in all; 102 copies to the host of 4 to 1020 KiB,
    /// 12 MiB in all; 51 CPU faults. The smallest copy tells where in its 2 MiB each array began.
    #[test]
    fn the_published_add_on_devices_without_faults_is_reproduced() {
        for smallest_kib in [768, 896] {
            let profile = GpuProfile::named("wsl").expect("a shipped profile");
            let relations = Relations::new(profile.host_link, profile.peer_link, 1);
            let gpus = [GpuMemory { capacity_bytes: profile.usable_bytes() }];
            let mut paging = Paging::new(profile.paging, &gpus, relations);
            let mut log = Log::default();
            let offset = 512 - smallest_kib * 1024 / PAGE_BYTES;
            let [x, y] = [offset, 4096 + offset].map(|first| first..first + 1024);
            for array in [&x, &y] {
                paging.create_range(array.start, 1024);
                paging.migrate(array.clone(), GPU, 0, &mut log);
            }
            let host = |paging: &mut Paging, array: &Range<u64>, access, log: &mut Log| {
                array.clone().for_each(|page| {
                    paging.touch(Processor::HOST, page, access, 0, log);
                });
            };
            host(&mut paging, &x, Access::Write, &mut log);
            host(&mut paging, &y, Access::Write, &mut log);
            for array in [&x, &y] {
                paging.migrate(array.clone(), GPU, 0, &mut log);
            }
            for (array, access) in [(&x, Access::Read), (&y, Access::Write)] {
                for page in array.clone() {
                    assert_eq!(paging.touch(GPU, page, access, 0, &mut log).faults, 0);
                }
            }
            host(&mut paging, &y, Access::Read, &mut log);

            let bounds =
                |copies: &[u64]| (copies.iter().min().copied(), copies.iter().max().copied());
            assert_eq!(log.to_device_kib.len(), 6);
            assert_eq!(log.to_device_kib.iter().sum::<u64>(), 8 * 1024);
            assert_eq!(bounds(&log.to_device_kib), (Some(smallest_kib), Some(2048)));
            assert_eq!(log.to_host_kib.len(), 102);
            assert_eq!(log.to_host_kib.iter().sum::<u64>(), 12 * 1024);
            assert_eq!(bounds(&log.to_host_kib), (Some(4), Some(1020)));
            assert_eq!(log.cpu_faults, 51);
        }
    }
}
