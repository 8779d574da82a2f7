//! The barrier of a cluster.

use super::block::{Common, OF_CLUSTER};
use super::engine::{Engine, Next};
use super::warp::{Fragment, Round, State, Warp};

impl Engine<'_> {
    /// `barrier.cluster.arrive`: a thread that has arrived goes on.
    pub(super) fn cluster_arrive(&mut self, common: &mut Common, warp: &mut Warp, mask: u32) {
        let cluster = common.own_cluster();
        let phase = cluster.phase();
        // A program that arrives twice breaks the rules. It counts once.
        let new = mask & !warp.arrivals.of(phase);
        warp.arrivals.lanes |= new;
        warp.arrivals.odd = warp.arrivals.odd & !new | if phase & 1 == 1 { new } else { 0 };
        cluster.arrive(new.count_ones());
    }

    /// `barrier.cluster.wait`: a thread waits for the end of the phase in which it arrived. One that
    /// has not arrived breaks the rules, and waits for the end of this phase.
    pub(super) fn cluster_wait(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
    ) -> Next {
        let phase = common.own_cluster().phase();
        let is_over = warp.arrivals.lanes & !warp.arrivals.of(phase);
        let waiting = fragment.mask & !is_over;
        warp.arrivals.lanes &= !fragment.mask;
        if waiting == 0 {
            return Next::Go;
        }
        self.only(warp, fragment, waiting);
        fragment.pc += 1;
        fragment.state = State::Barrier(Round::of(OF_CLUSTER, phase));
        Next::Stop
    }
}
