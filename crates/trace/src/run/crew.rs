//! Threads that work off a queue of jobs, in the order in which the jobs came.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, available_parallelism};

type Job<'env> = Box<dyn FnOnce() + Send + 'env>;

/// The threads of one scope: one for each processor, begun as jobs come. They end once the crew is
/// dropped and its queue is empty.
pub(super) struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    jobs: Sender<Job<'scope>>,
    queue: Arc<Mutex<Receiver<Job<'scope>>>>,
    /// Threads that are not begun yet.
    left: Cell<usize>,
}

impl<'scope, 'env> Crew<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>) -> Self {
        let (jobs, queue) = channel();
        let processors = available_parallelism().map_or(1, NonZero::get);
        Self { scope, jobs, queue: Arc::new(Mutex::new(queue)), left: Cell::new(processors) }
    }

    /// Puts a job into the queue. A job that panics has the scope panic at its end.
    pub(super) fn hand(&self, job: impl FnOnce() + Send + 'scope) {
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            let queue = Arc::clone(&self.queue);
            self.scope.spawn(move || work_off(&queue));
        }
        // The crew holds the queue's other end, so that it takes every job.
        _ = self.jobs.send(Box::new(job));
    }
}

fn work_off(queue: &Mutex<Receiver<Job<'_>>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}
