//! The calls of an intercepted back end, made from the list of all calls.

use pagewise_hal::{
    Backend, Capabilities, DeviceTouch, HostTouch, KernelAccesses, Location, LocationKind,
    Operation, RecordedLaunch, Result, Span, SpanCopy, with_calls,
};

use super::call::Call;
use super::{Intercepted, Interceptor};

fn of_ordinal(ordinal: i32) -> Location {
    match ordinal {
        Location::ORDINAL_HOST => Location::HOST,
        id => Location { kind: LocationKind::DEVICE, id },
    }
}

/// A program of accesses, which says what a call is about.
trait Touch {
    fn describe(&self, call: Call) -> Call;
}

impl Touch for HostTouch {
    fn describe(&self, call: Call) -> Call {
        call.on(self.span)
    }
}

impl Touch for DeviceTouch {
    fn describe(&self, call: Call) -> Call {
        call.on(self.span).at(Location::device(self.device))
    }
}

impl Touch for &RecordedLaunch {
    fn describe(&self, call: Call) -> Call {
        call.all(&self.ranges).at(Location::device(self.device))
    }
}

impl Touch for &KernelAccesses {
    fn describe(&self, call: Call) -> Call {
        call.over(self.spans()).at(Location::device(self.device))
    }
}

/// Adds to a call what an argument says about it: the argument's name, and the argument.
macro_rules! about {
    ($call:ident, bytes, $value:ident) => {
        let $call = $call.sized($value);
    };
    ($call:ident, span, $value:ident) => {
        let $call = $call.on($value);
    };
    ($call:ident, spans, $value:ident) => {
        let $call = $call.all($value);
    };
    ($call:ident, copies, $value:ident) => {
        let $call = $call.over($value.iter().map(SpanCopy::to));
    };
    ($call:ident, destination, $value:ident) => {
        let $call = $call.on(Span::new($value, 0));
    };
    ($call:ident, touch, $value:ident) => {
        let $call = $value.describe($call);
    };
    ($call:ident, kernel, $value:ident) => {
        let $call = $value.describe($call);
    };
    ($call:ident, location, $value:ident) => {
        let $call = $call.at($value);
    };
    ($call:ident, locations, $value:ident) => {
        let $call = $call.first($value);
    };
    ($call:ident, ordinal, $value:ident) => {
        let $call = $call.at(of_ordinal($value));
    };
    ($call:ident, device, $value:ident) => {
        let $call = $call.at(Location::device($value));
    };
    ($call:ident, props, $value:ident) => {
        let $call = $call.at($value.location);
    };
    ($call:ident, $other:ident, $value:ident) => {};
}

/// Asks the interceptor about a call.
macro_rules! ask {
    ($this:ident, discard_batch, $call:ident, $make:expr) => {
        $this.discard(&$call, $make)
    };
    ($this:ident, discard_prefetch_batch, $call:ident, $make:expr) => {
        $this.discard(&$call, $make)
    };
    ($this:ident, $other:ident, $call:ident, $make:expr) => {
        $this.interceptor.around(&$call, $make)
    };
}

macro_rules! forwarded {
    ($call:ident, fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $name(&self, $($argument: $type),*) -> Result<$answer> {
            let call = Call::made_here(Operation::$call);
            $(about!(call, $argument, $argument);)*
            ask!(self, $name, call, || self.inner.$name($($argument),*))
        }
    };
    ($call:ident, unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        unsafe fn $name(&self, $($argument: $type),*) -> Result<$answer> {
            let call = Call::made_here(Operation::$call);
            $(about!(call, $argument, $argument);)*
            // SAFETY: the inner method asks for the same as this one, and the caller of this one
            // promised it. All arguments are passed on unchanged.
            ask!(self, $name, call, || unsafe { self.inner.$name($($argument),*) })
        }
    };
}

macro_rules! forward {
    ($($call:ident = [$($unsafe:tt)?] fn $name:ident(
        $($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[deny(clippy::missing_trait_methods)]
        impl<B: Backend, I: Interceptor> Backend for Intercepted<B, I> {
            fn capabilities(&self) -> Capabilities {
                self.inner.capabilities()
            }

            fn clock_ns(&self) -> u64 {
                self.inner.clock_ns()
            }

            fn sleep_ns(&self, duration_ns: u64) {
                self.inner.sleep_ns(duration_ns)
            }

            $(forwarded!($call, $($unsafe)? fn $name($($argument: $type),*) -> $answer);)*
        }
    };
}

with_calls!(forward);
