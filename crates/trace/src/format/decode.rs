//! Decoding: from a line of the file to the typed operation.

use pagewise_hal::{
    Advice, AllocationType, CopyAttributes, DeviceAccess, HostAccess, KernelAccess, Location,
    LocationKind, PAGE_BYTES, RecordedLaunch,
};

use super::raw::{NameOrInt, RawLocation, RawWalk};
use super::{
    Batch, CopyBatch, CopyPart, Launch, LocationArg, MAX_HOST_MEMORY_BYTES, MAX_ID, MAX_SLOTS,
    Observed, Op, Part, PoolQuery, RawCopyAttributes, RawLine, RecordedOp, Stream, Walk,
};
use crate::error::Reason;

/// Names of the driver's numbers, from 1 on.
pub(super) const ADVICE: [&str; 6] = [
    "set_read_mostly",
    "unset_read_mostly",
    "set_preferred_location",
    "unset_preferred_location",
    "set_accessed_by",
    "unset_accessed_by",
];
/// Names of the accesses of declared kernels.
pub(super) const KERNEL_ACCESSES: [(&str, KernelAccess); 4] = [
    ("load", KernelAccess::Load),
    ("store", KernelAccess::Store),
    ("update", KernelAccess::Update),
    ("atomic", KernelAccess::Atomic),
];
pub(super) const ALLOCATION_TYPES: [&str; 2] = ["pinned", "managed"];

type Result<T> = std::result::Result<T, Reason>;

impl TryFrom<RawLine> for RecordedOp {
    type Error = Reason;

    fn try_from(raw: RawLine) -> Result<Self> {
        let op = Reading(raw).op()?;
        Ok(Self { op: op.0, observed: op.1.observed()? })
    }
}

/// A line with the accessors that name the operation and the field in errors.
struct Reading(RawLine);

macro_rules! need {
    ($reading:ident.$field:ident) => {
        $reading.0.$field.ok_or_else(|| $reading.missing(stringify!($field)))
    };
    (take $reading:ident.$field:ident) => {
        $reading.0.$field.take().ok_or_else(|| $reading.missing(stringify!($field)))
    };
}

impl Reading {
    fn op(mut self) -> Result<(Op, Self)> {
        let name = self.0.op.clone().ok_or(Reason::NeitherOpNorCase)?;
        let op = match name.as_str() {
            "host_touch" | "device_touch" | "memset" | "memset_d16" | "memset_d32" | "memcpy"
            | "stream_attach" => self.access_op(&name)?,
            "memcpy_batch" => Op::MemcpyBatch(self.copy_batch()?),
            "kernel_accesses" => self.kernel_accesses()?,
            "launch" => Op::Launch(Box::new(self.launch()?)),
            "prefetch_batch" => Op::PrefetchBatch(self.batch()?),
            "discard_prefetch_batch" => Op::DiscardPrefetchBatch(self.batch()?),
            "discard_batch" => Op::DiscardBatch {
                ranges: self.ranges()?,
                flags: need!(self.flags)?,
                stream: self.stream()?.ok_or_else(|| self.missing("stream"))?,
            },
            "host_memory"
            | "host_register"
            | "host_unregister"
            | "ipc_mem_handle"
            | "ipc_open_mem_handle"
            | "ipc_close_mem_handle" => self.shared_op(&name)?,
            pool if pool.starts_with("pool_") => self.pool_op(pool)?,
            _ => self.memory_op(&name)?,
        };
        Ok((op, self))
    }

