// The newcomer's program: allocate, advise, prefetch, touch, read back, count faults. The same on
// a GPU and without one: `PAGEWISE_BACKEND=sim cargo run --example newcomer`, or with the feature
// `cuda` and `PAGEWISE_BACKEND=cuda`.
use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Result, Stream, observe};

fn main() -> Result<()> {
    let machine = Machine::open()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut numbers = ManagedBuffer::from_slice(&machine, &[1_u32; 1 << 20])?;
    numbers.set_preferred_location(Some(Device::FIRST.into()))?;
    numbers.range(..1 << 19)?.prefetch(Device::FIRST, &stream)?;
    let count = DeviceProgram::read(Device::FIRST).stride(4096);
    let (sum, seen) = observe(&machine, || numbers.run_on_device(count, &stream))?;
    println!("the device read {} pages, sum {}", numbers.region().pages(), sum?);
    println!("it took {} faults and {} ns", seen.counters.gpu_faults, seen.elapsed_ns);
    numbers.write()?[0] = 7;
    println!("the host reads {:?}", &numbers.read()?[..3]);
    Ok(())
}
