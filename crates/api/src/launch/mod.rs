//! Kernels: code of a module, or a closure of the host with declared accesses.
//!
//! There are two ways to launch a kernel, and tests need no GPU for either:
//!
//! | | [`Kernel::launch`] | [`Launch::run`] |
//! | --- | --- | --- |
//! | what computes | PTX of a [`Module`] | a closure of the host; on a driver the PTX |
//! | on the simulator | the PTX is executed, and its own accesses move pages | declared accesses move pages |
//! | on a driver | the driver compiles and runs the PTX | likewise, and it is waited for |
//! | arguments | numbers and memory ([`KernelArgs`]), checked against what the kernel declares | operands of managed memory |
//! | fit for | programs that have kernels | programs that have none yet, and for what-if studies |
//!
//! # Declared kernels
//!
//! A [`Launch`] runs a kernel over *operands*: elements of buffers, each read, written, updated or
//! updated atomically ([`read`], [`write()`], [`update`], [`atomic`]), all of them or some
//! ([`strided`](Read::strided), [`gather`](Read::gather), [`ranges`](Read::ranges)).
//!
//! | back end | what runs |
//! | --- | --- |
//! | simulator | pages fault and move as by the kernel, then the closure computes the contents |
//! | CUDA | the kernel that was given by [`Launch::kernel`]; the closure is not called |
//!
//! `c[i] = a[i] + b[i]`:
//!
//! ```
//! use pagewise::launch::{read, write};
//! use pagewise::{Device, Launch, Machine, ManagedBuffer, Stream, assert_migrated_bytes};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let a = ManagedBuffer::from_slice(&machine, &[1.0_f32; 1 << 20])?;
//! let b = ManagedBuffer::from_slice(&machine, &[2.0_f32; 1 << 20])?;
//! let mut c = ManagedBuffer::<f32>::new(&machine, 1 << 20)?;
//! let add = Launch::new(Device::FIRST).grid(1024, 256);
//! let operands = (read(&a), read(&b), write(&mut c));
//! // `a` and `b` move to the device, 4 MiB each; `c` has no contents to move.
//! assert_migrated_bytes!(machine, 8 << 20, add.run(&stream, operands, |(a, b, c)| {
//!     for i in 0..c.len() {
//!         c[i] = a[i] + b[i];
//!     }
//! })?);
//! assert!(c.read()?.iter().all(|&sum| sum == 3.0));
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! # The order of accesses
//!
//! A kernel is a grid-stride loop. An operand has *places*, one for each access, and thread `t` of
//! `n` accesses, in iteration `i`, place `i * n + t` of each operand, in the order of the operands.
//! So the faults of several operands mix. An operand with fewer places ends earlier. With one
//! thread, which is the default, each access is complete before the next is made, and the same pages
//! fault and move on every run. A kernel with one operand moves what a
//! [`DeviceProgram`](crate::DeviceProgram) with its stride moves.
//!
//! # The closure
//!
//! It sees a slice of an operand with all elements, and [`Places`] or [`PlacesMut`] of one with
//! some: no element that is not declared. It runs once, after the pages moved, and causes no faults
//! of the host. If it panics, the panic goes on, and buffers can be used: elements that it left
//! keep what they held.
//!
//! # Misuse that does not compile
//!
//! A buffer that is both read and written:
//!
//! ```compile_fail,E0502
//! use pagewise::launch::{read, write};
//! use pagewise::{Device, Launch, Machine, ManagedBuffer, Stream};
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let mut a = ManagedBuffer::<u8>::zeroed(&machine, 1)?;
//! Launch::new(Device::FIRST).run(&stream, (read(&a), write(&mut a)), |_| ())?;
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! Writing what is only read:
//!
//! ```compile_fail,E0594
//! use pagewise::launch::read;
//! use pagewise::{Device, Launch, Machine, ManagedBuffer, Stream};
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let a = ManagedBuffer::<u8>::zeroed(&machine, 1)?;
//! Launch::new(Device::FIRST).run(&stream, (read(&a),), |(a,)| a[0] = 1)?;
//! # Ok::<(), pagewise::Error>(())
//! ```

mod argument;
mod kernel;
mod loaded;
mod module;
mod operand;
mod operands;
mod order;
mod view;

