//! Runs the kernel on the first GPU, and checks every element.

use pagewise::{BackendKind, Builder, Device, Host, Machine, ManagedBuffer, Stream};
use pagewise_example_cudarc::{Outcome, Saxpy};

const COUNT: usize = 16 << 20;
const TIMES: usize = 100;

fn main() -> Outcome {
    let machine = Machine::from(Builder::new().backend(BackendKind::Cuda).open()?);
    let saxpy = Saxpy::load(0)?;
    let stream = Stream::new(&machine, Device::FIRST)?;

    let x = ManagedBuffer::from_slice(&machine, &vec![2.0_f32; COUNT])?;
    let mut y = ManagedBuffer::from_slice(&machine, &vec![1.0_f32; COUNT])?;
    x.set_read_mostly(true)?;
    x.prefetch(Device::FIRST, &stream)?;
    y.prefetch(Device::FIRST, &stream)?;
    stream.synchronize()?;

    // Nothing waits for the launches but `run` itself, so a wrong element is a missing wait.
    saxpy.run(0.5, &x, &mut y, TIMES)?;
    check(&y, 1.0 + TIMES as f32)?;

    // The pages go to the host and come back by faults.
    y.prefetch(Host::Any, &stream)?;
    stream.synchronize()?;
    y.write()?.fill(3.0);
    saxpy.run(2.0, &x, &mut y, 1)?;
    check(&y, 7.0)?;
    println!("saxpy: {COUNT} elements right after {TIMES} launches, and after a way to the host");
    Ok(())
}

fn check(y: &ManagedBuffer<f32>, expected: f32) -> Outcome {
    match y.read()?.iter().position(|&found| found != expected) {
        None => Ok(()),
        Some(at) => Err(format!("element {at} is {}, not {expected}", y.read()?[at]).into()),
    }
}
