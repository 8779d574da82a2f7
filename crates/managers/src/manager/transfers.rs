//! Copies between host and device, in the order of an instance's stream.
//!
//! Page-locked arrays are copied while the program goes on. Others go through a page-locked buffer
//! of at most 64 MiB, piece by piece, and are done when the call returns.

use pagewise::resource::Allocation;
use pagewise::{DevicePtr, Stream};

use super::array::Array;
use super::error::{ManagerError, Result};
use super::host_array::HostArray;
use super::instance_id::InstanceId;
use super::memory_manager::MemoryManager;
use super::pinned_blocks::{PinnedBlock, pinned_bytes};

/// The most bytes that a copy of memory that is not page-locked takes on the way.
const STAGING_BYTES: usize = 64 << 20;

impl MemoryManager {
    /// Copies host arrays into arrays, pair by pair: as many bytes as the host side has. Empty ones
    /// are passed over. Divided arrays take them as the first chunk; see
    /// [`to_device_chunk`](Self::to_device_chunk).
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; [`ManagerError::Mismatch`] for lists of different length,
    /// other element types, or a host side that is larger; [`ManagerError::ArrayGone`]; all before
    /// anything is copied, but for an array that is freed meanwhile. Of the back end: the pairs
    /// before the one that failed are copied.
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// use pagewise_managers::manager::{ArrayRequest, Dtype, HostMemory};
    /// let id = manager.register(Registration::new())?;
    /// manager.queue_request(id, [("x", ArrayRequest::new(Dtype::F32, [100]))])?;
    /// let x = manager.allocate_queue(id)?.responses[&id].arr["x"].clone();
    /// let mut host = manager.create_host_array(&[100], Dtype::F32, HostMemory::Pinned, None)?;
    /// host.as_mut_slice::<f32>()?.fill(1.5);
    /// manager.to_device(id, &[&host], &[&x])?;
    /// manager.from_device(id, &[&x], &mut [&mut host])?;
    /// assert_eq!(host.as_slice::<f32>()?, [1.5; 100]);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn to_device(&self, id: InstanceId, from: &[&HostArray], to: &[&Array]) -> Result<()> {
        self.to_device_chunk(id, 0, from, to)
    }

    /// Copies from the host into the slot that a chunk uses.
    ///
    /// # Errors
    /// As [`to_device`](Self::to_device).
    pub fn to_device_chunk(
        &self,
        id: InstanceId,
        chunk: u64,
        from: &[&HostArray],
        to: &[&Array],
    ) -> Result<()> {
        let stream = self.get_stream(id)?;
        check_lengths(from.len(), to.len())?;
        for (item, (host, array)) in from.iter().zip(to).enumerate() {
            check_pair(&stream, item, host, array)?;
        }
        let staging = self.staging(from.iter().copied())?;
        for (host, array) in from.iter().zip(to).filter(|(host, _)| host.nbytes() > 0) {
            match host.pinned() {
                Some(source) => {
                    host.copied_on(&stream)?;
                    array.copy(chunk, &stream, Some(host.nbytes()), |slot| {
                        copy(&stream, slot.ptr, source, host.nbytes())
                    })?;
                }
                None => array.copy(chunk, &stream, Some(host.nbytes()), |slot| {
                    let Some(staging) = &staging else { return Ok(()) };
                    stage_up(&stream, slot.ptr, host.bytes(), staging)
                })?,
            }
        }
        Ok(())
    }

    /// Copies arrays into host arrays, pair by pair: as many bytes as the host side has.
    ///
    /// # Errors
    /// As [`to_device`](Self::to_device).
    pub fn from_device(
        &self,
        id: InstanceId,
        from: &[&Array],
        to: &mut [&mut HostArray],
    ) -> Result<()> {
        self.from_device_chunk(id, 0, from, to)
    }

    /// Copies to the host out of the slot that a chunk uses.
    ///
    /// # Errors
    /// As [`to_device`](Self::to_device).
    pub fn from_device_chunk(
        &self,
        id: InstanceId,
        chunk: u64,
        from: &[&Array],
        to: &mut [&mut HostArray],
    ) -> Result<()> {
        let stream = self.get_stream(id)?;
        check_lengths(from.len(), to.len())?;
        for (item, (array, host)) in from.iter().zip(to.iter()).enumerate() {
            check_pair(&stream, item, host, array)?;
        }
        let staging = self.staging(to.iter().map(|host| &**host))?;
        for (array, host) in from.iter().zip(to).filter(|(_, host)| host.nbytes() > 0) {
            match host.pinned() {
                Some(target) => {
                    host.copied_on(&stream)?;
                    array.copy(chunk, &stream, None, |slot| {
                        copy(&stream, target, slot.ptr, host.nbytes())
                    })?;
                }
                None => array.copy(chunk, &stream, None, |slot| {
                    let Some(staging) = &staging else { return Ok(()) };
                    stage_down(&stream, slot.ptr, host.bytes_mut(), staging)
                })?,
            }
        }
        Ok(())
    }

    /// A buffer for the host arrays that need one.
    fn staging<'h>(
        &self,
        hosts: impl Iterator<Item = &'h HostArray>,
    ) -> Result<Option<PinnedBlock>> {
        let unpinned = hosts.filter(|host| host.pinned().is_none());
        match unpinned.map(|host| host.bytes().len()).max() {
            None | Some(0) => Ok(None),
            Some(bytes) => self.pinned(bytes.min(STAGING_BYTES), true),
        }
    }
}

