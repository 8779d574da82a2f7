//! User objects: resources of a program that graphs hold references to. When the last reference is
//! gone, a function of the program is called.

use std::collections::BTreeMap;

use pagewise_hal::Code;

use crate::graphs::codes::no_handle;
use crate::outcome::Outcome;
use crate::work::HostNodeParams;

/// All user objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// References to each, and the call when there is none.
    live: BTreeMap<usize, (u64, HostNodeParams)>,
    /// Calls that are due.
    due: Vec<HostNodeParams>,
}

impl Objects {
    /// Notes an object with the references of its maker.
    pub(crate) fn add(&mut self, handle: usize, count: u64, call: HostNodeParams) {
        self.live.insert(handle, (count, call));
    }

    /// Refuses a handle of no object.
    pub(crate) fn check(&self, handle: usize) -> Outcome {
        if self.live.contains_key(&handle) { Ok(()) } else { Err(no_handle(handle)) }
    }

    /// Adds references.
    pub(crate) fn retain(&mut self, handle: usize, count: u64) -> Outcome {
        let (references, _) = self.live.get_mut(&handle).ok_or(no_handle(handle))?;
        *references = references.checked_add(count).ok_or(Code::INVALID_VALUE)?;
        Ok(())
    }

    /// Removes references. More than there are count as all of them.
    pub(crate) fn release(&mut self, handle: usize, count: u64) {
        let Some((references, call)) = self.live.get_mut(&handle) else { return };
        *references = references.saturating_sub(count);
        if *references == 0 {
            self.due.push(*call);
            self.live.remove(&handle);
        }
    }

    /// Takes the calls that are due.
    pub(crate) fn take_due(&mut self) -> Vec<HostNodeParams> {
        std::mem::take(&mut self.due)
    }
}
