//! Helpers that claims about unified pools share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::sync::Arc;

use pagewise::resource::ManagedMemoryResource;
use pagewise::{Device, DevicePtr, Machine, Place, RangeAttribute, Result, Span, Stream};
use pagewise_managers::mempool::{
    MempoolOptions, Module, Report, Tensor, TensorLayout, UnifiedMempool,
};

pub const FIRST: Place = Place::Device(Device::FIRST);
pub const NOWHERE: i32 = -2;
pub const HOST: i32 = -1;
/// An address that belongs to nothing.
pub const WILD: DevicePtr = DevicePtr(0x1234_5678_9000);

pub fn bytes(count: u64) -> TensorLayout {
    TensorLayout::contiguous(&[count], 1).expect("few")
}

/// A pool in which each tensor is an allocation of its own, so that attributes are its own too.
pub fn apart(machine: &Machine) -> Result<UnifiedMempool> {
    let direct = Arc::new(ManagedMemoryResource::direct(machine));
    UnifiedMempool::over(direct, MempoolOptions::default())
}

pub fn module_of(tensors: &[(&str, &Tensor)]) -> Result<Module> {
    let mut module = Module::new();
    for (name, tensor) in tensors {
        module.add_parameter(name, (*tensor).clone())?;
    }
    Ok(module)
}

/// A range attribute, read once the stream has done its work.
pub fn read(span: Span, attribute: RangeAttribute, stream: &Stream) -> Result<i32> {
    stream.synchronize()?;
    stream.machine().backend().range_attribute(span, attribute)
}

pub fn sent_to(tensor: &Tensor, stream: &Stream) -> Result<i32> {
    read(tensor.span(), RangeAttribute::LAST_PREFETCH_LOCATION, stream)
}

pub fn prefers(tensor: &Tensor, stream: &Stream) -> Result<i32> {
    read(tensor.span(), RangeAttribute::PREFERRED_LOCATION, stream)
}

/// The processors that keep the tensor mapped, by ordinal.
pub fn mapped_by(tensor: &Tensor) -> Result<Vec<i32>> {
    let mut ordinals = [NOWHERE; 4];
    tensor.machine().backend().range_accessed_by(tensor.span(), &mut ordinals)?;
    let mut members: Vec<i32> = ordinals.into_iter().filter(|&o| o != NOWHERE).collect();
    members.sort_unstable();
    Ok(members)
}

/// The numbers of a report: tensors, bytes asked for, of them once, of pages, ranges.
pub fn figures(report: &Report) -> (usize, u64, u64, u64, usize) {
    let Report { tensors, requested_bytes, unique_bytes, page_bytes, ranges, .. } = *report;
    (tensors, requested_bytes, unique_bytes, page_bytes, ranges)
}
