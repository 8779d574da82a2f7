//! Hostile calls that copy and fill without a stream, in rows and in slices.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use pagewise_driver::{
    Memcpy2D, Memcpy3D, Memcpy3DSide, cuMemcpy, cuMemcpy2D_v2, cuMemcpy2DAsync_v2,
    cuMemcpy2DUnaligned_v2, cuMemcpy3D_v2, cuMemcpy3DAsync_v2, cuMemcpyDtoD_v2, cuMemcpyDtoH_v2,
    cuMemcpyHtoD_v2, cuMemcpyPeer, cuMemcpyPeerAsync, cuMemsetD2D8_v2, cuMemsetD2D8Async,
    cuMemsetD2D16_v2, cuMemsetD2D16Async, cuMemsetD2D32_v2, cuMemsetD2D32Async, cuMemsetD8_v2,
    cuMemsetD16_v2, cuMemsetD32_v2,
};

use super::copies::elements;
use super::memory::{host, two_ranges};
use super::world::{Attempt, World};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuMemcpy", |world| {
        let (to, from, bytes) = two_ranges(world);
        // SAFETY: no other code uses this program's memory, and the ranges do not overlap.
        unsafe { cuMemcpy(to, from, bytes) }
    }),
    ("cuMemcpyDtoD_v2", |world| {
        let (to, from, bytes) = two_ranges(world);
        // SAFETY: no other code uses this program's memory, and the ranges do not overlap.
        unsafe { cuMemcpyDtoD_v2(to, from, bytes) }
    }),
    ("cuMemcpyHtoD_v2", |world| {
        let ((ptr, bytes), host) = (world.range(), host(world));
        // SAFETY: the host's range is null or longer than any allocation; the driver refuses such a
        // length before it uses the range. No other code uses the buffer.
        unsafe { cuMemcpyHtoD_v2(ptr, host, bytes) }
    }),
    ("cuMemcpyDtoH_v2", |world| {
        let ((ptr, bytes), host) = (world.range(), host(world));
        // SAFETY: the host's range is null or longer than any allocation; the driver refuses such a
        // length before it uses the range. No other code uses the buffer.
        unsafe { cuMemcpyDtoH_v2(host, ptr, bytes) }
    }),
    ("cuMemcpyPeer", |world| {
        let (to, from, bytes) = two_ranges(world);
        let (one, other) = (world.context(), world.context());
        // SAFETY: no other code uses this program's memory, and the ranges do not overlap.
        unsafe { cuMemcpyPeer(to, one, from, other, bytes) }
    }),
    ("cuMemcpyPeerAsync", |world| {
        let (to, from, bytes) = two_ranges(world);
        let (one, other, stream) = (world.context(), world.context(), world.stream());
        // SAFETY: no other code uses this program's memory, and the ranges do not overlap.
        unsafe { cuMemcpyPeerAsync(to, one, from, other, bytes, stream) }
    }),
    ("cuMemsetD8_v2", |world| {
        let (ptr, count) = elements(world, 1);
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD8_v2(ptr, world.choices.byte(), count) }
    }),
    ("cuMemsetD2D8Async", |world| {
        let ((ptr, pitch), (width, height)) = rows(world, 1);
        let value = world.choices.byte();
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD2D8Async(ptr, pitch, value, width, height, world.stream()) }
    }),
    ("cuMemsetD2D8_v2", |world| {
        let ((ptr, pitch), (width, height)) = rows(world, 1);
        let value = world.choices.byte();
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD2D8_v2(ptr, pitch, value, width, height) }
    }),
    ("cuMemsetD16_v2", |world| {
        let (ptr, count) = elements(world, 2);
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD16_v2(ptr, u16::from(world.choices.byte()), count) }
    }),
    ("cuMemsetD2D16Async", |world| {
        let ((ptr, pitch), (width, height)) = rows(world, 2);
        let value = u16::from(world.choices.byte());
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD2D16Async(ptr, pitch, value, width, height, world.stream()) }
    }),
    ("cuMemsetD2D16_v2", |world| {
        let ((ptr, pitch), (width, height)) = rows(world, 2);
        let value = u16::from(world.choices.byte());
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD2D16_v2(ptr, pitch, value, width, height) }
    }),
    ("cuMemsetD32_v2", |world| {
        let (ptr, count) = elements(world, 4);
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD32_v2(ptr, u32::from(world.choices.byte()), count) }
    }),
    ("cuMemsetD2D32Async", |world| {
        let ((ptr, pitch), (width, height)) = rows(world, 4);
        let value = u32::from(world.choices.byte());
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD2D32Async(ptr, pitch, value, width, height, world.stream()) }
    }),
    ("cuMemsetD2D32_v2", |world| {
        let ((ptr, pitch), (width, height)) = rows(world, 4);
        let value = u32::from(world.choices.byte());
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD2D32_v2(ptr, pitch, value, width, height) }
    }),
    ("cuMemcpy2D_v2", |world| {
        let parameters = parameters_2d(world);
        let place = world.choices.chance(15, 16);
        let place = if place { &raw const parameters } else { null() };
        // SAFETY: the parameters are null or a local. No other code uses this program's memory.
        unsafe { cuMemcpy2D_v2(place) }
    }),
    ("cuMemcpy2DUnaligned_v2", |world| {
        let parameters = parameters_2d(world);
        let place = world.choices.chance(15, 16);
        let place = if place { &raw const parameters } else { null() };
        // SAFETY: the parameters are null or a local. No other code uses this program's memory.
        unsafe { cuMemcpy2DUnaligned_v2(place) }
    }),
    ("cuMemcpy2DAsync_v2", |world| {
        let parameters = parameters_2d(world);
        let place = world.choices.chance(15, 16);
        let place = if place { &raw const parameters } else { null() };
        // SAFETY: the parameters are null or a local. No other code uses this program's memory.
        unsafe { cuMemcpy2DAsync_v2(place, world.stream()) }
    }),
    ("cuMemcpy3D_v2", |world| {
        let parameters = parameters_3d(world);
        let place = world.choices.chance(15, 16);
        let place = if place { &raw const parameters } else { null() };
        // SAFETY: the parameters are null or a local. No other code uses this program's memory.
        unsafe { cuMemcpy3D_v2(place) }
    }),
    ("cuMemcpy3DAsync_v2", |world| {
        let parameters = parameters_3d(world);
        let place = world.choices.chance(15, 16);
        let place = if place { &raw const parameters } else { null() };
        // SAFETY: the parameters are null or a local. No other code uses this program's memory.
        unsafe { cuMemcpy3DAsync_v2(place, world.stream()) }
    }),
];

