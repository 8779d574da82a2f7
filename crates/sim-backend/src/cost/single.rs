//! The times of access programs of one access, worked out ahead: most calls of a program that
//! touches page by page.

use pagewise_hal::Processor;

use super::account::{of_walk, whole};
use super::call::Call;
use super::params::CostParams;
use super::state::Warmth;
use crate::paging::{Access, Covered, Walk};

/// The times, in ns, of programs of one access and one thread without a fault, where each follows
/// one of its class without a pause.
#[derive(Debug)]
pub(super) struct SingleAccesses {
    host: [Times; ACCESSES.len()],
    device: [Times; ACCESSES.len()],
}

/// The times of one access: to any other page, and to one that is elsewhere (a device) or was
/// written before (the host).
type Times = [u64; 2];

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Atomic];

impl SingleAccesses {
    pub(super) fn new(params: &CostParams) -> Self {
        let times = |call, covered: [Covered; 2]| {
            ACCESSES.map(|access| covered.map(|covered| ns(params, call, access, covered)))
        };
        let page = Covered { pages: 1, ..Covered::default() };
        let elsewhere = Covered { remote_pages: 1, ..page };
        let written = Covered { written_before: 1, ..page };
        Self {
            host: times(Call::HostTouch, [page, written]),
            device: times(Call::DeviceTouch { threads: 1, bulk: false }, [page, elsewhere]),
        }
    }

    /// The time of a program of a device (else of the host) that covered one page, and was not the
    /// first to write it.
    #[inline]
    pub(super) fn ns(&self, by_device: bool, access: Access, covered: Covered) -> u64 {
        debug_assert!(covered.pages == 1 && covered.first_written == 0);
        let times = if by_device { &self.device } else { &self.host };
        times[access as usize][usize::from((covered.remote_pages | covered.written_before) != 0)]
    }
}

fn ns(params: &CostParams, call: Call, access: Access, covered: Covered) -> u64 {
    let walk = Walk { by: Processor::HOST, first_byte: 0, bytes: 1, stride_bytes: 1, access };
    whole(of_walk(params, call, Warmth::IN_ROW, &walk, covered))
}
