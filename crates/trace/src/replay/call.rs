//! One operation: the call, its synchronisation and its results.

use std::time::Duration;

use pagewise_hal::{
    AccessFlags, AttachFlags, Backend, Code, DeviceId, DevicePtr, DeviceTouch, Error, ErrorKind,
    HandleTypes, HostAccess, HostAllocFlags, HostTouch, KernelAccesses, KernelWalk,
    PointerAttribute, PoolAttribute, PoolHandle, PoolProps, RangeAttribute, Result, Span,
    StreamHandle, StridedSpan,
};

use super::code::{code_of, coded};
use super::running::Running;
use crate::format::{
    AttributeRead, AttributeValue, Attributes, Batch, Label, Launch, LocationArg, Observed, Op,
    Part, PoolQuery, Stream, Walk,
};

/// The value of `access_flags` where the call failed.
pub(crate) const NO_ACCESS_ANSWER: i32 = 99;

pub(crate) const RANGE_ATTRIBUTES: [(&str, RangeAttribute); 7] = [
    ("read_mostly", RangeAttribute::READ_MOSTLY),
    ("preferred_location", RangeAttribute::PREFERRED_LOCATION),
    ("last_prefetch_location", RangeAttribute::LAST_PREFETCH_LOCATION),
    ("preferred_location_type", RangeAttribute::PREFERRED_LOCATION_TYPE),
    ("preferred_location_id", RangeAttribute::PREFERRED_LOCATION_ID),
    ("last_prefetch_location_type", RangeAttribute::LAST_PREFETCH_LOCATION_TYPE),
    ("last_prefetch_location_id", RangeAttribute::LAST_PREFETCH_LOCATION_ID),
];

pub(crate) const POINTER_ATTRIBUTES: [(&str, PointerAttribute); 8] = [
    ("memory_type", PointerAttribute::MEMORY_TYPE),
    ("is_managed", PointerAttribute::IS_MANAGED),
    ("device_ordinal", PointerAttribute::DEVICE_ORDINAL),
    ("offset_from_range_start", PointerAttribute::RANGE_START_ADDR),
    ("range_bytes", PointerAttribute::RANGE_SIZE),
    ("mapped", PointerAttribute::MAPPED),
    ("allowed_handle_types", PointerAttribute::ALLOWED_HANDLE_TYPES),
    ("mempool_handle_present", PointerAttribute::MEMPOOL_HANDLE),
];

pub(crate) const POOL_ATTRIBUTES: [(&str, PoolAttribute); 13] = [
    ("reuse_event", PoolAttribute::REUSE_FOLLOW_EVENT_DEPENDENCIES),
    ("reuse_opportunistic", PoolAttribute::REUSE_ALLOW_OPPORTUNISTIC),
    ("reuse_internal", PoolAttribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES),
    ("release_threshold", PoolAttribute::RELEASE_THRESHOLD),
    ("reserved_current", PoolAttribute::RESERVED_MEM_CURRENT),
    ("reserved_high", PoolAttribute::RESERVED_MEM_HIGH),
    ("used_current", PoolAttribute::USED_MEM_CURRENT),
    ("used_high", PoolAttribute::USED_MEM_HIGH),
    ("attribute_9", PoolAttribute(9)),
    ("attribute_10", PoolAttribute(10)),
    ("attribute_11", PoolAttribute(11)),
    ("attribute_12", PoolAttribute(12)),
    ("attribute_13", PoolAttribute(13)),
];

