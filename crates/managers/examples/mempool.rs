// A model in a unified pool: moved off the GPU and back, with and without the pool's help.
//
// `cargo run --example mempool -- --bytes 268435456` on the simulator, which predicts times; with
// `--features cuda` and `PAGEWISE_BACKEND=cuda` on a GPU, which measures them.
use pagewise::{
    BackendKind, Builder, Device, DeviceAccess, DeviceTouch, Error, ErrorKind, Location, Machine,
    Place, Result, Span, Stream, observe,
};
use pagewise_managers::mempool::{Tensor, TensorLayout, UnifiedMempool, create_unified_mempool};

const TENSOR_BYTES: u64 = 16 << 20;
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    run(bytes_asked_for(&arguments)?)
}

fn run(bytes: u64) -> Result<()> {
    let machine = open()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let pool = create_unified_mempool(&machine)?;
    let layout = TensorLayout::contiguous(&[TENSOR_BYTES / 2], 2)?;
    let weights: Vec<Tensor> = (0..bytes.div_ceil(TENSOR_BYTES))
        .map(|n| pool.tensor(&format!("layer {n}"), layout.clone(), &stream))
        .collect::<Result<_>>()?;
    println!("{machine:?}: {} tensors of 16 MiB in {} ranges", weights.len(), pool.ranges()?.len());
    let spans: Vec<Span> = weights.iter().map(Tensor::span).collect();
    touch(&machine, &spans, DeviceAccess::Write(1), &stream)?;

    println!("\nthe model is away and is used again:");
    pool.suspend(Place::HOST, &stream)?;
    stream.synchronize()?;
    told(&machine, "without `resume`", || use_weights(&machine, &spans, &stream))?;
    pool.resume(Device::FIRST, &stream)?;
    pool.suspend(Place::HOST, &stream)?;
    stream.synchronize()?;
    told(&machine, "   with `resume`", || {
        pool.resume(Device::FIRST, &stream)?;
        use_weights(&machine, &spans, &stream)
    })?;
    told(&machine, " away as a cache", || {
        for tensor in &weights {
            // SAFETY: the contents of a disposable tensor may be lost. No work is in flight, and
            // all of the tensor is written below before it is read.
            unsafe { tensor.set_disposable(true)? };
        }
        pool.suspend(Place::HOST, &stream)?;
        pool.resume(Device::FIRST, &stream)?;
        touch(&machine, &spans, DeviceAccess::Write(2), &stream)
    })?;
    for tensor in &weights {
        // SAFETY: only `true` asks for anything: a tensor that is not disposable keeps its
        // contents.
        unsafe { tensor.set_disposable(false)? };
    }

    println!("\n{:>16} {:>14} {:>14}   (median of {ROUNDS})", "pieces of", "away ns", "back ns");
    time_pool(&machine, &pool, &stream)?;
    for piece in [2 << 20, 64 << 10] {
        time_pieces(&machine, &spans, piece, &stream)?;
    }
    Ok(())
}

/// The simulator, unless the environment names another.
fn open() -> Result<Machine> {
    let builder = match std::env::var_os(Builder::VARIABLE) {
        Some(_) => Builder::new(),
        None => Builder::new().backend(BackendKind::Sim),
    };
    builder.open().map(Machine::new)
}

fn bytes_asked_for(arguments: &[String]) -> Result<u64> {
    let asked = match arguments {
        [] => Some(64 << 20),
        [flag, number] if flag == "--bytes" => number.parse().ok().filter(|&bytes| bytes > 0),
        _ => None,
    };
    asked.ok_or_else(|| {
        Error::new("mempool", ErrorKind::InvalidValue).with_detail("usage: mempool [--bytes N]")
    })
}

fn use_weights(machine: &Machine, spans: &[Span], stream: &Stream) -> Result<()> {
    touch(machine, spans, DeviceAccess::Read, stream)
}

/// One access to each page, by one thread of the device.
fn touch(machine: &Machine, spans: &[Span], access: DeviceAccess, stream: &Stream) -> Result<()> {
    let device = Device::FIRST.id();
    for &span in spans {
        let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
        // SAFETY: the tensors live until `main` ends, and no other code uses them.
        unsafe { machine.backend().device_touch(touch, stream.handle())? };
    }
    Ok(())
}

fn told(machine: &Machine, what: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    if !machine.capabilities().events {
        let before = machine.backend().clock_ns();
        run()?;
        let ns = machine.backend().clock_ns() - before;
        println!("  {what}: this back end reports no faults, {ns:>12} ns");
        return Ok(());
    }
    let (answer, seen) = observe(machine, run)?;
    let (faults, bytes) = (seen.counters.faults(), seen.counters.migrated_bytes());
    println!("  {what}: {faults:>6} faults, {bytes:>11} bytes moved, {:>12} ns", seen.elapsed_ns);
    answer
}

/// By the back end's clock, work of the stream included.
fn timed(machine: &Machine, stream: &Stream, run: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = machine.backend().clock_ns();
    run()?;
    stream.synchronize()?;
    Ok(machine.backend().clock_ns() - before)
}

fn report(what: &str, mut rounds: Vec<[u64; 2]>) {
    let mut median = |way: usize| {
        rounds.sort_unstable_by_key(|round| round[way]);
        rounds[rounds.len() / 2][way]
    };
    println!("{what:>16} {:>14} {:>14}", median(0), median(1));
}

fn time_pool(machine: &Machine, pool: &UnifiedMempool, stream: &Stream) -> Result<()> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let away = timed(machine, stream, || pool.suspend(Place::HOST, stream).map(|_| ()))?;
        let back = timed(machine, stream, || pool.resume(Device::FIRST, stream).map(|_| ()))?;
        rounds.push([away, back]);
    }
    report("one batch", rounds);
    Ok(())
}

fn time_pieces(machine: &Machine, spans: &[Span], piece: u64, stream: &Stream) -> Result<()> {
    let each = |to: Location| {
        for span in spans {
            for start in (0..span.bytes).step_by(piece as usize) {
                let bytes = piece.min(span.bytes - start);
                let part = Span::new(span.ptr.offset(start), bytes);
                machine.backend().prefetch(part, to, 0, stream.handle())?;
            }
        }
        Ok(())
    };
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let away = timed(machine, stream, || each(Location::HOST))?;
        let back = timed(machine, stream, || each(Location::device(Device::FIRST.id())))?;
        rounds.push([away, back]);
    }
    report(&format!("{} KiB", piece >> 10), rounds);
    Ok(())
}
