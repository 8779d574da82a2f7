//! Modules and libraries: owners, handles, and the memory of variables.

mod common;

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use common::{PTX, function_of, module_of, start};
use pagewise_driver::*;

const VARIABLES: &str = "\
.version 8.0
.target sm_60
.address_size 64
.visible .global .align 4 .u32 number = 5;
.visible .global .align 4 .f32 fraction = 0f3F800000;
.visible .global .align 8 .u64 place = generic(number)+4;
.visible .global .align 1 .b8 bytes[8] = {1, 2, 3};
.visible .global .attribute(.managed) .align 8 .u64 shared = 7;
.global .align 8 .u64 places[2] = {number, shared};
.visible .entry kernel(.param .u64 a) { ret; }
";

fn global(module: *mut c_void, name: &CStr) -> (u64, usize) {
    let (mut ptr, mut bytes) = (0, 0);
    // SAFETY: the places are locals, and the name is NUL-terminated.
    let code = unsafe { cuModuleGetGlobal_v2(&raw mut ptr, &raw mut bytes, module, name.as_ptr()) };
    assert_eq!(code, 0, "{name:?}");
    (ptr, bytes)
}

fn read<const BYTES: usize>(ptr: u64) -> [u8; BYTES] {
    let mut bytes = [0xEE; BYTES];
    // SAFETY: the place has room for as many bytes as are copied.
    assert_eq!(unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), ptr, BYTES) }, 0);
    bytes
}

fn library_of(text: &str) -> *mut c_void {
    let (mut library, text) = (null_mut(), CString::new(text).expect("PTX has no NUL"));
    let none = null_mut();
    // SAFETY: the text is NUL-terminated, and the place is a local.
    let code = unsafe {
        let text = text.as_ptr().cast();
        cuLibraryLoadData(&raw mut library, text, null(), none, 0, null(), none, 0)
    };
    assert_eq!(code, 0);
    library
}

fn kernel_of(library: *mut c_void, name: &CStr) -> *mut c_void {
    let mut kernel = null_mut();
    // SAFETY: the place is a local, and the name is NUL-terminated.
    assert_eq!(unsafe { cuLibraryGetKernel(&raw mut kernel, library, name.as_ptr()) }, 0);
    kernel
}

#[test]
fn variables_begin_with_their_values_and_addresses() {
    start();
    let module = module_of(VARIABLES);
    let (number, bytes) = global(module, c"number");
    assert_eq!((read(number), bytes), (5_u32.to_le_bytes(), 4));
    assert_eq!(read(global(module, c"fraction").0), 1_f32.to_le_bytes());
    assert_eq!(read(global(module, c"place").0), (number + 4).to_le_bytes());
    assert_eq!(read(global(module, c"bytes").0), [1, 2, 3, 0, 0, 0, 0, 0]);
    let (shared, places) = (global(module, c"shared").0, global(module, c"places").0);
    assert_eq!(read(shared), 7_u64.to_le_bytes());
    assert_eq!(read(places + 8), shared.to_le_bytes());
    let mut managed: c_uint = 0;
    // SAFETY: the place has room for the attribute.
    let code = unsafe { cuPointerGetAttribute((&raw mut managed).cast(), 8, shared) };
    assert_eq!((code, managed), (0, 1), "a managed variable lies in managed memory");
}

#[test]
fn two_modules_of_one_image_have_variables_of_their_own() {
    start();
    let (one, other) = (module_of(VARIABLES), module_of(VARIABLES));
    let (one, other) = (global(one, c"number").0, global(other, c"number").0);
    // SAFETY: the module is live, and nothing else uses its variable.
    assert_eq!(unsafe { cuMemsetD8_v2(one, 9, 4) }, 0);
    assert_eq!((read(one), read(other)), ([9; 4], [5, 0, 0, 0]));
}

