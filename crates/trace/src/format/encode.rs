//! Encoding: from the typed operation to a line of the file.

use pagewise_hal::{CopyAttributes, DeviceAccess, HostAccess, Location, LocationKind};

use super::decode::{ADVICE, ALLOCATION_TYPES, KERNEL_ACCESSES};
use super::raw::{NameOrInt, RawLocation, RawWalk};
use super::{
    Batch, CopyBatch, CopyPart, LocationArg, Observed, Op, Part, PoolQuery, RawCopyAttributes,
    RawLine, RecordedOp, Stream, Walk,
};

impl From<&RecordedOp> for RawLine {
    fn from(record: &RecordedOp) -> Self {
        let mut raw = Self::from(&record.op);
        put_observed(&mut raw, &record.observed);
        raw
    }
}

impl From<&Op> for RawLine {
    fn from(op: &Op) -> Self {
        let mut raw = Self { op: Some(op.name().to_owned()), ..Self::default() };
        put_op(&mut raw, op);
        raw
    }
}

fn put_op(raw: &mut RawLine, op: &Op) {
    match op {
        Op::AllocManaged { buf, bytes, attach_flags } => {
            (raw.buf, raw.bytes) = (id(*buf), Some(*bytes));
            raw.attach_flags = Some(*attach_flags);
        }
        Op::AllocDevice { buf, bytes, device } => {
            (raw.buf, raw.bytes) = (id(*buf), Some(*bytes));
            raw.device = Some(*device).filter(|&device| device != 0);
        }
        Op::AllocPinned { buf, bytes, flags } => {
            (raw.buf, raw.bytes) = (id(*buf), Some(*bytes));
            raw.flags = Some(u64::from(*flags)).filter(|&flags| flags != 0);
        }
        Op::Free { buf } | Op::FreePinned { buf } | Op::PoolFree { buf } => raw.buf = id(*buf),
        Op::Advise { part, advice, location } => {
            put_part(raw, *part);
            put_location_arg(raw, *location);
            raw.advice = Some(name_or_int(advice.0, &ADVICE));
        }
        Op::Prefetch { part, location, flags } => {
            put_part(raw, *part);
            put_location_arg(raw, *location);
            raw.flags = flags.map(u64::from);
        }
        Op::PrefetchBatch(batch) | Op::DiscardPrefetchBatch(batch) => put_batch(raw, batch),
        Op::DiscardBatch { ranges, flags, stream } => {
            raw.ranges = Some(ranges.iter().map(range).collect());
            (raw.flags, raw.stream) = (Some(*flags), stream_name(Some(*stream)));
        }
        Op::RangeAttributes { part, slots } => {
            put_part(raw, *part);
            raw.slots = *slots;
        }
        Op::PointerAttributes { buf, offset }
        | Op::HostUnregister { buf, offset }
        | Op::IpcCloseMemHandle { buf, offset } => {
            (raw.buf, raw.offset) = (id(*buf), Some(*offset));
        }
        Op::HostMemory { buf, bytes } => (raw.buf, raw.bytes) = (id(*buf), Some(*bytes)),
        Op::HostRegister { part, flags } => {
            put_part(raw, *part);
            raw.flags = Some(u64::from(*flags));
        }
        Op::IpcMemHandle { buf, offset, share } => {
            (raw.buf, raw.offset, raw.share) = (id(*buf), Some(*offset), id(*share));
        }
        Op::IpcOpenMemHandle { buf, device, share } => {
            (raw.buf, raw.device, raw.share) = (id(*buf), Some(*device), id(*share));
        }
        Op::Sleep { ms } => raw.ms = Some(*ms),
        Op::HostTouch { .. }
        | Op::DeviceTouch { .. }
        | Op::KernelAccesses { .. }
        | Op::Launch(_)
        | Op::Memset { .. }
        | Op::MemsetD16 { .. }
        | Op::MemsetD32 { .. }
        | Op::Memcpy { .. }
        | Op::MemcpyBatch(_)
        | Op::StreamAttach { .. } => put_access_op(raw, op),
        _ => put_pool_op(raw, op),
    }
}

