//! A histogram by a kernel in PTX: `cargo run -p pagewise --example kernels`.
//!
//! It runs on the simulator. With the feature `cuda` and `PAGEWISE_BACKEND=cuda` it runs on a GPU.

use pagewise::launch::Module;
use pagewise::{Device, Machine, ManagedBuffer, Result, Stream, observe};

/// Counts the bytes of a text, each thread every 8192nd byte.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .global .attribute(.managed) .align 4 .b8 bins[1024];
.visible .entry histogram(.param .u64 text, .param .u32 length)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %d<6>;
    ld.param.u64 %d1, [text];
    ld.param.u32 %r1, [length];
    mov.u64 %d2, bins;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    mov.u32 %r4, %nctaid.x;
    mul.lo.u32 %r3, %r3, %r4;
NEXT:
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    cvt.u64.u32 %d3, %r2;
    add.u64 %d3, %d1, %d3;
    ld.global.u8 %r5, [%d3];
    mul.wide.u32 %d4, %r5, 4;
    add.u64 %d4, %d2, %d4;
    atom.global.add.u32 %r6, [%d4], 1;
    add.u32 %r2, %r2, %r3;
    bra NEXT;
}";

fn main() -> Result<()> {
    let machine = Machine::open()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let module = Module::from_ptx(&machine, Device::FIRST, PTX)?;
    let histogram = module.kernel("histogram")?;
    let best = histogram.best_block(0)?;
    println!("best block: {} threads, {} blocks", best.block_threads, best.grid_blocks);

    let text: Vec<u8> = (0..1_u32 << 20).map(|n| b'a' + (n * n % 26) as u8).collect();
    let text = ManagedBuffer::from_slice(&machine, &text)?;
    let (launched, seen) = observe(&machine, || {
        // SAFETY: the kernel reads `length` bytes of the text, and adds to `bins` atomically.
        unsafe { histogram.launch(&stream, 32, 256, (&text, 1_u32 << 20)) }?;
        stream.synchronize()
    })?;
    launched?;
    println!("{} bytes came to the device", seen.counters.to_device.bytes);

    let bins = module.managed_variable::<u32>("bins")?;
    let bins = bins.read()?;
    println!("{} of {}", bins.iter().sum::<u32>(), text.len());
    assert_eq!(bins.iter().sum::<u32>(), 1 << 20);
    Ok(())
}
