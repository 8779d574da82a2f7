//! Handles of streams, events, pools, physical memory, modules and functions.
//!
//! A handle is the driver's pointer as an integer, and a driver dereferences it. Handles are copied
//! freely: a copy may be used after its object was destroyed, or be passed to another back end. So
//! a back end looks up each handle that it or another back end gave out
//! ([`checked`](StreamHandle::checked)), and refuses those that are not live. Only a handle from
//! elsewhere, such as a stream of the CUDA runtime, is passed to the driver without a look-up:
//! making one ([`from_raw`](StreamHandle::from_raw)) is `unsafe`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use bitflags::bitflags;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Two are equal that have the same number.
        #[derive(Clone, Copy)]
        pub struct $name {
            raw: u64,
            vouched: bool,
        }

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self::checked(0);

            /// A handle that back ends look up before they use it: they refuse it unless they gave
            /// it out and it is live. Back ends make those that they give out in this way.
            #[must_use]
            pub const fn checked(raw: u64) -> Self {
                Self { raw, vouched: false }
            }

            /// A handle from elsewhere, which a driver uses without a look-up. The simulator looks
            /// it up all the same.
            ///
            /// # Safety
            /// `raw` must be 0 or a live handle of the driver of each back end that it or a copy is
            /// passed to, and stay live for as long as that goes on.
            #[must_use]
            pub const unsafe fn from_raw(raw: u64) -> Self {
                Self { raw, vouched: raw != 0 }
            }

            /// Whether unsafe code made it ([`from_raw`](Self::from_raw)), so that back ends take
            /// it without a look-up.
            #[must_use]
            pub const fn is_vouched(self) -> bool {
                self.vouched
            }

            /// The number that the driver knows it by.
            #[must_use]
            pub const fn as_raw(self) -> u64 {
                self.raw
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.raw == other.raw
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.raw.cmp(&other.raw)
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.raw.hash(state);
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.raw).finish()
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(self.raw)
            }
        }

        /// A handle that was read back is [`checked`](Self::checked): a file can hold any number.
        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                u64::deserialize(from).map(Self::checked)
            }
        }
    };
}

handle! {
    /// A stream (`CUstream`). [`StreamHandle::NULL`] is the legacy default stream.
    StreamHandle
}
handle! {
    /// An event (`CUevent`).
    EventHandle
}
handle! {
    /// A memory pool (`CUmemoryPool`). [`PoolHandle::NULL`] is no pool: every call refuses it.
    PoolHandle
}
handle! {
    /// Physical memory, which has no address (`CUmemGenericAllocationHandle`).
    /// [`MemoryHandle::NULL`] is no memory: every call refuses it.
    MemoryHandle
}
handle! {
    /// A module, which holds the code of kernels (`CUmodule`).
    ModuleHandle
}
handle! {
    /// A kernel of a module (`CUfunction`).
    FunctionHandle
}

impl StreamHandle {
    /// The legacy default stream by its explicit number, `CU_STREAM_LEGACY`.
    pub const LEGACY: Self = Self::checked(1);
    /// The calling thread's default stream, `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: Self = Self::checked(2);

    /// Whether this is one of the default streams, which every context has.
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.raw <= Self::PER_THREAD.raw
    }

    /// Whether this is the legacy default stream, which the batch calls refuse.
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        self.raw <= 1
    }
}

bitflags! {
    /// Flags of `cuStreamCreate`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct StreamFlags: u32 {
        /// Work in the stream does not synchronise with the legacy default stream.
        const NON_BLOCKING = 0x1;
        const _ = !0;
    }

    /// Flags of `cuEventCreate`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct EventFlags: u32 {
        /// Waiting yields the processor instead of spinning.
        const BLOCKING_SYNC = 0x1;
        /// Keeps no time, and is cheaper.
        const DISABLE_TIMING = 0x2;
        const _ = !0;
    }
}
