//! Hostile calls of modules and kernels.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use pagewise_driver::{cuLaunchKernel, cuModuleGetFunction, cuModuleLoadData, cuModuleUnload};

use super::programs::{FUNCTIONS, IMAGE, MODULES, NAMES};
use super::world::{Attempt, World, limited};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuModuleLoadData", |world| {
        let place = world.place::<*mut c_void>();
        let absent = world.choices.chance(1, 8);
        let text = if world.choices.chance(1, 8) { c"junk" } else { IMAGE };
        let image = if absent { null() } else { text.as_ptr().cast() };
        // SAFETY: the place is null or has room for the result, and the image is null or a
        // NUL-terminated text.
        let code = unsafe { cuModuleLoadData(place, image) };
        if code == 0 {
            // SAFETY: the driver refuses a place that is null, and has just written to this one.
            world.made.keep(MODULES, unsafe { place.read_unaligned() }.addr() as u64);
        }
        code
    }),
    ("cuModuleUnload", |world| {
        let module = module(world);
        let code = cuModuleUnload(module);
        if code == 0 {
            world.made.forget(MODULES, module.addr() as u64);
        }
        code
    }),
    ("cuModuleGetFunction", |world| {
        const NAMES: [&CStr; 3] = [c"pagewise_read", c"saxpy", c""];
        let (place, module) = (world.place(), module(world));
        let name = world.choices.one_of(&NAMES).as_ptr();
        let name = if world.choices.chance(1, 16) { null() } else { name };
        // SAFETY: the place is null or has room for the result, and the name is null or
        // NUL-terminated.
        unsafe { cuModuleGetFunction(place, module, name) }
    }),
    ("cuLaunchKernel", launch),
];

/// The latest module, or none.
fn module(world: &mut World<'_, '_>) -> *mut c_void {
    let any = if world.choices.chance(1, 4) { world.choices.edge() } else { 0 };
    let known = world.made.of(MODULES).last().copied().filter(|_| any == 0);
    without_provenance_mut(known.unwrap_or(any) as usize)
}

/// One of the latest kernels, or none.
fn function(world: &mut World<'_, '_>) -> *mut c_void {
    let any = if world.choices.chance(1, 8) { world.choices.edge() } else { 0 };
    let back = world.choices.below(NAMES.len() as u64) as usize;
    let known = world.made.of(FUNCTIONS).iter().rev().nth(back).copied().filter(|_| any == 0);
    without_provenance_mut(known.unwrap_or(any) as usize)
}

/// One launch, with the parameters that the touch kernels have.
fn launch(world: &mut World<'_, '_>) -> c_int {
    let function = function(world);
    let (mut address, bytes) = world.range();
    let mut stride = if world.choices.chance(1, 8) { world.choices.edge() } else { 512 };
    let mut places = if world.choices.chance(1, 8) {
        limited(world.choices.edge())
    } else {
        bytes as u64 / stride.max(1)
    };
    let mut value = u32::from(world.choices.byte());
    let mut result = world.address();
    let mut parameters = [
        (&raw mut address).cast::<c_void>(),
        (&raw mut places).cast(),
        (&raw mut stride).cast(),
        (&raw mut value).cast(),
        (&raw mut result).cast(),
    ];
    if world.choices.chance(1, 16) {
        parameters[world.choices.below(5) as usize] = null_mut();
    }
    let absent = world.choices.chance(1, 16);
    let array = if absent { null_mut() } else { parameters.as_mut_ptr() };
    let (blocks, threads) = (world.small(64) as u32, world.small(1025) as u32);
    let (depth, stream) = (if world.choices.chance(1, 8) { 2 } else { 1 }, world.stream());
    // SAFETY: the array is null or has an item for each parameter, and an item is null or points to
    // a live value of the parameter's type. No other code uses this program's memory.
    unsafe {
        cuLaunchKernel(
            function,
            blocks,
            1,
            depth,
            threads,
            1,
            1,
            if world.choices.chance(1, 8) { world.choices.edge() as u32 } else { 0 },
            stream,
            array,
            null_mut(),
        )
    }
}