fn put_access_op(raw: &mut RawLine, op: &Op) {
    let access_name = |name: &str| Some(NameOrInt::Name(name.to_owned()));
    match op {
        Op::HostTouch { part, stride, access, value } => {
            put_part(raw, *part);
            (raw.stride, raw.value) = (Some(*stride), value.map(u64::from));
            raw.access = access_name(match access {
                HostAccess::Read => "read",
                HostAccess::Write(_) => "write",
            });
        }
        Op::DeviceTouch { device, part, stride, access, value, blocks, threads } => {
            put_part(raw, *part);
            (raw.stride, raw.value) = (Some(*stride), value.map(u64::from));
            (raw.device, raw.blocks, raw.threads) = (Some(*device), Some(*blocks), Some(*threads));
            raw.access = access_name(match access {
                DeviceAccess::Read => "read",
                DeviceAccess::Write(_) => "write",
                DeviceAccess::AtomicAdd => "atomic_add",
            });
        }
        Op::KernelAccesses { device, blocks, threads, walks } => {
            (raw.device, raw.blocks, raw.threads) = (Some(*device), Some(*blocks), Some(*threads));
            raw.walks = Some(walks.iter().map(raw_walk).collect());
        }
        Op::Launch(launch) => {
            (raw.device, raw.stream) = (Some(launch.device), stream_name(launch.stream));
            raw.ranges = Some(launch.ranges.iter().map(range).collect());
            raw.launch = Some(launch.shape.clone());
            raw.accesses = Some(launch.accesses.clone());
        }
        Op::Memset { part, value, stream } => {
            put_part(raw, *part);
            (raw.value, raw.stream) = (Some(u64::from(*value)), stream_name(*stream));
        }
        Op::MemsetD16 { part, value, stream } => {
            put_part(raw, *part);
            (raw.value, raw.stream) = (Some(u64::from(*value)), stream_name(*stream));
        }
        Op::MemsetD32 { part, value, stream } => {
            put_part(raw, *part);
            (raw.value, raw.stream) = (Some(u64::from(*value)), stream_name(*stream));
        }
        Op::MemcpyBatch(batch) => put_copy_batch(raw, batch),
        Op::Memcpy { to, from, bytes, stream } => {
            (raw.dst_buf, raw.dst_offset) = (id(to.0), Some(to.1));
            (raw.src_buf, raw.src_offset) = (id(from.0), Some(from.1));
            (raw.bytes, raw.stream) = (Some(*bytes), stream_name(*stream));
        }
        Op::StreamAttach { part, flags, stream } => {
            put_part(raw, *part);
            (raw.flags, raw.stream) = (Some(u64::from(*flags)), stream_name(*stream));
        }
        _ => unreachable!("`{}` accesses nothing", op.name()),
    }
}

fn raw_walk(walk: &Walk) -> RawWalk {
    let known = KERNEL_ACCESSES.iter().find(|(_, access)| *access == walk.access);
    let range = |&(part, stride): &(Part, u64)| {
        let (buf, offset, bytes) = range(&part);
        (buf, offset, bytes, stride)
    };
    RawWalk {
        access: known.map_or_else(String::new, |(name, _)| (*name).to_owned()),
        ranges: walk.ranges.iter().map(range).collect(),
    }
}

fn put_pool_op(raw: &mut RawLine, op: &Op) {
    match op {
        Op::PoolCreate { pool, kind, location, handle_types, max_bytes } => {
            let query = PoolQuery { pool: *pool, location: *location, kind: *kind };
            put_pool_query(raw, &query);
            (raw.handle_types, raw.max_bytes) = (Some(*handle_types), Some(*max_bytes));
        }
        Op::PoolGetDefault(query) | Op::PoolGetCurrent(query) | Op::PoolSetCurrent(query) => {
            put_pool_query(raw, query);
        }
        Op::PoolAttributes { pool } | Op::PoolDestroy { pool } => raw.pool = id(*pool),
        Op::PoolSetAttribute { pool, attribute, value } => {
            raw.pool = id(*pool);
            (raw.attribute, raw.value) = (Some(*attribute), Some(*value));
        }
        Op::PoolTrimTo { pool, bytes } => (raw.pool, raw.bytes) = (id(*pool), Some(*bytes)),
        Op::PoolSetAccess { pool, location, access } => {
            (raw.pool, raw.location) = (id(*pool), Some(raw_location(*location)));
            raw.access = Some(NameOrInt::Int(*access));
        }
        Op::PoolGetAccess { pool, location } => {
            (raw.pool, raw.location) = (id(*pool), Some(raw_location(*location)));
        }
        Op::PoolAlloc { buf, pool, bytes } => {
            (raw.buf, raw.pool, raw.bytes) = (id(*buf), id(*pool), Some(*bytes));
        }
        Op::PoolExport { pool, share, handle_types }
        | Op::PoolImport { pool, share, handle_types } => {
            (raw.pool, raw.share) = (id(*pool), id(*share));
            raw.handle_types = Some(*handle_types);
        }
        Op::PoolExportPointer { buf, offset, share } => {
            (raw.buf, raw.offset, raw.share) = (id(*buf), Some(*offset), id(*share));
        }
        Op::PoolImportPointer { buf, pool, share } => {
            (raw.buf, raw.pool, raw.share) = (id(*buf), id(*pool), id(*share));
        }
        _ => unreachable!("`{}` is no pool operation", op.name()),
    }
}

