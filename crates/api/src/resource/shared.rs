//! The state of a pool that other processes know.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pagewise_hal::{DevicePtr, HandleTypes, SHARED_BLOB_BYTES};
use uuid::Uuid;

/// The state of a pool for other processes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) is_exportable: bool,
    /// Drawn at the first export, or what arrived with the handle.
    pub(super) uuid: OnceLock<Uuid>,
    /// Present in pools of other processes.
    pub(super) imports: Option<Imports>,
}

impl Shared {
    pub(super) fn by_types(types: HandleTypes) -> Self {
        let is_exportable = types.contains(HandleTypes::POSIX_FILE_DESCRIPTOR);
        Self { is_exportable, ..Self::default() }
    }

    pub(super) fn of_import(uuid: Uuid) -> Self {
        Self { is_exportable: false, uuid: uuid.into(), imports: Some(Imports::default()) }
    }

    pub(super) fn uuid(&self) -> Option<Uuid> {
        self.uuid.get().copied()
    }

    pub(super) fn uuid_for_export(&self) -> Uuid {
        *self.uuid.get_or_init(Uuid::new_v4)
    }
}

/// Addresses of imported allocations by what was sent, with how often each is held.
pub(super) type Held = BTreeMap<[u8; SHARED_BLOB_BYTES], (DevicePtr, usize)>;

/// Imported allocations of a pool.
#[derive(Debug, Default)]
pub(super) struct Imports(Mutex<Held>);

impl Imports {
    pub(super) fn locked(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives one of its holders' claims back. True if it was the last: then it is to be freed.
    pub(super) fn release(&self, ptr: DevicePtr) -> bool {
        let mut held = self.locked();
        let Some((&payload, &(_, count))) = held.iter().find(|(_, (known, _))| *known == ptr)
        else {
            return true;
        };
        if count > 1 {
            held.insert(payload, (ptr, count - 1));
            return false;
        }
        held.remove(&payload);
        true
    }
}
