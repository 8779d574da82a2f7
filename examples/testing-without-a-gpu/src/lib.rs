//! Code under test: tables that one device reads much and the host writes now and then.
//!
//! It never says which back end it runs on. Functions take a [`Machine`] or buffers of one, or
//! `&dyn Backend` where only a call or two is needed.

use pagewise::{
    Backend, Device, DeviceId, DeviceProgram, ErrorKind, Machine, ManagedBuffer, MemoryInfo, Place,
    Result, Stream,
};

/// A table in managed memory, tuned for a device that reads it.
#[derive(Debug)]
pub struct Table {
    entries: ManagedBuffer<u32>,
    device: Device,
    stream: Stream,
}

/// Where the entries of a table are kept for its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// A copy on the device.
    OnDevice,
    /// On the host; the device reads them from there, because it has no room.
    OnHost,
}

/// Whether a device has room for so many bytes, with some to spare.
///
/// # Errors
/// As [`Backend::memory_info`].
pub fn has_room(backend: &dyn Backend, device: DeviceId, bytes: u64) -> Result<bool> {
    let MemoryInfo { free_bytes, .. } = backend.memory_info(device)?;
    Ok(free_bytes / 2 >= bytes)
}

impl Table {
    /// Puts entries into managed memory, to be read by a device.
    ///
    /// # Errors
    /// As [`ManagedBuffer::from_slice`] and advice.
    pub fn new(machine: &Machine, device: Device, entries: &[u32]) -> Result<Self> {
        let stream = Stream::new(machine, device)?;
        let entries = ManagedBuffer::from_slice(machine, entries)?;
        entries.set_read_mostly(true)?;
        Ok(Self { entries, device, stream })
    }

    /// Brings the entries near the device before it needs them.
    ///
    /// # Errors
    /// Whatever else the back end refuses than for want of memory.
    pub fn warm_up(&self) -> Result<Kept> {
        match self.entries.prefetch(self.device, &self.stream) {
            Ok(()) => Ok(Kept::OnDevice),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                self.entries.set_preferred_location(Some(Place::HOST))?;
                self.entries.accessed_by().insert(self.device)?;
                Ok(Kept::OnHost)
            }
            Err(error) => Err(error),
        }
    }

    /// Adds up all bytes of the table on its device.
    ///
    /// # Errors
    /// As [`ManagedBuffer::run_on_device`].
    pub fn checksum(&mut self) -> Result<u64> {
        self.entries.run_on_device(DeviceProgram::read(self.device), &self.stream)
    }

    /// Changes an entry on the host.
    ///
    /// # Errors
    /// `InvalidValue` for an entry that does not exist.
    pub fn set(&mut self, index: usize, value: u32) -> Result<()> {
        self.entries.range_mut(index..=index)?.write()?[0] = value;
        Ok(())
    }

    /// The memory, for claims about it.
    #[must_use]
    pub fn entries(&self) -> &ManagedBuffer<u32> {
        &self.entries
    }
}
