//! The memory pools of a process: those that can be made, the default and current ones, their
//! addresses.
//!
//! One of them, with its attributes, access and memory, is `pool`.
//!
//! CONTRACT-80 to CONTRACT-93 are the driver's rules. Paging of managed pools is not done here: what
//! memory appeared or went is returned.

mod pool;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::{
    AccessFlags, AllocationType, DevicePtr, DriverVersion, HandleTypes, Location, LocationKind,
    PoolAttribute, PoolProps, Processor, Span,
};

use crate::arena::{Arena, Zone};
use crate::cost::MemoryStep;
use crate::locate::{Topology, Unknown};
use crate::pool_chunks::POOL_CHUNK_BYTES;
use crate::pool_regions::PoolRegions;
use crate::refusal::{Checked, bad_device, invalid, no_entry_point, out_of_memory, unsupported};

pub(crate) use pool::Pool;

/// A default pool's key: type, and kind and id of the location.
type Key = (AllocationType, LocationKind, i32);

/// Memory that appeared with an allocation.
#[derive(Debug)]
pub(crate) struct Grown {
    pub(crate) address: u64,
    /// Addresses of whole chunks.
    pub(crate) chunks: Vec<u64>,
    /// All addresses that the pool may use, if it may only now.
    pub(crate) region: Option<Span>,
    /// The part of these addresses that an earlier pool used and gave up.
    pub(crate) inherited: Option<Range<u64>>,
}

/// Memory that pools gave back, by address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// Chunks of managed pools that live on. Their pages stay where they are, mapped as they are;
    /// what they hold is discarded (PAGING-271).
    pub(crate) idle: Vec<u64>,
    /// Memory that is gone: other chunks, and all of a pool that is gone.
    pub(crate) gone: Vec<Range<u64>>,
    /// The same as steps that take time.
    pub(crate) steps: Vec<MemoryStep>,
}

impl Released {
    fn add(&mut self, other: Self) {
        self.idle.extend(other.idle);
        self.gone.extend(other.gone);
        self.steps.extend(other.steps);
    }
}

/// Where the addresses of a pool come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegionSource {
    /// It has them already.
    Own,
    /// No pool has them.
    Free,
    /// A pool without memory has them.
    Idle(u64),
}

/// All pools of the process.
#[derive(Debug, Clone)]
pub(crate) struct Pools {
    topology: Topology,
    version: DriverVersion,
    pools: BTreeMap<u64, Pool>,
    defaults: BTreeMap<Key, u64>,
    currents: BTreeMap<Key, u64>,
    /// Address space for managed pools, and before it that for others: the driver keeps them apart.
    regions: [PoolRegions; 2],
    next: u64,
}

impl Pools {
    pub(crate) fn new(topology: Topology, version: DriverVersion, device_bytes: u64) -> Self {
        let regions = [Zone::Pools, Zone::ManagedPools];
        Self {
            topology,
            version,
            pools: BTreeMap::new(),
            defaults: BTreeMap::new(),
            currents: BTreeMap::new(),
            regions: regions.map(|zone| PoolRegions::new(zone, device_bytes)),
            next: 0x100,
        }
    }

    pub(crate) fn get(&self, handle: u64) -> Checked<&Pool> {
        match self.pools.get(&handle) {
            Some(pool) if !pool.destroyed && !pool.imported => Ok(pool),
            _ => invalid(NO_POOL),
        }
    }

    /// A pool or an imported one.
    fn live(&self, handle: u64) -> Checked<&Pool> {
        match self.pools.get(&handle) {
            Some(pool) if !pool.destroyed => Ok(pool),
            _ => invalid(NO_POOL),
        }
    }

    /// A pool, also one that was destroyed while memory of it lives.
    pub(crate) fn any(&self, handle: u64) -> Option<&Pool> {
        self.pools.get(&handle)
    }

    fn get_mut(&mut self, handle: u64) -> Checked<&mut Pool> {
        match self.pools.get_mut(&handle) {
            Some(pool) if !pool.destroyed => Ok(pool),
            _ => invalid(NO_POOL),
        }
    }

