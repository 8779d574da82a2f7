//! The kernel on a GPU, if there is one.

use pagewise::{BackendKind, Builder, ErrorKind, Machine, ManagedBuffer};
use pagewise_example_cudarc::{Outcome, Saxpy};

#[test]
fn the_kernel_computes_and_buffers_of_different_lengths_are_refused() -> Outcome {
    let machine = match Builder::new().backend(BackendKind::Cuda).open() {
        Ok(backend) => Machine::from(backend),
        Err(error) if error.kind() == ErrorKind::LibraryMissing => {
            println!("skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let saxpy = Saxpy::load(0)?;
    let x = ManagedBuffer::from_slice(&machine, &[1.0_f32, 2.0, 3.0])?;
    let mut y = ManagedBuffer::from_slice(&machine, &[10.0_f32, 20.0, 30.0])?;
    saxpy.run(2.0, &x, &mut y, 2)?;
    assert_eq!(y.read()?, [14.0, 28.0, 42.0]);
    let mut short = ManagedBuffer::<f32>::zeroed(&machine, 2)?;
    assert!(saxpy.run(2.0, &x, &mut short, 1).is_err());
    Ok(())
}
