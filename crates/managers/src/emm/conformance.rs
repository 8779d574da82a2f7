//! The conformance kit: rules of every manager, tried on one.
//!
//! Each rule gets a back end and a manager of its own, so that one failure says nothing about the
//! next rule. The back end counts and fails calls, so rules see what a manager does, not what it
//! says.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::{Call, Operation};
use pagewise::{Backend, Code, Device, DevicePtr, Error, ErrorKind, Machine, Result, Span};

use super::host_only::HostOptions;
use super::manager::{ExternalMemoryManager, INTERFACE_VERSION};
use super::pointer::{MemoryPointer, PointerKind};

/// The outcome of a rule.
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::emm::{EmmOptions, ResourceManager, check_conformance};
///
/// let findings = check_conformance(pagewise::sim, |machine, device| {
///     Ok(Arc::new(ResourceManager::direct(machine, device, EmmOptions::default())?))
/// });
/// for finding in &findings {
///     assert!(finding.passes(), "{finding}");
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// The fault, if it does not hold.
    pub fault: Option<String>,
}

impl Finding {
    /// Whether the rule holds.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.fault.is_none()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            None => write!(f, "holds: {}", self.rule),
            Some(fault) => write!(f, "DOES NOT HOLD: {}: {fault}", self.rule),
        }
    }
}

type Watched<B> = Arc<FaultInjector<B>>;
type Manager = Arc<dyn ExternalMemoryManager>;

/// The reason why a rule does not hold.
struct Broken(String);

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

fn must(holds: bool, else_say: impl Into<String>) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(else_say.into())) }
}

/// Tries a manager: on a fresh back end for each rule, made by `make` for a device of it.
///
/// `make` gets a machine with watched calls; a manager that uses another fails the rules that
/// count calls. Nothing panics: a manager that does breaks the rule. Calls are failed on purpose,
/// among them some that free: that memory stays allocated on the back end which `fresh` made.
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::emm::check_conformance;
/// use pagewise::{Error, ErrorKind};
///
/// let findings = check_conformance(pagewise::sim, |_, _| {
///     Err(Error::new("make", ErrorKind::Unsupported))
/// });
/// assert!(findings.iter().all(|finding| !finding.passes()));
/// ```
pub fn check_conformance<B: Backend>(
    mut fresh: impl FnMut() -> Result<B>,
    make: impl Fn(&Machine, Device) -> Result<Manager>,
) -> Vec<Finding> {
    let rules = rules::<B>();
    let judge = |(rule, check): Rule<B>| {
        let attempt = || -> Result<(), Broken> {
            let backend = Arc::new(FaultInjector::around(fresh()?));
            let machine = Machine::from(&backend);
            let manager = make(&machine, Device::FIRST)?;
            check(Trial { backend, machine, manager })
        };
        let answer = catch_unwind(AssertUnwindSafe(attempt));
        let answer = answer.unwrap_or_else(|_| Err(Broken("it panicked".into())));
        Finding { rule, fault: answer.err().map(|broken| broken.0) }
    };
    rules.into_iter().map(judge).collect()
}

/// A manager that nothing has been asked of, and what it runs on.
struct Trial<B> {
    backend: Watched<B>,
    machine: Machine,
    manager: Manager,
}