use pagewise_hal::{HostViews, KernelAccesses, KernelParam, LaunchShape, Result};

pub use argument::{KernelArg, KernelArgs};
pub use kernel::{Extent, Kernel};
pub use module::Module;
pub use operand::{Operand, Read, ReadSome, Write, WriteSome, atomic, read, update, write};
pub use operands::Operands;
pub use view::{Places, PlacesMut};

use crate::refuse::{invalid, unsupported};
use crate::{Device, Machine, Stream};
use operand::{Declared, OPERATION};

/// Whether a back end runs code and nothing else.
fn runs_code(machine: &Machine) -> bool {
    let capabilities = machine.capabilities();
    capabilities.kernels && !capabilities.declared_kernels
}

/// A kernel to be run over operands. See the [module](self).
///
/// By default one block of one thread runs it.
#[derive(Debug, Clone)]
#[must_use = "a launch does nothing until it is run"]
pub struct Launch {
    device: Device,
    shape: LaunchShape,
    kernel: Option<(Kernel, Vec<KernelParam>)>,
}

impl Launch {
    /// A kernel of this device.
    pub const fn new(device: Device) -> Self {
        Self { device, shape: LaunchShape::linear(1, 1), kernel: None }
    }

    /// The same kernel by a grid of threads.
    pub const fn grid(mut self, blocks: u32, threads: u32) -> Self {
        (self.shape.grid, self.shape.block) = ([blocks, 1, 1], [threads, 1, 1]);
        self
    }

