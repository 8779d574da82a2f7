//! Device access programs over a buffer, the smallest work that every back end can do.

use bytemuck::Pod;
use pagewise_hal::{DeviceAccess, DeviceTouch, Result};

use crate::refuse::invalid;
use crate::{Device, ManagedBuffer, ManagedRangeMut, Stream};

/// A device's access to elements: it touches one byte at each stride.
///
/// By default one block of one thread makes one access after another. Then the same pages fault and
/// move on every run.
///
/// ```
/// use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 3 * 4096)?;
/// buffer.run_on_device(DeviceProgram::write(Device::FIRST, 7).stride(4096), &stream)?;
/// let sum = buffer.run_on_device(DeviceProgram::read(Device::FIRST), &stream)?;
/// assert_eq!(sum, 3 * 7);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceProgram {
    device: Device,
    access: DeviceAccess,
    stride_bytes: u64,
    blocks: u32,
    threads: u32,
}

impl DeviceProgram {
    /// Reads each byte; the answer is their sum.
    #[must_use]
    pub const fn read(device: Device) -> Self {
        Self::new(device, DeviceAccess::Read)
    }

    /// Writes each byte.
    #[must_use]
    pub const fn write(device: Device, value: u8) -> Self {
        Self::new(device, DeviceAccess::Write(value))
    }

    /// Makes this access at each place.
    ///
    /// ```
    /// # use pagewise::{Device, DeviceAccess, DeviceProgram};
    /// let count = DeviceProgram::new(Device::FIRST, DeviceAccess::AtomicAdd).stride(4);
    /// assert_ne!(count, DeviceProgram::read(Device::FIRST));
    /// ```
    #[must_use]
    pub const fn new(device: Device, access: DeviceAccess) -> Self {
        Self { device, access, stride_bytes: 1, blocks: 1, threads: 1 }
    }

    /// The same program with this many bytes from one access to the next.
    #[must_use]
    pub const fn stride(mut self, bytes: u64) -> Self {
        self.stride_bytes = bytes;
        self
    }

    /// The same program by a grid of threads, which share the places.
    #[must_use]
    pub const fn grid(mut self, blocks: u32, threads: u32) -> Self {
        self.blocks = blocks;
        self.threads = threads;
        self
    }
}

impl<T: Pod> ManagedRangeMut<'_, T> {
    /// Runs a program of a device over the elements, in stream order, and waits for it. The answer
    /// is the sum of the bytes that it read, 0 if it wrote.
    ///
    /// Discarded elements count as written if it writes every byte.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidDevice`; `InvalidValue` for a stream of another machine or
    /// device, for a program that [`DeviceTouch::check`] refuses (stride, blocks or threads of 0;
    /// an atomic with words of 4 bytes that are not wholly among the elements), or if it would read
    /// discarded contents. From the back end: errors of the program.
    ///
    /// ```
    /// use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 10)?;
    /// buffer.range_mut(5..)?.run_on_device(DeviceProgram::write(Device::FIRST, 1), &stream)?;
    /// assert_eq!(buffer.read()?, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn run_on_device(&mut self, program: DeviceProgram, stream: &Stream) -> Result<u64> {
        let answer = self.run_unnamed(program, stream);
        self.region.named(answer)
    }

    fn run_unnamed(&mut self, program: DeviceProgram, stream: &Stream) -> Result<u64> {
        const OPERATION: &str = "run on device";
        let DeviceProgram { device, access, stride_bytes, blocks, threads } = program;
        let (memory, span) = (self.memory, self.span());
        memory.machine.check_device(OPERATION, device)?;
        memory.machine.check_stream(OPERATION, stream)?;
        if let Some(other) = stream.device().filter(|&other| other != device) {
            let why = format!("the stream is of {other}, the program for {device}");
            return Err(invalid(OPERATION, why));
        }
        let touch =
            DeviceTouch { device: device.id(), span, stride_bytes, access, blocks, threads };
        touch.check().map_err(|why| invalid(OPERATION, why).with_span(span))?;
        let writes_all = matches!(access, DeviceAccess::Write(_)) && stride_bytes == 1;
        if !matches!(access, DeviceAccess::Write(_)) {
            memory.contents.check_readable(OPERATION, span)?;
        }
        memory.use_on(stream)?;
        memory.wait_for_copies(span)?;
        memory.contents.wait(span)?;
        // SAFETY: `check` found that the program stays within the elements, which are borrowed
        // exclusively. Discards of them are done, and the call waits for the program.
        let sum = unsafe { memory.machine.backend().device_touch(touch, stream.raw())? };
        if writes_all {
            memory.contents.settle(span)?;
        }
        Ok(sum)
    }
}

impl<T: Pod> ManagedBuffer<T> {
    /// Runs a program of a device over all elements. See [`ManagedRangeMut::run_on_device`].
    ///
    /// # Errors
    /// As [`ManagedRangeMut::run_on_device`].
    ///
    /// ```
    /// use pagewise::{Device, DeviceAccess, DeviceProgram, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let mut buffer = ManagedBuffer::<u32>::zeroed(&machine, 3)?;
    /// let count = DeviceProgram::new(Device::FIRST, DeviceAccess::AtomicAdd).stride(4);
    /// buffer.run_on_device(count, &stream)?;
    /// assert_eq!(buffer.read()?, [1, 1, 1]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn run_on_device(&mut self, program: DeviceProgram, stream: &Stream) -> Result<u64> {
        self.range_mut(..)?.run_on_device(program, stream)
    }
}