#[test]
fn what_belongs_to_an_unloaded_module_is_refused() {
    start();
    let module = module_of(VARIABLES);
    let function = function_of(module, "kernel");
    assert_eq!(cuModuleUnload(module), 0);
    assert_eq!(cuModuleUnload(module), 400);
    let (mut value, mut found) = (0, null_mut());
    // SAFETY: the places are locals, and the name is NUL-terminated.
    unsafe {
        assert_eq!(cuFuncGetAttribute(&raw mut value, 0, function), 400);
        assert_eq!(cuModuleGetFunction(&raw mut found, module, c"kernel".as_ptr()), 400);
    }
}

#[test]
fn memory_of_a_variable_cannot_be_freed() {
    start();
    let module = module_of(VARIABLES);
    for name in [c"number", c"shared"] {
        let (ptr, _) = global(module, name);
        // SAFETY: the driver refuses the address.
        assert_eq!(unsafe { cuMemFree_v2(ptr) }, 1);
        // SAFETY: the driver refuses the address.
        assert_eq!(unsafe { cuMemFreeAsync(ptr, null_mut()) }, 1);
    }
    assert_eq!(read(global(module, c"number").0), 5_u32.to_le_bytes());
}

/// An H200 gave the context and 0.
#[test]
fn a_variable_has_the_context_of_its_module_and_no_handle_for_other_processes() {
    let context = start();
    let (counter, _) = global(module_of(PTX), c"counter");
    let (mut of, mut is_capable) = (null_mut::<c_void>(), 7_u32);
    // SAFETY: the driver writes locals of the attributes' sizes.
    unsafe {
        assert_eq!(cuPointerGetAttribute((&raw mut of).cast(), 1, counter), 0);
        assert_eq!(cuPointerGetAttribute((&raw mut is_capable).cast(), 10, counter), 0);
    }
    assert_eq!((of, is_capable), (context, 0));
}

#[test]
fn a_module_goes_with_its_context() {
    let primary = start();
    let mut context = null_mut();
    // SAFETY: the driver writes the context to a local.
    assert_eq!(unsafe { cuCtxCreate_v2(&raw mut context, 0, 0) }, 0);
    let module = module_of(VARIABLES);
    // SAFETY: nothing uses the context any more.
    assert_eq!(unsafe { cuCtxDestroy_v2(context) }, 0);
    assert_eq!(cuCtxSetCurrent(primary), 0);
    assert_eq!(cuModuleUnload(module), 400);
}

#[test]
fn a_library_has_one_module_in_each_context() {
    let primary = start();
    let (library, mut context) = (library_of(VARIABLES), null_mut());
    let (mut one, mut again, mut other) = (null_mut(), null_mut(), null_mut());
    let (mut first, mut second) = (0, 0);
    let mut managed = [0_u64; 2];
    // SAFETY: all places are locals, and the names are NUL-terminated.
    unsafe {
        let (number, shared) = (c"number".as_ptr(), c"shared".as_ptr());
        assert_eq!(cuLibraryGetModule(&raw mut one, library), 0);
        assert_eq!(cuLibraryGetModule(&raw mut again, library), 0);
        assert_eq!(cuLibraryGetGlobal(&raw mut first, null_mut(), library, number), 0);
        assert_eq!(cuLibraryGetManaged(&raw mut managed[0], null_mut(), library, shared), 0);
        assert_eq!(cuLibraryGetManaged(&raw mut managed[0], null_mut(), library, number), 500);
        assert_eq!(cuLibraryGetManaged(&raw mut managed[0], null_mut(), library, shared), 0);
        assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
        assert_eq!(cuLibraryGetModule(&raw mut other, library), 0);
        assert_eq!(cuLibraryGetGlobal(&raw mut second, null_mut(), library, number), 0);
        assert_eq!(cuLibraryGetManaged(&raw mut managed[1], null_mut(), library, shared), 0);
        assert_eq!(cuCtxDestroy_v2(context), 0);
        assert_eq!(cuCtxSetCurrent(primary), 0);
        assert_eq!(cuModuleUnload(one), 400, "the module is the library's");
        assert_eq!(cuLibraryUnload(library), 0);
        assert_eq!(cuLibraryUnload(library), 400);
    }
    assert_eq!(one, again);
    assert!(one != other && first != second);
    assert_eq!(managed[0], managed[1], "managed variables are shared by all contexts");
}

