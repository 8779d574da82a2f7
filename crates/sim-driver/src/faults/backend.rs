//! A back end that asks a plan about the size and the place of each call.

use std::sync::Arc;

use pagewise_hal::{
    Backend, Capabilities, DevicePtr, DeviceTouch, Error, HostAddresses, HostTouch, HostViews,
    KernelAccesses, Location, LocationKind, Operation, RecordedLaunch, Result, Span, SpanCopy,
    with_calls,
};
use pagewise_sim::SimBackend;

use super::Faults;

/// A back end around another: its calls fail if the plan says so.
#[derive(Debug)]
pub(crate) struct FaultyBackend {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) faults: Arc<Faults>,
    /// Knows which memory lives.
    pub(crate) simulator: Arc<SimBackend>,
}

/// The bytes and the place that a call is about.
#[derive(Debug, Clone, Copy, Default)]
struct About {
    bytes: u64,
    location: Option<Location>,
}

impl About {
    fn over(mut self, spans: impl IntoIterator<Item = Span>) -> Self {
        self.bytes = spans.into_iter().fold(0, |sum, span| sum.saturating_add(span.bytes));
        self
    }

    const fn at(mut self, location: Location) -> Self {
        self.location = Some(location);
        self
    }
}

/// The place that an ordinal names.
const fn of_ordinal(ordinal: i32) -> Location {
    match ordinal {
        Location::ORDINAL_HOST => Location::HOST,
        id => Location { kind: LocationKind::DEVICE, id },
    }
}

/// A program of accesses, which says what a call is about.
trait Touch {
    fn describe(&self, about: About) -> About;
}

impl Touch for HostTouch {
    fn describe(&self, about: About) -> About {
        about.over([self.span])
    }
}

impl Touch for DeviceTouch {
    fn describe(&self, about: About) -> About {
        about.over([self.span]).at(Location::device(self.device))
    }
}

impl Touch for &RecordedLaunch {
    fn describe(&self, about: About) -> About {
        about.over(self.ranges.iter().copied()).at(Location::device(self.device))
    }
}

impl Touch for &KernelAccesses {
    fn describe(&self, about: About) -> About {
        about.over(self.spans()).at(Location::device(self.device))
    }
}

impl FaultyBackend {
    fn ask(&self, operation: Operation, about: About) -> Result<()> {
        let allocates = matches!(
            operation,
            Operation::AllocManaged
                | Operation::AllocDevice
                | Operation::AllocPinned
                | Operation::PoolAlloc
                | Operation::MemoryCreate
        );
        let live = || {
            self.simulator.live().iter().fold(0, |sum: u64, span| sum.saturating_add(span.bytes))
        };
        let room = if allocates { self.faults.ask_for_memory(live, about.bytes) } else { Ok(()) };
        let answer = room.and_then(|()| self.faults.ask(about.bytes, about.location));
        answer.map_err(|code| Error::from_code(operation.name(), code).with_detail("injected"))
    }
}

/// Adds what an argument says: the argument's name, and the argument.
macro_rules! about {
    ($about:ident, bytes, $value:ident) => {
        let $about = About { bytes: $value, ..$about };
    };
    ($about:ident, span, $value:ident) => {
        let $about = $about.over([$value]);
    };
    ($about:ident, spans, $value:ident) => {
        let $about = $about.over($value.iter().copied());
    };
    ($about:ident, copies, $value:ident) => {
        let $about = $about.over($value.iter().map(SpanCopy::to));
    };
    ($about:ident, touch, $value:ident) => {
        let $about = $value.describe($about);
    };
    ($about:ident, kernel, $value:ident) => {
        let $about = $value.describe($about);
    };
    ($about:ident, location, $value:ident) => {
        let $about = $about.at($value);
    };
    ($about:ident, locations, $value:ident) => {
        let $about = About { location: $value.first().copied(), ..$about };
    };
    ($about:ident, ordinal, $value:ident) => {
        let $about = $about.at(of_ordinal($value));
    };
    ($about:ident, device, $value:ident) => {
        let $about = $about.at(Location::device($value));
    };
    ($about:ident, props, $value:ident) => {
        let $about = $about.at($value.location);
    };
    ($about:ident, $other:ident, $value:ident) => {};
}

macro_rules! forwarded {
    ($call:ident, fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $name(&self, $($argument: $type),*) -> Result<$answer> {
            let about = About::default();
            $(about!(about, $argument, $argument);)*
            self.ask(Operation::$call, about)?;
            self.inner.$name($($argument),*)
        }
    };
    ($call:ident, unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        unsafe fn $name(&self, $($argument: $type),*) -> Result<$answer> {
            let about = About::default();
            $(about!(about, $argument, $argument);)*
            self.ask(Operation::$call, about)?;
            // SAFETY: the inner method asks for the same as this one, and the caller of this one
            // promised it. All arguments are passed on unchanged.
            unsafe { self.inner.$name($($argument),*) }
        }
    };
}

macro_rules! forward {
    ($($call:ident = [$($unsafe:tt)?] fn $name:ident(
        $($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[deny(clippy::missing_trait_methods)]
        impl Backend for FaultyBackend {
            fn capabilities(&self) -> Capabilities {
                self.inner.capabilities()
            }

            fn clock_ns(&self) -> u64 {
                self.inner.clock_ns()
            }

            fn sleep_ns(&self, duration_ns: u64) {
                self.inner.sleep_ns(duration_ns);
            }

            $(forwarded!($call, $($unsafe)? fn $name($($argument: $type),*) -> $answer);)*
        }
    };
}

with_calls!(forward);

// SAFETY: all addresses come from the inner back end as they are, so its promise holds.
unsafe impl HostAddresses for FaultyBackend {
    fn host_views(&self) -> HostViews {
        self.inner.host_views()
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        self.inner.kernel_address(ptr)
    }
}
