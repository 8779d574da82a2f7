//! Calls that allocate and free.

use std::ops::Range;

use pagewise_hal::{
    AccessFlags, AttachFlags, BLOCK_BYTES, DeviceId, DevicePtr, HostAllocFlags, Location,
    PAGE_BYTES, PoolHandle, Processor, StreamHandle,
};

use crate::arena::NO_ADDRESSES;
use crate::attributes::AttributeChange;
use crate::cost::MemoryStep;
use crate::locate::processor_of;
use crate::pager::Discard;
use crate::pool_chunks::POOL_CHUNK_BYTES;
use crate::pools::{Grown, Pool, Pools, Released};
use crate::refusal::{Checked, bad_device, invalid, out_of_memory, unsupported};
use crate::sim::Sim;
use crate::space::{Allocation, ManagedRange, MemoryKind};

const MAPPED: &str = "mapped memory is unmapped by cuMemUnmap";
const OPENED: &str = "memory of another process is closed by cuIpcCloseMemHandle";
const REGISTERED: &str = "registered memory is its owner's: unregister it";

impl Sim {
    /// `cuMemAllocManaged`: CONTRACT-10 to CONTRACT-13.
    pub(crate) fn alloc_managed(&mut self, bytes: u64, flags: AttachFlags) -> Checked<DevicePtr> {
        if !self.config.gpu.attributes.managed_memory {
            return unsupported("the device has no managed memory");
        }
        if bytes == 0 {
            return invalid("ask for at least 1 byte");
        }
        if flags != AttachFlags::GLOBAL && flags != AttachFlags::HOST {
            return invalid("attach flags are exactly GLOBAL or HOST");
        }
        let Some((allocation, appeared)) = self.space.place_managed(&mut self.arena, bytes) else {
            return out_of_memory(NO_ADDRESSES);
        };
        if let Some(range) = appeared {
            if !self.has_room_at_home(range) {
                self.space.remove(&allocation);
                return out_of_memory(
                    "without concurrent managed access managed memory cannot exceed the device's",
                );
            }
            self.add_managed(range);
            self.settle_at_home(range);
        }
        if flags == AttachFlags::HOST {
            self.attachments.attach(allocation.start, flags, StreamHandle::NULL);
        }
        Ok(DevicePtr(allocation.start))
    }

    /// `cuMemAlloc`
    pub(crate) fn alloc_device(&mut self, device: DeviceId, bytes: u64) -> Checked<DevicePtr> {
        if !self.topology.has_device(device) {
            return bad_device("the device does not exist");
        }
        if bytes == 0 {
            return invalid("ask for at least 1 byte");
        }
        if bytes > self.plain_room(device) {
            return out_of_memory("the device's memory is used up");
        }
        let kind = MemoryKind::Device(device);
        let Some(allocation) = self.space.place_plain(&mut self.arena, bytes, kind) else {
            return out_of_memory(NO_ADDRESSES);
        };
        self.device_bytes[device.0 as usize] += bytes;
        self.make_way();
        Ok(DevicePtr(allocation.start))
    }

    /// `cuMemHostAlloc`
    pub(crate) fn alloc_pinned(&mut self, bytes: u64, flags: HostAllocFlags) -> Checked<DevicePtr> {
        let known =
            HostAllocFlags::PORTABLE | HostAllocFlags::DEVICE_MAP | HostAllocFlags::WRITE_COMBINED;
        if !known.contains(flags) {
            return invalid("flags are PORTABLE, DEVICE_MAP and WRITE_COMBINED");
        }
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let Some(allocation) = self.space.place_plain(&mut self.arena, bytes, MemoryKind::Pinned)
        else {
            return out_of_memory(NO_ADDRESSES);
        };
        self.pager.note_memory(MemoryStep::PinnedMade(bytes));
        Ok(DevicePtr(allocation.start))
    }

