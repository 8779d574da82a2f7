//! A simulated CUDA driver library.
//!
//! The C entry points of managed memory over one simulated H200 in the process, for programs that
//! were written against the driver: load the shared library in place of `libcuda.so.1`. This is the
//! part that a program needs to allocate, advise, prefetch and ask; whatever else a program looks
//! up, [`cuGetProcAddress_v2`] answers as a driver does that lacks it.
//!
//! Nothing unwinds into the caller: a panic is reported as `CUDA_ERROR_UNKNOWN`.
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use pagewise::{
    Advice, AttachFlags, Backend, Code, DeviceAttribute, DeviceId, DevicePtr, Location,
    LocationKind, RangeAttribute, Result, SimBackend, Span, StreamHandle, code_name,
};

const UNKNOWN: c_int = 999;

/// `CUmemLocation` as the driver passes it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemLocation {
    /// The type.
    pub kind: c_int,
    /// The id.
    pub id: c_int,
}

impl From<MemLocation> for Location {
    fn from(location: MemLocation) -> Self {
        Self { kind: LocationKind(location.kind), id: location.id }
    }
}

fn sim() -> Result<&'static Arc<SimBackend>> {
    static SIM: OnceLock<Result<Arc<SimBackend>>> = OnceLock::new();
    SIM.get_or_init(pagewise::sim).as_ref().map_err(Clone::clone)
}

/// Runs a call and turns its answer into a `CUresult`.
fn answer(call: impl FnOnce(&SimBackend) -> Result<()>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(|| sim().and_then(|sim| call(sim))));
    match outcome {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(error)) => error.code().unwrap_or(Code::NOT_SUPPORTED),
        Err(_) => UNKNOWN,
    }
}

/// Runs a call that gives a value, and stores it.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn give<T>(out: *mut T, call: impl FnOnce(&SimBackend) -> Result<T>) -> c_int {
    if out.is_null() {
        return Code::INVALID_VALUE;
    }
    answer(|sim| {
        let value = call(sim)?;
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { out.write(value) };
        Ok(())
    })
}

/// A stream of the caller: the simulator looks it up and refuses what it did not make.
fn stream(raw: *mut c_void) -> StreamHandle {
    // SAFETY: the simulator dereferences no handle.
    unsafe { StreamHandle::from_raw(raw as u64) }
}

/// `cuInit`
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> c_int {
    if flags == 0 { answer(|_| Ok(())) } else { Code::INVALID_VALUE }
}

/// `cuDriverGetVersion`
///
/// # Safety
/// `version` must be null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { give(version, |sim| Ok(sim.driver_version()?.0)) }
}

/// `cuDeviceGetCount`
///
/// # Safety
/// `count` must be null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { give(count, |sim| Ok(sim.device_count()?.cast_signed())) }
}

/// `cuDeviceGet`
///
/// # Safety
/// `device` must be null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    let attribute = DeviceAttribute::UNIFIED_ADDRESSING;
    // SAFETY: as above. Any attribute tells whether the device exists.
    unsafe {
        give(device, |sim| sim.device_attribute(DeviceId(ordinal), attribute).map(|_| ordinal))
    }
}

/// `cuDeviceGetAttribute`
///
/// # Safety
/// `value` must be null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> c_int {
    // SAFETY: as above.
    unsafe { give(value, |sim| sim.device_attribute(DeviceId(device), DeviceAttribute(attribute))) }
}

/// `cuGetErrorName`
///
/// # Safety
/// `name` must be null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    /// Every name with its NUL, made once: C keeps the pointer.
    static NAMES: OnceLock<Vec<Option<std::ffi::CString>>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let terminated = |code| std::ffi::CString::new(code_name(code)?).ok();
        (0..=UNKNOWN).map(terminated).collect()
    });
    let found = usize::try_from(code).ok().and_then(|index| names.get(index)?.as_ref());
    match (found, name.is_null()) {
        (_, true) | (None, _) => Code::INVALID_VALUE,
        (Some(text), false) => {
            // SAFETY: not null, and the caller vouches for the rest.
            unsafe { name.write(text.as_ptr()) };
            Code::SUCCESS
        }
    }
}

/// `cuMemAllocManaged`
///
/// # Safety
/// `ptr` must be null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(ptr: *mut u64, bytes: usize, flags: c_uint) -> c_int {
    let flags = AttachFlags::from_bits_retain(flags);
    // SAFETY: as above.
    unsafe { give(ptr, |sim| Ok(sim.alloc_managed(bytes as u64, flags)?.0)) }
}

/// `cuMemFree`
///
/// # Safety
/// Nobody may use the allocation any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(ptr: u64) -> c_int {
    // SAFETY: the caller's duty is the same.
    answer(|sim| unsafe { sim.free(DevicePtr(ptr)) })
}

/// `cuMemAdvise`, the form of CUDA 8.0
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise(ptr: u64, bytes: usize, advice: c_int, device: c_int) -> c_int {
    answer(|sim| sim.advise_ordinal(span(ptr, bytes), Advice(advice), device))
}