fn put_observed(raw: &mut RawLine, observed: &Observed) {
    fn unless_empty<T: Clone>(value: &T, empty: bool) -> Option<T> {
        (!empty).then(|| value.clone())
    }
    raw.code = Some(observed.code);
    raw.offset_in_2mib = observed.offset_in_2mib;
    raw.sum = observed.sum;
    raw.attributes = observed.attributes.clone();
    raw.access_flags = observed.access_flags;
    let pools = observed.same_as.as_ref();
    raw.same_as = pools.map(|pools| pools.iter().map(|&pool| i64::from(pool)).collect());
    raw.events = unless_empty(&observed.events, observed.events.is_empty());
    raw.host_mapped = unless_empty(&observed.host_mapped, observed.host_mapped.is_empty());
    raw.start_ns = observed.start_ns;
    raw.ns_profiled = observed.ns_profiled;
    raw.ns = observed.ns;
    raw.unstable = unless_empty(&observed.unstable, observed.unstable.is_empty());
}

// ---- fields -----------------------------------------------------------------------------------

#[allow(clippy::unnecessary_wraps, reason = "every field of a line is optional")]
fn id(id: u32) -> Option<i64> {
    Some(i64::from(id))
}

fn range(part: &Part) -> (i64, u64, u64) {
    (i64::from(part.buf), part.offset, part.bytes)
}

fn put_part(raw: &mut RawLine, part: Part) {
    (raw.buf, raw.offset, raw.bytes) = (id(part.buf), Some(part.offset), Some(part.bytes));
}

fn put_location_arg(raw: &mut RawLine, arg: LocationArg) {
    let (abi, location) = match arg {
        LocationArg::Ordinal(ordinal) => {
            (1, RawLocation { ordinal: Some(ordinal), ..RawLocation::default() })
        }
        LocationArg::Location(location) => (2, raw_location(location)),
    };
    (raw.abi, raw.location) = (Some(abi), Some(location));
}

fn put_batch(raw: &mut RawLine, batch: &Batch) {
    raw.ranges = Some(batch.ranges.iter().map(range).collect());
    raw.locations = Some(batch.locations.iter().copied().map(raw_location).collect());
    raw.location_starts = Some(batch.location_starts.clone());
    (raw.flags, raw.stream) = (Some(batch.flags), stream_name(Some(batch.stream)));
}

fn put_pool_query(raw: &mut RawLine, query: &PoolQuery) {
    (raw.pool, raw.location) = (id(query.pool), Some(raw_location(query.location)));
    raw.alloc_type = Some(name_or_int(query.kind.0, &ALLOCATION_TYPES));
}

/// The name of a number that counts from 1, or the number.
fn name_or_int(value: i32, names: &[&str]) -> NameOrInt {
    let at = usize::try_from(value).ok().and_then(|value| value.checked_sub(1));
    match at.and_then(|at| names.get(at)) {
        Some(&name) => NameOrInt::Name(name.to_owned()),
        None => NameOrInt::Int(value),
    }
}

fn put_copy_batch(raw: &mut RawLine, batch: &CopyBatch) {
    let copy = |copy: &CopyPart| {
        let CopyPart { to, from, bytes } = *copy;
        (i64::from(to.0), to.1, i64::from(from.0), from.1, bytes)
    };
    let hint = |hint: Location| (hint != Location::NONE).then(|| raw_location(hint));
    let attributes = |attributes: &CopyAttributes| RawCopyAttributes {
        order: attributes.source_order.0,
        source_hint: hint(attributes.source_hint),
        destination_hint: hint(attributes.destination_hint),
        flags: attributes.flags.bits(),
    };
    raw.copies = Some(batch.copies.iter().map(copy).collect());
    raw.attribute_sets = Some(batch.attributes.iter().map(attributes).collect());
    raw.attribute_starts = Some(batch.attribute_starts.clone());
    raw.stream = stream_name(Some(batch.stream));
}