    /// Every pool, destroyed ones with live memory included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.values()
    }

    /// Handles are not given again: the ones of later pools are this or more.
    pub(crate) fn next_handle(&self) -> u64 {
        self.next
    }

    fn insert(&mut self, pool: Pool) -> u64 {
        let handle = self.next;
        self.next += 1;
        self.pools.insert(handle, pool);
        handle
    }

    /// `cuMemPoolCreate`
    pub(crate) fn create(&mut self, props: PoolProps) -> Checked<u64> {
        let home = self.topology.processor(props.location).ok();
        let plain = props.handle_types.is_empty();
        let thirteen = self.version >= DriverVersion::CUDA_13_0;
        let locations = self.version >= DriverVersion::CUDA_12_2;
        if props.max_bytes != 0 && !locations {
            return invalid("a size limit needs a driver of CUDA 12.2 or later");
        }
        if (props.allocation_type, props.location.kind)
            == (AllocationType::MANAGED, LocationKind::INVISIBLE)
        {
            return unsupported("an invisible location is only ever an answer");
        }
        let exists = home.is_some();
        let possible = match (props.allocation_type, props.location.kind) {
            (AllocationType::PINNED, LocationKind::DEVICE) => {
                exists && exportable(props.handle_types)
            }
            (AllocationType::PINNED, LocationKind::HOST_NUMA) => {
                exists && locations && exportable(props.handle_types)
            }
            (AllocationType::PINNED, LocationKind::HOST) => thirteen && plain,
            (AllocationType::MANAGED, kind) => {
                let has_home = exists || kind == LocationKind::INVALID;
                thirteen && plain && props.max_bytes == 0 && has_home
            }
            _ => false,
        };
        if !possible {
            return invalid(
                "pinned pools take a device, the host (no handle types) or a host NUMA node; \
                 managed pools take neither handle types nor a size limit",
            );
        }
        Ok(self.insert(Pool::new(props, home, false)))
    }

    /// A handle for what another process knows of a pool: its kind and location.
    pub(crate) fn import(&mut self, exporter: u64) -> Checked<u64> {
        let Some(pool) = self.pools.get(&exporter) else { return invalid(NO_POOL) };
        let mut imported = Pool::new(pool.props, pool.home, false);
        imported.imported = true;
        Ok(self.insert(imported))
    }

    /// A handle for the pool of another process. A processor, `home`, has its memory.
    pub(crate) fn import_foreign(&mut self, props: PoolProps, home: Processor) -> u64 {
        let mut imported = Pool::new(props, Some(home), false);
        imported.imported = true;
        self.insert(imported)
    }

    /// Whether a pool or an imported one was not destroyed.
    pub(crate) fn is_live(&self, handle: u64) -> bool {
        self.live(handle).is_ok()
    }

    /// Memory of another process is mapped, of an imported pool.
    pub(crate) fn count_import(&mut self, handle: u64) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.foreign += 1;
        }
    }

    /// And unmapped. A pool that was destroyed goes with the last.
    pub(crate) fn end_import(&mut self, handle: u64) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.foreign = pool.foreign.saturating_sub(1);
        }
        self.forget_if_gone(handle);
    }

    /// `cuMemPoolDestroy`
    pub(crate) fn destroy(&mut self, handle: u64) -> Checked<Released> {
        let pool = self.get_mut(handle)?;
        if pool.is_default {
            return invalid("a default pool cannot be destroyed");
        }
        pool.destroyed = true;
        let (memory, was_used) = (pool.memory(), pool.region.is_some());
        self.currents.retain(|_, current| *current != handle);
        let mut released = self.release(handle, 0);
        released.steps.push(MemoryStep::PoolGone { memory, was_used });
        Ok(released)
    }

    /// `cuMemGetDefaultMemPool`
    pub(crate) fn default(&mut self, location: Location, kind: AllocationType) -> Checked<u64> {
        let key = self.key(location, kind)?;
        if let Some(&handle) = self.defaults.get(&key) {
            return Ok(handle);
        }
        let props = PoolProps {
            allocation_type: kind,
            location,
            handle_types: HandleTypes::empty(),
            max_bytes: 0,
        };
        let home = self.topology.processor(location).ok();
        let handle = self.insert(Pool::new(props, home, true));
        self.defaults.insert(key, handle);
        Ok(handle)
    }

    /// `cuMemGetMemPool`
    pub(crate) fn current(&mut self, location: Location, kind: AllocationType) -> Checked<u64> {
        let key = self.key(location, kind)?;
        match self.currents.get(&key) {
            Some(&handle) => Ok(handle),
            None => self.default(location, kind),
        }
    }

    /// `cuMemSetMemPool`
    pub(crate) fn set_current(
        &mut self,
        location: Location,
        kind: AllocationType,
        handle: u64,
    ) -> Checked<()> {
        let key = self.key(location, kind)?;
        let props = self.get(handle)?.props;
        if self.key(props.location, props.allocation_type) != Ok(key) {
            return invalid("location and type must be the pool's own");
        }
        self.currents.insert(key, handle);
        Ok(())
    }

    /// Which pool a location and a type name, with the refusals of all three calls above.
    fn key(&self, location: Location, kind: AllocationType) -> Checked<Key> {
        let thirteen = self.version >= DriverVersion::CUDA_13_0;
        if !thirteen && (location.kind, kind) != (LocationKind::DEVICE, AllocationType::PINNED) {
            return no_entry_point("pools by location need a driver of CUDA 13.0 or later");
        }
        // Decided before the type is looked at (CONTRACT-82).
        if location.kind == LocationKind::HOST_NUMA_CURRENT {
            return unsupported("name the NUMA node: HOST_NUMA_CURRENT has no pool");
        }
        let nowhere = location.kind == LocationKind::INVALID && kind == AllocationType::MANAGED;
        let known = matches!(kind, AllocationType::PINNED | AllocationType::MANAGED);
        let exists = self.topology.processor(location).is_ok() || nowhere;
        if !known || !exists {
            return invalid("unknown allocation type, device, NUMA node or location type");
        }
        let id = match location.kind {
            LocationKind::DEVICE | LocationKind::HOST_NUMA => location.id,
            _ => 0,
        };
        Ok((kind, location.kind, id))
    }

    /// `cuMemPoolGetAttribute`
    pub(crate) fn attribute(&self, handle: u64, attribute: PoolAttribute) -> Checked<u64> {
        let describes_itself = self.version >= DriverVersion::CUDA_13_2;
        self.get(handle)?.attribute(attribute, describes_itself)
    }

    /// `cuMemPoolSetAttribute`
    pub(crate) fn set_attribute(
        &mut self,
        handle: u64,
        attribute: PoolAttribute,
        value: u64,
    ) -> Checked<()> {
        self.get(handle)?;
        self.get_mut(handle)?.set_attribute(attribute, value)
    }

    /// `cuMemPoolGetAccess`
    pub(crate) fn access(&self, handle: u64, location: Location) -> Checked<AccessFlags> {
        let pool = self.live(handle)?;
        match self.accessor(location) {
            Ok(processor) => Ok(pool.access_of(processor)),
            Err(_) => invalid("unknown device or location type; name the NUMA node"),
        }
    }

    /// The checks of `cuMemPoolSetAccess`: the first refusal that applies is the answer, or the
    /// processor that is meant.
    pub(crate) fn check_access(
        &self,
        handle: u64,
        location: Location,
        access: AccessFlags,
    ) -> Checked<Processor> {
        let pool = self.live(handle)?;
        let home = pool.home().filter(|_| !pool.is_managed());
        let on_device = home.is_some_and(|home| !home.is_host());
        if access == AccessFlags::READ {
            return unsupported("no pool can be made read-only");
        }
        if on_device && location.kind != LocationKind::DEVICE {
            return unsupported("only devices can have access to a pool of device memory");
        }
        let processor = match self.accessor(location) {
            Ok(processor) => processor,
            Err(Unknown::Device) => return bad_device("the device does not exist"),
            Err(_) => return invalid("unknown location type; name the NUMA node"),
        };
        if access != AccessFlags::NONE && access != AccessFlags::READ_WRITE {
            return invalid("access is none (0) or read and write (3)");
        }
        if access == AccessFlags::NONE && home == Some(processor) {
            if on_device {
                return bad_device("a pool's own device keeps its access");
            }
            return unsupported("the host keeps its access to a pool of host memory");
        }
        Ok(processor)
    }

    /// The processor that a location gives access to. Any NUMA node stands for the host, whether it
    /// exists or not, but the node of the calling thread has to be named.
    fn accessor(&self, location: Location) -> Result<Processor, Unknown> {
        match location.kind {
            LocationKind::HOST_NUMA => Ok(Processor::HOST),
            LocationKind::HOST_NUMA_CURRENT => Err(Unknown::Node),
            _ => self.topology.processor(location),
        }
    }

    /// `cuMemPoolSetAccess`, of one location.
    pub(crate) fn set_access(
        &mut self,
        handle: u64,
        location: Location,
        access: AccessFlags,
    ) -> Checked<Processor> {
        let processor = self.check_access(handle, location, access)?;
        self.get_mut(handle)?.access.insert(processor, access);
        Ok(processor)
    }

    /// First bytes of the chunks that a managed pool holds; none of another pool, and none of an
    /// imported one, as the exporter has the memory.
    pub(crate) fn managed_chunks(&self, handle: u64) -> Vec<u64> {
        let Ok(pool) = self.get(handle) else { return Vec::new() };
        let Some(region) = pool.region.as_ref().filter(|_| pool.is_managed()) else {
            return Vec::new();
        };
        pool.chunks.held().map(|index| region.start + index * POOL_CHUNK_BYTES).collect()
    }

    /// `cuMemAllocFromPoolAsync` of at least 1 byte. `room` is what the pool's device, or the host,
    /// has left.
    pub(crate) fn alloc(
        &mut self,
        arena: &mut Arena,
        handle: u64,
        bytes: u64,
        room: u64,
    ) -> Checked<Grown> {
        let (region, source) = self.find_region(arena, handle, bytes)?;
        let region_bytes = region.end - region.start;
        let pool = self.get_mut(handle)?;
        let limit = pool.limit().min(pool.reserved().saturating_add(room)).min(region_bytes);
        let Ok((offset, new)) = pool.chunks.take(bytes, limit, region_bytes) else {
            return out_of_memory(
                "the pool's size limit, its addresses or the memory behind it are used up",
            );
        };
        pool.used += bytes;
        pool.used_high = pool.used_high.max(pool.used);
        let chunks = new.into_iter().map(|index| region.start + index * POOL_CHUNK_BYTES).collect();
        let inherited = self.take_region(handle, &region, source);
        let appeared = Span { ptr: DevicePtr(region.start), bytes: region_bytes };
        let appeared = (source != RegionSource::Own).then_some(appeared);
        Ok(Grown { address: region.start + offset, chunks, region: appeared, inherited })
    }

    /// Frees memory. `counted` is false for `cuMemFree`, which leaves the used figure as it is
    /// (CONTRACT-91).
    pub(crate) fn free(&mut self, handle: u64, address: u64, bytes: u64, counted: bool) {
        if let Some(pool) = self.pools.get_mut(&handle)
            && let Some(region) = &pool.region
        {
            pool.chunks.give(address - region.start);
            if counted {
                pool.used -= bytes;
            }
        }
    }

    /// Gives chunks with nothing in them back, as a synchronisation does, as far as the thresholds
    /// allow.
    pub(crate) fn release_all(&mut self) -> Released {
        let handles: Vec<u64> = self.pools.keys().copied().collect();
        let mut released = Released::default();
        handles.into_iter().for_each(|handle| released.add(self.release_to_threshold(handle)));
        released
    }

    /// Releases the unused memory of one pool down to its threshold.
    pub(crate) fn release_to_threshold(&mut self, handle: u64) -> Released {
        let keep = match self.pools.get(&handle) {
            Some(pool) if !pool.destroyed => pool.release_threshold,
            _ => 0,
        };
        self.release(handle, keep)
    }

    /// `cuMemPoolTrimTo`: unlike the threshold, which stops once no more than it is held, trimming
    /// never goes below what is to be kept (CONTRACT-90).
    pub(crate) fn trim(&mut self, handle: u64, keep: u64) -> Checked<Released> {
        self.get(handle)?;
        let whole_chunks = keep.checked_next_multiple_of(POOL_CHUNK_BYTES).unwrap_or(u64::MAX);
        Ok(self.release(handle, whole_chunks))
    }

    fn release(&mut self, handle: u64, keep: u64) -> Released {
        let Some(pool) = self.pools.get_mut(&handle) else { return Released::default() };
        let indices = pool.chunks.release(keep);
        let (managed, used) = (pool.is_managed(), pool.used_addresses());
        let step = MemoryStep::ChunksGone { memory: pool.memory(), chunks: indices.len() as u64 };
        let is_gone = self.forget_if_gone(handle);
        let Some(used) = used else { return Released::default() };
        let chunks = indices.iter().map(|index| used.start + index * POOL_CHUNK_BYTES);
        let steps = if indices.is_empty() { Vec::new() } else { vec![step] };
        match (managed, is_gone) {
            (true, false) => Released { idle: chunks.collect(), gone: Vec::new(), steps },
            (true, true) => Released { idle: Vec::new(), gone: vec![used], steps },
            (false, _) => {
                let gone = chunks.map(|address| address..address + POOL_CHUNK_BYTES);
                Released { idle: Vec::new(), gone: gone.collect(), steps }
            }
        }
    }

    /// The pool's addresses; if it has none, those that it gets once the allocation succeeds, from a
    /// pool without memory if need be.
    fn find_region(
        &mut self,
        arena: &mut Arena,
        handle: u64,
        bytes: u64,
    ) -> Checked<(Range<u64>, RegionSource)> {
        let Some(pool) = self.pools.get(&handle) else { return invalid(NO_POOL) };
        if let Some(region) = &pool.region {
            return Ok((region.clone(), RegionSource::Own));
        }
        let zone = pool.zone();
        if let Some(region) = self.regions[zone].free(arena, bytes) {
            return Ok((region, RegionSource::Free));
        }
        let idle = self.pools.iter().find_map(|(&other, pool)| {
            let region = pool.region.as_ref()?;
            let is_idle = pool.zone() == zone && pool.chunks.is_unused();
            is_idle.then(|| (region.clone(), RegionSource::Idle(other)))
        });
        let out_of_addresses = "no address space is left for another pool: destroy pools that are \
            not needed, drop machines, or raise the limit of the process (`ulimit -v`)";
        idle.ok_or(()).or_else(|()| out_of_memory(out_of_addresses))
    }

    /// Gives a pool the region that was found. Returns what the pool that had it used of it.
    fn take_region(
        &mut self,
        handle: u64,
        region: &Range<u64>,
        source: RegionSource,
    ) -> Option<Range<u64>> {
        let pool = self.pools.get_mut(&handle)?;
        match source {
            RegionSource::Own => return None,
            RegionSource::Free | RegionSource::Idle(_) => pool.region = Some(region.clone()),
        }
        let zone = pool.zone();
        if let RegionSource::Idle(owner) = source {
            let owner = self.pools.get_mut(&owner)?;
            let used = owner.used_addresses();
            owner.region = None;
            return used;
        }
        self.regions[zone].take(region);
        None
    }

    /// A pool keeps its addresses until it is destroyed and holds no memory. Whether it is gone.
    fn forget_if_gone(&mut self, handle: u64) -> bool {
        let Some(pool) = self.pools.get(&handle) else { return false };
        if !pool.destroyed || !pool.chunks.is_unused() || pool.foreign > 0 {
            return false;
        }
        if let Some(region) = &pool.region {
            self.regions[pool.zone()].give(region);
        }
        self.pools.remove(&handle);
        true
    }
}

const NO_POOL: &str = "there is no such pool, or it was destroyed, or it is another process's";

/// Pools can be exported in one way or none: as file descriptors or to the fabric.
fn exportable(types: HandleTypes) -> bool {
    types.is_empty() || types == HandleTypes::POSIX_FILE_DESCRIPTOR || types == HandleTypes::FABRIC
}
