//! A wrapper that checks the order in which a manager is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagewise::{MemoryInfo, Result, Span};

use super::host_only::HostOptions;
use super::ipc::IpcHandle;
use super::ledger::Leak;
use super::manager::ExternalMemoryManager;
use super::pending::DeferCleanup;
use super::pointer::{MemoryPointer, Owner};
use crate::sync::{Mutex, MutexGuard, lock};

/// A manager around a manager that notes each call, and which came too early. All are passed on.
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::emm::{ExternalMemoryManager, EmmOptions, OrderChecker, ResourceManager};
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let inner = ResourceManager::direct(&machine, Device::FIRST, EmmOptions::default())?;
/// let checker = OrderChecker::around(Arc::new(inner));
/// checker.reset()?;
/// assert!(checker.memalloc(100).is_err());
/// checker.initialize()?;
/// checker.memalloc(100)?;
/// assert_eq!(checker.calls(), ["reset", "memalloc", "initialize", "memalloc"]);
/// assert_eq!(checker.violations(), ["memalloc before initialize"]);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct OrderChecker {
    inner: Arc<dyn ExternalMemoryManager>,
    initialized: AtomicBool,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    calls: Vec<&'static str>,
    violations: Vec<String>,
}

impl OrderChecker {
    /// Puts one around a manager that nothing has been asked of.
    #[must_use]
    pub fn around(inner: Arc<dyn ExternalMemoryManager>) -> Self {
        Self { inner, initialized: AtomicBool::new(false), noted: Mutex::default() }
    }

    /// The calls, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<&'static str> {
        self.noted().calls.clone()
    }

    /// Which of them came before the manager was initialised, and must not.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.noted().violations.clone()
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        lock(&self.noted)
    }

    fn note(&self, call: &'static str) {
        self.noted().calls.push(call);
    }

    fn note_use(&self, call: &'static str) {
        let early = !self.initialized.load(Ordering::Acquire);
        let mut noted = self.noted();
        noted.calls.push(call);
        if early {
            noted.violations.push(format!("{call} before initialize"));
        }
    }
}

impl ExternalMemoryManager for OrderChecker {
    fn interface_version(&self) -> u32 {
        self.inner.interface_version()
    }

    fn initialize(&self) -> Result<()> {
        self.note("initialize");
        self.inner.initialize()?;
        self.initialized.store(true, Ordering::Release);
        Ok(())
    }

    fn memalloc(&self, bytes: u64) -> Result<MemoryPointer> {
        self.note_use("memalloc");
        self.inner.memalloc(bytes)
    }

    fn memhostalloc(&self, bytes: u64, options: HostOptions) -> Result<MemoryPointer> {
        self.note_use("memhostalloc");
        self.inner.memhostalloc(bytes, options)
    }

    unsafe fn mempin(&self, owner: Owner, span: Span, mapped: bool) -> Result<MemoryPointer> {
        self.note_use("mempin");
        // SAFETY: `mempin` of the inner manager asks that the memory lives as long as its owner is
        // kept. The caller promised that, and the inner manager keeps the owner.
        unsafe { self.inner.mempin(owner, span, mapped) }
    }

    fn memallocmanaged(&self, bytes: u64, attach_global: bool) -> Result<MemoryPointer> {
        self.note_use("memallocmanaged");
        self.inner.memallocmanaged(bytes, attach_global)
    }

    fn get_ipc_handle(&self, memory: &MemoryPointer) -> Result<IpcHandle> {
        self.note_use("get_ipc_handle");
        self.inner.get_ipc_handle(memory)
    }

    fn get_memory_info(&self) -> Result<MemoryInfo> {
        self.note_use("get_memory_info");
        self.inner.get_memory_info()
    }

    fn reset(&self) -> Result<Vec<Leak>> {
        self.note("reset");
        self.inner.reset()
    }

    fn defer_cleanup(&self) -> DeferCleanup {
        self.note("defer_cleanup");
        self.inner.defer_cleanup()
    }
}
