//! The conformance kit: our managers pass it on every profile, and each way to be wrong is found.
//! The claims of `tests/tests/emm_conformance.rs` are about every back end.
#![cfg(feature = "emm")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pagewise::{
    Device, Error, ErrorKind, Machine, MemoryInfo, Result, SimBackend, SimConfig, Span,
};
use pagewise_managers::emm::{
    DeferCleanup, EmmOptions, ExternalMemoryManager, Finding, HostOptions, IpcHandle, Leak,
    MemoryPointer, OrderChecker, Owner, PendingLimits, PointerKind, ResourceManager,
    check_conformance,
};

fn options() -> EmmOptions {
    EmmOptions::default()
}

fn direct(machine: &Machine, device: Device) -> Result<ResourceManager> {
    ResourceManager::direct(machine, device, options())
}

fn all_hold(what: &str, findings: &[Finding]) {
    assert_eq!(findings.len(), 17);
    for finding in findings {
        assert!(finding.passes(), "{what}: {finding}");
    }
}

#[test]
fn managers_of_this_crate_pass_on_every_machine() {
    let names = ["a100", "l4", "rtx4060ti-16gb", "v100", "gtx1080ti", "gh200", "wsl"];
    for name in names {
        let fresh = || SimBackend::new(SimConfig::profile(name).expect("shipped").devices(2));
        let findings =
            check_conformance(fresh, |machine, device| Ok(Arc::new(direct(machine, device)?)));
        all_hold(name, &findings);
    }
}

/// Ways to be wrong, most of which plug-ins have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Version,
    DriverInConstructor,
    ResetFirst,
    SetsUpAgain,
    Sizes,
    Kinds,
    Leaks,
    ResetForgetsHalf,
    NoDeferral,
    Unpins,
    Figures,
    Silent,
    Panics,
    SameAddress,
    Overlaps,
    NamesOthers,
    SilentReset,
    DropsOwner,
    FiguresFail,
    /// Not wrong: a manager may not know its memory.
    FiguresUnknown,
}

#[derive(Debug)]
struct Misbehaving {
    inner: ResourceManager,
    how: Wrong,
    used: AtomicBool,
    kept: Mutex<Vec<MemoryPointer>>,
}

impl Misbehaving {
    fn new(machine: &Machine, device: Device, how: Wrong) -> Result<Self> {
        if how == Wrong::DriverInConstructor {
            machine.backend().memory_info(device.id())?;
        }
        let inner = direct(machine, device)?;
        Ok(Self { inner, how, used: AtomicBool::new(false), kept: Mutex::default() })
    }

    fn keep(&self, memory: &MemoryPointer) {
        self.kept.lock().expect("no panics").push(memory.clone());
    }
}

impl ExternalMemoryManager for Misbehaving {
    fn interface_version(&self) -> u32 {
        if self.how == Wrong::Version { 2 } else { 1 }
    }

    fn initialize(&self) -> Result<()> {
        self.inner.initialize()?;
        // A pool that is made anew whenever the context is entered.
        if self.how == Wrong::SetsUpAgain && self.used.swap(true, Ordering::Relaxed) {
            let pool = self.inner.memalloc(4096)?;
            pool.free()?;
        }
        Ok(())
    }

    fn memalloc(&self, bytes: u64) -> Result<MemoryPointer> {
        let memory = match self.how {
            Wrong::Sizes => self.inner.memalloc(bytes.div_ceil(256) * 256)?,
            Wrong::Panics => panic!("on purpose"),
            Wrong::Silent => {
                let machine = self.inner.base().machine();
                let nowhere = Span::new(pagewise::DevicePtr(4096), bytes);
                let made_up = |_| MemoryPointer::new(machine, PointerKind::AutoFree, nowhere, None);
                return self
                    .inner
                    .memalloc(bytes)
                    .or_else(|error| Ok::<_, pagewise::Error>(made_up(error)));
            }
            _ => self.inner.memalloc(bytes)?,
        };
        let mut kept = self.kept.lock().expect("no panics");
        if self.how == Wrong::Leaks {
            // A finalizer that only takes its key out of a table.
            std::mem::forget(memory.clone());
        }
        if self.how == Wrong::SameAddress {
            kept.push(memory);
            return Ok(kept[0].clone());
        }
        Ok(memory)
    }

    fn memhostalloc(&self, bytes: u64, options: HostOptions) -> Result<MemoryPointer> {
        if self.how == Wrong::Kinds {
            return self.inner.memhostalloc(bytes, HostOptions { mapped: true, ..options });
        }
        self.inner.memhostalloc(bytes, options)
    }

    unsafe fn mempin(&self, owner: Owner, span: Span, mapped: bool) -> Result<MemoryPointer> {
        let owner = if self.how == Wrong::DropsOwner { Arc::new(()) } else { owner };
        // SAFETY: `mempin` of the inner manager asks that the memory lives as long as its owner is
        // kept. The caller promised that, and the inner manager keeps the same owner. Where it gets
        // another one, the rule keeps the memory until the pointer has gone.
        let pinned = unsafe { self.inner.mempin(owner, span, mapped)? };
        if self.how == Wrong::Unpins {
            self.keep(&pinned);
        }
        Ok(pinned)
    }

    fn memallocmanaged(&self, bytes: u64, attach_global: bool) -> Result<MemoryPointer> {
        let memory = self.inner.memallocmanaged(bytes, attach_global)?;
        if self.how == Wrong::Overlaps {
            let mut kept = self.kept.lock().expect("no panics");
            if attach_global {
                kept.clear();
            } else if let Some(before) = kept.pop() {
                return Ok(before);
            }
            kept.push(memory.clone());
        }
        if self.how == Wrong::ResetForgetsHalf {
            self.keep(&memory);
        }
        Ok(memory)
    }