    fn memory_op(&mut self, name: &str) -> Result<Op> {
        Ok(match name {
            "alloc_managed" => Op::AllocManaged {
                buf: self.buf()?,
                bytes: need!(self.bytes)?,
                attach_flags: need!(self.attach_flags)?,
            },
            "alloc_device" => Op::AllocDevice {
                buf: self.buf()?,
                bytes: need!(self.bytes)?,
                device: self.0.device.unwrap_or(0),
            },
            "alloc_pinned" => Op::AllocPinned {
                buf: self.buf()?,
                bytes: need!(self.bytes)?,
                flags: self.fits("flags", self.0.flags.unwrap_or(0))?,
            },
            "free" => Op::Free { buf: self.buf()? },
            "free_pinned" => Op::FreePinned { buf: self.buf()? },
            "advise" => Op::Advise {
                part: self.part()?,
                advice: self.advice()?,
                location: self.location_arg()?,
            },
            "prefetch" => Op::Prefetch {
                part: self.part()?,
                location: self.location_arg()?,
                flags: self.0.flags.map(|flags| self.fits("flags", flags)).transpose()?,
            },
            "range_attributes" => Op::RangeAttributes { part: self.part()?, slots: self.slots()? },
            "pointer_attributes" => {
                Op::PointerAttributes { buf: self.buf()?, offset: need!(self.offset)? }
            }
            "sleep" => Op::Sleep { ms: need!(self.ms)? },
            _ => return Err(Reason::UnknownOp(shortened(name))),
        })
    }

    fn access_op(&mut self, name: &str) -> Result<Op> {
        if name == "memcpy" {
            return Ok(Op::Memcpy {
                to: (id("dst_buf", need!(self.dst_buf)?)?, need!(self.dst_offset)?),
                from: (id("src_buf", need!(self.src_buf)?)?, need!(self.src_offset)?),
                bytes: need!(self.bytes)?,
                stream: self.stream()?,
            });
        }
        let part = self.part()?;
        Ok(match name {
            "host_touch" => {
                let value = self.optional_byte()?;
                let access = match self.access()?.as_str() {
                    "read" => HostAccess::Read,
                    "write" => HostAccess::Write(self.byte()?),
                    other => return Err(self.bad("access", format!("unknown access `{other}`"))),
                };
                Op::HostTouch { part, stride: need!(self.stride)?, access, value }
            }
            "device_touch" => {
                let value = self.optional_byte()?;
                let access = match self.access()?.as_str() {
                    "read" => DeviceAccess::Read,
                    "write" => DeviceAccess::Write(self.byte()?),
                    "atomic_add" => DeviceAccess::AtomicAdd,
                    other => return Err(self.bad("access", format!("unknown access `{other}`"))),
                };
                Op::DeviceTouch {
                    device: need!(self.device)?,
                    part,
                    stride: need!(self.stride)?,
                    access,
                    value,
                    blocks: need!(self.blocks)?,
                    threads: need!(self.threads)?,
                }
            }
            "memset_d16" => Op::MemsetD16 {
                part,
                value: self.fits("value", need!(self.value)?)?,
                stream: self.stream()?,
            },
            "memset_d32" => Op::MemsetD32 {
                part,
                value: self.fits("value", need!(self.value)?)?,
                stream: self.stream()?,
            },
            "memset" => Op::Memset { part, value: self.byte()?, stream: self.stream()? },
            _ => Op::StreamAttach {
                part,
                flags: self.fits("flags", need!(self.flags)?)?,
                stream: self.stream()?,
            },
        })
    }

    fn pool_op(&mut self, name: &str) -> Result<Op> {
        Ok(match name {
            "pool_create" => Op::PoolCreate {
                pool: self.pool()?,
                kind: self.alloc_type()?,
                location: self.location()?,
                handle_types: need!(self.handle_types)?,
                max_bytes: need!(self.max_bytes)?,
            },
            "pool_get_default" => Op::PoolGetDefault(self.pool_query()?),
            "pool_get_current" => Op::PoolGetCurrent(self.pool_query()?),
            "pool_set_current" => Op::PoolSetCurrent(self.pool_query()?),
            "pool_destroy" => Op::PoolDestroy { pool: self.pool()? },
            "pool_attributes" => Op::PoolAttributes { pool: self.pool()? },
            "pool_set_attribute" => Op::PoolSetAttribute {
                pool: self.pool()?,
                attribute: need!(self.attribute)?,
                value: need!(self.value)?,
            },
            "pool_trim_to" => Op::PoolTrimTo { pool: self.pool()?, bytes: need!(self.bytes)? },
            "pool_set_access" => Op::PoolSetAccess {
                pool: self.pool()?,
                location: self.location()?,
                access: match need!(take self.access)? {
                    NameOrInt::Int(access) => access,
                    NameOrInt::Name(_) => return Err(self.bad("access", "expected an integer")),
                },
            },
            "pool_get_access" => {
                Op::PoolGetAccess { pool: self.pool()?, location: self.location()? }
            }
            "pool_alloc" => {
                Op::PoolAlloc { buf: self.buf()?, pool: self.pool()?, bytes: need!(self.bytes)? }
            }
            "pool_free" => Op::PoolFree { buf: self.buf()? },
            "pool_export" => Op::PoolExport {
                pool: self.pool()?,
                share: self.share()?,
                handle_types: need!(self.handle_types)?,
            },
            "pool_import" => Op::PoolImport {
                pool: self.pool()?,
                share: self.share()?,
                handle_types: need!(self.handle_types)?,
            },
            "pool_export_pointer" => Op::PoolExportPointer {
                buf: self.buf()?,
                offset: need!(self.offset)?,
                share: self.share()?,
            },
            "pool_import_pointer" => {
                Op::PoolImportPointer { buf: self.buf()?, pool: self.pool()?, share: self.share()? }
            }
            _ => return Err(Reason::UnknownOp(shortened(name))),
        })
    }

