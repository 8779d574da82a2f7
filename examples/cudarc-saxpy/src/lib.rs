//! A kernel that cudarc launches on managed memory of pagewise.
//!
//! The memory is allocated, advised, prefetched and read by pagewise; the kernel is loaded and
//! launched by cudarc. `cargo run -p pagewise-example-cudarc` checks the results on a GPU.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use pagewise::{ManagedBuffer, interop};

/// The result of everything here: errors come from two crates.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The kernel `y[i] = a * x[i] + y[i]`, and the stream that it runs on.
#[derive(Debug)]
pub struct Saxpy {
    kernel: CudaFunction,
    stream: Arc<CudaStream>,
}

impl Saxpy {
    /// Loads the kernel on a device.
    ///
    /// # Errors
    /// cudarc's: no such device, or a driver that cannot compile the kernel.
    pub fn load(ordinal: usize) -> Outcome<Self> {
        let context = CudaContext::new(ordinal)?;
        let module = context.load_module(Ptx::from_src(include_str!("saxpy.ptx")))?;
        Ok(Self { kernel: module.load_function("saxpy")?, stream: context.new_stream()? })
    }

    /// The stream that the kernel runs on.
    #[must_use]
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Runs the kernel as often as is said, and waits for it: `lend` does.
    ///
    /// # Errors
    /// If the lengths differ, or the elements are too many for one launch. pagewise's, if the
    /// memory cannot be lent. cudarc's, if the launch fails.
    pub fn run(
        &self,
        a: f32,
        x: &ManagedBuffer<f32>,
        y: &mut ManagedBuffer<f32>,
        times: usize,
    ) -> Outcome {
        if x.len() != y.len() {
            return Err("x and y have different lengths".into());
        }
        let count = u32::try_from(x.len())?;
        interop::lend(&self.stream, (x, y), |(x, mut y)| {
            for _ in 0..times {
                let mut launch = self.stream.launch_builder(&self.kernel);
                launch.arg(&a).arg(&x).arg(&mut y).arg(&count);
                // SAFETY: the kernel reads `x` and writes `y` at indices below `count`, which is
                // the length of both.
                unsafe { launch.launch(LaunchConfig::for_num_elems(count))? };
            }
            Ok(())
        })?
    }
}
