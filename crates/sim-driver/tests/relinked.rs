//! Programs that nvcc linked of objects (`-rdc=true`), as an H100 with driver 580 answered: a library
//! links the objects' text if nvcc linked no code for the GPU.

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use common::start;
use pagewise_driver::*;

const CALLS: &str = ".version 7.0\n.target sm_75\n.address_size 64\n\
    .extern .func (.param .b32 r) number;\n\
    .visible .entry kernel(.param .u64 place) { .reg .u64 %d; .reg .u32 %r;\n\
    ld.param.u64 %d, [place]; { .param .b32 q; call (q), number; ld.param.b32 %r, [q]; }\n\
    st.global.u32 [%d], %r; ret; }\n";
const DEFINES: &str = ".version 7.0\n.target sm_75\n.address_size 64\n\
    .visible .func (.param .b32 r) number() { .reg .u32 %r; mov.u32 %r, 42;\n\
    st.param.b32 [r], %r; ret; }\n";

/// An object of machine code only.
const MACHINE_CODE: &str = "\x7FELF";

/// A container of PTX or of machine code, or of nothing.
fn container(text: &str) -> Vec<u8> {
    let kind = if text == MACHINE_CODE { 2 } else { 1 };
    let entry = if text.is_empty() { 0 } else { 64 + text.len() };
    let mut bytes = [&0xBA55_ED50_u32.to_le_bytes()[..], &[1, 0, 16, 0]].concat();
    bytes.extend((entry as u64).to_le_bytes());
    if entry > 0 {
        let mut header = [0_u8; 64];
        header[..8].copy_from_slice(&[kind, 0, 1, 1, 64, 0, 0, 0]);
        header[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
        header[28] = 75;
        bytes.extend(header);
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// `__fatBinC_Wrapper_t`, with the list of objects that version 2 has.
#[repr(C)]
struct Wrapper {
    magic: c_int,
    version: c_int,
    linked: *const u8,
    objects: *const *const u8,
}

/// Calls `use_it` with the wrapper that nvcc lays around a program of these objects.
fn linked_of<T>(linked: &str, objects: &[&str], use_it: impl FnOnce(*const c_void) -> T) -> T {
    let linked = container(linked);
    let objects: Vec<_> = objects.iter().map(|text| container(text)).collect();
    let list = objects.iter().map(|object| object.as_ptr());
    let list: Vec<_> = list.chain([std::ptr::null()]).collect();
    let (linked, objects) = (linked.as_ptr(), list.as_ptr());
    let wrapper = Wrapper { magic: 0x4662_43B1, version: 2, linked, objects };
    use_it((&raw const wrapper).cast())
}

/// The codes of loading a library and of asking for its kernel, and the kernel.
fn kernel_of(image: *const c_void) -> (i32, i32, *mut c_void) {
    let (mut library, mut kernel) = (null_mut(), null_mut());
    let (none, no_values) = (null_mut(), null_mut());
    // SAFETY: the image is whole, the places are locals, and there are no options.
    unsafe {
        let loaded =
            cuLibraryLoadData(&raw mut library, image, none, no_values, 0, none, no_values, 0);
        let found = cuLibraryGetKernel(&raw mut kernel, library, c"kernel".as_ptr());
        (loaded, found, kernel)
    }
}

#[test]
fn a_library_links_the_text_of_the_objects_that_it_was_linked_of() {
    start();
    let with_runtime = [CALLS, DEFINES, MACHINE_CODE];
    for objects in [&[CALLS, DEFINES][..], &[DEFINES, CALLS], &with_runtime] {
        let (loaded, found, kernel) = linked_of("", objects, kernel_of);
        assert_eq!((loaded, found), (0, 0));
        let (mut place, mut number, none) = (0_u64, 0_u32, null_mut());
        // SAFETY: the places are locals, and the kernel writes 4 bytes of memory that it is given.
        unsafe {
            assert_eq!(cuMemAlloc_v2(&raw mut place, 4), 0);
            let mut values = [(&raw mut place).cast::<c_void>()];
            let values = values.as_mut_ptr();
            assert_eq!(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, none, values, null_mut()), 0);
            assert_eq!(cuMemcpyDtoH_v2((&raw mut number).cast(), place, 4), 0);
        }
        assert_eq!(number, 42);
    }
}

#[test]
fn objects_that_do_not_fit_together_are_refused_where_the_library_is_used() {
    start();
    let codes = |linked, objects: &[&str]| {
        let (loaded, found, _) = linked_of(linked, objects, kernel_of);
        (loaded, found)
    };
    assert_eq!(codes("", &[CALLS]), (0, 300), "a function is missing");
    assert_eq!(codes("", &[CALLS, CALLS, DEFINES]), (0, 300), "a kernel is there twice");
    assert_eq!(codes("", &[MACHINE_CODE]), (0, 209), "nothing can be executed");
    assert_eq!(codes("", &[CALLS, MACHINE_CODE]), (0, 209), "an object that is needed has no text");
    assert_eq!(codes(DEFINES, &[CALLS, DEFINES]), (0, 500), "what was linked is taken as it is");
}

#[test]
fn a_module_is_not_linked_of_objects() {
    start();
    let mut module = null_mut();
    // SAFETY: the image is whole, and the place is a local.
    let load = |image| unsafe { cuModuleLoadData(&raw mut module, image) };
    assert_eq!(linked_of("", &[CALLS, DEFINES], load), 200);
}