    /// Memory of the process itself, and handles of device memory for other processes.
    fn shared_op(&mut self, name: &str) -> Result<Op> {
        let buf = self.buf()?;
        Ok(match name {
            "host_memory" => Op::HostMemory { buf, bytes: self.host_bytes()? },
            "host_register" => Op::HostRegister {
                part: self.part()?,
                flags: self.fits("flags", need!(self.flags)?)?,
            },
            "host_unregister" => Op::HostUnregister { buf, offset: need!(self.offset)? },
            "ipc_mem_handle" => {
                Op::IpcMemHandle { buf, offset: need!(self.offset)?, share: self.share()? }
            }
            "ipc_open_mem_handle" => {
                Op::IpcOpenMemHandle { buf, device: need!(self.device)?, share: self.share()? }
            }
            _ => Op::IpcCloseMemHandle { buf, offset: need!(self.offset)? },
        })
    }

    /// The size of memory that a replay allocates.
    fn host_bytes(&self) -> Result<u64> {
        let bytes = need!(self.bytes)?;
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || bytes > MAX_HOST_MEMORY_BYTES {
            let what = format!("{bytes} is not whole pages, one to {MAX_HOST_MEMORY_BYTES} bytes");
            return Err(self.bad("bytes", what));
        }
        Ok(bytes)
    }

    /// The length of the accessed-by list that a replay allocates.
    fn slots(&self) -> Result<Option<u32>> {
        match self.0.slots {
            Some(slots) if slots > MAX_SLOTS => {
                Err(self.bad("slots", format!("{slots} is more than {MAX_SLOTS}")))
            }
            slots => Ok(slots),
        }
    }

    fn observed(mut self) -> Result<Observed> {
        let code = need!(self.code)?;
        let raw = &mut self.0;
        let same_as =
            raw.same_as.take().map(|pools| pools.into_iter().map(|pool| id("same_as", pool)));
        Ok(Observed {
            code,
            offset_in_2mib: raw.offset_in_2mib,
            sum: raw.sum,
            attributes: raw.attributes.take(),
            access_flags: raw.access_flags,
            same_as: same_as.map(Iterator::collect).transpose()?,
            events: raw.events.take().unwrap_or_default(),
            host_mapped: raw.host_mapped.take().unwrap_or_default(),
            start_ns: raw.start_ns,
            ns_profiled: raw.ns_profiled,
            ns: raw.ns,
            unstable: raw.unstable.take().unwrap_or_default(),
        })
    }

    // ---- fields -------------------------------------------------------------------------------

    fn name(&self) -> String {
        shortened(self.0.op.as_deref().unwrap_or_default())
    }

    fn missing(&self, field: &'static str) -> Reason {
        Reason::MissingField { op: self.name(), field }
    }

    fn bad(&self, field: &str, what: impl AsRef<str>) -> Reason {
        Reason::BadField(format!("op `{}`: field `{field}`: {}", self.name(), what.as_ref()))
    }

    fn fits<T: TryFrom<u64>>(&self, field: &str, value: u64) -> Result<T> {
        T::try_from(value).map_err(|_| self.bad(field, format!("{value} is too large")))
    }

