//! CUPTI's unified-memory record, and what it says.

use pagewise_hal::{CopyCause, FaultAccess, MapCause, MemoryEvent, Processor};

/// `CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER`.
pub(super) const UNIFIED_MEMORY_COUNTER: u32 = 25;

/// `CUpti_ActivityUnifiedMemoryCounter2`, all of the record before CUPTI 12.8. From 12.8 on the
/// record is `CUpti_ActivityUnifiedMemoryCounter3`: the same, then a bit mask of 320 processors,
/// which only more than 31 devices need. CUPTI itself steps from record to record, so the longer
/// one is read by its common part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct UnifiedMemoryCounter {
    pub(super) kind: u32,
    pub(super) counter_kind: u32,
    pub(super) value: u64,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) address: u64,
    /// Processors: devices by ordinal. The host is all ones in remote maps and 0 in copies (H200,
    /// CUPTI 13.0).
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) stream: u32,
    pub(super) process: u32,
    /// Access, cause, or whether the host is concerned, by kind.
    pub(super) flags: u32,
    pub(super) reserved: u32,
}

const _: () =
    assert!(size_of::<UnifiedMemoryCounter>() == 64 && align_of::<UnifiedMemoryCounter>() == 8);

/// `CUpti_ActivityUnifiedMemoryCounterConfig`. Scope and device are not used since CUDA 7.0, but
/// must be valid.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct CounterConfig {
    pub(super) scope: u32,
    pub(super) kind: u32,
    pub(super) device: u32,
    pub(super) enable: u32,
}

const _: () = assert!(size_of::<CounterConfig>() == 16);

impl CounterConfig {
    /// `CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_SINGLE_DEVICE`.
    const SCOPE: u32 = 1;

    pub(super) fn new(kind: u32, enable: bool) -> Self {
        Self { scope: Self::SCOPE, kind, device: 0, enable: u32::from(enable) }
    }
}

impl UnifiedMemoryCounter {
    /// The record as an event, or `None` if it has a number that this version does not know.
    pub(super) fn event(&self) -> Option<MemoryEvent> {
        let (address, bytes) = (self.address, self.value);
        let duration_ns = self.end_ns.saturating_sub(self.start_ns);
        let (source, destination) = (processor(self.source), processor(self.destination));
        let copy = |from, to| {
            let cause = copy_cause(self.flags)?;
            Some(MemoryEvent::Copy { address, bytes, from, to, cause, duration_ns })
        };
        Some(match self.counter_kind {
            // The kind says which side is the host; its number there is 0, as if it were a device.
            1 => copy(Processor::HOST, destination)?,
            2 => copy(source, Processor::HOST)?,
            8 => copy(source, destination)?,
            3 => MemoryEvent::CpuFault { address, access: fault_access(self.flags)? },
            4 => MemoryEvent::GpuFault {
                device: source,
                address,
                access: fault_access(self.flags)?,
                merged: self.value,
                duration_ns,
            },
            5 => MemoryEvent::Thrashing {
                address,
                bytes,
                gpus: u64::from(self.source),
                host: self.flags & 1 != 0,
            },
            6 => {
                let host = self.flags & 1 != 0;
                let processor = if host { Processor::HOST } else { source };
                MemoryEvent::Throttling { address, processor, duration_ns }
            }
            7 => MemoryEvent::RemoteMap {
                address,
                bytes,
                by: source,
                at: destination,
                cause: map_cause(self.flags)?,
            },
            _ => return None,
        })
    }
}

/// A device, or the host: any number with the highest bit set.
fn processor(id: u32) -> Processor {
    if id > i32::MAX as u32 { Processor::HOST } else { Processor::device(id) }
}

/// `CUpti_ActivityUnifiedMemoryMigrationCause`.
fn copy_cause(flags: u32) -> Option<CopyCause> {
    Some(match flags {
        1 => CopyCause::User,
        2 => CopyCause::Coherence,
        3 => CopyCause::Prefetch,
        4 => CopyCause::Eviction,
        5 => CopyCause::AccessCounters,
        _ => return None,
    })
}