#[test]
fn a_kernel_is_a_function_in_the_current_context() {
    start();
    let library = library_of(PTX);
    let kernel = kernel_of(library, c"two");
    let (mut function, mut again) = (null_mut(), null_mut());
    let (mut owner, mut bytes, mut offset) = (null_mut(), 0, 0);
    let (mut count, mut all) = (0, [null_mut(); 8]);
    let mut name = null();
    // SAFETY: all places are locals, and the array has as many items as is said.
    unsafe {
        assert_eq!(cuKernelGetFunction(&raw mut function, kernel), 0);
        assert_eq!(cuKernelGetFunction(&raw mut again, kernel), 0);
        assert_eq!(cuKernelGetLibrary(&raw mut owner, kernel), 0);
        assert_eq!(cuKernelGetParamInfo(kernel, 1, &raw mut offset, &raw mut bytes), 0);
        assert_eq!(cuLibraryGetKernelCount(&raw mut count, library), 0);
        assert_eq!(cuLibraryEnumerateKernels(all.as_mut_ptr(), 8, library), 0);
        assert_eq!(cuFuncGetName(&raw mut name, function), 0);
        assert_eq!(CStr::from_ptr(name), c"two");
        assert_eq!(cuKernelGetName(&raw mut name, kernel), 0);
        assert_eq!(CStr::from_ptr(name), c"two");
    }
    assert_eq!((function, owner, offset, bytes, count), (again, library, 8, 4, 6));
    assert!(all[..6].contains(&kernel) && all[6..] == [null_mut(); 2]);
}

#[test]
fn an_attribute_of_a_kernel_is_set_for_one_device() {
    start();
    let kernel = kernel_of(library_of(PTX), c"two");
    assert_eq!(cuKernelSetAttribute(8, 100_000, kernel, 0), 0);
    assert_eq!(cuKernelSetAttribute(8, 232_449, kernel, 0), 1);
    assert_eq!(cuKernelSetAttribute(8, 1, kernel, 7), 101);
    let mut value: c_int = 0;
    // SAFETY: the place is a local.
    unsafe {
        assert_eq!(cuKernelGetAttribute(&raw mut value, 8, kernel, 0), 0);
        assert_eq!(value, 100_000, "a refused value changes nothing");
        assert_eq!(cuKernelGetAttribute(&raw mut value, 8, kernel, 7), 101);
    }
}

#[test]
fn the_log_of_errors_says_where_the_text_is_wrong() {
    start();
    let text = CString::new(PTX.replace("{ ret; }", "{ ret }")).expect("no NUL");
    let mut log = [0x55_u8; 64];
    let mut options = [5, 6];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(64)];
    let mut module = null_mut();
    // SAFETY: the arrays have two items each, and the buffer 64 bytes.
    let code = unsafe {
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 2, options, values)
    };
    assert_eq!((code, values[1].addr(), log[63]), (218, 63, 0));
    assert!(log.starts_with(b"ptxas application ptx input, line 7; fatal   : Parsing error"));
    assert!(module.is_null(), "a refused call changes nothing");
}

#[test]
fn an_image_is_read_from_a_file() {
    start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.ptx");
    std::fs::write(&path, PTX).expect("the folder is writable");
    let path = CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
    let (mut module, mut library, none) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the places are locals, and the paths are NUL-terminated.
    unsafe {
        assert_eq!(cuModuleLoad(&raw mut module, path.as_ptr()), 0);
        assert_eq!(cuModuleLoad(&raw mut module, c"/no/such/file".as_ptr()), 301);
        let (out, path) = (&raw mut library, path.as_ptr());
        assert_eq!(cuLibraryLoadFromFile(out, path, null(), none, 0, null(), none, 0), 0);
    }
    function_of(module, "two");
    kernel_of(library, c"two");
}