fn stream_name(stream: Option<Stream>) -> Option<String> {
    stream.map(|stream| match stream {
        Stream::NonBlocking => "stream".to_owned(),
        Stream::Legacy => "null".to_owned(),
    })
}

fn raw_location(location: Location) -> RawLocation {
    let kind =
        |name: &str, id| RawLocation { kind: Some(name.to_owned()), id, ..RawLocation::default() };
    match (location.kind, location.id) {
        (LocationKind::DEVICE, id) => kind("device", Some(id)),
        (LocationKind::HOST_NUMA, id) => kind("host_numa", Some(id)),
        (LocationKind::HOST, 0) => kind("host", None),
        (LocationKind::HOST_NUMA_CURRENT, 0) => kind("host_numa_current", None),
        (LocationKind::INVALID, 0) => kind("invalid", None),
        (LocationKind(raw), id) => {
            RawLocation { raw_type: Some(raw), id: Some(id), ..RawLocation::default() }
        }
    }
}

impl Op {
    /// The operation as a trace has it, without results.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let line = serde_json::to_value(RawLine::from(self));
        line.unwrap_or_else(|error| unreachable!("a line has string keys: {error}"))
    }

    /// The name in the field `op`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::AllocManaged { .. } => "alloc_managed",
            Self::AllocDevice { .. } => "alloc_device",
            Self::AllocPinned { .. } => "alloc_pinned",
            Self::Free { .. } => "free",
            Self::FreePinned { .. } => "free_pinned",
            Self::Advise { .. } => "advise",
            Self::Prefetch { .. } => "prefetch",
            Self::PrefetchBatch(_) => "prefetch_batch",
            Self::DiscardPrefetchBatch(_) => "discard_prefetch_batch",
            Self::DiscardBatch { .. } => "discard_batch",
            Self::HostTouch { .. } => "host_touch",
            Self::DeviceTouch { .. } => "device_touch",
            Self::KernelAccesses { .. } => "kernel_accesses",
            Self::Launch(_) => "launch",
            Self::Memset { .. } => "memset",
            Self::MemsetD16 { .. } => "memset_d16",
            Self::MemsetD32 { .. } => "memset_d32",
            Self::Memcpy { .. } => "memcpy",
            Self::MemcpyBatch(_) => "memcpy_batch",
            Self::StreamAttach { .. } => "stream_attach",
            Self::RangeAttributes { .. } => "range_attributes",
            Self::PointerAttributes { .. } => "pointer_attributes",
            Self::PoolCreate { .. } => "pool_create",
            Self::PoolGetDefault(_) => "pool_get_default",
            Self::PoolGetCurrent(_) => "pool_get_current",
            Self::PoolSetCurrent(_) => "pool_set_current",
            Self::PoolDestroy { .. } => "pool_destroy",
            Self::PoolAttributes { .. } => "pool_attributes",
            Self::PoolSetAttribute { .. } => "pool_set_attribute",
            Self::PoolTrimTo { .. } => "pool_trim_to",
            Self::PoolSetAccess { .. } => "pool_set_access",
            Self::PoolGetAccess { .. } => "pool_get_access",
            Self::PoolAlloc { .. } => "pool_alloc",
            Self::PoolFree { .. } => "pool_free",
            Self::HostMemory { .. } => "host_memory",
            Self::HostRegister { .. } => "host_register",
            Self::HostUnregister { .. } => "host_unregister",
            Self::PoolExport { .. } => "pool_export",
            Self::PoolImport { .. } => "pool_import",
            Self::PoolExportPointer { .. } => "pool_export_pointer",
            Self::PoolImportPointer { .. } => "pool_import_pointer",
            Self::IpcMemHandle { .. } => "ipc_mem_handle",
            Self::IpcOpenMemHandle { .. } => "ipc_open_mem_handle",
            Self::IpcCloseMemHandle { .. } => "ipc_close_mem_handle",
            Self::Sleep { .. } => "sleep",
        }
    }
}
