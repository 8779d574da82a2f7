//! Handles of memory that other code or another process made, and of memory for another process.

use bitflags::bitflags;

/// Bytes of the blobs that the driver makes for other processes.
pub const SHARED_BLOB_BYTES: usize = 64;

bitflags! {
    /// Flags of registered host memory (`CU_MEMHOSTREGISTER_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct HostRegisterFlags: u32 {
        /// Page-locked for every context.
        const PORTABLE = 0x1;
        /// Mapped on devices, at the same address.
        const DEVICE_MAP = 0x2;
        /// Memory of an I/O device.
        const IO_MEMORY = 0x4;
        /// Devices only read it.
        const READ_ONLY = 0x8;
        const _ = !0;
    }
}

/// A file descriptor by which another process imports a pool. Its receiver closes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShareableHandle(pub i32);

macro_rules! blob {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub [u8; SHARED_BLOB_BYTES]);

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "("))?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                write!(f, ")")
            }
        }
    };
}

blob! {
    /// An exported allocation, which another process imports into its imported pool
    /// (`CUmemPoolPtrExportData`). It is bytes that are sent as they are, and valid for processes
    /// of the same machine only.
    ExportedPointer
}

blob! {
    /// A handle by which another process opens device memory (`CUipcMemHandle`).
    IpcMemHandle
}
