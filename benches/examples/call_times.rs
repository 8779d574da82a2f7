//! The time of calls that no trace holds, on a driver and on the simulator's clock: streams,
//! events, questions about the machine, registered host memory.
//!
//! `cargo build --release -p pagewise-benches --example call_times`, then run it on a machine with
//! a GPU; it needs no Rust there and allocates 2 MiB of managed memory. Each call is made 200 times
//! in a row, and 50 times after 1 ms of sleep. A row prints the medians of both on the driver and
//! on the simulator's clock, in nanoseconds, and log2 of simulator / driver.
//!
//! `PAGEWISE_LIBCUDA` names another driver library, such as the simulated one.

use std::error::Error;

use pagewise::{
    AttachFlags, Backend, CudaBackend, DeviceAttribute, DeviceId, EventFlags, EventHandle,
    HostAllocFlags, HostRegisterFlags, SimBackend, SimConfig, Span, StreamFlags, StreamHandle,
};

const IN_A_ROW: usize = 200;
const AFTER_SLEEP: usize = 50;
const SLEEP_NS: u64 = 1_000_000;
const DEVICE: DeviceId = DeviceId(0);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The medians of one kind of call, in nanoseconds.
struct Times {
    name: String,
    in_a_row: u64,
    after_sleep: u64,
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Measures calls on one back end.
struct Bench<'a> {
    backend: &'a dyn Backend,
    times: Vec<Times>,
}

impl Bench<'_> {
    /// Times `call` on what `prepare` gives; `clean` takes what the call gave. Neither of these two
    /// is timed.
    fn time<P, T>(
        &mut self,
        name: impl Into<String>,
        mut prepare: impl FnMut() -> Outcome<P>,
        mut call: impl FnMut(&P) -> pagewise::Result<T>,
        mut clean: impl FnMut(P, T) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut run = |sleep_ns: u64, calls: usize| -> Outcome<u64> {
            let mut times = Vec::new();
            for _ in 0..calls {
                let with = prepare()?;
                if sleep_ns > 0 {
                    self.backend.sleep_ns(sleep_ns);
                }
                let start_ns = self.backend.clock_ns();
                let answer = call(&with)?;
                times.push(self.backend.clock_ns() - start_ns);
                clean(with, answer)?;
            }
            Ok(median(times))
        };
        let (in_a_row, after_sleep) = (run(0, IN_A_ROW)?, run(SLEEP_NS, AFTER_SLEEP)?);
        self.times.push(Times { name: name.into(), in_a_row, after_sleep });
        Ok(())
    }

    /// Times a call that leaves nothing behind.
    fn repeat<T>(
        &mut self,
        name: impl Into<String>,
        mut call: impl FnMut() -> pagewise::Result<T>,
    ) -> Outcome<()> {
        self.time(name, || Ok(()), |()| call(), |(), _| Ok(()))
    }
}

fn measure(backend: &dyn Backend) -> Outcome<Vec<Times>> {
    let mut bench = Bench { backend, times: Vec::new() };
    machine(&mut bench)?;
    streams(&mut bench)?;
    events(&mut bench)?;
    host_memory(&mut bench)?;
    Ok(bench.times)
}

fn machine(bench: &mut Bench<'_>) -> Outcome<()> {
    let backend = bench.backend;
    let asked = DeviceAttribute::CONCURRENT_MANAGED_ACCESS;
    bench.repeat("driver version", || backend.driver_version())?;
    bench.repeat("device count", || backend.device_count())?;
    bench.repeat("device attribute", || backend.device_attribute(DEVICE, asked))?;
    bench.repeat("memory info", || backend.memory_info(DEVICE))
}

fn streams(bench: &mut Bench<'_>) -> Outcome<()> {
    let backend = bench.backend;
    let stream = || Ok(backend.stream_create(DEVICE, StreamFlags::NON_BLOCKING)?);
    // SAFETY: each stream is one of this function's, has no work, and is used no more.
    let destroy = |stream: StreamHandle| unsafe { backend.stream_destroy(stream) };
    for (name, flags) in
        [("stream create", StreamFlags::empty()), ("non-blocking", StreamFlags::NON_BLOCKING)]
    {
        let create = |(): &()| backend.stream_create(DEVICE, flags);
        bench.time(name, || Ok(()), create, |(), made| Ok(destroy(made)?))?;
    }
    bench.time("stream destroy", stream, |&made| destroy(made), |_, ()| Ok(()))?;
    let own = stream()?;
    bench.repeat("stream synchronize, idle", || backend.stream_synchronize(own))?;
    let managed = backend.alloc_managed(2 << 20, AttachFlags::GLOBAL)?;
    let span = Span { ptr: managed, bytes: 2 << 20 };
    for (name, flags) in [("attach single", AttachFlags::SINGLE), ("global", AttachFlags::GLOBAL)] {
        // SAFETY: no work uses the memory, which is a live allocation of this function.
        bench.repeat(name, || unsafe { backend.stream_attach(own, span, flags) })?;
    }
    // SAFETY: the memory is this function's, and nothing uses it any more.
    unsafe { backend.free(managed) }?;
    Ok(destroy(own)?)
}