#[test]
fn modules_are_linked_to_an_image_that_loads() {
    start();
    let (mut link, mut image, mut bytes) = (null_mut(), null_mut(), 0);
    let add = |link, text: &str| {
        let text = CString::new(text).expect("no NUL");
        let (data, length) = (text.as_ptr().cast_mut().cast(), text.as_bytes_with_nul().len());
        let (name, none) = (c"module".as_ptr(), null_mut());
        // SAFETY: the text has as many bytes as is said, and there are no options.
        unsafe { cuLinkAddData_v2(link, 1, data, length, name, 0, null(), none) }
    };
    // SAFETY: the places are locals, and there are no options.
    unsafe {
        assert_eq!(cuLinkCreate_v2(0, null(), null_mut(), &raw mut link), 0);
        assert_eq!(add(link, PTX), 0);
        assert_eq!(add(link, "junk"), 200);
        assert_eq!(add(link, VARIABLES), 0);
        assert_eq!(cuLinkComplete(link, &raw mut image, &raw mut bytes), 0);
        let mut module = null_mut();
        assert_eq!(cuModuleLoadData(&raw mut module, image), 0);
        function_of(module, "two");
        function_of(module, "kernel");
        assert_eq!(read(global(module, c"number").0), 5_u32.to_le_bytes());
        assert_eq!(cuLinkDestroy(link), 0);
        assert_eq!(cuLinkDestroy(link), 400);
    }
    assert!(bytes > PTX.len());
}

#[test]
fn machine_code_is_not_linked_and_spoils_a_link_as_on_an_h200() {
    start();
    let cubin = include_bytes!("data/kernel.cubin");
    let ptx = CString::new(PTX).expect("no NUL");
    let ptx = ptx.as_bytes_with_nul();
    let recorded = [
        (&cubin[..], [1, 209, 209, 209, 200, 999, 221, 1], [0, 209, 209, 209, 0, 0, 221, 0]),
        (ptx, [1, 200, 0, 0, 999, 999, 221, 1], [0, 200, 0, 0, 0, 0, 221, 0]),
    ];
    for (image, added, completed) in recorded {
        for ((kind, added), completed) in (-1..).zip(added).zip(completed) {
            let (mut link, mut out, none) = (null_mut(), null_mut(), null_mut());
            let data = image.as_ptr().cast_mut().cast();
            // SAFETY: the image has as many bytes as is said, and there are no options.
            let codes = unsafe {
                assert_eq!(cuLinkCreate(0, null(), none, &raw mut link), 0);
                let length = image.len();
                let code = cuLinkAddData(link, kind, data, length, null(), 0, null(), none);
                (code, cuLinkComplete(link, &raw mut out, null_mut()))
            };
            assert_eq!(codes, (added, completed), "kind {kind}");
            assert_eq!(cuLinkDestroy(link), 0);
        }
    }
}

#[test]
fn kernels_of_text_and_touch_kernels_run() {
    start();
    let touch = "
.version 6.0
.target sm_60
.address_size 64
.entry pagewise_write(.param .u64 a, .param .u64 n, .param .u64 s, .param .u32 v, .param .u64 r)
{ ret; }
.entry other() { ret; }
";
    let module = module_of(touch);
    let mut ptr = 0;
    // SAFETY: the driver writes the address to a local.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut ptr, 4096) }, 0);
    let (mut places, mut stride, mut value, mut result) = (4096_u64, 1_u64, 6_u32, 0_u64);
    let mut parameters: [*mut c_void; 5] = [
        (&raw mut ptr).cast(),
        (&raw mut places).cast(),
        (&raw mut stride).cast(),
        (&raw mut value).cast(),
        (&raw mut result).cast(),
    ];
    let launch = |name, parameters| {
        let (function, none) = (function_of(module, name), null_mut());
        // SAFETY: the array is null or has an item for each parameter.
        unsafe { cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, none, parameters, null_mut()) }
    };
    assert_eq!(launch("other", null_mut()), 0);
    assert_eq!(launch("pagewise_write", parameters.as_mut_ptr()), 0);
    assert_eq!(read(ptr + 4092), [6; 4]);
    // SAFETY: the memory is live, and the test does not use it again.
    assert_eq!(unsafe { cuMemFree_v2(ptr) }, 0);
}