fn check_lengths(from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    let why = format!("{from} arrays are to be copied into {to}");
    Err(ManagerError::Mismatch { item: from.min(to), why })
}

fn check_pair(stream: &Stream, item: usize, host: &HostArray, array: &Array) -> Result<()> {
    if host.nbytes() == 0 {
        return Ok(());
    }
    // Streams and addresses of one machine mean nothing to another.
    let machine = stream.machine();
    if array.machine() != machine || host.machine().is_some_and(|other| other != machine) {
        let why = "they are of different machines".to_owned();
        return Err(ManagerError::Mismatch { item, why });
    }
    if host.dtype() != array.dtype() {
        let why = format!("{:?} on the host, {:?} on the device", host.dtype(), array.dtype());
        return Err(ManagerError::Mismatch { item, why });
    }
    if host.nbytes() > array.nbytes() {
        let (host, array) = (host.nbytes(), array.nbytes());
        let why = format!("{host} bytes on the host, room for {array} on the device");
        return Err(ManagerError::Mismatch { item, why });
    }
    array.span().map(drop)
}

fn copy(stream: &Stream, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<()> {
    let backend = stream.machine().backend();
    // SAFETY: both sides are live allocations of at least so many bytes, and different ones. They
    // are not given back before the stream has passed the copy, and host views wait for it. Device
    // work on either came through an `unsafe` call, which promised not to overlap with copies.
    unsafe { backend.memcpy(to, from, bytes, stream.handle())? };
    Ok(())
}

fn stage_up(stream: &Stream, to: DevicePtr, from: &[u8], staging: &Allocation) -> Result<()> {
    let piece_bytes = usize::try_from(staging.span().bytes).unwrap_or(usize::MAX);
    let mut to = to.0;
    for piece in from.chunks(piece_bytes) {
        // SAFETY: the buffer is live page-locked memory that the host reaches (`pinned` has asked),
        // at least as long as the piece. Only this call knows it, and the copy of the piece before
        // was waited for.
        unsafe { &mut *pinned_bytes(staging.span(), piece.len()) }.copy_from_slice(piece);
        copy(stream, DevicePtr(to), staging.device_ptr(), piece.len() as u64)?;
        stream.synchronize()?;
        to += piece.len() as u64;
    }
    Ok(())
}

fn stage_down(stream: &Stream, from: DevicePtr, to: &mut [u8], staging: &Allocation) -> Result<()> {
    let piece_bytes = usize::try_from(staging.span().bytes).unwrap_or(usize::MAX);
    let mut from = from.0;
    for piece in to.chunks_mut(piece_bytes) {
        copy(stream, staging.device_ptr(), DevicePtr(from), piece.len() as u64)?;
        stream.synchronize()?;
        // SAFETY: the buffer is live page-locked memory that the host reaches (`pinned` has asked),
        // at least as long as the piece. Only this call knows it, and the copy into it was waited
        // for.
        piece.copy_from_slice(unsafe { &*pinned_bytes(staging.span(), piece.len()) });
        from += piece.len() as u64;
    }
    Ok(())
}
