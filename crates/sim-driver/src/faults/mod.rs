//! Failures on demand: calls that fail or take longer because a plan says so.
//!
//! A rule that asks for a name only is decided when a call begins, before the driver looks at an
//! argument. A rule that also asks for a size or a place is decided at the first call of the back
//! end, within the entry point, that is about such a size or place ([`FaultyBackend`]). Either way
//! nothing was done yet. An entry point counts once, whatever it calls.

mod backend;
mod counts;
pub(crate) mod plan;

use std::cell::Cell;
use std::ffi::c_int;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pagewise_hal::{Code, Location};

pub(crate) use backend::FaultyBackend;
use counts::CallCounts;
use plan::{Plan, Rule, What};

use crate::forms::{FORMS, Form};
use crate::outcome::Outcome;

/// Functions that work on a machine that lost its device.
const WITHOUT_DEVICE: [&str; 2] = ["cuInit", "cuDriverGetVersion"];

/// The rules of a driver, with what they counted.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    armed: Vec<Armed>,
    memory_limit_bytes: Option<u64>,
    /// The code that all calls return since the device was lost, or 0.
    lost: AtomicI32,
    /// Numbers of calls, so that a rule counts each once.
    calls: AtomicU64,
    counts: Option<CallCounts>,
}

/// A rule, and its matches so far.
#[derive(Debug)]
struct Armed {
    rule: Rule,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    matches: u64,
    /// The last call that was counted.
    call: u64,
}

/// The entry point that a thread is in.
#[derive(Debug, Clone, Copy)]
struct Entry {
    form: &'static Form,
    /// Its number.
    call: u64,
}

thread_local! {
    static ENTRY: Cell<Option<Entry>> = const { Cell::new(None) };
    /// How much longer the call takes, in nanoseconds.
    static DELAY_NS: Cell<u64> = const { Cell::new(0) };
}

/// Leaves the entry point of this thread, also when a panic does.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        ENTRY.set(None);
    }
}

impl Armed {
    fn is_for(&self, form: &Form) -> bool {
        let called = |name: &str| form.symbol == name || form.name.to_str() == Ok(name);
        self.rule.call.as_deref().is_none_or(called)
    }

    /// Counts a call, once, and says whether the rule strikes it.
    fn strikes(&self, entry: Entry) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.call == entry.call {
            return false;
        }
        let nth = counted.matches;
        *counted = Counted { matches: nth.saturating_add(1), call: entry.call };
        self.rule.strikes(nth)
    }
}

impl Faults {
    /// Arms the rules of a plan, and counts calls in a file of this folder.
    ///
    /// # Errors
    /// If a rule names no function of the driver, or the file cannot be made.
    pub(crate) fn new(plan: &Plan, counts: Option<&Path>) -> Result<Self, String> {
        let arm = |rule: &Rule| Armed { rule: rule.clone(), counted: Mutex::default() };
        let armed: Vec<Armed> = plan.rules.iter().map(arm).collect();
        for Armed { rule, .. } in &armed {
            let known = |name: &String| {
                FORMS.iter().any(|form| form.symbol == name || form.name.to_str() == Ok(name))
            };
            if let Some(name) = rule.call.as_ref().filter(|name| !known(name)) {
                let line = rule.line;
                return Err(format!("faults: line {line}: call: the driver has no {name:?}"));
            }
        }
        let counts = counts.map(|folder| {
            let made = CallCounts::create(folder);
            made.map_err(|error| format!("{}: {error}", folder.display()))
        });
        Ok(Self {
            armed,
            memory_limit_bytes: plan.memory_limit_bytes,
            counts: counts.transpose()?,
            ..Self::default()
        })
    }

    /// Whether some rule is decided within entry points.
    pub(crate) fn look_inside(&self) -> bool {
        let inside = self.armed.iter().any(|armed| armed.rule.looks_inside());
        inside || self.memory_limit_bytes.is_some()
    }