    /// The same kernel with this much dynamic shared memory for each block, in bytes. The simulator
    /// does not look at it.
    pub const fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shape.shared_bytes = bytes;
        self
    }

    /// The code that a driver runs, and no closure. Its parameters are the addresses of the operands, in their
    /// order, and then these.
    ///
    /// The simulator runs the closure all the same, so a test can give it or leave it out.
    ///
    /// # Safety
    /// For every [`run`](Self::run) of this value: the kernel declares these parameters, one pointer
    /// for each operand first. It accesses nothing but the places that are declared, and memory of
    /// its own, in the declared ways, without data races. It writes every element that is declared
    /// by [`write()`].
    pub unsafe fn kernel(
        mut self,
        kernel: &Kernel,
        params: impl IntoIterator<Item = KernelParam>,
    ) -> Self {
        self.kernel = Some((kernel.clone(), params.into_iter().collect()));
        self
    }

    /// Runs the kernel over operands, in stream order, and waits for it: on a driver the
    /// [`kernel`](Self::kernel), on the simulator the closure.
    ///
    /// All arguments are checked before anything moves. Elements that are declared by [`write()`]
    /// count as written afterwards, if a discard made them worthless; of [`strided`](Read::strided)
    /// ones only those of stride 1.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidDevice`; `InvalidValue` for a stream of another machine or
    /// device, operands of different machines, a kernel of another device, a grid of 0 blocks or
    /// threads, an operand that [`gather`](Read::gather) or its kin refuse, more ranges than
    /// [`KernelAccesses::RANGES_MAX`] in all, elements so large that the operands take more than
    /// [`KernelAccesses::WALKS_MAX`] accesses an iteration (one for each 4 KiB), or if the kernel
    /// would read discarded contents; `Unsupported` on a driver without a [`kernel`](Self::kernel),
    /// and on a back end that neither runs kernels nor lends memory to the host. From the back end:
    /// errors of [`Backend::kernel_accesses`](crate::Backend::kernel_accesses), or of
    /// [`Backend::launch`](crate::Backend::launch) and the kernel.
    ///
    /// ```
    /// use pagewise::launch::{read, write};
    /// use pagewise::{Device, Launch, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let table = ManagedBuffer::from_slice(&machine, &[10_u32, 11, 12, 13])?;
    /// let mut out = ManagedBuffer::<u32>::zeroed(&machine, 3)?;
    /// let operands = (read(&table).gather(&[3, 0, 3]), write(&mut out));
    /// Launch::new(Device::FIRST).grid(1, 32).run(&stream, operands, |(table, out)| {
    ///     (0..3).for_each(|i| out[i] = table[i]);
    /// })?;
    /// assert_eq!(out.read()?, [13, 10, 13]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn run<O: Operands>(
        &self,
        stream: &Stream,
        operands: O,
        body: impl for<'v> FnOnce(O::Views<'v>),
    ) -> Result<()> {
        let declared = operands.declare()?;
        let machine = self.check(&declared, stream)?;
        let kernel = self.accesses(&declared)?;
        for operand in &declared {
            let region = &operand.region;
            region.named(region.memory.use_on(stream))?;
            region.named(region.memory.wait_for_copies(region.span))?;
            region.wait_for_discards()?;
        }
        if runs_code(machine) {
            self.run_code(machine, &declared, stream)?;
        } else {
            // SAFETY: the ranges are those of the operands, which are borrowed exclusively where
            // they are written, and shared where they are read. Discards of them are done, and the
            // call waits for the accesses.
            unsafe { machine.backend().kernel_accesses(&kernel, stream.raw()) }?;
            // SAFETY: the back end promised that the host can use its memory at its address
            // (`HostAddresses`, which `check` asked for). The operands borrow the elements, and the
            // device is done with them. The views are the only ones of these operands, and end with
            // the closure: it takes views of any lifetime, so it cannot keep them.
            body(unsafe { operands.views() });
        }
        declared.iter().for_each(Declared::count_as_written);
        Ok(())
    }

    /// Checks what can be checked without the back end's memory. Returns the operands' machine.
    fn check<'o>(&self, declared: &[Declared<'o>], stream: &Stream) -> Result<&'o Machine> {
        let Some(first) = declared.first() else {
            return Err(invalid(OPERATION, "the kernel has no operand"));
        };
        let machine = &first.region.memory.machine;
        if declared.iter().any(|operand| operand.region.memory.machine != *machine) {
            return Err(invalid(OPERATION, "the operands are of different machines"));
        }
        machine.check_device(OPERATION, self.device)?;
        machine.check_stream(OPERATION, stream)?;
        if let Some(other) = stream.device().filter(|&other| other != self.device) {
            let why = format!("the stream is of {other}, the kernel of {}", self.device);
            return Err(invalid(OPERATION, why));
        }
        declared.iter().try_for_each(Declared::check_readable)?;
        if runs_code(machine) {
            let Some((function, _)) = &self.kernel else {
                let why = "this back end runs kernels, and the launch has none: give one with \
                           `Launch::kernel`";
                return Err(unsupported(OPERATION, why));
            };
            if function.machine() != machine || function.device() != self.device {
                let why = format!("the kernel is not of {} of the operands' machine", self.device);
                return Err(invalid(OPERATION, why));
            }
        } else if machine.host_views() == HostViews::Absent {
            let why = "this back end runs no kernels, and its memory is not the host's, so that \
                       the closure cannot use it";
            return Err(unsupported(OPERATION, why));
        }
        Ok(machine)
    }

    /// The accesses of the kernel, checked.
    fn accesses(&self, declared: &[Declared<'_>]) -> Result<KernelAccesses> {
        let kernel = KernelAccesses {
            device: self.device.id(),
            blocks: self.shape.grid[0],
            threads: self.shape.block[0],
            walks: declared.iter().flat_map(Declared::walks).collect(),
        };
        kernel.check().map_err(|why| invalid(OPERATION, why))?;
        Ok(kernel)
    }

    /// Runs the kernel on a driver, and waits for it.
    fn run_code(
        &self,
        machine: &Machine,
        declared: &[Declared<'_>],
        stream: &Stream,
    ) -> Result<()> {
        let Some((function, others)) = &self.kernel else { return Ok(()) };
        let addresses = declared.iter().map(|operand| KernelParam::from(operand.region.span.ptr));
        let params: Vec<KernelParam> = addresses.chain(others.iter().cloned()).collect();
        // SAFETY: the caller of `kernel` promised that these are the kernel's parameters, and that
        // it accesses only what is declared. That is borrowed, exclusively where it is written, and
        // the kernel is waited for before the borrows end.
        let launched = unsafe {
            machine.backend().launch(function.handle(), self.shape, &params, stream.raw())
        };
        // Also after a refusal, which the driver may give for earlier work of the stream.
        launched.and(stream.synchronize())
    }
}
