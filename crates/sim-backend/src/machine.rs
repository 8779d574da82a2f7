//! One machine behind its lock: calls with their time and their records, and faults of the host.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use pagewise_hal::{CallName, Code, Error, ErrorKind, Operation, Result};

use crate::book::Book;
use crate::clock;
use crate::config::{HostFaultSupport, HostFaults, SimConfig};
use crate::cost::Call;
use crate::fault_observer::{FaultObserver, HostFault};
use crate::host_faults::fault::{Answer, Fault};
use crate::host_faults::gate::Gate;
use crate::host_faults::service::Service;
use crate::locked::Locked;
use crate::patient::{self, Mutex};
use crate::reads_beside::ReadsBeside;
use crate::records::{Deliveries, Listener};
use crate::refusal::{Checked, Refusal};
use crate::sim::Sim;

/// Calls that work on a machine that lost its device: the others return the error of the kernel.
const WITHOUT_DEVICE: [Operation; 2] = [Operation::DeviceAttribute, Operation::HostTouch];

/// A way for a read of attributes: a free machine, or the answer beside a call under way.
enum Found<'a, T> {
    Machine(Locked<'a>),
    Answer(Checked<T>),
}

/// A simulated process, for the threads that call it and those that service its host's faults.
#[derive(Debug)]
pub(crate) struct Machine {
    sim: Mutex<Sim>,
    reads_beside: Arc<ReadsBeside>,
    deliveries: Deliveries,
    pub(crate) fault_observer: FaultObserver,
    /// Present with genuine faults of the host.
    gate: Option<Arc<Gate>>,
    /// The code and the report of the kernel that ended early, once one did.
    lost: OnceLock<(i32, String)>,
    /// The mechanism of the gate.
    pub(crate) host_faults: Option<HostFaultSupport>,
}

impl Machine {
    /// Makes a machine, with the threads for its faults if it has any. They end when the service
    /// goes.
    ///
    /// # Errors
    /// `Unsupported` if this host has no such faults, or none of that mechanism.
    pub(crate) fn start(config: &SimConfig) -> Result<(Arc<Self>, Option<Service>)> {
        let refused =
            |why: String| Error::new("open simulator", ErrorKind::Unsupported).with_detail(why);
        let gate = match config.host_faults {
            HostFaults::Declared => None,
            wanted => Some(crate::host_faults::open(wanted).map_err(refused)?),
        };
        let (gate, host_faults) = gate.unzip();
        let sim = Sim::new(config.clone(), gate.as_ref());
        let machine = Arc::new(Self {
            reads_beside: sim.reads_beside.clone(),
            sim: Mutex::new(sim),
            deliveries: Deliveries::default(),
            fault_observer: FaultObserver::default(),
            gate: gate.clone(),
            lost: OnceLock::new(),
            host_faults,
        });
        let serving = machine.clone();
        let start = |gate| Service::start(gate, move |fault| serving.serve(&fault));
        let service = gate.map(start).transpose();
        let no_threads = |error| refused(format!("no thread for host faults could start: {error}"));
        Ok((machine, service.map_err(no_threads)?))
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked::wait(&self.sim)
    }