    fn optional_byte(&self) -> Result<Option<u8>> {
        self.0.value.map(|value| self.fits("value", value)).transpose()
    }

    fn byte(&self) -> Result<u8> {
        self.optional_byte()?.ok_or_else(|| self.missing("value"))
    }

    fn buf(&self) -> Result<u32> {
        id("buf", need!(self.buf)?)
    }

    fn pool(&self) -> Result<u32> {
        id("pool", need!(self.pool)?)
    }

    fn share(&self) -> Result<u32> {
        id("share", need!(self.share)?)
    }

    fn part(&self) -> Result<Part> {
        Ok(Part { buf: self.buf()?, offset: need!(self.offset)?, bytes: need!(self.bytes)? })
    }

    fn access(&mut self) -> Result<String> {
        match need!(take self.access)? {
            NameOrInt::Name(name) => Ok(shortened(&name)),
            NameOrInt::Int(_) => Err(self.bad("access", "expected a name")),
        }
    }

    fn stream(&self) -> Result<Option<Stream>> {
        match self.0.stream.as_deref() {
            None => Ok(None),
            Some("stream") => Ok(Some(Stream::NonBlocking)),
            Some("null") => Ok(Some(Stream::Legacy)),
            Some(other) => {
                Err(self.bad("stream", format!("unknown stream `{}`", shortened(other))))
            }
        }
    }

    fn advice(&mut self) -> Result<Advice> {
        let advice = need!(take self.advice)?;
        self.numbered("advice", &ADVICE, advice).map(Advice)
    }

    fn alloc_type(&mut self) -> Result<AllocationType> {
        let kind = need!(take self.alloc_type)?;
        self.numbered("alloc_type", &ALLOCATION_TYPES, kind).map(AllocationType)
    }

    fn numbered(&self, field: &str, names: &[&str], value: NameOrInt) -> Result<i32> {
        match value {
            NameOrInt::Int(value) => Ok(value),
            NameOrInt::Name(name) => match (1..).zip(names).find(|(_, known)| **known == name) {
                Some((number, _)) => Ok(number),
                None => Err(self.bad(field, format!("unknown name `{}`", shortened(&name)))),
            },
        }
    }

    fn location_arg(&mut self) -> Result<LocationArg> {
        let abi = need!(self.abi)?;
        let arg = location_arg_of(&need!(take self.location)?);
        match (abi, arg) {
            (1, Ok(arg @ LocationArg::Ordinal(_))) | (2, Ok(arg @ LocationArg::Location(_))) => {
                Ok(arg)
            }
            (1 | 2, Err(what)) => Err(self.bad("location", what)),
            (1, _) => Err(self.bad("location", "abi 1 takes an ordinal")),
            (2, _) => Err(self.bad("location", "abi 2 takes a kind or a raw_type")),
            _ => Err(self.bad("abi", format!("{abi} is neither 1 nor 2"))),
        }
    }

    fn location(&mut self) -> Result<Location> {
        let location = need!(take self.location)?;
        self.full_location("location", &location)
    }

    fn full_location(&self, field: &str, location: &RawLocation) -> Result<Location> {
        match location_arg_of(location) {
            Ok(LocationArg::Location(location)) => Ok(location),
            Ok(LocationArg::Ordinal(_)) => {
                Err(self.bad(field, "an ordinal where a kind is needed"))
            }
            Err(what) => Err(self.bad(field, what)),
        }
    }

    fn ranges(&mut self) -> Result<Vec<Part>> {
        let part = |(buf, offset, bytes)| Ok(Part { buf: id("ranges", buf)?, offset, bytes });
        need!(take self.ranges)?.into_iter().map(part).collect()
    }

    fn batch(&mut self) -> Result<Batch> {
        let locations = need!(take self.locations)?;
        let full = |location| self.full_location("locations", location);
        Ok(Batch {
            locations: locations.iter().map(full).collect::<Result<_>>()?,
            ranges: self.ranges()?,
            location_starts: need!(take self.location_starts)?,
            flags: need!(self.flags)?,
            stream: self.stream()?.ok_or_else(|| self.missing("stream"))?,
        })
    }

