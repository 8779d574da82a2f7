//! Counters: the number of records of each kind, and their bytes.

use crate::Processor;
use crate::event::{CopyCause, MemoryEvent};

/// Copies of pages: how many runs, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Copies {
    /// Runs of adjacent pages, one record each.
    pub runs: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Adds to a sum, and stops at the largest number: records may come from anywhere.
#[inline]
fn count(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl Copies {
    #[inline]
    fn add(&mut self, runs: u64, bytes: u64) {
        count(&mut self.runs, runs);
        count(&mut self.bytes, bytes);
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            runs: self.runs.wrapping_sub(earlier.runs),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
        }
    }
}

/// Bytes of copies one way, by the cause of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BytesByCause {
    /// Bytes that an explicit prefetch or an advice asked for.
    pub user: u64,
    /// Bytes of the faulted pages themselves.
    pub coherence: u64,
    /// Bytes of pages that the prefetcher added to faults.
    pub prefetch: u64,
    /// Bytes that made room on a device.
    pub eviction: u64,
    /// Bytes that access counters asked for.
    pub access_counters: u64,
}

impl BytesByCause {
    fn of(&mut self, cause: CopyCause) -> &mut u64 {
        match cause {
            CopyCause::User => &mut self.user,
            CopyCause::Coherence => &mut self.coherence,
            CopyCause::Prefetch => &mut self.prefetch,
            CopyCause::Eviction => &mut self.eviction,
            CopyCause::AccessCounters => &mut self.access_counters,
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.wrapping_sub(earlier.user),
            coherence: self.coherence.wrapping_sub(earlier.coherence),
            prefetch: self.prefetch.wrapping_sub(earlier.prefetch),
            eviction: self.eviction.wrapping_sub(earlier.eviction),
            access_counters: self.access_counters.wrapping_sub(earlier.access_counters),
        }
    }
}

/// Sums over [`MemoryEvent`]s.
///
/// ```
/// use pagewise_hal::{Counters, FaultAccess, MemoryEvent};
///
/// let mut counters = Counters::default();
/// counters.count(&MemoryEvent::CpuFault { address: 4096, access: FaultAccess::Read });
/// assert_eq!(counters.cpu_faults, 1);
/// assert_eq!(counters.migrated_bytes(), 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Counters {
    /// Faults of the host.
    pub cpu_faults: u64,
    /// Records of faults of devices. A record of many threads stands for several faults.
    pub gpu_faults: u64,
    /// Hardware faults of devices: what their records stand for, all together.
    pub merged_gpu_faults: u64,
    /// Copies from the host to a device.
    pub to_device: Copies,
    /// Copies from a device to the host.
    pub to_host: Copies,
    /// Copies between devices.
    pub between_devices: Copies,
    /// Of all copies, those that an explicit prefetch or an advice asked for.
    pub by_user: Copies,
    /// Of all copies, the faulted pages themselves.
    pub by_fault: Copies,
    /// Of all copies, the pages that the prefetcher added to faults.
    pub by_prefetcher: Copies,
    /// Of all copies, those that made room on a device.
    pub by_eviction: Copies,
    /// Of all copies, those that access counters asked for.
    pub by_access_counters: Copies,
    /// Of the copies from the host to a device, the bytes of each cause.
    pub to_device_by: BytesByCause,
    /// Of the copies from a device to the host, the bytes of each cause.
    pub to_host_by: BytesByCause,
    /// Runs of pages in one processor's memory that another one mapped.
    pub remote_maps: u64,
    /// Pages found to thrash.
    pub thrashing_pages: u64,
    /// Times that a processor had to wait for a thrashing page.
    pub throttles: u64,
    /// Nanoseconds that processors had to wait for thrashing pages, all together.
    pub throttled_ns: u64,
}

impl Counters {
    /// Adds one record.
    #[inline]
    pub fn count(&mut self, event: &MemoryEvent) {
        match *event {
            MemoryEvent::Copy { bytes, from, to, cause, .. } => {
                self.count_copies((from, to), cause, 1, bytes);
            }
            MemoryEvent::CpuFault { .. } => count(&mut self.cpu_faults, 1),
            MemoryEvent::GpuFault { merged, .. } => {
                count(&mut self.gpu_faults, 1);
                count(&mut self.merged_gpu_faults, merged);
            }
            MemoryEvent::RemoteMap { .. } => count(&mut self.remote_maps, 1),
            MemoryEvent::Thrashing { .. } => count(&mut self.thrashing_pages, 1),
            MemoryEvent::Throttling { duration_ns, .. } => {
                count(&mut self.throttles, 1);
                count(&mut self.throttled_ns, duration_ns);
            }
        }
    }

    /// Adds the records of so many copies from one processor to another, for one cause, of so many
    /// bytes together.
    ///
    /// ```
    /// use pagewise_hal::{CopyCause, Counters, Processor};
    ///
    /// let mut counters = Counters::default();
    /// let way = (Processor::HOST, Processor::device(0));
    /// counters.count_copies(way, CopyCause::User, 2, 8192);
    /// assert_eq!((counters.to_device.runs, counters.to_device_by.user), (2, 8192));
    /// ```
    #[inline]
    pub fn count_copies(
        &mut self,
        (from, to): (Processor, Processor),
        cause: CopyCause,
        runs: u64,
        bytes: u64,
    ) {
        let (way, by_cause) = match (from.device_ordinal(), to.device_ordinal()) {
            (None, _) => (&mut self.to_device, Some(&mut self.to_device_by)),
            (_, None) => (&mut self.to_host, Some(&mut self.to_host_by)),
            _ => (&mut self.between_devices, None),
        };
        way.add(runs, bytes);
        if let Some(by_cause) = by_cause {
            count(by_cause.of(cause), bytes);
        }
        self.by_cause(cause).add(runs, bytes);
    }

