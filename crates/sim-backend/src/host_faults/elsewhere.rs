//! Host faults on systems without a mechanism: none can be opened, so none of the types has a value.

use std::ops::Range;
use std::sync::Arc;

use crate::config::{HostFaultSupport, HostFaults};

#[path = "fault.rs"]
pub(crate) mod fault;

const WHY: &str = "host faults need Linux on x86-64 or aarch64: use HostFaults::Declared";

/// The mechanism that a machine with [`HostFaults::Real`] gets on this host, and why.
#[must_use]
pub fn support() -> HostFaultSupport {
    HostFaultSupport { mechanism: None, system_calls: false, why: WHY.to_string() }
}

/// Says that there is no gate here.
pub(crate) fn open(_: HostFaults) -> Result<(Arc<gate::Gate>, HostFaultSupport), String> {
    Err(WHY.to_string())
}

pub(crate) mod gate {
    use std::io;

    use super::Range;
    use super::fault::{Answer, Fault, Shown};

    /// No value: there is no mechanism.
    #[derive(Debug)]
    pub(crate) enum Gate {}

    impl Gate {
        pub(crate) fn is_in_child(&self) -> bool {
            match *self {}
        }

        pub(crate) fn window_pages(&self) -> usize {
            match *self {}
        }

        pub(crate) fn shows_only_memory(&self) -> bool {
            match *self {}
        }

        pub(crate) fn show(&self, _: &Range<u64>, _: Shown) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn allow_writes(&self, _: &Range<u64>) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn write_protect(&self, _: &Range<u64>) {
            match *self {}
        }

        pub(crate) fn hide(&self, _: &Range<u64>) {
            match *self {}
        }

        pub(crate) fn answer(&self, _: &Fault, _: Answer) -> bool {
            match *self {}
        }

        pub(crate) fn allow(&self, _: u64) {
            match *self {}
        }
    }
}

pub(crate) mod double_map {
    use std::io;

    use super::gate::Gate;
    use super::{Arc, Range};

    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Accessed {
        ByBoth,
        ByEngine,
    }

    /// No value: there is no mechanism.
    #[derive(Debug)]
    pub(crate) enum DoubleMap {}

    impl DoubleMap {
        pub(crate) fn new(gate: &Arc<Gate>, _: u64, _: u64, _: Accessed) -> io::Result<Self> {
            match **gate {}
        }

        pub(crate) fn view(&self) -> Range<u64> {
            match *self {}
        }

        pub(crate) fn engine_address(&self, _: u64) -> u64 {
            match *self {}
        }

        pub(crate) fn clear(&self, _: &Range<u64>) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn reclaim(&self, _: &Range<u64>) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn prefer_huge_pages(&self, _: &Range<u64>) {
            match *self {}
        }

        pub(crate) fn populate(&self, _: &Range<u64>) -> io::Result<()> {
            match *self {}
        }
    }
}

pub(crate) mod service {
    use std::io;

    use super::Arc;
    use super::fault::Fault;
    use super::gate::Gate;

    /// No value: there is no mechanism.
    #[derive(Debug)]
    pub(crate) enum Service {}

    impl Service {
        pub(crate) fn start(
            gate: Arc<Gate>,
            _: impl Fn(Fault) + Send + Sync + Clone + 'static,
        ) -> io::Result<Self> {
            match *gate {}
        }
    }
}
