//! Kernels in PTX, launched through the driver.

mod common;

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use common::{function_of, module_of, start};
use pagewise_driver::*;

const KERNELS: &str = r#"
.version 8.0
.target sm_60
.address_size 64
.visible .global .align 4 .u32 calls = 0;
.visible .entry square(.param .u64 values, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [values];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra end;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.u32 %r6, [%rd4];
    mul.lo.u32 %r7, %r6, %r6;
    st.global.u32 [%rd4], %r7;
    atom.global.add.u32 %r6, [calls], 1;
end:
    ret;
}
"#;

fn parameters(values: &mut [u64]) -> Vec<*mut c_void> {
    values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect()
}

/// Launches blocks of 256 threads with parameters of up to 8 bytes.
fn launch(function: *mut c_void, blocks: u32, mut values: Vec<u64>) -> i32 {
    let mut places = parameters(&mut values);
    let (places, none) = (places.as_mut_ptr(), null_mut());
    // SAFETY: the array has an item for each parameter, and nothing else uses the memory.
    unsafe { cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, none, places, null_mut()) }
}

fn managed(bytes: usize) -> u64 {
    let mut ptr = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuMemAllocManaged(&raw mut ptr, bytes, 1) }, 0);
    ptr
}

fn device(bytes: usize) -> u64 {
    let mut ptr = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut ptr, bytes) }, 0);
    ptr
}

fn write(ptr: u64, values: &[u32]) {
    // SAFETY: the memory is as long as the values.
    let code = unsafe { cuMemcpyHtoD_v2(ptr, values.as_ptr().cast(), size_of_val(values)) };
    assert_eq!(code, 0);
}

fn read(ptr: u64, count: usize) -> Vec<u32> {
    let mut values = vec![0; count];
    // SAFETY: the place has room for the values.
    assert_eq!(unsafe { cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), ptr, count * 4) }, 0);
    values
}

#[test]
fn a_kernel_computes_on_memory_of_each_kind() {
    start();
    let module = module_of(KERNELS);
    let square = function_of(module, "square");
    for (nth, ptr) in [device(4000), managed(4000)].into_iter().enumerate() {
        let values: Vec<u32> = (0..1000).map(|value| value * 3).collect();
        write(ptr, &values);
        assert_eq!(launch(square, 4, vec![ptr, 1000]), 0);
        let squares: Vec<u32> = values.iter().map(|value| value * value).collect();
        assert_eq!(read(ptr, 1000), squares);
        let (mut calls, mut bytes) = (0, 0);
        let name = c"calls".as_ptr();
        // SAFETY: the places are locals, and the name is NUL-terminated.
        let code = unsafe { cuModuleGetGlobal_v2(&raw mut calls, &raw mut bytes, module, name) };
        assert_eq!((code, read(calls, 1)), (0, vec![1000 * (nth as u32 + 1)]));
    }
}

#[test]
fn a_kernel_of_a_library_uses_the_variables_of_its_context() {
    start();
    let (mut library, mut kernel) = (null_mut(), null_mut());
    let text = CString::new(KERNELS).expect("PTX has no NUL");
    // SAFETY: the text is NUL-terminated, and the places are locals.
    unsafe {
        let (text, none) = (text.as_ptr().cast(), null_mut());
        let null = std::ptr::null();
        assert_eq!(cuLibraryLoadData(&raw mut library, text, null, none, 0, null, none, 0), 0);
        assert_eq!(cuLibraryGetKernel(&raw mut kernel, library, c"square".as_ptr()), 0);
    }
    let ptr = managed(1024);
    write(ptr, &[5; 256]);
    assert_eq!(launch(kernel, 1, vec![ptr, 256]), 0);
    assert_eq!(read(ptr, 256), [25; 256]);
    let (mut calls, mut bytes) = (0, 0);
    // SAFETY: the places are locals, and the name is NUL-terminated.
    let code =
        unsafe { cuLibraryGetGlobal(&raw mut calls, &raw mut bytes, library, c"calls".as_ptr()) };
    assert_eq!((code, read(calls, 1)), (0, vec![256]));
}

#[test]
fn a_module_with_an_instruction_that_is_not_executed_loads_and_does_not_launch() {
    start();
    let text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry kernel()\n{\n\
        wgmma.fence.sync.aligned;\n ret;\n}\n";
    let module = module_of(text);
    assert_eq!(launch(function_of(module, "kernel"), 1, Vec::new()), 801);
}

#[test]
fn a_kernel_in_machine_code_only_loads_and_its_launch_finds_no_binary() {
    start();
    let (image, mut module) = (include_bytes!("data/kernel.cubin"), null_mut());
    let (mut values, none) = (vec![0_u64; 3], null_mut());
    let mut places = parameters(&mut values);
    // SAFETY: the image is a whole cubin, and the array has an item for each parameter.
    let codes = unsafe {
        let loaded = cuModuleLoadData(&raw mut module, image.as_ptr().cast());
        let (function, places) = (function_of(module, "kernel"), places.as_mut_ptr());
        (loaded, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, none, places, none.cast()))
    };
    assert_eq!(codes, (0, 209));
}
