//! Device memory of replaced arrays that their successors take over.
//!
//! An array of the same label that fits into the old one's memory takes it over, whole, when
//! everything else was allocated. If there is no room for that, memory that is too small goes back
//! first, and if that does not do either, all that is replaced: memory that a small array would
//! keep of a large one may be what another needs.

use super::array::{Array, Layout};
use super::array_memory::ArrayMemory;
use super::instance_id::InstanceId;
use super::memory_manager::{Requests, State};
use super::plan::Decision;
use super::request::ArrayRequest;

/// The fate of the arrays that requests replace, in the order of the requests.
pub(super) struct Replacement {
    /// The old array, if its memory is taken over.
    pub(super) taken_over: Vec<Option<Array>>,
    /// Whether all others go before their successors come.
    pub(super) frees_first: bool,
}

impl Replacement {
    /// Decides for requests with these layouts. Nothing is taken over unless `is_allowed`.
    pub(super) fn of(
        state: &State,
        queued: &[(InstanceId, Requests)],
        layouts: &[Layout],
        decision: &Decision,
        is_allowed: bool,
    ) -> Self {
        let mut replaced = 0_u64;
        let mut kept = 0_u64;
        let mut saved = 0_u128;
        let mut taken_over = Vec::new();
        let all =
            queued.iter().flat_map(|(id, requests)| requests.iter().map(move |one| (id, one)));
        for ((id, (label, request)), layout) in all.zip(layouts) {
            let old = state.instances.get(id).and_then(|instance| instance.arrays.get(label));
            let bytes = old.map_or(0, Array::device_bytes);
            replaced = replaced.saturating_add(bytes);
            let fits = |old: &&Array| is_allowed && fits(old, request, layout);
            let old = old.filter(fits).cloned();
            if old.is_some() {
                kept = kept.saturating_add(bytes);
                saved = saved.saturating_add(state.policy.rounded(layout.bytes.into()));
            }
            taken_over.push(old);
        }
        let room = u128::from(decision.room);
        let needed = decision.planned.saturating_sub(saved);
        if needed <= room {
            return Self { taken_over, frees_first: false };
        }
        if needed <= room.saturating_add((replaced - kept).into()) {
            return Self { taken_over, frees_first: true };
        }
        Self { taken_over: taken_over.iter().map(|_| None).collect(), frees_first: true }
    }
}

/// Whether a new array can have the memory of an old one: both are of the device.
fn fits(old: &Array, request: &ArrayRequest, layout: &Layout) -> bool {
    let is_device = |memory| memory == ArrayMemory::Device;
    let bytes = layout.bytes;
    let both = is_device(request.memory) && is_device(old.memory());
    both && bytes > 0 && bytes <= old.allocated_bytes()
}