    fn get_ipc_handle(&self, memory: &MemoryPointer) -> Result<IpcHandle> {
        self.inner.get_ipc_handle(memory)
    }

    fn get_memory_info(&self) -> Result<MemoryInfo> {
        if self.how == Wrong::Figures {
            // A pool's figures before its first use.
            return Ok(MemoryInfo { free_bytes: 0, total_bytes: 0 });
        }
        let fails = |kind| Err(Error::new("get_memory_info", kind));
        match self.how {
            Wrong::FiguresFail => return fails(ErrorKind::Driver),
            Wrong::FiguresUnknown => return fails(ErrorKind::Unsupported),
            _ => {}
        }
        self.inner.get_memory_info()
    }

    fn reset(&self) -> Result<Vec<Leak>> {
        match self.how {
            Wrong::ResetFirst => {
                self.inner.get_memory_info()?;
                self.inner.base().memallocmanaged(1, true).map(drop)?;
                self.inner.reset()
            }
            // The device half alone, without the host half.
            Wrong::ResetForgetsHalf => Ok(Vec::new()),
            Wrong::NamesOthers => {
                let mut leaks = self.inner.reset()?;
                leaks.iter_mut().for_each(|leak| leak.span.ptr.0 += 4096);
                Ok(leaks)
            }
            Wrong::SilentReset => Ok(self.inner.reset().unwrap_or_default()),
            _ => self.inner.reset(),
        }
    }

    fn defer_cleanup(&self) -> DeferCleanup {
        match self.how {
            Wrong::NoDeferral => DeferCleanup::nothing(),
            _ => self.inner.defer_cleanup(),
        }
    }
}

#[test]
fn a_checker_of_the_order_has_the_version_of_its_manager() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    for (how, version) in [(Wrong::Version, 2), (Wrong::Leaks, 1)] {
        let inner = Misbehaving::new(&machine, Device::FIRST, how)?;
        assert_eq!(OrderChecker::around(Arc::new(inner)).interface_version(), version);
    }
    Ok(())
}

/// The rules that a way to be wrong breaks, by their first words.
const BREAKS: [(Wrong, &[&str]); 19] = [
    (Wrong::Version, &["its version"]),
    (Wrong::DriverInConstructor, &["making it calls no driver"]),
    (Wrong::ResetFirst, &["it can be reset before"]),
    (
        Wrong::SetsUpAgain,
        &["initialising it again", "reset gives back", "while cleanup is deferred", "a failing"],
    ),
    (Wrong::Sizes, &["it gives memory of each kind", "views keep memory"]),
    (Wrong::Kinds, &["it gives memory of each kind"]),
    (
        Wrong::Leaks,
        &[
            "it can be reset before",
            "it gives memory of each kind",
            "views keep memory",
            "a pointer may go after",
            "memory without a handle",
            "without memory it says so",
            "several threads",
        ],
    ),
    (Wrong::ResetForgetsHalf, &["reset gives back"]),
    (Wrong::NoDeferral, &["while cleanup is deferred"]),
    (Wrong::Unpins, &["page-locking is undone"]),
    (Wrong::Figures, &["it knows its memory"]),
    (Wrong::Silent, &["it gives memory of each kind", "without memory it says so"]),
    (
        Wrong::Panics,
        &[
            "it can be reset before",
            "initialising it again",
            "it gives memory of each kind",
            "memory goes once",
            "views keep memory",
            "freeing twice",
            "a pointer may go after",
            "memory without a handle",
            "without memory it says so",
            "several threads",
        ],
    ),
    (
        Wrong::SameAddress,
        &[
            "initialising it again",
            "it gives memory of each kind",
            "memory goes once",
            "several threads",
        ],
    ),
    (Wrong::Overlaps, &["it gives memory of each kind", "freeing twice", "reset gives back"]),
    (Wrong::NamesOthers, &["reset gives back"]),
    (Wrong::SilentReset, &["a failing deallocation"]),
    (Wrong::DropsOwner, &["page-locking is undone"]),
    (Wrong::FiguresFail, &["it knows its memory"]),
];

fn broken_by(how: Wrong) -> Vec<Finding> {
    let findings = check_conformance(pagewise::sim, move |machine, device| {
        Ok(Arc::new(Misbehaving::new(machine, device, how)?))
    });
    findings.into_iter().filter(|finding| !finding.passes()).collect()
}

#[test]
fn each_way_to_be_wrong_breaks_its_rules_and_no_other() {
    for (how, rules) in BREAKS {
        let broken = broken_by(how);
        let is_expected = broken.len() == rules.len()
            && broken.iter().zip(rules).all(|(finding, rule)| finding.rule.starts_with(rule));
        assert!(is_expected, "{how:?}: {broken:#?}, not {rules:#?}");
    }
    assert_eq!(broken_by(Wrong::FiguresUnknown), [], "a manager may not know its memory");
}

/// Some deallocations are carried out before the reset, and the one that fails is among them.
#[test]
fn a_manager_that_frees_before_it_is_reset_passes() {
    let pending = PendingLimits { count_max: 2, ..PendingLimits::default() };
    let findings = check_conformance(pagewise::sim, |machine, device| {
        let options = EmmOptions { pending, ..options() };
        Ok(Arc::new(ResourceManager::direct(machine, device, options)?))
    });
    all_hold("two pending", &findings);
}
