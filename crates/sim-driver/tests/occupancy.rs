//! Occupancy, and the launches that depend on it.

mod common;

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::ptr::null_mut;

use common::{function_of, module_of, start};
use pagewise_driver::*;

const MULTIPROCESSORS: c_int = 132;
const THREADS: c_int = 512;

/// A kernel of which so many values live at once.
fn kernel(name: &str, directives: &str, values: u32) -> String {
    let mut text = format!(
        ".visible .entry {name}() {directives} {{ .reg .b32 %r<{}>; .reg .b32 %sum;\n",
        values + 1
    );
    for value in 0..values {
        _ = writeln!(text, "mov.u32 %r{value}, %clock;");
    }
    text += "mov.u32 %sum, 0;\n";
    for value in (0..values).rev() {
        _ = writeln!(text, "add.u32 %sum, %sum, %r{value};");
    }
    text + "ret; }\n"
}

fn module() -> *mut c_void {
    let kernels = [
        kernel("few", "", 10),
        kernel("many", "", 90),
        kernel("most", "", 240),
        kernel("bounded", ".maxntid 512, 1, 1 .minnctapersm 2", 240),
        kernel("limited", ".maxnreg 40", 240),
    ];
    module_of(&format!(".version 8.0\n.target sm_70\n.address_size 64\n{}", kernels.concat()))
}

fn active_blocks(function: *mut c_void) -> c_int {
    let mut blocks = -1;
    // SAFETY: the place is a local.
    let code = unsafe {
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, THREADS, 0)
    };
    assert_eq!(code, 0);
    blocks
}

fn registers(function: *mut c_void) -> c_int {
    let mut registers = -1;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuFuncGetAttribute(&raw mut registers, 4, function) }, 0);
    registers
}

fn launch_together(function: *mut c_void, blocks: c_int) -> c_int {
    let (blocks, threads, none) = (blocks.unsigned_abs(), THREADS.unsigned_abs(), null_mut());
    // SAFETY: the kernel has no parameters and uses no memory.
    unsafe { cuLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1, 0, none, null_mut()) }
}

#[test]
fn as_many_blocks_launch_together_as_the_occupancy_says() {
    start();
    let module = module();
    for name in ["few", "many", "bounded", "limited"] {
        let function = function_of(module, name);
        let most = active_blocks(function) * MULTIPROCESSORS;
        assert!(most > 0, "{name}");
        assert_eq!(launch_together(function, most), 0, "{name}");
        assert_eq!(launch_together(function, most + 1), 720, "{name}");
        assert_eq!(cuCtxSynchronize(), 0, "{name}");
    }
}

#[test]
fn a_kernel_of_more_live_values_has_more_registers_and_fewer_blocks() {
    start();
    let module = module();
    let figures = ["few", "many", "most"].map(|name| {
        let function = function_of(module, name);
        (registers(function), active_blocks(function))
    });
    // 65,536 registers are 4 blocks of 512 threads with 32 registers each.
    assert!((10..=32).contains(&figures[0].0) && figures[0].1 == 4, "{figures:?}");
    assert!((90..=128).contains(&figures[1].0) && figures[1].1 == 1, "{figures:?}");
    assert!((240..=255).contains(&figures[2].0) && figures[2].1 == 0, "{figures:?}");
}

#[test]
fn the_bounds_of_a_kernel_limit_its_registers() {
    start();
    let module = module();
    let of = |name| registers(function_of(module, name));
    assert_eq!(of("bounded"), 64);
    assert_eq!(of("limited"), 40);
}
