//! Contexts, and the choice of the manager that they get.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pagewise::refuse::{also, invalid};
use pagewise::{Device, Error, ErrorKind, Machine, Result};

use super::host_only::EmmOptions;
use super::ledger::Leak;
use super::manager::{ExternalMemoryManager, INTERFACE_VERSION, ResourceManager};
use crate::sync::{Mutex, MutexGuard, lock};

const REGISTER: &str = "set_memory_manager";

type Make = dyn Fn(&Machine, Device) -> Result<Arc<dyn ExternalMemoryManager>> + Send + Sync;

/// A kind of manager, to be made for each context. Its version is known without making one.
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::emm::{EmmOptions, Plugin, ResourceManager};
///
/// let plugin = Plugin::new("direct", 1, |machine, device| {
///     Ok(Arc::new(ResourceManager::direct(machine, device, EmmOptions::default())?))
/// });
/// assert_eq!((plugin.name(), plugin.interface_version()), ("direct", 1));
/// ```
#[derive(Clone)]
pub struct Plugin {
    name: Arc<str>,
    version: u32,
    make: Arc<Make>,
}

impl Plugin {
    /// A kind of manager with a name for errors. `make` is called once for each context.
    #[must_use]
    pub fn new(
        name: &str,
        interface_version: u32,
        make: impl Fn(&Machine, Device) -> Result<Arc<dyn ExternalMemoryManager>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { name: name.into(), version: interface_version, make: Arc::new(make) }
    }

    /// Its name in errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which version of the interface its managers have.
    #[must_use]
    pub fn interface_version(&self) -> u32 {
        self.version
    }

    fn check(&self, operation: &'static str, version: u32) -> Result<()> {
        if version == INTERFACE_VERSION {
            return Ok(());
        }
        Err(Error::new(operation, ErrorKind::Unsupported).with_detail(format!(
            "`{}` has interface version {version} - version {INTERFACE_VERSION} required",
            self.name
        )))
    }
}

impl Default for Plugin {
    /// The driver's own calls: [`ResourceManager::direct`].
    fn default() -> Self {
        Self::new("default", INTERFACE_VERSION, |machine, device| {
            let options = EmmOptions::default();
            Ok(Arc::new(ResourceManager::direct(machine, device, options)?))
        })
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin({}, version {})", self.name, self.version)
    }
}

/// The contexts of a machine: one for each device that was asked for, each with a manager of its
/// own.
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::emm::{Contexts, EmmOptions, Plugin, ResourceManager};
/// use pagewise::resource::DeviceMemoryResource;
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let contexts = Contexts::new(&machine);
/// let pooled = Plugin::new("pooled", 1, |machine, device| {
///     let pool = Arc::new(DeviceMemoryResource::current_pool(machine, device)?);
///     Ok(Arc::new(ResourceManager::over(pool, device, EmmOptions::default())?))
/// });
/// contexts.set_memory_manager(pooled.clone())?;
/// let memory = contexts.enter(Device::FIRST)?.memalloc(100)?;
/// assert!(contexts.set_memory_manager(pooled.clone()).is_err(), "a context exists");
/// drop(memory);
/// assert_eq!(contexts.close()?, []);
/// contexts.set_memory_manager(pooled)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub struct Contexts {
    machine: Machine,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    plugin: Plugin,
    managers: BTreeMap<Device, Arc<dyn ExternalMemoryManager>>,
    /// Contexts that are being made, while no lock is held.
    making: usize,
}

impl Contexts {
    /// No context yet. Contexts get the default manager until another is set.
    pub fn new(machine: impl Into<Machine>) -> Self {
        Self { machine: machine.into(), state: Mutex::default() }
    }

    /// Which manager contexts get from now on.
    ///
    /// # Errors
    /// Without a CUDA code: `Unsupported` unless its version is [`INTERFACE_VERSION`];
    /// `InvalidValue` if a context exists, as its memory is another manager's:
    /// [`close`](Self::close) first.
    ///
    /// ```
    /// use pagewise_managers::emm::{Contexts, Plugin};
    /// let contexts = Contexts::new(pagewise::sim()?);
    /// let newer = Plugin::new("newer", 2, |_, _| unreachable!("it is refused before"));
    /// let error = contexts.set_memory_manager(newer).unwrap_err();
    /// assert!(error.to_string().contains("version 1 required"));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_memory_manager(&self, plugin: Plugin) -> Result<()> {
        plugin.check(REGISTER, plugin.version)?;
        let mut state = self.locked();
        let contexts = state.managers.len() + state.making;
        if contexts > 0 {
            let why = format!(
                "{contexts} contexts exist, with memory of `{}`: close them first",
                state.plugin.name
            );
            return Err(invalid(REGISTER, why));
        }
        let before = std::mem::replace(&mut state.plugin, plugin);
        drop(state);
        // Dropping it may run foreign code, which may ask for a context.
        drop(before);
        Ok(())
    }

    /// The name of the manager that contexts get.
    #[must_use]
    pub fn memory_manager(&self) -> Arc<str> {
        Arc::clone(&self.locked().plugin.name)
    }

    /// Enters the context of a device, made if there is none, and hands out its manager, which is
    /// initialised each time.
    ///
    /// # Errors
    /// `InvalidDevice`; of the plug-in; `Unsupported` (no CUDA code) if the manager says another
    /// version than its plug-in. There is no context then.
    ///
    /// ```
    /// use pagewise_managers::emm::Contexts;
    /// use pagewise::Device;
    /// let contexts = Contexts::new(pagewise::sim()?);
    /// assert!(contexts.enter(Device::new(9)?).is_err());
    /// let (one, two) = (contexts.enter(Device::FIRST)?, contexts.enter(Device::FIRST)?);
    /// assert!(std::sync::Arc::ptr_eq(&one, &two));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn enter(&self, device: Device) -> Result<Arc<dyn ExternalMemoryManager>> {
        self.machine.check_device("enter", device)?;
        let mut state = self.locked();
        if let Some(manager) = state.managers.get(&device).cloned() {
            drop(state);
            manager.initialize()?;
            return Ok(manager);
        }
        let plugin = state.plugin.clone();
        state.making += 1;
        drop(state);
        let making = Making(self);
        let manager = (plugin.make)(&self.machine, device)?;
        plugin.check("enter", manager.interface_version())?;
        manager.initialize()?;
        let mut state = self.locked();
        // Another thread may have been quicker: its manager is the context's, ours is let go, after
        // the lock.
        let chosen = Arc::clone(state.managers.entry(device).or_insert_with(|| manager.clone()));
        drop(state);
        drop(making);
        Ok(chosen)
    }

    /// Resets the managers of all contexts and forgets them, so that another can be set. Outstanding
    /// memory, which it names, stays valid.
    ///
    /// # Errors
    /// The first error of a reset. All managers are reset and forgotten.
    pub fn close(&self) -> Result<Vec<Leak>> {
        let managers = std::mem::take(&mut self.locked().managers);
        let mut leaks = Vec::new();
        let mut failure: Option<Error> = None;
        for manager in managers.values() {
            match manager.reset() {
                Ok(out) => leaks.extend(out),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            None => Ok(leaks),
            Some(error) => Err(also(error, "all contexts are closed all the same")),
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A context is being made, until this goes.
struct Making<'c>(&'c Contexts);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.locked().making -= 1;
    }
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.locked();
        let devices: Vec<&Device> = state.managers.keys().collect();
        write!(f, "Contexts({:?}, {devices:?}, {:?})", state.plugin, self.machine)
    }
}