impl Running<'_> {
    pub(super) fn call(&mut self, op: &Op) -> Observed {
        match op {
            &Op::AllocManaged { buf, bytes, attach_flags } => {
                let flags = AttachFlags::from_bits_retain(attach_flags);
                let ptr = self.backend.alloc_managed(bytes, flags);
                let offset = ptr.as_ref().ok().map(|ptr| ptr.0 % pagewise_hal::BLOCK_BYTES);
                Observed { offset_in_2mib: offset, ..self.allocated(buf, bytes, ptr) }
            }
            &Op::AllocDevice { buf, bytes, device } => {
                let ptr = self.backend.alloc_device(DeviceId(device), bytes);
                self.allocated(buf, bytes, ptr)
            }
            &Op::AllocPinned { buf, bytes, flags } => {
                let flags = HostAllocFlags::from_bits_retain(flags);
                let ptr = self.backend.alloc_pinned(bytes, flags);
                self.allocated(buf, bytes, ptr)
            }
            &Op::Free { buf } => {
                let ptr = self.ptr(buf, 0);
                // SAFETY: the address is null or the start of memory of the case, which only the
                // case knows. Earlier calls were waited for, and a success makes every id forget
                // the address.
                let freed = unsafe { self.backend.free(ptr) };
                self.forget(ptr, &freed);
                coded(&freed)
            }
            &Op::FreePinned { buf } => {
                let ptr = self.ptr(buf, 0);
                // SAFETY: the address is null or the start of memory of the case, which only the
                // case knows. Earlier calls were waited for, and a success makes every id forget
                // the address.
                let freed = unsafe { self.backend.free_pinned(ptr) };
                self.forget(ptr, &freed);
                coded(&freed)
            }
            &Op::Advise { part, advice, location } => {
                let span = self.span(part);
                coded(&match location {
                    LocationArg::Ordinal(ordinal) => {
                        self.backend.advise_ordinal(span, advice, ordinal)
                    }
                    LocationArg::Location(location) => self.backend.advise(span, advice, location),
                })
            }
            Op::Sleep { ms } => {
                let ns = Duration::from_millis(*ms).as_nanos();
                self.backend.sleep_ns(u64::try_from(ns).unwrap_or(u64::MAX));
                Observed::default()
            }
            Op::RangeAttributes { part, slots } => self.range_attributes(*part, *slots),
            Op::PointerAttributes { buf, offset } => self.pointer_attributes(*buf, *offset),
            Op::HostMemory { .. }
            | Op::HostRegister { .. }
            | Op::HostUnregister { .. }
            | Op::PoolExport { .. }
            | Op::PoolImport { .. }
            | Op::PoolExportPointer { .. }
            | Op::PoolImportPointer { .. }
            | Op::IpcMemHandle { .. }
            | Op::IpcOpenMemHandle { .. }
            | Op::IpcCloseMemHandle { .. } => self.shared_call(op),
            op if op.is_pool() => self.pool_call(op),
            op => self.stream_call(op),
        }
    }

    /// Calls that only ask for work in stream order.
    fn stream_call(&mut self, op: &Op) -> Observed {
        if let Some(observed) = self.fill_or_copy(op) {
            return observed;
        }
        match op {
            &Op::Prefetch { part, location, flags } => {
                let span = self.span(part);
                self.on_stream(None, |running, stream| match location {
                    LocationArg::Ordinal(to) => running.backend.prefetch_ordinal(span, to, stream),
                    LocationArg::Location(to) => {
                        running.backend.prefetch(span, to, flags.unwrap_or(0), stream)
                    }
                })
            }
            Op::PrefetchBatch(batch) => self.batch(batch, false),
            Op::DiscardPrefetchBatch(batch) => self.batch(batch, true),
            Op::DiscardBatch { ranges, flags, stream } => {
                let spans = self.own_spans(ranges);
                self.on_stream(Some(*stream), |running, stream| {
                    // SAFETY: the ranges are memory of the case or null, so no code outside of the
                    // case uses them, and its own calls come one at a time. If the discard takes
                    // effect late, the case reads other bytes, but no reference to them exists
                    // here.
                    unsafe { running.backend.discard_batch(&spans, *flags, stream) }
                })
            }
            &Op::StreamAttach { part, flags, stream } => {
                let (span, flags) = (self.own_span(part), AttachFlags::from_bits_retain(flags));
                self.on_stream(stream, |running, stream| {
                    // SAFETY: the range is memory of the case or null. Only calls of the back end
                    // use it, one at a time, and the back end refuses those that the attachment
                    // does not allow.
                    unsafe { running.backend.stream_attach(stream, span, flags) }
                })
            }
            op => self.access_call(op),
        }
    }

    /// Accesses of the host or of a device.
    fn access_call(&mut self, op: &Op) -> Observed {
        match *op {
            Op::HostTouch { part, stride, access, .. } => {
                let span = self.own_span(part);
                let touch = HostTouch { span, stride_bytes: stride, access };
                // SAFETY: the range is memory of the case or null, so no code outside of the case
                // uses it, and earlier calls of the case were waited for.
                let sum = unsafe { self.backend.host_touch(touch) };
                let reads = access == HostAccess::Read;
                Observed { sum: sum.as_ref().ok().copied().filter(|_| reads), ..coded(&sum) }
            }
            Op::DeviceTouch { device, part, stride, access, blocks, threads, .. } => {
                let (device, span) = (DeviceId(device), self.own_span(part));
                let touch =
                    DeviceTouch { device, span, stride_bytes: stride, access, blocks, threads };
                self.on_device(device, |backend, stream| {
                    // SAFETY: the range is memory of the case or null, so no code outside of the
                    // case uses it, and earlier calls of the case were waited for.
                    unsafe { backend.device_touch(touch, stream) }.map(drop)
                })
            }
            Op::KernelAccesses { device, blocks, threads, ref walks } => {
                let device = DeviceId(device);
                let walks = walks.iter().map(|walk| self.own_walk(walk)).collect();
                let kernel = KernelAccesses { device, blocks, threads, walks };
                self.on_device(device, |backend, stream| {
                    // SAFETY: the ranges are memory of the case or null, so no code outside of the
                    // case uses them, and earlier calls of the case were waited for.
                    unsafe { backend.kernel_accesses(&kernel, stream) }
                })
            }
            Op::Launch(ref launch) => self.launch(launch),
            _ => unreachable!("`{}` is carried out elsewhere", op.name()),
        }
    }

    /// A launch, over memory of the case.
    fn launch(&mut self, launch: &Launch) -> Observed {
        let device = DeviceId(launch.device);
        let unpacked = launch.unpack(|part| self.own_span(part));
        let invalid = |why| Error::new("launch_recorded", ErrorKind::InvalidValue).with_detail(why);
        let result = unpacked.map_err(invalid).and_then(|unpacked| {
            let stream = match launch.stream {
                Some(Stream::Legacy) if device == DeviceId(0) => StreamHandle::NULL,
                _ => self.device_stream(device)?,
            };
            // SAFETY: the ranges are memory of the case or null, so no code outside of the case uses
            // them, and earlier calls of the case were waited for.
            let called = unsafe { self.backend.launch_recorded(&unpacked, stream) };
            let waited = self.backend.stream_synchronize(stream);
            called.and(waited)
        });
        coded(&result)
    }

    /// A walk over memory of the case: a range that is not becomes one at the null address.
    fn own_walk(&self, walk: &Walk) -> KernelWalk {
        let place = |&(part, stride_bytes): &(Part, u64)| StridedSpan {
            span: self.own_span(part),
            stride_bytes,
        };
        KernelWalk { access: walk.access, places: walk.ranges.iter().map(place).collect() }
    }

    /// Makes an asynchronous call and waits for it.
    pub(super) fn on_stream(
        &mut self,
        stream: Option<Stream>,
        call: impl FnOnce(&mut Self, StreamHandle) -> Result<()>,
    ) -> Observed {
        let result = self.stream(stream).and_then(|stream| {
            let called = call(self, stream);
            let waited = self.backend.stream_synchronize(stream);
            called.and(waited)
        });
        coded(&result)
    }

    fn batch(&mut self, batch: &Batch, discard: bool) -> Observed {
        let ranges = &batch.ranges;
        let spans = if discard { self.own_spans(ranges) } else { self.spans(ranges) };
        // A start past `usize` is past the number of ranges, which is all that matters.
        let start = |&start: &u64| usize::try_from(start).unwrap_or(usize::MAX);
        let starts: Vec<usize> = batch.location_starts.iter().map(start).collect();
        let (places, flags) = (&batch.locations, batch.flags);
        self.on_stream(Some(batch.stream), |running, stream| {
            let backend = running.backend;
            if discard {
                // SAFETY: the ranges are memory of the case or null, so no code outside of the case
                // uses them, and the call is waited for before the next is made.
                unsafe { backend.discard_prefetch_batch(&spans, places, &starts, flags, stream) }
            } else {
                backend.prefetch_batch(&spans, places, &starts, flags, stream)
            }
        })
    }

    /// Makes a call of a device on its stream, and waits for it.
    fn on_device(
        &mut self,
        device: DeviceId,
        call: impl FnOnce(&dyn Backend, StreamHandle) -> Result<()>,
    ) -> Observed {
        let result = self.device_stream(device).and_then(|stream| {
            let called = call(self.backend, stream);
            let waited = self.backend.stream_synchronize(stream);
            called.and(waited)
        });
        coded(&result)
    }

    fn allocated(&mut self, buf: u32, bytes: u64, ptr: Result<DevicePtr>) -> Observed {
        let code = code_of(&ptr);
        if let Ok(ptr) = ptr
            && !ptr.is_null()
        {
            let old = self.buffers.insert(buf, Span::new(ptr, bytes));
            if let Some(old) = old {
                // The recording failed to allocate or freed where the back end did not: the id has
                // moved on, and so must the memory.
                // SAFETY: the case allocated the memory and never gave the address out. Earlier
                // calls were waited for, the map holds the new address instead, and imports forget
                // the old one.
                let freed = unsafe { self.backend.free(old.ptr) };
                self.forget(old.ptr, &freed);
            }
        }
        Observed { code, ..Observed::default() }
    }

    /// Memory that a free gave back is no more, by whatever id it was known. Its imports end with
    /// it.
    fn forget(&mut self, ptr: DevicePtr, freed: &Result<()>) {
        if freed.is_ok() {
            self.buffers.retain(|_, span| span.ptr != ptr);
            self.shared.forget_imports_at(ptr);
        }
    }

    /// Frees in stream order. By the id of an import that ends the import, and every other of the
    /// same memory ([`Backend::pool_import_pointer`]); the memory itself stays.
    fn pool_free(&mut self, buf: u32) -> Observed {
        let ptr = self.ptr(buf, 0);
        let mut freed = Ok(());
        let observed = self.on_stream(None, |running, stream| {
            // SAFETY: the address is null or the start of memory of the case, which only the case
            // knows. No call is in flight, and a success makes the ids forget the address.
            freed = unsafe { running.backend.free_async(ptr, stream) };
            freed.clone()
        });
        // A wait that fails afterwards does not bring the memory back.
        if self.buffers.contains_key(&buf) {
            self.forget(ptr, &freed);
        } else if freed.is_ok() {
            self.shared.forget_imports_at(ptr);
        }
        observed
    }

    // ---- attributes ---------------------------------------------------------------------------

    fn range_attributes(&self, part: Part, slots: Option<u32>) -> Observed {
        let span = self.span(part);
        let mut reads = Vec::with_capacity(RANGE_ATTRIBUTES.len().saturating_add(1));
        for (name, attribute) in RANGE_ATTRIBUTES {
            let value = self.backend.range_attribute(span, attribute);
            reads.push(read(name, value.map(|value| AttributeValue::Number(i64::from(value)))));
        }
        // One place more than devices, for the host: the driver truncates.
        let slots = slots.unwrap_or(self.devices.saturating_add(1));
        let mut list = vec![0; slots as usize];
        let listed = self.backend.range_accessed_by(span, &mut list);
        reads.push(read("accessed_by", listed.map(|()| AttributeValue::List(list))));
        all_read(reads)
    }

    fn pointer_attributes(&self, buf: u32, offset: u64) -> Observed {
        let ptr = self.ptr(buf, offset);
        let one = |(name, attribute)| {
            pointer_read(name, ptr, attribute, self.backend.pointer_attribute(ptr, attribute))
        };
        all_read(POINTER_ATTRIBUTES.into_iter().map(one).collect())
    }

    // ---- pools --------------------------------------------------------------------------------

    fn pool_call(&mut self, op: &Op) -> Observed {
        let backend = self.backend;
        match *op {
            Op::PoolCreate { pool, kind, location, handle_types, max_bytes } => {
                let handle_types = HandleTypes::from_bits_retain(handle_types);
                let props = PoolProps { allocation_type: kind, location, handle_types, max_bytes };
                let made = backend.pool_create(props);
                self.pools.extend(made.as_ref().ok().map(|&handle| (pool, handle)));
                self.made_pools.extend(made.as_ref().ok());
                coded(&made)
            }
            Op::PoolGetDefault(PoolQuery { pool, location, kind }) => {
                let found = backend.pool_default(location, kind);
                self.pool_found(pool, &found)
            }
            Op::PoolGetCurrent(PoolQuery { pool, location, kind }) => {
                let found = backend.pool_current(location, kind);
                self.pool_found(pool, &found)
            }
            Op::PoolSetCurrent(PoolQuery { pool, location, kind }) => {
                coded(&backend.pool_set_current(location, kind, self.pool(pool)))
            }
            Op::PoolDestroy { pool } => self.pool_destroy(pool),
            Op::PoolAttributes { pool } => {
                let handle = self.pool(pool);
                let one = |(name, attribute)| {
                    read(name, backend.pool_attribute(handle, attribute).map(number))
                };
                let reads = POOL_ATTRIBUTES.into_iter().map(one).collect();
                Observed { attributes: Some(Attributes(reads)), ..Observed::default() }
            }
            Op::PoolSetAttribute { pool, attribute, value } => {
                let attribute = PoolAttribute(attribute);
                coded(&backend.pool_set_attribute(self.pool(pool), attribute, value))
            }
            Op::PoolTrimTo { pool, bytes } => coded(&backend.pool_trim(self.pool(pool), bytes)),
            Op::PoolSetAccess { pool, location, access } => {
                coded(&backend.pool_set_access(self.pool(pool), location, AccessFlags(access)))
            }
            Op::PoolGetAccess { pool, location } => {
                let access = backend.pool_access(self.pool(pool), location);
                let flags = access.as_ref().map_or(NO_ACCESS_ANSWER, |access| access.0);
                Observed { access_flags: Some(flags), ..coded(&access) }
            }
            Op::PoolAlloc { buf, pool, bytes } => self.pool_alloc(buf, pool, bytes),
            Op::PoolFree { buf } => self.pool_free(buf),
            _ => unreachable!("`{}` is no pool operation", op.name()),
        }
    }

    fn pool_destroy(&mut self, pool: u32) -> Observed {
        // Other code may own the current pool of a location, and a default pool cannot be
        // destroyed. For both the null handle is passed, which the back end refuses the same way.
        let named = self.pool(pool);
        let handle = if self.made_pools.contains(&named) { named } else { PoolHandle::NULL };
        // SAFETY: the handle is null, or of a pool that the case made or imported and never gave
        // out. A success makes every id forget it.
        let destroyed = unsafe { self.backend.pool_destroy(handle) };
        if destroyed.is_ok() {
            self.pools.retain(|&(_, other)| other != handle);
            self.made_pools.retain(|&other| other != handle);
        }
        coded(&destroyed)
    }

    pub(super) fn pool_found(&mut self, pool: u32, found: &Result<PoolHandle>) -> Observed {
        let Ok(handle) = *found else { return coded(found) };
        let alike = self.pools.iter().filter(|&&(_, other)| other == handle);
        let same_as = alike.map(|&(id, _)| id).collect();
        self.pools.push((pool, handle));
        Observed { same_as: Some(same_as), ..Observed::default() }
    }

    fn pool_alloc(&mut self, buf: u32, pool: u32, bytes: u64) -> Observed {
        let handle = self.pool(pool);
        let mut ptr = DevicePtr::NULL;
        let observed = self.on_stream(None, |running, stream| {
            ptr = running.backend.pool_alloc(handle, bytes, stream)?;
            Ok(())
        });
        self.allocated(buf, bytes, Ok(ptr));
        observed
    }
}