/// `cuMemAdvise`, the form of CUDA 12.2
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise_v2(
    ptr: u64,
    bytes: usize,
    advice: c_int,
    location: MemLocation,
) -> c_int {
    answer(|sim| sim.advise(span(ptr, bytes), Advice(advice), location.into()))
}

/// `cuMemPrefetchAsync`, the form of CUDA 8.0
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync(
    ptr: u64,
    bytes: usize,
    device: c_int,
    on: *mut c_void,
) -> c_int {
    answer(|sim| sim.prefetch_ordinal(span(ptr, bytes), device, stream(on)))
}

/// `cuMemPrefetchAsync`, the form of CUDA 12.2
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync_v2(
    ptr: u64,
    bytes: usize,
    location: MemLocation,
    flags: c_uint,
    on: *mut c_void,
) -> c_int {
    answer(|sim| sim.prefetch(span(ptr, bytes), location.into(), flags, stream(on)))
}

/// `cuMemRangeGetAttribute`
///
/// # Safety
/// `data` must be null or valid for writing `data_bytes` bytes, aligned for `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRangeGetAttribute(
    data: *mut c_int,
    data_bytes: usize,
    attribute: c_int,
    ptr: u64,
    bytes: usize,
) -> c_int {
    let attribute = RangeAttribute(attribute);
    let is_list = attribute == RangeAttribute::ACCESSED_BY;
    let fits =
        if is_list { data_bytes >= 4 && data_bytes.is_multiple_of(4) } else { data_bytes == 4 };
    if data.is_null() || !fits {
        return Code::INVALID_VALUE;
    }
    if is_list {
        // SAFETY: not null, long enough, and the caller vouches for the rest.
        let out = unsafe { std::slice::from_raw_parts_mut(data, data_bytes / 4) };
        return answer(|sim| sim.range_accessed_by(span(ptr, bytes), out));
    }
    // SAFETY: not null, and one int fits.
    unsafe { give(data, |sim| sim.range_attribute(span(ptr, bytes), attribute)) }
}

/// `cuGetProcAddress_v2`: the newest form of a function that is not newer than `version`.
///
/// # Safety
/// `name` must be NUL-terminated or null; `function` and `status` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    _flags: u64,
    status: *mut c_int,
) -> c_int {
    if name.is_null() || function.is_null() {
        return Code::INVALID_VALUE;
    }
    let own = sim().and_then(|sim| sim.driver_version());
    if own.map_or(true, |own| version > own.0) {
        return Code::INVALID_VALUE;
    }
    // SAFETY: not null, and NUL-terminated by the caller's word.
    let name = unsafe { CStr::from_ptr(name) };
    let forms = FORMS.iter().filter(|(known, _, _)| *known == name);
    let best = forms.clone().filter(|(_, since, _)| *since <= version).max_by_key(|form| form.1);
    let found = best.map_or(std::ptr::null_mut(), |(_, _, address)| address() as *mut c_void);
    // Not found and too old a version are both a success with a null pointer; only this tells.
    let (not_found, too_old) = (1, 2);
    let outcome = match (best, forms.count()) {
        (Some(_), _) => 0,
        (None, 0) => not_found,
        (None, _) => too_old,
    };
    // SAFETY: `function` is not null; the caller vouches for both.
    unsafe {
        function.write(found);
        if !status.is_null() {
            status.write(outcome);
        }
    }
    Code::SUCCESS
}

/// Name, version that introduced the form, address.
type Form = (&'static CStr, c_int, fn() -> *const ());

const FORMS: &[Form] = &[
    (c"cuInit", 2000, || cuInit as *const ()),
    (c"cuDriverGetVersion", 2020, || cuDriverGetVersion as *const ()),
    (c"cuDeviceGetCount", 2000, || cuDeviceGetCount as *const ()),
    (c"cuDeviceGet", 2000, || cuDeviceGet as *const ()),
    (c"cuDeviceGetAttribute", 2000, || cuDeviceGetAttribute as *const ()),
    (c"cuGetErrorName", 6000, || cuGetErrorName as *const ()),
    (c"cuMemAllocManaged", 6000, || cuMemAllocManaged as *const ()),
    (c"cuMemFree", 3020, || cuMemFree_v2 as *const ()),
    (c"cuMemAdvise", 8000, || cuMemAdvise as *const ()),
    (c"cuMemAdvise", 12020, || cuMemAdvise_v2 as *const ()),
    (c"cuMemPrefetchAsync", 8000, || cuMemPrefetchAsync as *const ()),
    (c"cuMemPrefetchAsync", 12020, || cuMemPrefetchAsync_v2 as *const ()),
    (c"cuMemRangeGetAttribute", 8000, || cuMemRangeGetAttribute as *const ()),
    (c"cuGetProcAddress", 12000, || cuGetProcAddress_v2 as *const ()),
];

const fn span(ptr: u64, bytes: usize) -> Span {
    Span::new(DevicePtr(ptr), bytes as u64)
}
