//! Uses of pagewise's managed memory in a program with cudarc: compiled, for every version.

use std::sync::Arc;

use cudarc::cublas::sys::cublasOperation_t;
use cudarc::cublas::{CudaBlas, Gemv, GemvConfig};
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use pagewise_cuda::interop::CudarcBuffer;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Managed memory as the argument of a kernel.
///
/// # Safety
/// The kernel must take `(const float *from, float *to, int count)` and stay within `count`.
pub unsafe fn launch(
    stream: &Arc<CudaStream>,
    kernel: &CudaFunction,
    from: &CudarcBuffer,
    to: &mut CudarcBuffer,
) -> Outcome {
    let (from, mut to) = (from.view::<f32>()?, to.view_mut::<f32>()?);
    let count = from.len().min(to.len()) as i32;
    let mut arguments = stream.launch_builder(kernel);
    arguments.arg(&from).arg(&mut to).arg(&count);
    // SAFETY: the kernel may access what its arguments name; the caller of this function promised
    // that.
    unsafe { arguments.launch(LaunchConfig::for_num_elems(count as u32)) }?;
    Ok(())
}

/// Managed memory filled, copied to and from the host, and between ranges.
pub fn copy(
    stream: &Arc<CudaStream>,
    from: &mut CudarcBuffer,
    to: &mut CudarcBuffer,
) -> Outcome<Vec<u32>> {
    let numbers: Vec<u32> = (0..from.view::<u32>()?.len() as u32).collect();
    stream.memset_zeros(&mut to.view_mut::<u32>()?)?;
    stream.memcpy_htod(&numbers, &mut from.view_mut::<u32>()?)?;
    stream.memcpy_dtod(&from.view::<u32>()?, &mut to.view_mut::<u32>()?)?;
    let copied = stream.clone_dtoh(&to.view::<u32>()?)?;
    stream.synchronize()?;
    Ok(copied)
}

/// Managed memory as matrix and vectors of cuBLAS.
pub fn multiply(
    blas: &CudaBlas,
    matrix: &CudarcBuffer,
    vector: &CudarcBuffer,
    product: &mut CudarcBuffer,
    rows: i32,
    columns: i32,
) -> Outcome {
    let config = GemvConfig {
        trans: cublasOperation_t::CUBLAS_OP_N,
        m: rows,
        n: columns,
        alpha: 1.0_f32,
        lda: rows,
        incx: 1,
        beta: 0.0,
        incy: 1,
    };
    let (matrix, vector) = (matrix.view::<f32>()?, vector.view::<f32>()?);
    let fits = matrix.len() >= (rows * columns) as usize && vector.len() >= columns as usize;
    let mut product = product.view_mut::<f32>()?;
    if !fits || product.len() < rows as usize {
        return Err("the buffers are too small for the matrix".into());
    }
    // SAFETY: the sizes of matrix and vectors fit together, which was checked above.
    unsafe { blas.gemv(config, &matrix, &vector, &mut product) }?;
    Ok(())
}
