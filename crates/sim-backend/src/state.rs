//! The state of a machine as text, by which tests see whether a call changed it.
//!
//! Every field of [`Sim`] and of [`Pager`](crate::pager::Pager) is named where it is taken apart,
//! so that a new one does not compile until it is decided whether it belongs here.

use std::fmt;

use crate::sim::Sim;

/// The state of a machine. Not among it: the configuration, which does not change; time and
/// what the cost model remembers, because refused calls take time too; the pace of the next call,
/// which any call uses up; contents of memory, which have addresses of their own;
/// and what the program's view shows of them, which follows from the rest.
pub(crate) struct State<'a>(pub(crate) &'a Sim);

/// A line for each part: its name and its value.
impl fmt::Display for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sim {
            config: _,
            topology: _,
            arena: _,
            space,
            attributes,
            pools,
            streams,
            pager,
            contents,
            attachments,
            sharing,
            mappings,
            peer_access,
            exclusive,
            host_view: _,
            repeats: _,
            clock_ns: _,
            pace: _,
            listened,
            rehearses: _,
            lends: _,
            reads_beside: _,
            device_bytes,
        } = self.0;
        let mut part = |name: &str, value: &dyn fmt::Debug| writeln!(f, "{name}: {value:?}");
        part("space", space)?;
        part("attributes", attributes)?;
        part("pools", pools)?;
        part("streams", streams)?;
        part("pager", &pager.state())?;
        part("contents", contents)?;
        part("attachments", attachments)?;
        part("sharing", sharing)?;
        part("mappings", mappings)?;
        part("peer_access", peer_access)?;
        part("exclusive", exclusive)?;
        part("listened", listened)?;
        part("device_bytes", device_bytes)
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::{AttachFlags, Backend, BackendExt, DeviceId, Location};

    use crate::{SimBackend, SimConfig};

    #[test]
    fn states_differ_after_a_change_and_not_after_a_question() {
        let sim = SimBackend::new(SimConfig::h200()).unwrap();
        let fresh = sim.state();
        let span = sim.alloc(4 << 20).unwrap();
        let allocated = sim.state();
        assert_ne!(fresh, allocated);
        assert!(sim.alloc_managed(0, AttachFlags::GLOBAL).is_err());
        sim.memory_info(DeviceId(0)).unwrap();
        assert_eq!(sim.state(), allocated, "time passed, and nothing else");
        sim.prefetch_to(span, Location::HOST).unwrap();
        assert_ne!(sim.state(), allocated);
    }
}
