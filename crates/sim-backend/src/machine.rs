//! One machine behind its lock: calls with their time and their records, and faults of the host.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_hal::{CallName, Code, Error, ErrorKind, Operation, Result};

use crate::clock;
use crate::config::{HostFaults, SimConfig};
use crate::cost::Call;
use crate::host_faults::fault::Fault;
use crate::host_faults::gate::Gate;
use crate::host_faults::service::Service;
use crate::records::{Deliveries, Listener};
use crate::refusal::{Checked, Refusal};
use crate::sim::Sim;

/// A simulated process, for the threads that call it and those that service its host's faults.
#[derive(Debug)]
pub(crate) struct Machine {
    sim: Mutex<Sim>,
    deliveries: Deliveries,
    /// Present with genuine faults of the host.
    gate: Option<Arc<Gate>>,
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
            wanted => Some(crate::host_faults::open(wanted).map_err(refused)?.0),
        };
        let sim = Mutex::new(Sim::new(config.clone(), gate.as_ref()));
        let machine = Arc::new(Self { sim, deliveries: Deliveries::default(), gate: gate.clone() });
        let serving = machine.clone();
        let start = |gate| Service::start(gate, move |fault| serving.serve(&fault));
        let service = gate.map(start).transpose();
        let no_threads = |error| refused(format!("no thread for host faults could start: {error}"));
        Ok((machine, service.map_err(no_threads)?))
    }

    /// A panic while the lock was held is a bug that was reported there and then; the state is
    /// still the best there is.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Sim> {
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Carries out one call: an operation, with the stream that it names if it takes one.
    pub(crate) fn call<T>(
        &self,
        name: CallName,
        call: Call,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.check_process(name.operation.name())?;
        let answer = self.carry_out(self.lock(), name, call, act);
        answer.map_err(|refusal| error(name.operation.name(), refusal))
    }

    /// Carries out what is no call of the trait: it takes no time and has no records.
    pub(crate) fn beside<T>(
        &self,
        name: &'static str,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.check_process(name)?;
        act(&mut self.lock()).map_err(|refusal| error(name, refusal))
    }

    fn check_process(&self, name: &'static str) -> Result<()> {
        if !self.gate.as_ref().is_some_and(|gate| gate.is_in_child()) {
            return Ok(());
        }
        let why = "this process is a child of the one that made the machine: make one here";
        Err(Error::from_code(name, Code::NOT_INITIALIZED).with_detail(why))
    }

    fn carry_out<T>(
        &self,
        mut sim: MutexGuard<'_, Sim>,
        name: CallName,
        call: Call,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Checked<T> {
        sim.pager.records().log.begin_call(name);
        let start_ns = sim.clock_ns;
        let (pace_ns, faults) = sim.pace.take().unzip();
        sim.pager.pace(faults.unwrap_or_default());
        sim.pager.begin(call, start_ns);
        let answer = act(&mut sim);
        sim.settle_contents();
        let now_ns = sim.clock_ns;
        let modelled_ns = sim.pager.end(start_ns, now_ns, answer.is_err());
        let paced_ns = pace_ns.map(|ns| clock::after(start_ns, ns));
        sim.clock_ns = paced_ns.unwrap_or(modelled_ns);
        let end_ns = sim.clock_ns;
        sim.pager.remember(end_ns);
        if sim.listened {
            self.deliveries.put(sim.pager.records().take_fresh());
            drop(sim);
            self.deliveries.deliver();
        }
        answer
    }

    /// Services a fault of the host. A refusal is the segmentation fault of the thread that faulted.
    fn serve(&self, fault: &Fault) {
        let mut sim = self.lock();
        if !sim.answer_at_once(fault) {
            let _ = self.carry_out(sim, Operation::HostTouch.into(), Call::HostTouch, |sim| {
                sim.host_fault(fault)
            });
        }
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
