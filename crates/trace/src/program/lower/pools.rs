//! Steps on memory pools: those that make pools, ask them and allocate from them.

use pagewise_hal::{AllocationType, DriverVersion, Location, LocationKind};

use super::{Buffer, Kind, Lowering, Pool, nth};
use crate::format::Op;
use crate::program::step::Step;

impl Lowering {
    pub(super) fn pool_step(&mut self, step: &Step) {
        if let &Step::PoolCreate { kind, location, handle_types, max_bytes } = step {
            self.pool_create(kind, location, handle_types, max_bytes);
            return;
        }
        if self.pools.is_empty() {
            self.pool_create(AllocationType::MANAGED, Location::HOST, 0, 0);
        }
        let count = self.pools.len();
        let at = |which: &u16| usize::from(*which) % count;
        match step {
            Step::PoolAlloc { nth: which, bytes } => self.pool_alloc(at(which), *bytes),
            Step::PoolFree { nth: which } => {
                let buffers = self.of_kind(|kind| matches!(kind, Kind::Pool(_)));
                let Some(buffer) = nth(&buffers, *which) else { return };
                self.moving(Op::PoolFree { buf: buffer.id });
                self.forget(buffer);
            }
            Step::PoolAttributes { nth } => {
                self.ops.push(Op::PoolAttributes { pool: self.pools[at(nth)].id });
            }
            &Step::PoolSetAttribute { ref nth, attribute, value } => {
                let pool = self.pools[at(nth)].id;
                self.ops.push(Op::PoolSetAttribute { pool, attribute, value });
            }
            &Step::PoolTrimTo { ref nth, bytes } => {
                self.ops.push(Op::PoolTrimTo { pool: self.pools[at(nth)].id, bytes });
            }
            &Step::PoolSetAccess { ref nth, location, access } => {
                let pool = &mut self.pools[at(nth)];
                // A processor without access must not touch the memory, and which one lost access
                // is not tracked.
                pool.open &= access == 3;
                self.ops.push(Op::PoolSetAccess { pool: pool.id, location, access });
            }
            &Step::PoolGetAccess { ref nth, location } => {
                self.ops.push(Op::PoolGetAccess { pool: self.pools[at(nth)].id, location });
            }
            _ => unreachable!("a pool step"),
        }
    }

    fn pool_create(
        &mut self,
        kind: AllocationType,
        location: Location,
        handle_types: u32,
        max_bytes: u64,
    ) {
        let id = self.pools.len() as u32;
        self.ops.push(Op::PoolCreate { pool: id, kind, location, handle_types, max_bytes });
        let known = match location.kind {
            LocationKind::DEVICE => (0..self.offers.devices.cast_signed()).contains(&location.id),
            LocationKind::HOST_NUMA => location.id == 0,
            LocationKind::HOST | LocationKind::HOST_NUMA_CURRENT | LocationKind::INVALID => true,
            _ => false,
        };
        let open = known
            && kind == AllocationType::MANAGED
            && handle_types == 0
            && max_bytes == 0
            && self.offers.version >= DriverVersion::CUDA_13_0;
        self.pools.push(Pool { id, open });
    }

    fn pool_alloc(&mut self, at: usize, bytes: u64) {
        if bytes == 0 || !self.has_room(bytes) {
            return;
        }
        let buf = self.next_id();
        self.moving(Op::PoolAlloc { buf, pool: self.pools[at].id, bytes });
        self.live.push(Buffer { id: buf, bytes, kind: Kind::Pool(at), read_mostly: false });
    }
}