type Rule<B> = (&'static str, fn(Trial<B>) -> Result<(), Broken>);

fn rules<B: Backend>() -> Vec<Rule<B>> {
    vec![
        ("its version is the one required", version),
        ("making it calls no driver", cheap_to_make),
        ("it can be reset before it is initialised", reset_first),
        ("initialising it again changes nothing", initialise_again),
        ("it gives memory of each kind and size", kinds),
        ("memory goes once, with its last pointer", last_pointer),
        ("views keep memory, and are checked", views),
        ("freeing twice is refused", twice),
        ("a pointer may go after a reset", after_reset),
        ("reset gives back what waits and names what is out", reset_reports),
        ("while cleanup is deferred nothing is freed, however nested", deferral),
        ("a failing deallocation takes no other with it", failing),
        ("page-locking is undone at once, and keeps its owner until then", pinning),
        ("memory without a handle for other processes is refused one", no_handle),
        ("it knows its memory, or says that it does not", info),
        ("without memory it says so, and goes on", exhausted),
        ("several threads may use it", threads),
    ]
}

const GIVES: [Operation; 4] =
    [Operation::AllocDevice, Operation::AllocManaged, Operation::AllocPinned, Operation::PoolAlloc];
const TAKES: [Operation; 3] = [Operation::Free, Operation::FreePinned, Operation::FreeAsync];

impl<B: Backend> Trial<B> {
    fn ready(&self) -> Result<&dyn ExternalMemoryManager, Broken> {
        self.manager.initialize()?;
        Ok(&*self.manager)
    }

    /// Calls that took memory back, since this was last asked.
    fn freed(&self) -> usize {
        count(&self.backend.take_calls(), &TAKES)
    }

    /// Whether managed memory that is freed goes back to the driver, not to a pool of the manager's:
    /// only then do the driver's calls say when that is.
    fn is_direct(&self) -> Result<bool, Broken> {
        drop(self.ready()?.memallocmanaged(4096, true)?);
        let _ = self.backend.take_calls();
        self.manager.reset()?;
        Ok(self.freed() == 1)
    }

    /// Lets the manager go, and claims that the driver has everything back, once.
    fn settled(self) -> Result<(), Broken> {
        self.manager.reset()?;
        self.gone(Vec::new())
    }

    /// Lets the manager go without a reset and before its memory, and claims that the driver has
    /// everything back, once.
    fn gone(self, later: Vec<MemoryPointer>) -> Result<(), Broken> {
        let Self { backend, machine, manager } = self;
        drop(manager);
        drop(later);
        let failures = machine.failures_on_drop();
        let says = format!("{failures} pieces of memory could not be given back");
        must(failures == 0, says)?;
        let calls = backend.take_calls();
        let (gave, took) = (count(&calls, &GIVES), count(&calls, &TAKES));
        must(gave == took, format!("the driver gave {gave} pieces and got {took} back"))
    }
}

fn count(calls: &[Call], operations: &[Operation]) -> usize {
    calls.iter().filter(|call| operations.contains(&call.operation())).count()
}

fn version<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let version = trial.manager.interface_version();
    must(version == INTERFACE_VERSION, format!("it is {version}, not {INTERFACE_VERSION}"))
}

fn cheap_to_make<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    // Checking a device asks how many there are; only that call is allowed.
    let calls = trial.backend.take_calls();
    let cheap = |call: &&Call| call.operation() != Operation::DeviceCount;
    let dear: Vec<_> = calls.iter().filter(cheap).map(|call| call.operation().name()).collect();
    must(dear.is_empty(), format!("it called {dear:?}"))
}

fn reset_first<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let leaks = trial.manager.reset()?;
    must(leaks.is_empty(), format!("{} pieces are out", leaks.len()))?;
    drop(trial.ready()?.memalloc(4096)?);
    trial.settled()
}

fn initialise_again<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let manager = trial.ready()?;
    let before = manager.memalloc(4096)?;
    let _ = trial.backend.take_calls();
    for _ in 0..3 {
        manager.initialize()?;
    }
    let calls = trial.backend.take_calls();
    let made = [&GIVES[..], &[Operation::PoolCreate, Operation::StreamCreate]].concat();
    must(count(&calls, &made) == 0, "it set something up again")?;
    must(count(&calls, &TAKES) == 0, "it gave memory back that is in use")?;
    must(!before.is_freed(), "memory from before is gone")?;
    let after = manager.memalloc(4096)?;
    must(before.device_ptr() != after.device_ptr(), "it gave memory twice")?;
    before.free()?;
    after.free()?;
    Ok(())
}

fn each_kind(
    manager: &dyn ExternalMemoryManager,
    bytes: u64,
) -> Result<Vec<MemoryPointer>, Broken> {
    let mapped = HostOptions { mapped: true, portable: true, write_combined: true };
    Ok(vec![
        manager.memalloc(bytes)?,
        manager.memhostalloc(bytes, HostOptions::default())?,
        manager.memhostalloc(bytes, mapped)?,
        manager.memallocmanaged(bytes, true)?,
        manager.memallocmanaged(bytes, false)?,
    ])
}

