//! What safe code may not bring about: bytes that change under a view, memory that is not there.
#![cfg(feature = "sim")]

use pagewise::{
    Device, DeviceAccess, DeviceProgram, ErrorKind, Machine, ManagedBuffer, Result, Stream,
};

fn machine() -> Result<(Machine, Stream)> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    Ok((machine, stream))
}

#[test]
fn an_atomic_on_one_half_of_a_buffer_leaves_a_view_of_the_other_alone() -> Result<()> {
    let (machine, stream) = machine()?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    let (mut left, right) = buffer.range_mut(..)?.split_at(5)?;
    left.run_on_device(DeviceProgram::write(Device::FIRST, 255), &stream)?;
    let view = right.read()?;
    let add = DeviceProgram::new(Device::FIRST, DeviceAccess::AtomicAdd).stride(4);
    let error = left.run_on_device(add, &stream).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    assert!(error.to_string().contains("at multiples of 4"), "{error}");
    assert!(view.iter().all(|&byte| byte == 0));
    assert_eq!(left.read()?, [255; 5], "nothing was added");
    Ok(())
}
