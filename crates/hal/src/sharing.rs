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
                write!(f, concat!(stringify!($name), "({})"), Hex(&self.0))
            }
        }

        /// As hexadecimal digits.
        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&Hex(&self.0))
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                let why = || serde::de::Error::custom("expected 128 hexadecimal digits");
                from_hex(&text).map(Self).ok_or_else(why)
            }
        }
    };
}

/// Bytes as hexadecimal digits.
struct Hex<'b>(&'b [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(feature = "serde")]
fn from_hex(text: &str) -> Option<[u8; SHARED_BLOB_BYTES]> {
    let mut bytes = [0; SHARED_BLOB_BYTES];
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * SHARED_BLOB_BYTES)?;
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(bytes)
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

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_written_as_digits_and_read_back_from_nothing_else() {
        let handle = IpcMemHandle(std::array::from_fn(|n| n as u8 * 3));
        let text = serde_json::to_string(&handle).unwrap();
        assert_eq!(text[..9], *"\"00030609");
        assert_eq!(serde_json::from_str::<IpcMemHandle>(&text).unwrap(), handle);
        let wrong = ["\"\"".into(), text.replace("00", "0g"), text.replace("00", ""), "7".into()];
        for text in wrong {
            assert!(serde_json::from_str::<IpcMemHandle>(&text).is_err(), "{text}");
        }
    }
}
