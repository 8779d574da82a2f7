//! The messages to another process: a pool's handle, and an allocation's descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pagewise_hal::{ExportedPointer, Result, SHARED_BLOB_BYTES};
use uuid::Uuid;

use crate::refuse::invalid;

/// A handle from which another process makes a mapped resource: a descriptor, which is closed when
/// the handle is dropped, and the pool's id. Send both: the descriptor over a Unix socket or by
/// inheritance, the id as bytes.
#[derive(Debug)]
pub struct AllocationHandle {
    pub(super) descriptor: OwnedFd,
    pub(super) uuid: Uuid,
}

impl AllocationHandle {
    /// A handle that arrived from another process.
    ///
    /// # Safety
    /// `descriptor` and `uuid` are of one [`AllocationHandle`].
    ///
    /// ```
    /// # use pagewise::resource::{AllocationHandle, DeviceMemoryResource, PoolOptions};
    /// # use pagewise::{Device, HandleTypes, Machine};
    /// # let machine = Machine::from(pagewise::sim()?);
    /// # let handle_types = HandleTypes::POSIX_FILE_DESCRIPTOR;
    /// # let options = PoolOptions { handle_types, ..PoolOptions::default() };
    /// # let pool = DeviceMemoryResource::new_pool(&machine, Device::FIRST, options)?;
    /// let handle = pool.allocation_handle()?;
    /// let (uuid, descriptor) = (handle.uuid(), handle.into_descriptor());
    /// // SAFETY: `from_parts` asks for a descriptor and a UUID of the same handle; both are of the
    /// // handle above.
    /// let handle = unsafe { AllocationHandle::from_parts(descriptor, uuid) };
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub unsafe fn from_parts(descriptor: OwnedFd, uuid: Uuid) -> Self {
        Self { descriptor, uuid }
    }

    /// The pool's id, the same for all its handles.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The descriptor, which is the caller's from now on.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }
}

impl AsFd for AllocationHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// An exported allocation, which another process imports in a mapped resource of the same pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Vec<u8>", into = "Vec<u8>"))]
pub struct BufferDescriptor {
    pub(super) payload: ExportedPointer,
    pub(super) bytes: u64,
}

/// Bytes of a descriptor: the driver's, and the size.
const DESCRIPTOR_BYTES: usize = SHARED_BLOB_BYTES + 8;

impl BufferDescriptor {
    pub(super) fn new(payload: ExportedPointer, bytes: u64) -> Self {
        Self { payload, bytes }
    }

    /// How many bytes the allocation has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// As bytes, to be sent.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..SHARED_BLOB_BYTES].copy_from_slice(&self.payload.0);
        bytes[SHARED_BLOB_BYTES..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// From bytes that arrived. [`import`](super::DeviceMemoryResource::import) checks their
    /// meaning.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) unless there are 72 bytes.
    ///
    /// ```
    /// assert!(pagewise::resource::BufferDescriptor::from_bytes(&[0; 8]).is_err());
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let Ok(bytes) = <&[u8; DESCRIPTOR_BYTES]>::try_from(bytes) else {
            let why = format!("{} bytes are no descriptor: it has {DESCRIPTOR_BYTES}", bytes.len());
            return Err(invalid("import", why));
        };
        let (mut payload, mut size) = ([0; SHARED_BLOB_BYTES], [0; 8]);
        payload.copy_from_slice(&bytes[..SHARED_BLOB_BYTES]);
        size.copy_from_slice(&bytes[SHARED_BLOB_BYTES..]);
        Ok(Self { payload: ExportedPointer(payload), bytes: u64::from_le_bytes(size) })
    }
}

impl TryFrom<Vec<u8>> for BufferDescriptor {
    type Error = pagewise_hal::Error;

    fn try_from(bytes: Vec<u8>) -> Result<Self> {
        Self::from_bytes(&bytes)
    }
}

impl From<BufferDescriptor> for Vec<u8> {
    fn from(descriptor: BufferDescriptor) -> Self {
        descriptor.to_bytes().into()
    }
}