    fn copy_batch(&mut self) -> Result<CopyBatch> {
        let copy = |(to, to_offset, from, from_offset, bytes)| {
            let to = (id("copies", to)?, to_offset);
            Ok(CopyPart { to, from: (id("copies", from)?, from_offset), bytes })
        };
        let attributes = need!(take self.attribute_sets)?;
        Ok(CopyBatch {
            copies: need!(take self.copies)?.into_iter().map(copy).collect::<Result<_>>()?,
            attributes: attributes
                .iter()
                .map(|raw| self.copy_attributes(raw))
                .collect::<Result<_>>()?,
            attribute_starts: need!(take self.attribute_starts)?,
            stream: self.stream()?.ok_or_else(|| self.missing("stream"))?,
        })
    }

    fn copy_attributes(&self, raw: &RawCopyAttributes) -> Result<CopyAttributes> {
        let hint = |hint: &Option<RawLocation>| match hint {
            Some(location) => self.full_location("attribute_sets", location),
            None => Ok(Location::NONE),
        };
        Ok(CopyAttributes {
            source_hint: hint(&raw.source_hint)?,
            destination_hint: hint(&raw.destination_hint)?,
            ..raw.without_hints()
        })
    }

    fn kernel_accesses(&mut self) -> Result<Op> {
        let walks = need!(take self.walks)?;
        Ok(Op::KernelAccesses {
            device: need!(self.device)?,
            blocks: need!(self.blocks)?,
            threads: need!(self.threads)?,
            walks: walks.iter().map(|walk| self.walk(walk)).collect::<Result<_>>()?,
        })
    }

    fn launch(&mut self) -> Result<Launch> {
        let accesses = need!(take self.accesses)?;
        if accesses.len() > RecordedLaunch::ACCESSES_MAX as u64 {
            return Err(self.bad("accesses", "more than 32 MiB"));
        }
        Ok(Launch {
            device: need!(self.device)?,
            stream: self.stream()?,
            shape: need!(take self.launch)?,
            ranges: self.ranges()?,
            accesses,
        })
    }

    fn walk(&self, raw: &RawWalk) -> Result<Walk> {
        let known = KERNEL_ACCESSES.iter().find(|(name, _)| *name == raw.access);
        let &(_, access) = known.ok_or_else(|| {
            self.bad("walks", format!("unknown access `{}`", shortened(&raw.access)))
        })?;
        let range = |&(buf, offset, bytes, stride): &(i64, u64, u64, u64)| {
            Ok((Part { buf: id("walks", buf)?, offset, bytes }, stride))
        };
        Ok(Walk { access, ranges: raw.ranges.iter().map(range).collect::<Result<_>>()? })
    }

    fn pool_query(&mut self) -> Result<PoolQuery> {
        Ok(PoolQuery { pool: self.pool()?, location: self.location()?, kind: self.alloc_type()? })
    }
}

/// Part of a hostile line that is fit for a message.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

fn id(field: &'static str, id: i64) -> Result<u32> {
    let small = u32::try_from(id).ok().filter(|&small| small <= MAX_ID);
    small.ok_or(Reason::IdOutOfRange { field, id })
}

fn location_arg_of(raw: &RawLocation) -> std::result::Result<LocationArg, &'static str> {
    let kind = match (raw.ordinal, raw.kind.as_deref(), raw.raw_type) {
        (Some(ordinal), None, None) => return Ok(LocationArg::Ordinal(ordinal)),
        (None, Some("device"), None) => LocationKind::DEVICE,
        (None, Some("host_numa"), None) => LocationKind::HOST_NUMA,
        (None, Some("host"), None) => return Ok(LocationArg::Location(Location::HOST)),
        (None, Some("host_numa_current"), None) => {
            return Ok(LocationArg::Location(Location::HOST_NUMA_CURRENT));
        }
        (None, Some("invalid"), None) => return Ok(LocationArg::Location(Location::NONE)),
        (None, Some(_), None) => return Err("unknown kind"),
        (None, None, Some(raw_type)) => LocationKind(raw_type),
        _ => return Err("expected exactly one of ordinal, kind, raw_type"),
    };
    let id = raw.id.ok_or("missing field `id`")?;
    Ok(LocationArg::Location(Location { kind, id }))
}
