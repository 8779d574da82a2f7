//! Kernels of modules: launches with checked arguments, attributes, occupancy.

use std::sync::{Arc, OnceLock};

use pagewise_hal::{
    BestBlock, ErrorKind, FunctionAttribute, FunctionHandle, KernelParam, LaunchShape, ParamInfo,
    Result,
};

use super::argument::{Argument, KernelArgs};
use super::loaded::{Loaded, OPERATION};
use crate::refuse::invalid;
use crate::{Device, Machine, Stream};

/// Blocks of a grid, or threads of a block, in up to three dimensions.
///
/// ```
/// use pagewise::launch::Extent;
///
/// assert_eq!(Extent::from(4), Extent([4, 1, 1]));
/// assert_eq!(Extent::from((4, 2)), Extent([4, 2, 1]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent(pub [u32; 3]);

impl From<u32> for Extent {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<(u32, u32)> for Extent {
    fn from((x, y): (u32, u32)) -> Self {
        Self([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Extent {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self([x, y, z])
    }
}

/// A kernel of a [`Module`](super::Module), which it keeps loaded.
#[derive(Debug, Clone)]
pub struct Kernel {
    module: Arc<Loaded>,
    handle: FunctionHandle,
    name: Arc<str>,
    /// The parameters, once they were asked for; `None` where the driver does not tell.
    params: Arc<OnceLock<Option<Vec<ParamInfo>>>>,
}

impl Kernel {
    pub(super) fn new(module: Arc<Loaded>, handle: FunctionHandle, name: &str) -> Self {
        Self { module, handle, name: name.into(), params: Arc::default() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device that the module is loaded on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.module.device
    }

    /// The machine that the module is of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.module.machine
    }

    /// The kernel as back ends name it.
    #[must_use]
    pub fn handle(&self) -> FunctionHandle {
        self.handle
    }

    /// The parameters that it declares; `None` on drivers before CUDA 12.4, which do not tell.
    ///
    /// # Errors
    /// The back end's.
    pub fn params(&self) -> Result<Option<&[ParamInfo]>> {
        if let Some(known) = self.params.get() {
            return Ok(known.as_deref());
        }
        let asked = match self.machine().backend().function_params(self.handle) {
            Ok(params) => Some(params),
            Err(error) if error.kind() == ErrorKind::Unsupported => None,
            Err(error) => return Err(error),
        };
        Ok(self.params.get_or_init(|| asked).as_deref())
    }

    /// Launches the kernel in stream order, and does not wait for it. Memory among the arguments is
    /// waited for when it is next used: by the host, by other streams, or to be freed.
    ///
    /// The arguments are checked before anything runs: as many as the kernel declares, each of the
    /// size of its parameter, at a place that is aligned for its type. Drivers before CUDA 12.4 do
    /// not tell what a kernel declares, and nothing is checked there.
    ///
    /// A kernel that ends early, by an address without memory for one, is no error of this call:
    /// what next waits for the stream fails with its code, and all later calls too. The simulator
    /// adds a report with line, thread and address.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidValue` for arguments that the kernel does not take, memory of
    /// another machine, a stream of another machine or device, and memory that the kernel reads
    /// after it was discarded. From the back end: errors of
    /// [`Backend::launch`](crate::Backend::launch), and failures of earlier work on the memory.
    ///
    /// # Safety
    /// The kernel uses the memory of its arguments alone, and variables of its module; it writes
    /// only what is borrowed exclusively, without data races, and nothing that other code uses
    /// until the kernel has ended. A struct among the arguments is laid out as the kernel's.
    ///
    /// ```
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream, launch::Module};
    ///
    /// const PTX: &str = "
    /// .version 7.0
    /// .target sm_70
    /// .address_size 64
    /// .visible .entry scale(.param .u64 values, .param .f32 factor, .param .u32 count)
    /// {
    ///     .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<3>; .reg .b64 %d<3>;
    ///     ld.param.u64 %d1, [values];
    ///     ld.param.f32 %f1, [factor];
    ///     ld.param.u32 %r4, [count];
    ///     mov.u32 %r1, %ctaid.x;
    ///     mov.u32 %r2, %ntid.x;
    ///     mov.u32 %r3, %tid.x;
    ///     mad.lo.u32 %r1, %r1, %r2, %r3;
    ///     setp.ge.u32 %p, %r1, %r4;
    ///     @%p ret;
    ///     mul.wide.u32 %d2, %r1, 4;
    ///     add.u64 %d1, %d1, %d2;
    ///     ld.global.f32 %f2, [%d1];
    ///     mul.f32 %f2, %f2, %f1;
    ///     st.global.f32 [%d1], %f2;
    ///     ret;
    /// }";
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let scale = Module::from_ptx(&machine, Device::FIRST, PTX)?.kernel("scale")?;
    /// let mut values = ManagedBuffer::from_slice(&machine, &[1.0_f32, 2.0, 3.0])?;
    /// // SAFETY: the kernel changes `count` floats at `values`, one thread each.
    /// unsafe { scale.launch(&stream, 1, 32, (&mut values, 10.0_f32, 3_u32)) }?;
    /// assert_eq!(values.read()?, [10.0, 20.0, 30.0]);
    ///
    /// // SAFETY: the launch is refused before its kernel starts, so no memory is used.
    /// let error = unsafe { scale.launch(&stream, 1, 32, (&mut values, 10.0_f64, 3_u32)) };
    /// let error = error.unwrap_err().to_string();
    /// assert!(error.contains("parameter 1 of `scale` has 4 bytes"), "{error}");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: impl Into<Extent>,
        block: impl Into<Extent>,
        args: impl KernelArgs,
    ) -> Result<()> {
        let (Extent(grid), Extent(block)) = (grid.into(), block.into());
        let shape = LaunchShape { grid, block, shared_bytes: 0 };
        // SAFETY: the caller promised what the other form asks for.
        unsafe { self.launch_shape(stream, shape, args) }
    }

    /// As [`launch`](Self::launch), also with dynamic shared memory.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub unsafe fn launch_shape(
        &self,
        stream: &Stream,
        shape: LaunchShape,
        args: impl KernelArgs,
    ) -> Result<()> {
        let args = args.arguments();
        self.check(stream, &args)?;
        args.iter().try_for_each(|one| one.begin(stream))?;
        let params: Vec<KernelParam> = args.iter().map(|one| one.param().clone()).collect();
        let backend = self.machine().backend();
        // SAFETY: the parameters are as many as the kernel declares and of their sizes, which were
        // checked, or on older drivers promised. The caller promised that the kernel may use the
        // memory, and what is borrowed stays until the kernel has ended: its destructor waits.
        unsafe { backend.launch(self.handle, shape, &params, stream.raw()) }?;
        args.iter().for_each(|one| one.has_work(stream));
        Ok(())
    }

