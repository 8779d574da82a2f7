//! Helpers that the tests of unified pools share.

use std::sync::Arc;

use pagewise::inject::FaultInjector;
use pagewise::intercept::Operation;
use pagewise::{
    Device, DeviceAccess, DeviceTouch, DriverVersion, HostAccess, HostTouch, Machine, Place,
    RangeAttribute, Result, SimBackend, SimConfig, Span, Stream,
};
use pagewise_managers::mempool::{Module, Tensor, TensorLayout};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const FIRST: Place = Place::Device(Device::FIRST);

pub(crate) type Injected = Arc<FaultInjector<SimBackend>>;

pub(crate) fn injected(version: DriverVersion) -> Result<(Injected, Machine, Stream)> {
    let sim = SimBackend::new(SimConfig::h200().driver_version(version))?;
    let backend = Arc::new(FaultInjector::around(sim));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    Ok((backend, machine, stream))
}

pub(crate) fn bytes(count: u64) -> TensorLayout {
    TensorLayout::contiguous(&[count], 1).expect("few")
}

pub(crate) fn module_of(
    tensors: impl IntoIterator<Item = (&'static str, Tensor)>,
) -> Result<Module> {
    let mut module = Module::new();
    for (name, tensor) in tensors {
        module.add_parameter(name, tensor)?;
    }
    Ok(module)
}

pub(crate) fn operations(backend: &Injected) -> Vec<Operation> {
    backend.take_calls().iter().map(|call| call.operation()).collect()
}

/// Fills on the device, as work of the caller's would.
pub(crate) fn write(machine: &Machine, tensor: &Tensor, value: u8, stream: &Stream) -> Result<()> {
    let touch = DeviceTouch {
        device: Device::FIRST.id(),
        span: tensor.span(),
        stride_bytes: 1,
        access: DeviceAccess::Write(value),
        blocks: 1,
        threads: 1,
    };
    // SAFETY: the tensor is live, and no other code uses it.
    unsafe { machine.backend().device_touch(touch, stream.handle()).map(|_| ()) }
}

pub(crate) fn host_sum(machine: &Machine, tensor: &Tensor) -> Result<u64> {
    let touch = HostTouch { span: tensor.span(), stride_bytes: 1, access: HostAccess::Read };
    // SAFETY: the tensor is live, and no other code uses it.
    unsafe { machine.backend().host_touch(touch) }
}

pub(crate) fn attribute(machine: &Machine, span: Span, attribute: RangeAttribute) -> Result<i32> {
    machine.backend().range_attribute(span, attribute)
}
