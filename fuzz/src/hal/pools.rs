//! Calls about pools, and about other processes.

use std::os::fd::{FromRawFd, OwnedFd};

use pagewise_hal::{
    AccessFlags, AllocationType, ExportedPointer, HandleTypes, IpcMemHandle, PoolAttribute,
    PoolProps, SHARED_BLOB_BYTES, ShareableHandle, Span,
};

use super::round::Round;

/// Most pools of a round.
const POOLS_MAX: usize = 4;
/// Most bytes of one allocation of a pool, other than so many that nothing holds them.
const POOL_BYTES_MAX: u64 = 80 << 20;

impl Round<'_, '_> {
    pub(super) fn pool(&mut self) {
        if self.known.pools.is_empty() {
            return self.make_pool();
        }
        let pool = self.pool_handle();
        match self.choices.below(12) {
            0 => self.make_pool(),
            1 | 2 => self.pool_memory(),
            3 => {
                let attribute = PoolAttribute(self.small_i32());
                self.call("pool_attribute", |sim| sim.pool_attribute(pool, attribute));
            }
            4 => {
                let (attribute, value) = (PoolAttribute(self.small_i32()), self.choices.edge());
                self.call("pool_set_attribute", |sim| {
                    sim.pool_set_attribute(pool, attribute, value)
                });
            }
            5 => {
                let keep = self.choices.edge();
                self.call("pool_trim", |sim| sim.pool_trim(pool, keep));
            }
            6 => {
                let location = self.location();
                let access = AccessFlags(self.choices.one_of(&[0, 3, 3, 1, 2, -1]));
                self.call("pool_set_access", |sim| sim.pool_set_access(pool, location, access));
                self.call("pool_access", |sim| sim.pool_access(pool, location));
            }
            7 => {
                let (location, kind) = (self.location(), self.pool_kind());
                self.call("pool_set_current", |sim| sim.pool_set_current(location, kind, pool));
                self.call("pool_current", |sim| sim.pool_current(location, kind));
            }
            8 if self.choices.chance(1, 2) => {
                // SAFETY: the simulator looks handles up and refuses those of destroyed pools, so
                // the round may pass such a handle again.
                if self.call("pool_destroy", |sim| unsafe { sim.pool_destroy(pool) }).is_some() {
                    self.known.pools.retain(|known| *known != pool);
                }
            }
            _ => self.other_processes(),
        }
    }

    fn pool_kind(&mut self) -> AllocationType {
        AllocationType(self.choices.one_of(&[1, 1, 1, 1, 2, 2, 2, 2, 0, 3, -1]))
    }

    fn make_pool(&mut self) {
        let (location, kind) = (self.location(), self.pool_kind());
        if self.known.pools.len() >= POOLS_MAX || self.choices.chance(1, 3) {
            if let Some(pool) = self.call("pool_default", |sim| sim.pool_default(location, kind))
                && !self.known.pools.contains(&pool)
            {
                self.known.keeps_memory |= kind == AllocationType::MANAGED;
                self.known.pools.push(pool);
            }
            return;
        }
        let props = PoolProps {
            allocation_type: kind,
            location,
            handle_types: HandleTypes::from_bits_retain(
                self.choices.one_of(&[0, 0, 0, 1, 1, 8, 9]),
            ),
            max_bytes: if self.choices.chance(1, 6) { self.choices.edge() } else { 0 },
        };
        let made = self.call("pool_create", |sim| sim.pool_create(props));
        self.known.pools.extend(made);
    }

    fn pool_memory(&mut self) {
        let (pool, stream) = (self.pool_handle(), self.stream());
        let mut bytes = if self.choices.chance(1, 4) {
            self.choices.edge()
        } else {
            self.choices.below(4 << 20)
        };
        if bytes > POOL_BYTES_MAX && bytes < 1 << 50 {
            bytes %= POOL_BYTES_MAX;
        }
        let made = self.call("pool_alloc", |sim| sim.pool_alloc(pool, bytes, stream));
        if made.is_some() && !self.known.pools.contains(&pool) {
            // The number was made up and hit a default pool, which may be one of managed memory.
            self.known.keeps_memory = true;
            self.known.pools.push(pool);
        }
        self.known.live.extend(made.filter(|ptr| !ptr.is_null()).map(|ptr| Span::new(ptr, bytes)));
    }

    fn other_processes(&mut self) {
        let (pool, ptr) = (self.pool_handle(), self.ptr());
        match self.choices.below(6) {
            0 => {
                let kind = HandleTypes::from_bits_retain(self.choices.one_of(&[1, 1, 0, 2, 8, 3]));
                let Some(handle) = self.call("pool_export", |sim| sim.pool_export(pool, kind))
                else {
                    return;
                };
                self.import(handle);
                // SAFETY: the descriptor has to be open and this round's to close. The call made it
                // for its caller, and no other code has it.
                drop(unsafe { OwnedFd::from_raw_fd(handle.0) });
            }
            1 => {
                let wild = self.choices.one_of(&[-1, i32::MIN, i32::MAX]);
                self.import(ShareableHandle(wild));
            }
            2 | 3 => {
                let exported = self.call("pool_export_pointer", |sim| sim.pool_export_pointer(ptr));
                let blob = exported.unwrap_or_else(|| ExportedPointer(self.blob()));
                // SAFETY: only this round uses the memory, and the simulator looks up imports of
                // its own memory at every call.
                let made = self.call("pool_import_pointer", |sim| unsafe {
                    sim.pool_import_pointer(pool, blob)
                });
                self.known.live.extend(made.filter(|at| !at.is_null()).map(|at| Span::new(at, 1)));
            }
            _ => self.inter_process(),
        }
    }

    fn import(&mut self, handle: ShareableHandle) {
        let kind = HandleTypes::from_bits_retain(self.choices.one_of(&[1, 1, 1, 0, 2, 8]));
        // SAFETY: the simulator takes handles of its own process, and this one is of it or of none.
        let pool = self.call("pool_import", |sim| unsafe { sim.pool_import(handle, kind) });
        self.known.pools.extend(pool);
    }

    fn inter_process(&mut self) {
        let (ptr, device) = (self.ptr(), self.device());
        let made = self.call("ipc_mem_handle", |sim| sim.ipc_mem_handle(ptr));
        let handle = made.unwrap_or_else(|| IpcMemHandle(self.blob()));
        // SAFETY: the simulator opens no handle, because each is of its own process.
        self.call("ipc_open_mem_handle", |sim| unsafe { sim.ipc_open_mem_handle(device, handle) });
        // SAFETY: the simulator closes only memory that it opened, and it opened none.
        self.call("ipc_close_mem_handle", |sim| unsafe { sim.ipc_close_mem_handle(ptr) });
    }

    fn blob(&mut self) -> [u8; SHARED_BLOB_BYTES] {
        let mut blob = [0; SHARED_BLOB_BYTES];
        blob[..8].copy_from_slice(&self.choices.edge().to_le_bytes());
        blob
    }
}