    fn by_cause(&mut self, cause: CopyCause) -> &mut Copies {
        match cause {
            CopyCause::User => &mut self.by_user,
            CopyCause::Coherence => &mut self.by_fault,
            CopyCause::Prefetch => &mut self.by_prefetcher,
            CopyCause::Eviction => &mut self.by_eviction,
            CopyCause::AccessCounters => &mut self.by_access_counters,
        }
    }

    /// The counts since `earlier`, an older state of the same counters.
    ///
    /// ```
    /// use pagewise_hal::{Counters, FaultAccess, MemoryEvent};
    ///
    /// let mut counters = Counters::default();
    /// let fault = MemoryEvent::CpuFault { address: 4096, access: FaultAccess::Read };
    /// counters.count(&fault);
    /// let earlier = counters;
    /// counters.count(&fault);
    /// assert_eq!(counters.since(&earlier).cpu_faults, 1);
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu_faults: self.cpu_faults.wrapping_sub(earlier.cpu_faults),
            gpu_faults: self.gpu_faults.wrapping_sub(earlier.gpu_faults),
            merged_gpu_faults: self.merged_gpu_faults.wrapping_sub(earlier.merged_gpu_faults),
            to_device: self.to_device.since(earlier.to_device),
            to_host: self.to_host.since(earlier.to_host),
            between_devices: self.between_devices.since(earlier.between_devices),
            by_user: self.by_user.since(earlier.by_user),
            by_fault: self.by_fault.since(earlier.by_fault),
            by_prefetcher: self.by_prefetcher.since(earlier.by_prefetcher),
            by_eviction: self.by_eviction.since(earlier.by_eviction),
            by_access_counters: self.by_access_counters.since(earlier.by_access_counters),
            to_device_by: self.to_device_by.since(earlier.to_device_by),
            to_host_by: self.to_host_by.since(earlier.to_host_by),
            remote_maps: self.remote_maps.wrapping_sub(earlier.remote_maps),
            thrashing_pages: self.thrashing_pages.wrapping_sub(earlier.thrashing_pages),
            throttles: self.throttles.wrapping_sub(earlier.throttles),
            throttled_ns: self.throttled_ns.wrapping_sub(earlier.throttled_ns),
        }
    }

    /// Bytes copied, all ways together.
    #[must_use]
    pub fn migrated_bytes(&self) -> u64 {
        let ways = [self.to_device, self.to_host, self.between_devices];
        ways.iter().fold(0, |sum, way| sum.saturating_add(way.bytes))
    }

    /// Faults of all processors.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.cpu_faults.saturating_add(self.gpu_faults)
    }
}

impl<'a> FromIterator<&'a MemoryEvent> for Counters {
    fn from_iter<I: IntoIterator<Item = &'a MemoryEvent>>(events: I) -> Self {
        events.into_iter().fold(Self::default(), |mut counters, event| {
            counters.count(event);
            counters
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultAccess, Processor};

    #[test]
    fn each_copy_counts_once_by_its_way_and_once_by_its_cause() {
        let gpu = Processor::device(0);
        let copy = |bytes, from, to, cause| MemoryEvent::Copy {
            address: 0,
            bytes,
            from,
            to,
            cause,
            duration_ns: 0,
        };
        let counters: Counters = [
            copy(4096, Processor::HOST, gpu, CopyCause::Coherence),
            copy(61_440, Processor::HOST, gpu, CopyCause::Prefetch),
            copy(8192, gpu, Processor::HOST, CopyCause::Eviction),
            copy(1 << 21, gpu, Processor::device(1), CopyCause::User),
        ]
        .iter()
        .collect();
        assert_eq!(counters.to_device, Copies { runs: 2, bytes: 65_536 });
        assert_eq!(counters.to_host, Copies { runs: 1, bytes: 8192 });
        assert_eq!(counters.between_devices, counters.by_user);
        assert_eq!(counters.by_fault.bytes + counters.by_prefetcher.bytes, 65_536);
        assert_eq!(counters.by_eviction, counters.to_host);
        assert_eq!(counters.migrated_bytes(), 65_536 + 8192 + (1 << 21));
        let to_device = BytesByCause { coherence: 4096, prefetch: 61_440, ..Default::default() };
        let to_host = BytesByCause { eviction: 8192, ..Default::default() };
        assert_eq!((counters.to_device_by, counters.to_host_by), (to_device, to_host));
        assert_eq!(counters.since(&counters), Counters::default());
    }

    #[test]
    fn a_record_of_faults_counts_once_and_its_faults_each() {
        let fault = |merged| MemoryEvent::GpuFault {
            device: Processor::device(0),
            address: 0,
            access: FaultAccess::Write,
            merged,
            duration_ns: 0,
        };
        let counters: Counters = [fault(3), fault(256)].iter().collect();
        assert_eq!((counters.gpu_faults, counters.merged_gpu_faults), (2, 259));
        assert_eq!(counters.since(&counters), Counters::default());
    }
}