fn events(bench: &mut Bench<'_>) -> Outcome<()> {
    let backend = bench.backend;
    let stream = backend.stream_create(DEVICE, StreamFlags::NON_BLOCKING)?;
    // SAFETY: each event is one of this function's, and is used no more.
    let destroy = |event: EventHandle| unsafe { backend.event_destroy(event) };
    let untimed = EventFlags::DISABLE_TIMING;
    for (name, flags) in [("event create", EventFlags::empty()), ("without timing", untimed)] {
        let create = |(): &()| backend.event_create(DEVICE, flags);
        bench.time(name, || Ok(()), create, |(), made| Ok(destroy(made)?))?;
    }
    let event = || Ok(backend.event_create(DEVICE, EventFlags::empty())?);
    bench.time("event destroy", event, |&made| destroy(made), |_, ()| Ok(()))?;
    let (first, second) = (event()?, event()?);
    let settle = || Ok(backend.stream_synchronize(stream)?);
    let record = |(): &()| backend.event_record(first, stream);
    bench.time("event record", settle, record, |(), ()| Ok(()))?;
    backend.event_record(second, stream)?;
    backend.stream_synchronize(stream)?;
    bench.repeat("event query, done", || backend.event_query(first))?;
    bench.repeat("event synchronize, done", || backend.event_synchronize(first))?;
    bench.repeat("event elapsed", || backend.event_elapsed_ns(first, second))?;
    bench.repeat("stream wait event", || backend.stream_wait_event(stream, first))?;
    let recorded = || Ok(backend.event_record(first, stream)?);
    let wait = |(): &()| backend.stream_synchronize(stream);
    bench.time("stream synchronize after record", recorded, wait, |(), ()| Ok(()))?;
    destroy(first)?;
    destroy(second)?;
    // SAFETY: the stream is this function's, has no work, and is used no more.
    Ok(unsafe { backend.stream_destroy(stream) }?)
}

fn host_memory(bench: &mut Bench<'_>) -> Outcome<()> {
    let backend = bench.backend;
    for bytes in [4_u64 << 10, 1 << 20, 64 << 20] {
        let kib = bytes >> 10;
        // SAFETY: each pointer is of this function's own memory, which nothing uses any more.
        let free = |ptr| unsafe { backend.free_pinned(ptr) };
        let alloc = || backend.alloc_pinned(bytes, HostAllocFlags::empty());
        let name = format!("page-locked, {kib} KiB");
        bench.time(name, || Ok(()), |()| alloc(), |(), ptr| Ok(free(ptr)?))?;
        let made = || Ok(alloc()?);
        bench.time(format!("free of it, {kib} KiB"), made, |&ptr| free(ptr), |_, ()| Ok(()))?;
        // SAFETY: each pointer is of this function's own memory, which nothing uses any more.
        let free = |ptr| unsafe { backend.free(ptr) };
        let alloc = || backend.alloc_device(DEVICE, bytes);
        let name = format!("device memory, {kib} KiB");
        bench.time(name, || Ok(()), |()| alloc(), |(), ptr| Ok(free(ptr)?))?;
        let made = || Ok(alloc()?);
        bench.time(format!("free of it, {kib} KiB"), made, |&ptr| free(ptr), |_, ()| Ok(()))?;
    }
    registered(bench)
}

fn registered(bench: &mut Bench<'_>) -> Outcome<()> {
    let backend = bench.backend;
    for bytes in [4_u64 << 10, 1 << 20, 64 << 20] {
        let kib = bytes >> 10;
        let mut memory = vec![1_u8; bytes as usize + 4096];
        let ptr = (memory.as_mut_ptr() as u64).next_multiple_of(4096);
        let span = Span { ptr: pagewise::DevicePtr(ptr), bytes };
        // SAFETY: the pages are of `memory`, which stays until both calls are over.
        let register = || unsafe { backend.host_register(span, HostRegisterFlags::empty()) };
        // SAFETY: the range is the one that was registered, and no work uses it.
        let unregister = || unsafe { backend.host_unregister(span.ptr) };
        let name = format!("register, {kib} KiB");
        bench.time(name, || Ok(()), |()| register(), |(), ()| Ok(unregister()?))?;
        let name = format!("unregister, {kib} KiB");
        bench.time(name, || Ok(register()?), |()| unregister(), |(), ()| Ok(()))?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let cuda = match std::env::var_os("PAGEWISE_LIBCUDA") {
        Some(library) => CudaBackend::builder().library(library).open()?,
        None => CudaBackend::open()?,
    };
    let driver = measure(&cuda)?;
    let model = measure(&SimBackend::new(SimConfig::h200())?)?;
    println!("| call | driver, in a row | model | log2 | driver, after 1 ms | model | log2 |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (driver, model) in driver.iter().zip(&model) {
        let ratio = |model: u64, driver: u64| (model as f64 / driver.max(1) as f64).log2();
        println!(
            "| {} | {} | {} | {:.2} | {} | {} | {:.2} |",
            driver.name,
            driver.in_a_row,
            model.in_a_row,
            ratio(model.in_a_row, driver.in_a_row),
            driver.after_sleep,
            model.after_sleep,
            ratio(model.after_sleep, driver.after_sleep),
        );
    }
    Ok(())
}
