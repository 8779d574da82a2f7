//! Memory of one process in another: a pool of pinned and one of device memory, exported and
//! imported.
//!
//! `cargo run -p pagewise --features cuda --example two_processes`, on a machine with a GPU. Without
//! one, `pagewise run --` before the program runs it on simulated devices. The program starts itself
//! again; the descriptor of the pool travels as the child's standard input,
//! everything else as arguments. Without a driver it says so.

use std::error::Error;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pagewise::resource::{
    Allocation, AllocationHandle, BufferDescriptor, DeviceMemoryResource, MemoryKind,
    MemoryResource, PinnedMemoryResource, PoolOptions,
};
use pagewise::{
    Backend, BackendExt, CudaBackend, Device, HandleTypes, HostAccess, HostTouch, Machine,
    NumaNode, Result, Span, Stream,
};

const BYTES: u64 = 1 << 20;
const OPTIONS: PoolOptions = PoolOptions {
    max_bytes: 0,
    release_threshold_bytes: 0,
    handle_types: HandleTypes::POSIX_FILE_DESCRIPTOR,
};

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let cuda = match CudaBackend::open() {
        Ok(cuda) => Arc::new(cuda),
        Err(error) => {
            println!("this example needs a CUDA driver, such as that of `pagewise run`: {error}");
            return Ok(());
        }
    };
    let machine = Machine::from(cuda);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, uuid, sent] = &arguments[..] {
        return child(&machine, kind, uuid, sent);
    }
    let pinned = Arc::new(PinnedMemoryResource::on_node(&machine, NumaNode::new(0)?, OPTIONS)?);
    let node = pinned.pool().expect("it has one");
    node.set_accessible_by(Device::FIRST, true)?;
    parent(&machine, &pinned, pinned.allocation_handle()?)?;
    let device = Arc::new(DeviceMemoryResource::new_pool(&machine, Device::FIRST, OPTIONS)?);
    parent(&machine, &device, device.allocation_handle()?)?;
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

/// Fills memory with 5, lets the child see it and fill it with 7.
fn parent<R: MemoryResource>(
    machine: &Machine,
    resource: &Arc<R>,
    handle: AllocationHandle,
) -> std::result::Result<(), Box<dyn Error>> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let memory = Allocation::new(resource.clone(), BYTES, &stream)?;
    fill(machine, memory.span(), 5, &stream)?;
    let sent: String =
        memory.descriptor()?.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let kind = format!("{:?}", memory.memory_kind());
    let status = Command::new(std::env::current_exe()?)
        .args([&kind, &handle.uuid().to_string(), &sent])
        .stdin(Stdio::from(handle.into_descriptor()))
        .status()?;
    assert!(status.success(), "the child failed");
    assert_eq!(sum(machine, memory.span(), &stream)?, 7 * BYTES);
    println!("{kind}: the child read what the parent wrote, and the parent what the child wrote");
    memory.free()?;
    Ok(())
}

fn child(
    machine: &Machine,
    kind: &str,
    uuid: &str,
    sent: &str,
) -> std::result::Result<(), Box<dyn Error>> {
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned()?;
    // SAFETY: `from_parts` asks for a descriptor and a UUID of the same handle; the parent sent
    // both parts of one.
    let handle = unsafe { AllocationHandle::from_parts(descriptor, uuid.parse()?) };
    let bytes: std::result::Result<Vec<u8>, _> =
        (0..sent.len() / 2).map(|n| u8::from_str_radix(&sent[2 * n..2 * n + 2], 16)).collect();
    let descriptor = BufferDescriptor::from_bytes(&bytes?)?;
    let stream = Stream::new(machine, Device::FIRST)?;
    let memory = if kind == format!("{:?}", MemoryKind::Pinned) {
        let pool = PinnedMemoryResource::from_allocation_handle(machine, handle)?;
        pool.pool().expect("it has one").set_accessible_by(Device::FIRST, true)?;
        pool.import(&descriptor, &stream)?
    } else {
        let pool = DeviceMemoryResource::from_allocation_handle(machine, handle)?;
        let memory = pool.import(&descriptor, &stream)?;
        // The same again: one import, held twice.
        pool.import(&descriptor, &stream)?.free()?;
        memory
    };
    assert_eq!(sum(machine, memory.span(), &stream)?, 5 * BYTES);
    fill(machine, memory.span(), 7, &stream)?;
    memory.free()?;
    stream.synchronize()?;
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

fn fill(machine: &Machine, span: Span, value: u8, stream: &Stream) -> Result<()> {
    // SAFETY: no other code uses the memory until the fill is waited for below.
    unsafe { machine.backend().memset(span, value, stream.handle())? };
    stream.synchronize()
}

/// The sum of all bytes, read from a managed copy.
fn sum(machine: &Machine, span: Span, stream: &Stream) -> Result<u64> {
    let backend: &dyn Backend = machine.backend();
    let copy = backend.alloc(span.bytes)?;
    // SAFETY: no other code uses the memory until the copy is waited for, and only this function
    // knows the copy.
    unsafe {
        backend.memcpy(copy.ptr, span.ptr, span.bytes, stream.handle())?;
        stream.synchronize()?;
        let read = HostTouch { span: copy, stride_bytes: 1, access: HostAccess::Read };
        let sum = backend.host_touch(read)?;
        backend.free(copy.ptr)?;
        Ok(sum)
    }
}
