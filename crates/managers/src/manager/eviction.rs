//! Eviction: idle instances give memory up for those that need it.
//!
//! An owner goes as a whole: all its instances have hooks, no submission in progress and no work
//! that the device has not done, as far as the manager knows. The least recently used goes first.
//! If all of them together would not make enough room none goes, as chunks would be needed all
//! the same.

use std::collections::BTreeMap;

use super::hooks::After;
use super::instance::InstanceOwner;
use super::instance_id::InstanceId;
use super::memory_manager::{Requests, State};

impl State {
    /// Frees at least so many bytes of the device, or none. Names the instances that had them.
    pub(crate) fn evict(
        &mut self,
        shortage: u128,
        queued: &[(InstanceId, Requests)],
        after: &mut After,
    ) -> Vec<InstanceId> {
        let requesters = self.owners_of(queued);
        let mut victims: Vec<InstanceId> = Vec::new();
        let mut freed = 0_u128;
        for (owner, members) in self.by_last_use() {
            if freed >= shortage {
                break;
            }
            let bytes: u64 = members.iter().map(|id| self.instances[id].device_bytes()).sum();
            if bytes == 0 || requesters.contains(&owner) || !self.may_go(&members) {
                continue;
            }
            freed += u128::from(bytes);
            victims.extend(members);
        }
        if freed < shortage {
            return Vec::new();
        }
        for id in &victims {
            if let Some(instance) = self.instances.get_mut(id) {
                instance.free_all();
                after.invalidate(instance);
            }
        }
        victims
    }

    fn may_go(&self, members: &[InstanceId]) -> bool {
        let mut instances = members.iter().filter_map(|id| self.instances.get(id));
        instances.all(|instance| instance.registration.has_invalidate_hook() && instance.is_idle())
    }

    /// Owners with their instances, the least recently used first. Only work is a use. Owners that
    /// never worked come first, in the order in which they registered.
    fn by_last_use(&self) -> Vec<(InstanceOwner, Vec<InstanceId>)> {
        let mut owners: BTreeMap<InstanceOwner, (u64, Vec<InstanceId>)> = BTreeMap::new();
        for (&id, instance) in &self.instances {
            let (last_used, members) = owners.entry(instance.owner).or_default();
            *last_used = instance.last_used.max(*last_used);
            members.push(id);
        }
        let mut owners: Vec<_> = owners.into_iter().collect();
        // Ids are in the order of registration.
        owners.sort_by_key(|(_, (last_used, members))| (*last_used, members.first().copied()));
        owners.into_iter().map(|(owner, (_, members))| (owner, members)).collect()
    }
}
