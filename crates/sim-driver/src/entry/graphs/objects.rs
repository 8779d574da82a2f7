//! Entry points of user objects.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

use pagewise_hal::Code;

use crate::driver::{has_place, started, store};
use crate::work::{HostFunction, HostNodeParams};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which every object has.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`
const MOVE: c_uint = 1;

/// `cuUserObjectCreate`: the function is called when the last reference is gone.
///
/// # Safety
/// `destroy` must be sound to call with `data` once, from another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuUserObjectCreate(
    out: *mut *mut c_void,
    data: *mut c_void,
    destroy: HostFunction,
    count: c_uint,
    flags: c_uint,
) -> c_int {
    started("cuUserObjectCreate", |driver| {
        has_place(out)?;
        if destroy.is_none() || count == 0 || flags != NO_DESTRUCTOR_SYNC {
            return Err(Code::INVALID_VALUE);
        }
        let made = {
            let mut graphs = driver.graphs();
            let made = graphs.handle();
            let call = HostNodeParams { function: destroy, data };
            graphs.objects.add(made, count.into(), call);
            made
        };
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, without_provenance_mut(made)) }
    })
}

/// `cuUserObjectRetain`
#[unsafe(no_mangle)]
pub extern "C" fn cuUserObjectRetain(object: *mut c_void, count: c_uint) -> c_int {
    started("cuUserObjectRetain", |driver| {
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        driver.graphs().objects.retain(object.addr(), count.into())
    })
}

/// `cuUserObjectRelease`: more references than there are count as all.
#[unsafe(no_mangle)]
pub extern "C" fn cuUserObjectRelease(object: *mut c_void, count: c_uint) -> c_int {
    started("cuUserObjectRelease", |driver| {
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        {
            let mut graphs = driver.graphs();
            graphs.objects.check(object.addr())?;
            graphs.objects.release(object.addr(), count.into());
        }
        driver.drop_objects();
        Ok(())
    })
}

/// `cuGraphRetainUserObject`: the graph gets new references, or those of the caller.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphRetainUserObject(
    graph: *mut c_void,
    object: *mut c_void,
    count: c_uint,
    flags: c_uint,
) -> c_int {
    started("cuGraphRetainUserObject", |driver| {
        if count == 0 || flags > MOVE {
            return Err(Code::INVALID_VALUE);
        }
        let (object, count) = (object.addr(), u64::from(count));
        let mut graphs = driver.graphs();
        graphs.graph(graph.addr())?;
        if flags == MOVE {
            graphs.objects.check(object)?;
        } else {
            graphs.objects.retain(object, count)?;
        }
        let held = graphs.graph_mut(graph.addr())?.objects.entry(object).or_default();
        *held = held.saturating_add(count);
        Ok(())
    })
}

/// `cuGraphReleaseUserObject`: more references than the graph has count as all of its.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphReleaseUserObject(
    graph: *mut c_void,
    object: *mut c_void,
    count: c_uint,
) -> c_int {
    started("cuGraphReleaseUserObject", |driver| {
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        {
            let (object, count) = (object.addr(), u64::from(count));
            let mut graphs = driver.graphs();
            let held = &mut graphs.graph_mut(graph.addr())?.objects;
            let has = held.get(&object).copied().unwrap_or_default();
            let released = has.min(count);
            match has.saturating_sub(released) {
                0 => held.remove(&object),
                left => held.insert(object, left),
            };
            graphs.objects.release(object, released);
        }
        driver.drop_objects();
        Ok(())
    })
}