/// `CUpti_ActivityUnifiedMemoryAccessType`.
fn fault_access(flags: u32) -> Option<FaultAccess> {
    Some(match flags {
        1 => FaultAccess::Read,
        2 => FaultAccess::Write,
        3 => FaultAccess::Atomic,
        4 => FaultAccess::Prefetch,
        _ => return None,
    })
}

/// `CUpti_ActivityUnifiedMemoryRemoteMapCause`.
fn map_cause(flags: u32) -> Option<MapCause> {
    Some(match flags {
        1 => MapCause::Coherence,
        2 => MapCause::Thrashing,
        3 => MapCause::Policy,
        4 => MapCause::OutOfMemory,
        5 => MapCause::Eviction,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: u32 = u32::MAX;

    fn counter(
        counter_kind: u32,
        source: u32,
        destination: u32,
        flags: u32,
    ) -> UnifiedMemoryCounter {
        UnifiedMemoryCounter {
            kind: UNIFIED_MEMORY_COUNTER,
            counter_kind,
            value: 4096,
            start_ns: 100,
            end_ns: 350,
            address: 0x7f00_0000_0000,
            source,
            destination,
            stream: 0,
            process: 1,
            flags,
            reserved: 0,
        }
    }

    #[test]
    fn each_kind_of_record_becomes_its_event() {
        let address = 0x7f00_0000_0000;
        let (gpu, other) = (Processor::device(0), Processor::device(1));
        let copy = |from, to, cause| MemoryEvent::Copy {
            address,
            bytes: 4096,
            from,
            to,
            cause,
            duration_ns: 250,
        };
        let expected = [
            (counter(1, 0, 1, 1), copy(Processor::HOST, other, CopyCause::User)),
            (counter(2, 0, 0, 2), copy(gpu, Processor::HOST, CopyCause::Coherence)),
            (counter(8, 0, 1, 3), copy(gpu, other, CopyCause::Prefetch)),
            (
                counter(3, HOST, HOST, 2),
                MemoryEvent::CpuFault { address, access: FaultAccess::Write },
            ),
            (
                counter(4, 1, 0, 3),
                MemoryEvent::GpuFault {
                    device: other,
                    address,
                    access: FaultAccess::Atomic,
                    merged: 4096,
                    duration_ns: 250,
                },
            ),
            (
                counter(5, 0b11, 0, 1),
                MemoryEvent::Thrashing { address, bytes: 4096, gpus: 3, host: true },
            ),
            (
                counter(6, 1, 0, 0),
                MemoryEvent::Throttling { address, processor: other, duration_ns: 250 },
            ),
            (
                counter(6, HOST, 0, 1),
                MemoryEvent::Throttling { address, processor: Processor::HOST, duration_ns: 250 },
            ),
            (
                counter(7, 0, HOST, 3),
                MemoryEvent::RemoteMap {
                    address,
                    bytes: 4096,
                    by: gpu,
                    at: Processor::HOST,
                    cause: MapCause::Policy,
                },
            ),
        ];
        for (counter, event) in expected {
            assert_eq!(counter.event(), Some(event));
        }
    }

    #[test]
    fn a_number_that_is_not_known_gives_no_event() {
        for (kind, flags) in [(0, 1), (9, 1), (1, 0), (1, 6), (3, 0), (4, 5), (7, 0), (7, 6)] {
            assert_eq!(counter(kind, 0, HOST, flags).event(), None, "kind {kind}, flags {flags}");
        }
    }

    #[test]
    fn an_end_before_its_start_is_no_time_at_all() {
        let record = UnifiedMemoryCounter { end_ns: 0, ..counter(1, HOST, 0, 1) };
        let Some(MemoryEvent::Copy { duration_ns, .. }) = record.event() else { panic!("no copy") };
        assert_eq!(duration_ns, 0);
    }
}
