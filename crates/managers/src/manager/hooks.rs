//! Work that is done once the manager's lock is released: hooks, and destructors of users' values,
//! both of which may call the manager.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::instance::{Instance, Registration};
use super::response::ArrayResponse;

/// Collected under the lock, carried out without it.
#[derive(Default)]
pub(crate) struct After {
    invalidate: Vec<Registration>,
    ready: Vec<(Registration, ArrayResponse)>,
    gone: Vec<Instance>,
}

impl After {
    pub(crate) fn invalidate(&mut self, instance: &Instance) {
        self.invalidate.push(instance.registration.clone());
    }

    pub(crate) fn ready(&mut self, instance: &Instance, response: ArrayResponse) {
        self.ready.push((instance.registration.clone(), response));
    }

    /// The hooks of an instance, and so whatever they hold, are dropped later.
    pub(crate) fn bury(&mut self, instance: Instance) {
        self.gone.push(instance);
    }

    /// Calls every hook, also if one panics; then the first panic goes on.
    pub(crate) fn run(self) {
        let mut panicked = None;
        let mut call = |hook: &dyn Fn()| {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(hook)) {
                panicked.get_or_insert(panic);
            }
        };
        for hook in
            self.invalidate.iter().filter_map(|registration| registration.invalidate.as_ref())
        {
            call(&**hook);
        }
        for (registration, response) in &self.ready {
            if let Some(hook) = &registration.ready {
                call(&|| hook(response));
            }
        }
        drop(self);
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }
}