    /// `cuMemFree`
    pub(crate) fn free(&mut self, ptr: DevicePtr) -> Checked<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let allocation = self.allocation_starting(ptr)?;
        if self.end_foreign_import(ptr) {
            return Ok(());
        }
        match allocation.kind {
            MemoryKind::Pinned => return invalid("pinned memory is freed by cuMemFreeHost"),
            MemoryKind::Mapped(_) => return invalid(MAPPED),
            MemoryKind::Opened(_) => return invalid(OPENED),
            MemoryKind::Registered => return invalid(REGISTERED),
            MemoryKind::Pool(pool) => {
                self.leave_pool(&allocation, pool, false);
                let released = self.pools.release_to_threshold(pool.as_raw());
                self.give_back(released);
                self.forget_gone_pools();
            }
            MemoryKind::Managed => {
                let gone = self.space.remove(&allocation);
                self.remove_managed(&allocation, gone);
            }
            MemoryKind::Device(device) => {
                self.device_bytes[device.0 as usize] -= allocation.bytes;
                self.remove_plain(&allocation);
                self.make_way();
            }
        }
        Ok(())
    }

    /// `cuMemFreeHost`
    pub(crate) fn free_pinned(&mut self, ptr: DevicePtr) -> Checked<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let allocation = self.allocation_starting(ptr)?;
        if allocation.kind != MemoryKind::Pinned {
            return invalid("only pinned memory is freed by cuMemFreeHost");
        }
        self.pager.note_memory(MemoryStep::PinnedGone(allocation.bytes));
        self.remove_plain(&allocation);
        Ok(())
    }

    fn remove_plain(&mut self, allocation: &Allocation) {
        self.withdraw_memory(allocation);
        self.peer_access.forget(allocation.start);
        self.space.remove(allocation);
        self.arena.clear(allocation.start, allocation.bytes.next_multiple_of(PAGE_BYTES));
    }

    /// `cuMemFreeAsync`
    pub(crate) fn free_async(&mut self, ptr: DevicePtr, stream: StreamHandle) -> Checked<()> {
        self.streams.check(stream)?;
        if ptr.is_null() {
            return Ok(());
        }
        let allocation = self.allocation_starting(ptr)?;
        match allocation.kind {
            // The driver takes plain device memory too (CONTRACT-14).
            MemoryKind::Pool(_) | MemoryKind::Device(_) => {}
            MemoryKind::Managed => return unsupported("managed memory is freed by cuMemFree"),
            MemoryKind::Pinned => return invalid("pinned memory is freed by cuMemFreeHost"),
            MemoryKind::Mapped(_) => return invalid(MAPPED),
            MemoryKind::Opened(_) => return invalid(OPENED),
            MemoryKind::Registered => return invalid(REGISTERED),
        }
        if self.rehearses || self.end_import(ptr) {
            return Ok(());
        }
        match allocation.kind {
            MemoryKind::Pool(pool) => {
                self.leave_pool(&allocation, pool, true);
                Ok(())
            }
            _ => self.free(ptr),
        }
    }

    /// `cuMemAllocFromPoolAsync`
    pub(crate) fn pool_alloc(
        &mut self,
        pool: PoolHandle,
        bytes: u64,
        stream: StreamHandle,
    ) -> Checked<DevicePtr> {
        let home = self.pools.get(pool.as_raw())?.home();
        self.streams.check(stream)?;
        if self.pools.get(pool.as_raw())?.is_managed() {
            self.check_concurrent()?;
        }
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let room = self.room_for_pool(pool, home);
        let grown = self.pools.alloc(&mut self.arena, pool.as_raw(), bytes, room)?;
        self.note_growth(&grown, pool)?;
        if self.pools.get(pool.as_raw())?.is_managed() {
            self.add_managed_chunks(&grown, pool);
        } else if !grown.chunks.is_empty() {
            self.make_way();
        }
        self.space.enter(grown.address, bytes, MemoryKind::Pool(pool));
        Ok(DevicePtr(grown.address))
    }

    /// Chunks take longer the first time. Managed memory stays behind one that was given back.
    fn note_growth(&mut self, grown: &Grown, pool: PoolHandle) -> Checked<()> {
        if grown.chunks.is_empty() {
            return Ok(());
        }
        let memory = self.pools.get(pool.as_raw())?.memory();
        let had = |address: &&u64| self.pager.has_range(chunk_pages(**address).start);
        let again = grown.chunks.iter().filter(had).count() as u64;
        let fresh = grown.chunks.len() as u64 - again;
        self.pager.note_memory(MemoryStep::ChunksMade { memory, fresh, again });
        Ok(())
    }

    /// Carries out a call that gives a pool, and may have to make it.
    pub(crate) fn making_pool(
        &mut self,
        make: impl FnOnce(&mut Pools) -> Checked<u64>,
    ) -> Checked<u64> {
        let next = self.pools.next_handle();
        let handle = make(&mut self.pools)?;
        if handle >= next {
            let pool = self.pools.get(handle)?;
            let (memory, is_limited) = (pool.memory(), pool.props.max_bytes != 0);
            self.pager.note_memory(MemoryStep::PoolMade { memory, is_limited });
        }
        Ok(handle)
    }

    /// Gives empty chunks of pools back, as a synchronisation does, as far as thresholds allow.
    pub(crate) fn release_pools(&mut self) {
        let released = self.pools.release_all();
        self.give_back(released);
        self.forget_gone_pools();
    }

    /// Carries out what pools gave back.
    pub(crate) fn give_back(&mut self, released: Released) {
        released.steps.into_iter().for_each(|step| self.pager.note_memory(step));
        for address in released.idle {
            self.pager.discard(chunk_pages(address), Discard::Lazy);
        }
        if !released.gone.is_empty() {
            for memory in &released.gone {
                self.withdraw_chunks(memory);
                self.drop_memory(pages_of(memory));
            }
            self.make_way();
        }
    }

    /// Forgets pages that belong to no memory any more.
    fn drop_memory(&mut self, pages: Range<u64>) {
        let count = pages.end - pages.start;
        self.pager.remove_range(pages.start, count);
        self.contents.remove(&pages);
        self.arena.clear(pages.start * PAGE_BYTES, count * PAGE_BYTES);
    }

    fn allocation_starting(&self, ptr: DevicePtr) -> Checked<Allocation> {
        match self.space.starting(ptr) {
            Some(allocation) => Ok(*allocation),
            None => invalid("not the first byte of a live allocation"),
        }
    }

    fn leave_pool(&mut self, allocation: &Allocation, pool: PoolHandle, counted: bool) {
        self.space.remove(allocation);
        // An import of it that was not freed before ends with it.
        self.end_import(DevicePtr(allocation.start));
        self.withdraw_pointer(pool, DevicePtr(allocation.start));
        self.pools.free(pool.as_raw(), allocation.start, allocation.bytes, counted);
    }

    fn add_managed(&mut self, range: ManagedRange) {
        self.attributes.add_region(range.first_page..range.first_page + range.pages);
        self.pager.add_range(range.first_page, range.pages);
    }

    /// Bookkeeping of a freed managed allocation: what it touched is reset; if its range went too,
    /// so do its pages and contents.
    fn remove_managed(&mut self, allocation: &Allocation, gone: Option<ManagedRange>) {
        self.detach(allocation);
        self.leave_home(gone);
        let Some(ManagedRange { first_page, pages }) = gone else {
            let pages = allocation.span().pages_outward();
            self.attributes.forget(pages.clone());
            self.pager.forget_advice(pages, self.config.devices);
            return;
        };
        self.attributes.remove_region(first_page..first_page + pages);
        // A block goes as fast as a page moves.
        self.lend_during(pages.div_ceil(BLOCK_BYTES / PAGE_BYTES) * PAGE_BYTES);
        self.drop_memory(first_page..first_page + pages);
    }

    /// New chunks of a managed pool: pages prefer the pool's location and start there, and those
    /// that the pool gave access to count as accessing them (PAGING-270).
    fn add_managed_chunks(&mut self, grown: &Grown, pool: PoolHandle) {
        if let Some(inherited) = &grown.inherited {
            self.drop_memory(pages_of(inherited));
        }
        let Ok(pool) = self.pools.get(pool.as_raw()) else { return };
        let location = pool.props.location;
        let admitted: Vec<Processor> = pool.admitted().collect();
        let home = self.topology.processor(location).ok();
        if let Some(region) = grown.region {
            // Another pool may have had it.
            self.attributes.remove_region(region.pages_outward());
            self.attributes.add_region(region.pages_outward());
        }
        for &address in &grown.chunks {
            let pages = chunk_pages(address);
            self.attributes.add_pool_memory(&pages);
            if self.pager.has_range(pages.start) {
                self.pager.forget_advice(pages.clone(), self.config.devices);
            } else {
                self.pager.add_range(pages.start, pages.end - pages.start);
            }
            for &processor in &admitted {
                self.admit(pages.clone(), processor, true);
            }
            let Some(home) = home else { continue };
            self.pager.set_preferred(pages.clone(), Some(home));
            self.attributes.change(pages.clone(), AttributeChange::Preferred(Some(location)));
            self.pager.migrate(pages, home);
        }
    }

    /// `cuMemPoolSetAccess`: a processor with access to a managed pool is an accessed-by processor of
    /// its memory, also of what the pool holds already (PAGING-270).
    pub(crate) fn pool_set_accesses(
        &mut self,
        pool: PoolHandle,
        wanted: impl Iterator<Item = (Location, AccessFlags)> + Clone,
    ) -> Checked<()> {
        let pools = &self.pools;
        wanted.clone().try_for_each(|(location, access)| {
            pools.check_access(pool.as_raw(), location, access).map(drop)
        })?;
        for (location, access) in wanted {
            let processor = self.pools.set_access(pool.as_raw(), location, access)?;
            let admitted = access == AccessFlags::READ_WRITE;
            for address in self.pools.managed_chunks(pool.as_raw()) {
                self.admit(chunk_pages(address), processor, admitted);
            }
        }
        Ok(())
    }

    fn admit(&mut self, pages: Range<u64>, processor: Processor, admitted: bool) {
        self.attributes.change(pages.clone(), AttributeChange::AccessedBy(processor, admitted));
        self.pager.set_accessed_by(pages, processor, admitted);
    }

    fn room_for_pool(&self, pool: PoolHandle, home: Option<Processor>) -> u64 {
        let pinned = self.pools.get(pool.as_raw()).is_ok_and(|pool| !pool.is_managed());
        match home.and_then(Processor::device_ordinal) {
            Some(ordinal) if pinned => self.plain_room(DeviceId(ordinal.cast_signed())),
            _ => u64::MAX,
        }
    }

    /// The room of a device for memory that does not migrate: managed pages make way for it,
    /// unless they have to be there.
    pub(crate) fn plain_room(&self, device: DeviceId) -> u64 {
        let at_home = self.exclusive.as_ref().map_or(0, |e| e.bytes_on(processor_of(device)));
        self.config.gpu.usable_bytes().saturating_sub(self.plain_bytes(device) + at_home)
    }

    /// Bytes of a device's memory that do not migrate.
    pub(crate) fn plain_bytes(&self, device: DeviceId) -> u64 {
        let physical = self.mappings.bytes_on(device);
        self.device_bytes[device.0 as usize] + self.pinned_pool_bytes(device) + physical
    }

    /// Whether a managed range fits where it has to live, if it has to. Without concurrent managed
    /// access all managed memory together fits a device, also where it lives on the host (CUDA
    /// programming guide).
    fn has_room_at_home(&self, range: ManagedRange) -> bool {
        let Some(exclusive) = &self.exclusive else { return true };
        let room = match exclusive.home.device_ordinal() {
            Some(ordinal) => self.plain_room(DeviceId(ordinal.cast_signed())),
            None => {
                let taken = exclusive.bytes_on(exclusive.home);
                self.config.gpu.usable_bytes().saturating_sub(taken)
            }
        };
        range.device_bytes() <= room
    }

    /// Lets managed pages leave devices if other allocations have taken the memory: those always
    /// win (PAGING-217).
    pub(crate) fn make_way(&mut self) {
        for device in (0..self.config.devices).map(|ordinal| DeviceId(ordinal.cast_signed())) {
            self.pager.claim(processor_of(device), self.plain_bytes(device));
        }
    }

    fn pinned_pool_bytes(&self, device: DeviceId) -> u64 {
        let home = processor_of(device);
        let pools = self.pools.iter();
        let pinned = pools.filter(|pool| !pool.is_managed() && pool.home() == Some(home));
        pinned.map(Pool::reserved).sum()
    }
}

/// The pages of a chunk of a pool.
fn chunk_pages(address: u64) -> Range<u64> {
    pages_of(&(address..address + POOL_CHUNK_BYTES))
}

fn pages_of(addresses: &Range<u64>) -> Range<u64> {
    addresses.start / PAGE_BYTES..addresses.end / PAGE_BYTES
}
