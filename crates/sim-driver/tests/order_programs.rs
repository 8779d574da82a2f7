//! The order of checks of modules, libraries, functions and occupancy: as driver 580 on an H200
//! answered, before `cuInit`, then without a context, then with one. Of each function, the first
//! row passes nulls only, and the second a valid first place. Calls that make that driver crash are
//! left out.
//!
//! One test, one process: there is one start.

use std::ffi::c_int;
use std::ptr::{null, null_mut as nil};

use pagewise_driver::*;

/// A call, its answer now, and the answers of the driver.
type Row = (&'static str, c_int, [c_int; 3]);

fn rows() -> Vec<Row> {
    macro_rules! row {
        ($call:expr => $early:literal, $no_context:literal, $context:literal) => {
            (stringify!($call), $call, [$early, $no_context, $context])
        };
    }
    let (mut h, mut i, mut u, mut n, mut p) = (nil(), 0, 0, 0_usize, 0_u64);
    let (mut t, mut hs) = (null(), [nil(); 4]);
    let config = LaunchConfig {
        grid: [0; 3],
        block: [0; 3],
        shared_bytes: 0,
        stream: nil(),
        attributes: null(),
        count: 0,
    };
    let (out, hs) = (&raw mut h, hs.as_mut_ptr());
    // SAFETY: each place is null or a local that outlives the call.
    unsafe {
        vec![
            row!(cuModuleLoad(nil(), null()) => 3, 201, 1),
            row!(cuModuleLoad(out, null()) => 3, 201, 1),
            row!(cuModuleLoadDataEx(nil(), null(), 0, null(), nil()) => 3, 201, 1),
            row!(cuModuleLoadDataEx(out, null(), 0, null(), nil()) => 3, 201, 1),
            row!(cuModuleLoadFatBinary(nil(), null()) => 3, 201, 1),
            row!(cuModuleGetGlobal_v2(nil(), nil(), nil(), null()) => 3, 400, 400),
            row!(cuModuleGetGlobal_v2(&raw mut p, nil(), nil(), null()) => 3, 400, 400),
            row!(cuModuleGetLoadingMode(&raw mut i) => 3, 0, 0),
            row!(cuModuleGetFunctionCount(nil(), nil()) => 1, 1, 1),
            row!(cuModuleGetFunctionCount(&raw mut u, nil()) => 400, 400, 400),
            row!(cuModuleEnumerateFunctions(nil(), 0, nil()) => 1, 1, 1),
            row!(cuModuleEnumerateFunctions(hs, 0, nil()) => 400, 400, 400),
            row!(cuLibraryLoadData(nil(), null(), null(), nil(), 0, null(), nil(), 0) => 1, 1, 1),
            row!(cuLibraryLoadData(out, null(), null(), nil(), 0, null(), nil(), 0) => 1, 1, 1),
            row!(
                cuLibraryLoadFromFile(out, null(), null(), nil(), 0, null(), nil(), 0)
                => 1, 1, 1
            ),
            row!(cuLibraryUnload(nil()) => 400, 400, 400),
            row!(cuLibraryGetKernel(nil(), nil(), null()) => 1, 1, 1),
            row!(cuLibraryGetKernel(out, nil(), null()) => 1, 1, 1),
            row!(cuLibraryGetKernelCount(nil(), nil()) => 1, 1, 1),
            row!(cuLibraryGetKernelCount(&raw mut u, nil()) => 400, 400, 400),
            row!(cuLibraryEnumerateKernels(nil(), 0, nil()) => 1, 1, 1),
            row!(cuLibraryEnumerateKernels(hs, 0, nil()) => 400, 400, 400),
            row!(cuLibraryGetModule(nil(), nil()) => 1, 1, 1),
            row!(cuLibraryGetModule(out, nil()) => 400, 400, 400),
            row!(cuLibraryGetGlobal(nil(), nil(), nil(), null()) => 1, 1, 1),
            row!(cuLibraryGetGlobal(&raw mut p, nil(), nil(), null()) => 1, 1, 1),
            row!(cuLibraryGetManaged(nil(), nil(), nil(), null()) => 1, 1, 1),
            row!(cuLibraryGetManaged(&raw mut p, nil(), nil(), null()) => 1, 1, 1),
            row!(cuLibraryGetUnifiedFunction(nil(), nil(), null()) => 3, 1, 1),
            row!(cuLibraryGetUnifiedFunction(out, nil(), null()) => 3, 400, 400),
            row!(cuKernelGetFunction(nil(), nil()) => 1, 1, 1),
            row!(cuKernelGetFunction(out, nil()) => 400, 400, 400),
            row!(cuKernelGetLibrary(nil(), nil()) => 1, 1, 1),
            row!(cuKernelGetLibrary(out, nil()) => 400, 400, 400),
            row!(cuKernelGetAttribute(nil(), 0, nil(), 0) => 400, 400, 400),
            row!(cuKernelGetAttribute(&raw mut i, 0, nil(), 0) => 400, 400, 400),
            row!(cuKernelSetAttribute(0, 0, nil(), 0) => 400, 400, 400),
            row!(cuKernelSetCacheConfig(nil(), 0, 0) => 400, 400, 400),
            row!(cuKernelGetName(nil(), nil()) => 1, 1, 1),
            row!(cuKernelGetName(&raw mut t, nil()) => 1, 1, 1),
            row!(cuKernelGetParamInfo(nil(), 0, nil(), nil()) => 1, 1, 1),
            row!(cuFuncGetAttribute(nil(), 0, nil()) => 1, 1, 1),
            row!(cuFuncGetAttribute(&raw mut i, 0, nil()) => 400, 400, 400),
            row!(cuFuncSetAttribute(nil(), 0, 0) => 3, 400, 400),
            row!(cuFuncSetCacheConfig(nil(), 0) => 3, 400, 400),
            row!(cuFuncSetSharedMemConfig(nil(), 0) => 3, 400, 400),
            row!(cuFuncGetModule(nil(), nil()) => 3, 1, 1),
            row!(cuFuncGetModule(out, nil()) => 3, 1, 1),
            row!(cuFuncGetName(nil(), nil()) => 1, 1, 1),
            row!(cuFuncGetName(&raw mut t, nil()) => 1, 1, 1),
            row!(cuFuncGetParamInfo(nil(), 0, nil(), nil()) => 1, 1, 1),
            row!(cuFuncIsLoaded(nil(), nil()) => 1, 1, 1),
            row!(cuFuncIsLoaded(&raw mut i, nil()) => 400, 400, 400),
            row!(cuFuncLoad(nil()) => 400, 400, 400),
            row!(cuLaunchKernelEx(null(), nil(), nil(), nil()) => 1, 1, 1),
            row!(cuLaunchKernelEx(&raw const config, nil(), nil(), nil()) => 3, 201, 400),
            row!(
                cuLaunchCooperativeKernel(nil(), 0, 0, 0, 0, 0, 0, 0, nil(), nil())
                => 3, 201, 400
            ),
            row!(cuOccupancyMaxActiveBlocksPerMultiprocessor(nil(), nil(), 0, 0) => 3, 201, 1),
            row!(
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut i, nil(), 0, 0)
                => 3, 201, 400
            ),
            row!(
                cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&raw mut i, nil(), 0, 0, 0)
                => 3, 201, 400
            ),
            row!(
                cuOccupancyMaxPotentialBlockSize(&raw mut i, nil(), nil(), None, 0, 0)
                => 3, 201, 1
            ),
            row!(
                cuOccupancyMaxPotentialBlockSizeWithFlags(&raw mut i, nil(), nil(), None, 0, 0, 0)
                => 3, 201, 1
            ),
            row!(
                cuOccupancyAvailableDynamicSMemPerBlock(&raw mut n, nil(), 0, 0)
                => 3, 201, 1
            ),
            row!(cuOccupancyMaxPotentialClusterSize(nil(), nil(), null()) => 1, 1, 1),
            row!(cuOccupancyMaxPotentialClusterSize(&raw mut i, nil(), null()) => 1, 1, 1),
        ]
    }
}

#[test]
fn checks_of_programs_come_in_the_drivers_order() {
    let check = |state: usize| {
        for (call, code, expected) in rows() {
            assert_eq!(code, expected[state], "{call} in state {state}");
        }
    };
    check(0);
    assert_eq!(cuInit(0), 0);
    check(1);
    let mut context = nil();
    // SAFETY: the driver writes the context to a local that outlives the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
    check(2);
}