    /// A list of the caller's that is read while the lock is held. Where the list may lie in managed
    /// memory that faults, it is copied first: a fault is serviced with the lock.
    pub(crate) fn list<'a, T: Clone>(&self, items: &'a [T]) -> Cow<'a, [T]> {
        match self.gate {
            Some(_) => Cow::Owned(items.to_vec()),
            None => Cow::Borrowed(items),
        }
    }

    /// Whether the host's accesses fault.
    pub(crate) fn has_host_faults(&self) -> bool {
        self.gate.is_some()
    }

    /// Replaces the listener for records.
    pub(crate) fn change_listener(&self, listener: Option<Listener>) {
        let mut sim = self.lock();
        sim.listened = listener.is_some();
        sim.pager.records().listen(listener.is_some());
        self.deliveries.set(listener);
    }

    /// A kernel ended early. The first one counts.
    pub(crate) fn lose(&self, code: i32, report: String) {
        _ = self.lost.set((code, report));
    }

    /// Refuses a call that needs the device, if that is lost.
    #[inline]
    pub(crate) fn check_not_lost(&self, operation: Operation) -> Result<()> {
        match self.lost.get() {
            Some((code, report)) if !WITHOUT_DEVICE.contains(&operation) => {
                Err(Error::from_code(operation.name(), *code).with_detail(report.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Carries out one call: an operation, with the stream that it names if it takes one.
    pub(crate) fn call<T>(
        &self,
        name: CallName,
        call: Call,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.check_process(name.operation)?;
        self.check_not_lost(name.operation)?;
        self.call_locked(self.lock(), name, call, act)
    }

    /// Carries out one call: at once, if `at_once` knows a short way for it, or else like any other.
    #[inline]
    pub(crate) fn call_at_once<T>(
        &self,
        name: CallName,
        call: Call,
        at_once: impl FnOnce(&mut Sim, Call) -> Option<T>,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.check_process(name.operation)?;
        self.check_not_lost(name.operation)?;
        let mut sim = self.lock();
        sim.repeats.begin_call(name.operation);
        sim.pager.records().log.begin_call(name);
        match at_once(&mut sim, call) {
            Some(answer) => {
                self.pass_on(sim);
                Ok(answer)
            }
            None => self.call_locked(sim, name, call, act),
        }
    }

    /// Carries out a read of attributes: a call that changes nothing. It does not wait for a call of
    /// another thread that changes nothing more that the read asks for.
    pub(crate) fn read<T>(
        &self,
        name: CallName,
        call: Call,
        answer: impl Fn(Book<'_>) -> Checked<T>,
    ) -> Result<T> {
        self.check_process(name.operation)?;
        self.check_not_lost(name.operation)?;
        let found = match Locked::at_once(&self.sim) {
            Some(sim) => Found::Machine(sim),
            None => self.wait_to_read(call, &answer),
        };
        match found {
            Found::Machine(sim) => self.call_locked(sim, name, call, |sim| answer(sim.book())),
            Found::Answer(answer) => {
                answer.map_err(|refusal| error(name.operation.name(), refusal))
            }
        }
    }

    #[cold]
    fn wait_to_read<T>(
        &self,
        call: Call,
        answer: &impl Fn(Book<'_>) -> Checked<T>,
    ) -> Found<'_, T> {
        patient::until(|| {
            let beside = self.reads_beside.read(call, answer).map(Found::Answer);
            beside.or_else(|| Locked::at_once(&self.sim).map(Found::Machine))
        })
    }

    fn call_locked<T>(
        &self,
        mut sim: Locked<'_>,
        name: CallName,
        call: Call,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        let pace_ns = sim.take_pace();
        let ends = |_: &mut Sim, start_ns, modelled_ns| match pace_ns {
            Some(pace_ns) => clock::after(start_ns, pace_ns),
            None => modelled_ns,
        };
        let answer = self.carry_out(sim, name, call, act, ends);
        answer.map_err(|refusal| error(name.operation.name(), refusal))
    }

    /// Carries out what is no call of the trait: it takes no time and has no records.
    pub(crate) fn beside<T>(
        &self,
        name: &'static str,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.check_process_for(name)?;
        act(&mut self.lock()).map_err(|refusal| error(name, refusal))
    }

    /// Checks what a call asks for, as far as its function of the machine heeds `rehearses`: nothing
    /// is carried out.
    pub(crate) fn rehearse<T>(
        &self,
        name: &'static str,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.check_process_for(name)?;
        let mut sim = self.lock();
        sim.rehearses = true;
        let answer = act(&mut sim);
        sim.rehearses = false;
        answer.map_err(|refusal| error(name, refusal))
    }

    #[inline]
    fn check_process(&self, operation: Operation) -> Result<()> {
        if self.gate.is_none() { Ok(()) } else { self.check_process_for(operation.name()) }
    }

    fn check_process_for(&self, name: &'static str) -> Result<()> {
        if !self.gate.as_ref().is_some_and(|gate| gate.is_in_child()) {
            return Ok(());
        }
        let why = "this process is a child of the one that made the machine: make one here";
        Err(Error::from_code(name, Code::NOT_INITIALIZED).with_detail(why))
    }

    /// Carries out what a call or a fault asks for. `ends` says when it ends, from when it began and
    /// when the model lets it end.
    fn carry_out<T>(
        &self,
        mut sim: Locked<'_>,
        name: CallName,
        call: Call,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
        ends: impl FnOnce(&mut Sim, u64, u64) -> u64,
    ) -> Checked<T> {
        sim.repeats.begin_call(name.operation);
        sim.pager.records().log.begin_call(name);
        let start_ns = sim.clock_ns;
        sim.pager.begin(call, start_ns);
        let answer = act(&mut sim);
        sim.settle_contents();
        let now_ns = sim.clock_ns;
        let modelled_ns = sim.pager.end(start_ns, now_ns, answer.is_err());
        let end_ns = ends(&mut sim, start_ns, modelled_ns);
        sim.clock_ns = end_ns;
        sim.pager.remember(end_ns);
        self.pass_on(sim);
        answer
    }

    /// Lets the machine go after a call, and hands its records to the listener, if there is one.
    #[inline(always)]
    fn pass_on(&self, sim: Locked<'_>) {
        if sim.listened {
            self.deliver(sim);
        }
    }

    #[cold]
    fn deliver(&self, mut sim: Locked<'_>) {
        self.deliveries.put(sim.pager.records().take_fresh());
        drop(sim);
        self.deliveries.deliver();
    }

    /// Services a fault of the host, and lets the thread that faulted go on when the observer has
    /// seen it. A refusal is the segmentation fault of that thread.
    fn serve(&self, fault: &Fault) {
        let mut answer = None;
        let mut service = || match answer {
            Some(_) => None,
            None => {
                let (given, seen) = self.service(fault);
                answer = Some(given);
                seen
            }
        };
        let moves_pages = || self.lock().moves_pages(fault);
        self.fault_observer.around(fault.address, &moves_pages, &mut service);
        service();
        let answer = answer.unwrap_or(Answer::Refused);
        if self.gate.as_ref().is_some_and(|gate| gate.answer(fault, answer)) {
            self.lock().barred(fault);
        }
    }

    /// Services a fault, and says what was done if that was more than to show a page.
    fn service(&self, fault: &Fault) -> (Answer, Option<HostFault>) {
        let mut sim = self.lock();
        if let Some(answer) = sim.answer_at_once(fault) {
            return (answer, None);
        }
        let touch = sim.touch_of(fault);
        let pace_ns = sim.pace.take().map(|(pace_ns, faults)| {
            sim.pager.pace(faults);
            pace_ns
        });
        let ends = |sim: &mut Sim, start_ns: u64, modelled_ns| match pace_ns {
            // The fault is a part of the next call, and takes its share of the call's time.
            Some(pace_ns) => {
                let end_ns = sim.clock_ns;
                let left_ns = pace_ns.saturating_sub(end_ns.saturating_sub(start_ns));
                sim.pace = Some((left_ns, sim.pager.take_pace()));
                end_ns
            }
            None => modelled_ns,
        };
        let act = |sim: &mut Sim| sim.host_fault(fault);
        let operation = Operation::HostTouch;
        let done = self.carry_out(sim, operation.into(), Call::HostTouch, act, ends);
        let answer = if done.is_ok() { Answer::Served } else { Answer::Refused };
        let seen = done.map(|()| 0).map_err(|refusal| error(operation.name(), refusal));
        (answer, Some(HostFault { touch, answer: seen }))
    }
}

/// The error of a refused call.
pub(crate) fn error(name: &'static str, Refusal { code, why, item }: Refusal) -> Error {
    let error = match code {
        Some(code) => Error::from_code(name, code),
        None => Error::new(name, ErrorKind::Unsupported),
    };
    let error = error.with_detail(why);
    match item {
        Some(item) => error.with_item(item),
        None => error,
    }
}