fn kinds<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    for bytes in [1, 40, 80, 4096, 3 << 20] {
        let all = each_kind(trial.ready()?, bytes)?;
        for (n, pointer) in all.iter().enumerate() {
            must(pointer.bytes() == bytes, format!("{pointer:?} is not of {bytes} bytes"))?;
            must(!pointer.device_ptr().is_null(), "it gave the null address")?;
            let end = pointer.span().end();
            let overlaps = |other: &MemoryPointer| {
                Some(pointer.device_ptr().0) < other.span().end()
                    && Some(other.device_ptr().0) < end
            };
            must(!all[..n].iter().any(overlaps), format!("{pointer:?} overlaps another"))?;
        }
        let kinds: Vec<PointerKind> = all[1..].iter().map(MemoryPointer::kind).collect();
        let (pinned, mapped, managed) =
            (PointerKind::Pinned, PointerKind::Mapped, PointerKind::Managed);
        let expected = [pinned, mapped, managed, managed];
        must(kinds == expected, format!("kinds are {kinds:?}, not {expected:?}"))?;
    }
    must(trial.manager.memalloc(0).is_err(), "it gives 0 bytes")?;
    trial.settled()
}

fn last_pointer<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    for _ in 0..3 {
        let all = each_kind(trial.ready()?, 4096)?;
        let (clones, owners): (Vec<_>, Vec<_>) =
            (all.clone(), all.iter().map(|p| p.own()).collect());
        drop(all);
        must(clones.iter().all(|pointer| !pointer.is_freed()), "clones do not hold memory")?;
        drop(owners);
        drop(clones);
    }
    trial.settled()
}

fn views<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let memory = trial.ready()?.memalloc(100)?;
    let view = memory.view(10, Some(20))?;
    must(view.device_ptr() == memory.device_ptr().offset(10), "a view begins elsewhere")?;
    must(view.view(5, None)?.bytes() == 5, "a view of a view is of another size")?;
    must(memory.view(20, Some(10)).is_err(), "a view of negative size is given")?;
    must(memory.view(0, Some(101)).is_err(), "a view beyond the end is given")?;
    drop(memory);
    trial.manager.reset()?;
    must(!view.is_freed(), "a view does not hold memory")?;
    drop(view);
    trial.settled()
}

fn twice<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    for pointer in each_kind(trial.ready()?, 4096)? {
        let clone = pointer.clone();
        pointer.free()?;
        must(pointer.free().is_err(), format!("{pointer:?} was freed twice"))?;
        must(clone.is_freed() && clone.free().is_err(), "a clone was freed again")?;
        must(clone.view(0, None).is_err(), "freed memory has views")?;
    }
    trial.settled()
}

fn after_reset<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let all = each_kind(trial.ready()?, 4096)?;
    let later = each_kind(trial.ready()?, 4096)?;
    trial.manager.reset()?;
    trial.manager.reset()?;
    drop(all);
    trial.gone(later)
}

fn reset_reports<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let direct = trial.is_direct()?;
    let manager = trial.ready()?;
    let out = manager.memallocmanaged(5000, true)?;
    drop(manager.memallocmanaged(4096, true)?);
    let leaks = manager.reset()?;
    let named = leaks.len() == 1 && leaks[0].span == out.span() && leaks[0].kind == out.kind();
    must(named, format!("it named {leaks:?}, and {out:?} is out"))?;
    let freed = trial.freed();
    must(!direct || freed == 1, "what waited was not given back, or more than that")?;
    let again = trial.manager.reset()?;
    must(again.is_empty(), format!("it named {again:?} again"))?;
    out.free()?;
    let leaks = trial.manager.reset()?;
    must(leaks.is_empty(), format!("it named {leaks:?}, which was freed"))
}

fn deferral<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let direct = trial.is_direct()?;
    let manager = trial.ready()?;
    let all = (0..30).map(|_| manager.memallocmanaged(4096, true)).collect::<Result<Vec<_>>>()?;
    let _ = trial.backend.take_calls();
    let outer = manager.defer_cleanup();
    let inner = manager.defer_cleanup();
    drop(all);
    must(trial.freed() == 0, "memory was given back inside")?;
    inner.end()?;
    drop(manager.memallocmanaged(4096, true)?);
    manager.reset()?;
    must(trial.freed() == 0, "memory was given back inside the outer one, or by a reset")?;
    outer.end()?;
    manager.reset()?;
    let freed = trial.freed();
    must(!direct || freed == 31, format!("{freed} of 31 pieces were given back afterwards"))
}

