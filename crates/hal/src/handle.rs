//! Handles of streams, events and pools.
//!
//! A handle is the driver's pointer as an integer. A back end hands them out; making one from a
//! number is `unsafe`, because a driver dereferences it. That is why the calls which merely *take*
//! a handle need not be.
//!
//! Handles are copied freely, so types do not rule out two mistakes: a copy that is used after what
//! it names was destroyed, and a handle of one back end that is passed to another. The simulator
//! refuses both. A driver may not survive them: whoever destroys something, through this crate or
//! by dropping a stream or a pool of the `pagewise` crate, sees to it that no copy is used again.

use bitflags::bitflags;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        pub struct $name(u64);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(0);

            /// Takes a handle that came from the driver or from a back end.
            ///
            /// # Safety
            /// `raw` must be 0 or a live handle of the back end that it will be passed to, and
            /// stay live for as long as it is.
            #[must_use]
            pub const unsafe fn from_raw(raw: u64) -> Self {
                Self(raw)
            }

            /// The number that the driver knows it by.
            #[must_use]
            pub const fn as_raw(self) -> u64 {
                self.0
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

impl StreamHandle {
    /// The legacy default stream by its explicit number, `CU_STREAM_LEGACY`.
    pub const LEGACY: Self = Self(1);
    /// The calling thread's default stream, `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: Self = Self(2);

    /// Whether this is the legacy default stream, which the batch calls refuse.
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        self.0 <= 1
    }
}

bitflags! {
    /// Flags of `cuStreamCreate`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct StreamFlags: u32 {
        /// Does not synchronise with the legacy default stream.
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
