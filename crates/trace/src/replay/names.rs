//! Names of records, after the buffers that they are about.

use pagewise_hal::{BLOCK_BYTES, CopyCause, FaultAccess, MapCause, MemoryEvent, Processor, Span};

use crate::format::{Detail, Label, MemoryRecord};

/// The live buffers by address. An address that none of them owns, such as that of a neighbour in
/// the same 2 MiB or of a buffer freed since, is -1 with its offset modulo 2 MiB.
pub(crate) struct Owners(Vec<(Span, u32)>);

impl Owners {
    pub(crate) fn new(buffers: impl IntoIterator<Item = (u32, Span)>) -> Self {
        let mut spans: Vec<_> = buffers.into_iter().map(|(id, span)| (span, id)).collect();
        spans.sort_unstable();
        Self(spans)
    }

    /// The buffer with an address, and the offset in it.
    pub(crate) fn owner(&self, address: u64) -> (i64, u64) {
        let after = self.0.partition_point(|(span, _)| span.ptr.0 <= address);
        if let Some((span, id)) = after.checked_sub(1).map(|at| self.0[at]) {
            let offset = address.saturating_sub(span.ptr.0);
            if offset < span.bytes {
                return (i64::from(id), offset);
            }
        }
        (-1, address % BLOCK_BYTES)
    }

    pub(crate) fn name(&self, event: &MemoryEvent) -> MemoryRecord {
        let fields = fields(event);
        let (buf, offset) = self.owner(fields.address);
        MemoryRecord {
            kind: Label::new(fields.kind),
            value: fields.value,
            buf,
            offset,
            src: fields.src,
            dst: fields.dst,
            detail: fields.detail,
            ns: fields.ns,
        }
    }
}

struct RecordFields {
    kind: &'static str,
    address: u64,
    value: u64,
    src: i64,
    dst: i64,
    detail: Detail,
    ns: u64,
}

/// The fields of a record as the profiler fills them in.
fn fields(event: &MemoryEvent) -> RecordFields {
    let name = |name| Detail::Name(Label::new(name));
    let number = |processor: Processor| i64::from(processor.as_raw());
    match *event {
        MemoryEvent::Copy { address, bytes, from, to, cause, duration_ns } => RecordFields {
            kind: copy_kind(from, to),
            address,
            value: bytes,
            src: number(from),
            dst: number(to),
            detail: name(copy_cause(cause)),
            ns: duration_ns,
        },
        MemoryEvent::CpuFault { address, access } => {
            let detail = name(access_name(access));
            RecordFields { kind: "cpu_fault", address, value: 0, src: -1, dst: -1, detail, ns: 0 }
        }
        MemoryEvent::GpuFault { device, address, access, merged, duration_ns } => RecordFields {
            kind: "gpu_fault",
            address,
            value: merged,
            src: number(device),
            dst: number(device),
            detail: name(access_name(access)),
            ns: duration_ns,
        },
        MemoryEvent::RemoteMap { address, bytes, by, at, cause } => RecordFields {
            kind: "remote_map",
            address,
            value: bytes,
            src: number(by),
            dst: number(at),
            detail: name(map_cause(cause)),
            ns: 0,
        },
        MemoryEvent::Thrashing { address, bytes, gpus, host } => RecordFields {
            kind: "thrashing",
            address,
            value: bytes,
            src: gpus.cast_signed(),
            dst: 0,
            detail: Detail::Number(i64::from(host)),
            ns: 0,
        },
        MemoryEvent::Throttling { address, processor, duration_ns } => RecordFields {
            kind: "throttling",
            address,
            value: 0,
            src: number(processor),
            dst: 0,
            detail: Detail::Number(i64::from(processor.is_host())),
            ns: duration_ns,
        },
        _ => {
            let detail = name("unknown");
            RecordFields { kind: "unknown", address: 0, value: 0, src: 0, dst: 0, detail, ns: 0 }
        }
    }
}

fn copy_kind(from: Processor, to: Processor) -> &'static str {
    match (from.is_host(), to.is_host()) {
        (true, _) => "copy_h2d",
        (false, true) => "copy_d2h",
        (false, false) => "copy_d2d",
    }
}

fn copy_cause(cause: CopyCause) -> &'static str {
    match cause {
        CopyCause::User => "user",
        CopyCause::Coherence => "coherence",
        CopyCause::Prefetch => "prefetch",
        CopyCause::Eviction => "eviction",
        CopyCause::AccessCounters => "access_counters",
        _ => "unknown",
    }
}

fn access_name(access: FaultAccess) -> &'static str {
    match access {
        FaultAccess::Read => "read",
        FaultAccess::Write => "write",
        FaultAccess::Atomic => "atomic",
        FaultAccess::Prefetch => "prefetch",
        _ => "unknown",
    }
}

fn map_cause(cause: MapCause) -> &'static str {
    match cause {
        MapCause::Coherence => "coherence",
        MapCause::Thrashing => "thrashing",
        MapCause::Policy => "policy",
        MapCause::OutOfMemory => "out_of_memory",
        MapCause::Eviction => "eviction",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::DevicePtr;

    use super::*;

    #[test]
    fn an_address_belongs_to_the_buffer_whose_bytes_hold_it() {
        let span = |ptr, bytes| Span::new(DevicePtr(ptr), bytes);
        let owners = Owners::new([(7, span(0x40_1200, 100)), (3, span(0x40_1400, 4096))]);
        assert_eq!(owners.owner(0x40_1000), (-1, 0x1000), "the page starts before the buffer");
        assert_eq!(owners.owner(0x40_1200 + 99), (7, 99));
        assert_eq!(owners.owner(0x40_1200 + 100), (-1, 0x1264), "one past the end");
        assert_eq!(owners.owner(0x40_2000), (3, 0xc00));
        assert_eq!(Owners::new([]).owner(0x20_0000 + 5), (-1, 5));
    }
}
