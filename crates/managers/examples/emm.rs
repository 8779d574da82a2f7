// A memory manager for contexts: what it does for faults, bytes and calls, and whether it is right.
//
// `cargo run --example emm` on the simulator; with `--features cuda` and `PAGEWISE_BACKEND=cuda` on
// a GPU.
use std::sync::Arc;

use pagewise::{
    BackendKind, Builder, Device, DeviceAccess, DeviceTouch, HostAccess, HostTouch, Machine, Place,
    Result, Stream, observe,
};
use pagewise_managers::emm::{
    Contexts, EmmOptions, ExternalMemoryManager, ManagedOptions, MemoryPointer, PendingLimits,
    Plugin, ResourceManager, StreamOrderedManager, check_conformance,
};

const BYTES: u64 = 16 << 20;

fn main() -> Result<()> {
    let machine = open()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    println!("{machine:?}");
    where_memory_is(&machine, &stream)?;
    when_memory_goes(&machine)?;
    whether_it_is_right(&machine)
}

/// The simulator, unless the environment names another.
fn open() -> Result<Machine> {
    let builder = match std::env::var_os(Builder::VARIABLE) {
        Some(_) => Builder::new(),
        None => Builder::new().backend(BackendKind::Sim),
    };
    builder.open().map(Machine::new)
}

/// Managed memory that the host writes and the device reads, with and without its place said.
fn where_memory_is(machine: &Machine, stream: &Stream) -> Result<()> {
    println!("\nmanaged memory of {BYTES} bytes, written by the host, read by the device:");
    let manager = ResourceManager::direct(machine, Device::FIRST, EmmOptions::default())?;
    manager.initialize()?;
    let plain = manager.memallocmanaged(BYTES, true)?;
    told(machine, "without a place", || use_memory(machine, &plain, stream))?;
    let on_host = ManagedOptions {
        preferred_location: Some(Place::HOST),
        accessed_by: vec![Device::FIRST.into()],
        ..ManagedOptions::default()
    };
    let placed = manager.memallocmanaged_with(BYTES, &on_host)?;
    told(machine, "kept on the host", || use_memory(machine, &placed, stream))?;
    drop((plain, placed));
    println!("  out at the end: {:?}", manager.reset()?);
    Ok(())
}

fn use_memory(machine: &Machine, memory: &MemoryPointer, stream: &Stream) -> Result<()> {
    let (span, stride_bytes) = (memory.span(), 4096);
    let device = Device::FIRST.id();
    let host = HostTouch { span, stride_bytes, access: HostAccess::Write(1) };
    let access = DeviceAccess::Read;
    let read = DeviceTouch { device, span, stride_bytes, access, blocks: 1, threads: 1 };
    // SAFETY: the memory is live, and no other code uses it.
    unsafe {
        machine.backend().host_touch(host)?;
        machine.backend().device_touch(read, stream.handle())?;
    }
    Ok(())
}

fn told(machine: &Machine, what: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    if !machine.capabilities().events {
        let before = machine.backend().clock_ns();
        run()?;
        let ns = machine.backend().clock_ns() - before;
        println!("  {what}: this back end reports no faults, {ns:>9} ns");
        return Ok(());
    }
    let (answer, seen) = observe(machine, run)?;
    let (faults, bytes) = (seen.counters.faults(), seen.counters.migrated_bytes());
    println!("  {what}: {faults:>5} faults, {bytes:>9} bytes moved, {:>9} ns", seen.elapsed_ns);
    answer
}

/// A hundred arrays that come and go, freed one by one or when ten wait.
fn when_memory_goes(machine: &Machine) -> Result<()> {
    println!("\na hundred arrays of 1 MiB, each gone before the next:");
    for (what, count_max) in [("freed at once", 0), ("ten may wait", 10)] {
        let pending = PendingLimits { count_max, ..PendingLimits::default() };
        let options = EmmOptions { pending, ..EmmOptions::default() };
        let contexts = Contexts::new(machine);
        contexts.set_memory_manager(Plugin::new(what, 1, move |machine, device| {
            Ok(Arc::new(ResourceManager::direct(machine, device, options)?))
        }))?;
        let manager = contexts.enter(Device::FIRST)?;
        let before = machine.backend().clock_ns();
        let mut slowest = 0;
        for _ in 0..100 {
            let array = manager.memalloc(1 << 20)?;
            let freeing = machine.backend().clock_ns();
            array.free()?;
            slowest = slowest.max(machine.backend().clock_ns() - freeing);
        }
        contexts.close()?;
        let all = machine.backend().clock_ns() - before;
        println!("  {what:>14}: {all:>9} ns in all, slowest free {slowest:>7} ns");
    }
    Ok(())
}

fn whether_it_is_right(machine: &Machine) -> Result<()> {
    println!("\nthe conformance kit, on simulated machines:");
    if machine.capabilities().backend != "sim" {
        println!("  left out: it fails calls on purpose");
        return Ok(());
    }
    let findings = check_conformance(pagewise::sim, |machine, device| {
        Ok(Arc::new(ResourceManager::direct(machine, device, EmmOptions::default())?))
    });
    findings.iter().for_each(|finding| println!("  {finding}"));
    Ok(())
}