    /// Checks what can be checked before anything is done.
    fn check(&self, stream: &Stream, args: &[Argument<'_>]) -> Result<()> {
        self.machine().check_stream(OPERATION, stream)?;
        if let Some(other) = stream.device().filter(|&other| other != self.device()) {
            let why = format!("the stream is of {other}, the kernel of {}", self.device());
            return Err(invalid(OPERATION, why));
        }
        if let Some(declared) = self.params()? {
            if declared.len() != args.len() {
                let why = format!(
                    "`{}` takes {} arguments, and {} are given",
                    self.name,
                    declared.len(),
                    args.len()
                );
                return Err(invalid(OPERATION, why));
            }
            let each = args.iter().zip(declared).enumerate();
            for (index, (one, declared)) in each {
                one.check(index, &self.name, *declared)?;
            }
        }
        args.iter().try_for_each(|one| one.check_memory(stream))
    }

    /// An attribute, such as the registers of a thread.
    ///
    /// # Errors
    /// The back end's.
    pub fn attribute(&self, attribute: FunctionAttribute) -> Result<i32> {
        self.machine().backend().function_attribute(self.handle, attribute)
    }

    /// Lets launches add this much shared memory to a block, in bytes: more than 48 KiB in all need
    /// it.
    ///
    /// # Errors
    /// `InvalidValue` (1) for more than a block can have on the device.
    pub fn set_dynamic_shared_max(&self, bytes: u32) -> Result<()> {
        let value = i32::try_from(bytes)
            .map_err(|_| invalid(OPERATION, "no block has that much shared memory"))?;
        let attribute = FunctionAttribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.machine().backend().function_set_attribute(self.handle, attribute, value)
    }

    /// Blocks that a multiprocessor holds at once, with so many threads and so many bytes of dynamic
    /// shared memory each; 0 if it cannot hold one.
    ///
    /// # Errors
    /// `InvalidValue` (1) for no threads.
    pub fn occupancy(&self, block_threads: u32, shared_bytes: u32) -> Result<u32> {
        self.machine().backend().occupancy_blocks(self.handle, block_threads, shared_bytes)
    }

    /// The block that keeps most threads busy, and a grid that fills the device.
    ///
    /// # Errors
    /// The back end's.
    pub fn best_block(&self, shared_bytes: u32) -> Result<BestBlock> {
        self.machine().backend().occupancy_best_block(self.handle, shared_bytes, 0)
    }
}
