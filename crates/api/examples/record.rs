// Records a program: `cargo run --example record --features record`. Then carry it out again
// anywhere: `pagewise replay step.jsonl.zst`.
use std::env::args_os;
use std::error::Error;
use std::path::PathBuf;

use pagewise::{Device, DeviceProgram, ManagedBuffer, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let path = PathBuf::from(args_os().nth(1).unwrap_or_else(|| "step.jsonl.zst".into()));
    let recording = pagewise::record(pagewise::open()?, &path)?;
    let machine = recording.machine();

    let stream = Stream::new(machine, Device::FIRST)?;
    let mut weights = ManagedBuffer::<f32>::zeroed(machine, 1 << 20)?;
    weights.set_preferred_location(Some(Device::FIRST.into()))?;
    weights.prefetch(Device::FIRST, &stream)?;
    weights.run_on_device(DeviceProgram::write(Device::FIRST, 1).stride(4096), &stream)?;
    println!("the host reads {:?}", weights.read()?[0]);

    let written = recording.finish()?;
    println!("{}: {written}", path.display());
    Ok(())
}
