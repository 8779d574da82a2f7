//! Changes of an instance's settings, several at once.

use super::error::Result;
use super::instance_id::InstanceId;
use super::memory_manager::MemoryManager;
use super::registry::change_group;

/// The settings of an instance that [`update`](MemoryManager::update) changes.
///
/// ```
/// use pagewise_managers::manager::{InstanceUpdate, MemoryManager, Registration};
/// use pagewise::{Device, Machine};
///
/// let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
/// let id = manager.register(Registration::new())?;
/// manager.update(id, InstanceUpdate::new().stream_group("solver").proportion(0.25))?;
/// let settings = manager.settings(id)?;
/// assert_eq!((&settings.stream_group[..], settings.proportion), ("solver", 0.25));
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InstanceUpdate {
    stream_group: Option<String>,
    /// A share of its own, or none for the auto pool; left as it is if nothing is said.
    proportion: Option<Option<f64>>,
}

impl InstanceUpdate {
    /// Changes nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the instance to a stream group, as
    /// [`change_stream_group`](MemoryManager::change_stream_group).
    #[must_use]
    pub fn stream_group(mut self, name: impl Into<String>) -> Self {
        self.stream_group = Some(name.into());
        self
    }

    /// Gives the instance a share of its own, more than 0 and at most 1; `None` moves it to the
    /// auto pool.
    #[must_use]
    pub fn proportion(mut self, proportion: impl Into<Option<f64>>) -> Self {
        self.proportion = Some(proportion.into());
        self
    }
}

impl MemoryManager {
    /// Changes settings of an instance.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`](super::ManagerError::UnknownInstance); as
    /// [`set_manual_proportion`](Self::set_manual_proportion),
    /// [`set_auto_limit_mode`](Self::set_auto_limit_mode) and
    /// [`change_stream_group`](Self::change_stream_group). Nothing has changed then.
    pub fn update(&self, id: InstanceId, update: InstanceUpdate) -> Result<()> {
        self.enter(|state, _| {
            state.instance(id)?;
            let mut pools = state.pools.clone();
            let warning = match update.proportion {
                Some(Some(proportion)) => pools.set_manual(id, proportion)?,
                Some(None) => pools.set_auto(id).map(|()| None)?,
                None => None,
            };
            if let Some(group) = &update.stream_group {
                change_group(state, id, group)?;
            }
            state.pools = pools;
            warning.into_iter().for_each(|warning| state.warnings.push(warning));
            Ok(())
        })
    }
}