fn failing<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    if !trial.is_direct()? {
        return Ok(());
    }
    let manager = trial.ready()?;
    let all = (0..5).map(|_| manager.memallocmanaged(4096, true)).collect::<Result<Vec<_>>>()?;
    let _ = trial.backend.take_calls();
    for operation in TAKES {
        trial.backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(operation).nth(1));
    }
    let said = all.iter().map(MemoryPointer::free).filter(Result::is_err).count();
    let reset = manager.reset();
    let freed = trial.freed();
    must(said > 0 || reset.is_err(), "it told nobody")?;
    must(freed == 5, format!("{freed} of 5 pieces were given back, the failing one included"))?;
    trial.backend.disarm();
    drop(manager.memallocmanaged(4096, true)?);
    manager.reset()?;
    must(trial.freed() == 1, "it does not go on afterwards")
}

fn pinning<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let manager = trial.ready()?;
    let owner = Arc::new(vec![0_u8; 10_000]);
    let span = Span::new(DevicePtr(owner.as_ptr().expose_provenance() as u64), 10_000);
    let deferred = manager.defer_cleanup();
    for mapped in [true, false, true] {
        // SAFETY: `mempin` asks that the memory lives as long as its owner is kept; the owner here
        // is the memory's.
        let pinned = unsafe { manager.mempin(owner.clone(), span, mapped)? };
        let kind = if mapped { PointerKind::Mapped } else { PointerKind::Pinned };
        must(pinned.kind() == kind, format!("{pinned:?} is not {kind:?}"))?;
        must(pinned.span() == span, format!("{pinned:?} is elsewhere than {span}"))?;
        must(Arc::strong_count(&owner) > 1, "it does not keep the owner")?;
        let _ = trial.backend.take_calls();
        drop(pinned);
        let undone = count(&trial.backend.take_calls(), &[Operation::HostUnregister]);
        must(undone == 1, "it was not undone at once")?;
        must(Arc::strong_count(&owner) == 1, "it keeps the owner for ever")?;
    }
    deferred.end()?;
    trial.settled()
}

fn no_handle<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let manager = trial.ready()?;
    for pointer in &each_kind(manager, 4096)?[1..] {
        let answer = manager.get_ipc_handle(pointer);
        must(answer.is_err(), format!("{pointer:?} has a handle"))?;
    }
    trial.settled()
}

fn info<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    match trial.ready()?.get_memory_info() {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(error) => Err(error.into()),
        Ok(info) => {
            let sound = info.free_bytes <= info.total_bytes && info.total_bytes > 0;
            must(sound, format!("{} of {} bytes are free", info.free_bytes, info.total_bytes))
        }
    }
}

fn exhausted<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let manager = trial.ready()?;
    for operation in GIVES {
        trial.backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(operation).always());
    }
    let answers = [
        manager.memalloc(64 << 20),
        manager.memhostalloc(4096, HostOptions::default()),
        manager.memallocmanaged(4096, true),
    ];
    for answer in answers {
        let kind = answer.as_ref().err().map(Error::kind);
        let says = format!("it says {answer:?}");
        must(kind == Some(ErrorKind::OutOfMemory), says)?;
    }
    trial.backend.disarm();
    let _ = trial.backend.take_calls();
    drop(each_kind(manager, 4096)?);
    trial.settled()
}

fn threads<B: Backend>(trial: Trial<B>) -> Result<(), Broken> {
    let manager = trial.ready()?;
    let work = |seed: u64| -> Result<(), Broken> {
        for step in 0..40 {
            let kept = manager.memalloc(1 + (seed * 7919 + step * 104_729) % 100_000)?;
            let deferred = (step % 7 == seed).then(|| manager.defer_cleanup());
            drop(each_kind(manager, 512)?);
            manager.initialize()?;
            drop(deferred);
            kept.free()?;
        }
        Ok(())
    };
    let joined: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    for answer in joined {
        answer.unwrap_or_else(|_| Err(Broken("a thread panicked".into())))?;
    }
    trial.settled()
}