/// Below this there is no memory. For memory of host pools driver 580 counts the start of the range
/// from the start of the pool's: that is no address, and recordings hold no value for it.
const FIRST_ADDRESS: u64 = 1 << 32;

/// A pointer attribute as recordings hold it: nothing that depends on addresses.
pub(crate) fn pointer_read(
    name: &'static str,
    ptr: DevicePtr,
    attribute: PointerAttribute,
    answer: Result<u64>,
) -> (Label, AttributeRead) {
    let is_start = attribute == PointerAttribute::RANGE_START_ADDR;
    let no_address = is_start && answer.as_ref().is_ok_and(|&start| start < FIRST_ADDRESS);
    let (label, mut read) = read(name, answer.map(|value| pointer_value(ptr, attribute, value)));
    if no_address && ptr.0 >= FIRST_ADDRESS {
        read.1 = None;
    }
    (label, read)
}

fn pointer_value(ptr: DevicePtr, attribute: PointerAttribute, value: u64) -> AttributeValue {
    match attribute {
        PointerAttribute::RANGE_START_ADDR => {
            AttributeValue::Number(ptr.0.wrapping_sub(value).cast_signed())
        }
        PointerAttribute::MEMPOOL_HANDLE => AttributeValue::Number(i64::from(value != 0)),
        // A 32-bit integer of the driver, -2 where the memory belongs to no device.
        PointerAttribute::DEVICE_ORDINAL => AttributeValue::Number(i64::from(value as u32 as i32)),
        _ => number(value),
    }
}

pub(crate) fn number(value: u64) -> AttributeValue {
    i64::try_from(value).map_or(AttributeValue::Large(value), AttributeValue::Number)
}

pub(crate) fn read(name: &'static str, answer: Result<AttributeValue>) -> (Label, AttributeRead) {
    let code = code_of(&answer);
    (Label::new(name), AttributeRead(code, answer.ok()))
}

/// The code of the operation is the first one of its reads that is not success.
pub(crate) fn all_read(reads: Vec<(Label, AttributeRead)>) -> Observed {
    let failed = reads.iter().map(|(_, read)| read.0).find(|&code| code != Code::SUCCESS);
    let attributes = Some(Attributes(reads));
    Observed { code: failed.unwrap_or(Code::SUCCESS), attributes, ..Observed::default() }
}