    /// Makes a call, unless a rule fails it. `sleep` lets simulated nanoseconds pass.
    pub(crate) fn around(
        &self,
        symbol: &str,
        make: impl FnOnce() -> Outcome,
        sleep: impl FnOnce(u64),
    ) -> Outcome {
        let idle = self.armed.is_empty()
            && self.memory_limit_bytes.is_none()
            && self.lost.load(Ordering::Relaxed) == Code::SUCCESS;
        if (idle && self.counts.is_none()) || ENTRY.get().is_some() {
            return make();
        }
        let Some(form) = FORMS.iter().find(|form| form.symbol == symbol) else { return make() };
        // From 1, so that no rule has counted a call that it has not.
        let call = self.calls.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let entry = Entry { form, call };
        if let Some(counts) = &self.counts {
            counts.count(form);
        }
        ENTRY.set(Some(entry));
        DELAY_NS.set(0);
        let _leave = Leave;
        self.is_there(form)?;
        let by_name = self.armed.iter().filter(|armed| !armed.rule.looks_inside());
        self.strike(entry, by_name)?;
        make()?;
        match DELAY_NS.take() {
            0 => {}
            longer => sleep(longer),
        }
        Ok(())
    }

    /// The device is lost: all later calls that need it return the code.
    pub(crate) fn lose(&self, code: c_int) {
        self.lost.store(code, Ordering::Relaxed);
    }

    /// The device is no longer lost: the code that it was lost with.
    pub(crate) fn recover(&self) -> c_int {
        self.lost.swap(Code::SUCCESS, Ordering::Relaxed)
    }

    /// The code of work that failed, for calls that waited for it.
    pub(crate) fn of_work(&self) -> Outcome {
        match self.lost.load(Ordering::Relaxed) {
            Code::SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// Refuses what needs the device, if that is lost.
    fn is_there(&self, form: &Form) -> Outcome {
        let code = self.lost.load(Ordering::Relaxed);
        if code == Code::SUCCESS || WITHOUT_DEVICE.contains(&form.symbol) {
            return Ok(());
        }
        Err(code)
    }

    /// Lets rules strike a call: the first that fails it is the answer; all count.
    fn strike<'a>(&self, entry: Entry, rules: impl Iterator<Item = &'a Armed>) -> Outcome {
        let mut outcome = Ok(());
        for armed in rules.filter(|armed| armed.is_for(entry.form)) {
            if !armed.strikes(entry) {
                continue;
            }
            match armed.rule.what {
                What::Delay(ns) => DELAY_NS.set(DELAY_NS.get().saturating_add(ns)),
                What::Fail { code, loses_device } => {
                    if loses_device {
                        self.lost.store(code, Ordering::Relaxed);
                    }
                    outcome = outcome.and(Err(code));
                }
            }
        }
        outcome
    }

    /// Asks about a call of the back end within the entry point of this thread, if it is in one.
    fn ask(&self, bytes: u64, location: Option<Location>) -> Result<(), c_int> {
        let Some(entry) = ENTRY.get() else { return Ok(()) };
        let inside = self
            .armed
            .iter()
            .filter(|armed| armed.rule.looks_inside() && armed.rule.is_for(bytes, location));
        self.strike(entry, inside)
    }

    /// Asks whether the program may have so many bytes more than those that live. Memory that the
    /// driver takes for itself, within other entry points, is not the program's.
    fn ask_for_memory(&self, live_bytes: impl FnOnce() -> u64, bytes: u64) -> Result<(), c_int> {
        let (Some(limit), Some(entry)) = (self.memory_limit_bytes, ENTRY.get()) else {
            return Ok(());
        };
        let symbol = entry.form.symbol;
        let allocates = symbol.contains("Alloc") || symbol.starts_with("cuMemCreate");
        if allocates && live_bytes().saturating_add(bytes) > limit {
            return Err(Code::OUT_OF_MEMORY);
        }
        Ok(())
    }
}
