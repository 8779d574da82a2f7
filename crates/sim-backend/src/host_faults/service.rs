//! The threads that service faults of one machine.
//!
//! There are two, because servicing a fault may call the program: a listener for records runs on
//! the thread that serviced the fault, and may itself touch memory of the machine. A panic there
//! ends the process.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::fault::Fault;
use super::gate::Gate;
use crate::own_thread::start_own_thread;

const THREADS: usize = 2;

/// The threads. They end when this value goes.
pub(crate) struct Service {
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<()>>,
}

impl Service {
    /// Starts the threads. `serve` answers one fault.
    pub(crate) fn start(
        gate: Arc<Gate>,
        serve: impl Fn(Fault) + Send + Sync + Clone + 'static,
    ) -> io::Result<Self> {
        let mut service = Self { gate, threads: Vec::with_capacity(THREADS) };
        for _ in 0..THREADS {
            let (gate, serve) = (service.gate.clone(), serve.clone());
            let run = move || {
                while let Some(fault) = gate.next() {
                    if catch_unwind(AssertUnwindSafe(|| serve(fault))).is_err() {
                        // The panic was reported. The thread that faulted waits for ever.
                        std::process::abort();
                    }
                }
            };
            service.threads.push(start_own_thread("pagewise-faults", run)?);
        }
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.gate.is_in_child() {
            // The threads are the parent's.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.gate.stop();
        let here = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != here) {
            // A thread that panicked said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("gate", &self.gate).finish_non_exhaustive()
    }
}
