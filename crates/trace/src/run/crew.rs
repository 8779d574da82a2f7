//! Threads that work off a queue of jobs, in the order in which the jobs came.

use std::cell::Cell;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, available_parallelism};

type Job<'env> = Box<dyn FnOnce() + Send + 'env>;

/// Most threads of a crew.
const THREADS_MAX: usize = 256;

/// The threads of one scope: one for each processor unless a number is given, begun as jobs come.
/// They end once the crew is dropped and its queue is empty.
pub(super) struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    jobs: Sender<Job<'scope>>,
    queue: Arc<Mutex<Receiver<Job<'scope>>>>,
    /// Threads that are not begun yet.
    left: Cell<usize>,
}

impl<'scope, 'env> Crew<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>, threads: Option<NonZero<usize>>) -> Self {
        let (jobs, queue) = channel();
        let processors = || available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let threads = threads.unwrap_or_else(processors).get().min(THREADS_MAX);
        Self { scope, jobs, queue: Arc::new(Mutex::new(queue)), left: Cell::new(threads) }
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
    let mut panic = None;
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { break };
        // Jobs behind one that panics are done too: the thread that hands them over may wait for
        // them.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(job)) {
            panic.get_or_insert(payload);
        }
    }
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::scope;

    use super::*;

    #[test]
    fn every_job_is_done_by_the_end_of_the_scope() {
        let done = AtomicUsize::new(0);
        scope(|scope| {
            let crew = Crew::new(scope, None);
            for _ in 0..1000 {
                crew.hand(|| _ = done.fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(done.into_inner(), 1000);
    }

    #[test]
    fn a_job_that_panics_is_heard_of_and_the_others_are_done() {
        let done = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            scope(|scope| {
                let crew = Crew::new(scope, NonZero::new(1));
                crew.hand(|| panic!("of one job"));
                for _ in 0..100 {
                    crew.hand(|| _ = done.fetch_add(1, Ordering::Relaxed));
                }
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(done.into_inner(), 100);
    }

    #[test]
    fn no_more_jobs_are_carried_out_at_a_time_than_asked_for() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        scope(|scope| {
            let crew = Crew::new(scope, NonZero::new(3));
            for _ in 0..300 {
                crew.hand(|| {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
    }
}