/// An address and a pitch, a width in elements and a number of rows: mostly within one allocation.
fn rows(world: &mut World<'_, '_>, width: usize) -> ((u64, usize), (usize, usize)) {
    let (ptr, bytes) = elements(world, width);
    let pitch = world.choices.below(64) as usize * width;
    match world.choices.below(8) {
        0 => ((ptr, pitch), (world.choices.edge() as usize, world.choices.edge() as usize)),
        1 => ((ptr, world.choices.edge() as usize), (bytes, 1)),
        _ => ((ptr, pitch), (pitch / width.max(1), world.choices.below(8) as usize)),
    }
}

/// One side of a copy of slices. All that it may name of the buffer lies within.
fn side(world: &mut World<'_, '_>) -> Memcpy3DSide {
    Memcpy3DSide {
        x: world.choices.below(64) as usize,
        y: world.choices.below(4) as usize,
        z: world.choices.below(2) as usize,
        level: 0,
        kind: if world.choices.chance(7, 8) {
            [1, 2, 4][world.choices.below(3) as usize]
        } else {
            world.small(6) as c_int
        },
        host: host(world),
        device: world.address(),
        array: null_mut(),
        reserved: null_mut(),
        pitch: [0, 256, 512, 7][world.choices.below(4) as usize],
        height: world.choices.below(12) as usize,
    }
}

fn parameters_3d(world: &mut World<'_, '_>) -> Memcpy3D {
    Memcpy3D {
        source: side(world),
        destination: side(world),
        width: world.choices.below(256) as usize,
        height: world.choices.below(12) as usize,
        depth: world.choices.below(4) as usize,
    }
}

fn parameters_2d(world: &mut World<'_, '_>) -> Memcpy2D {
    let Memcpy3D { source, destination, width, height, .. } = parameters_3d(world);
    Memcpy2D {
        source_x: source.x,
        source_y: source.y,
        source_kind: source.kind,
        source_host: source.host,
        source_device: source.device,
        source_array: source.array,
        source_pitch: source.pitch,
        destination_x: destination.x,
        destination_y: destination.y,
        destination_kind: destination.kind,
        destination_host: destination.host,
        destination_device: destination.device,
        destination_array: destination.array,
        destination_pitch: destination.pitch,
        width,
        height,
    }
}
