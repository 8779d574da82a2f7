//! Notes of accesses that are no calls: faults of the host.

use pagewise_hal::{Backend, HostAccess, HostTouch, Result};

use super::recorder::Recorder;
use crate::format::{Observed, Op};
use crate::replay::code::coded;

impl<B: Backend> Recorder<B> {
    /// Carries out an access of the host that no call declares, such as the service of a fault, and
    /// notes it as the access program that moves the same pages. `access` carries it out, and
    /// returns that program with its answer; `None` if nothing moved, which is not noted.
    ///
    /// No call is carried out meanwhile. So the thread that calls this must not be one that a call
    /// waits for, and no call may itself make such an access.
    ///
    /// What the program reads and writes is not known, so sums of the host's reads are unstable in
    /// the rest of the recording: a replay does not compare them.
    pub fn access_undeclared(&self, access: impl FnOnce(&B) -> Option<(HostTouch, Result<u64>)>) {
        let mut log = self.next_call();
        let (carried_out, ns) = self.timed(access);
        let Some((touch, answer)) = carried_out else { return };
        let HostTouch { span, stride_bytes: stride, access } = touch;
        let value = match access {
            HostAccess::Read => None,
            HostAccess::Write(value) => Some(value),
        };
        let op = Op::HostTouch { part: log.ids.part(span), stride, access, value };
        let observed = Observed { sum: None, ..coded(&answer) };
        log.note(&self.inner, op, observed, ns);
        log.contents_are_unknown();
    }
}
