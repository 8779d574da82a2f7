//! The memory of the process itself and handles for other processes, seen from the back end's side.

use std::sync::{Arc, Mutex};

use pagewise_hal::mock::{MockBackend, permit_free};
use pagewise_hal::{
    Capabilities, Code, DevicePtr, DriverVersion, Error, ExportedPointer, PAGE_BYTES, PoolHandle,
    SHARED_BLOB_BYTES, ShareableHandle, Span, StreamHandle,
};
use pagewise_trace::replay::{CaseReplay, replay_case};

use crate::common::{error, read, with_ops};

fn mock() -> MockBackend {
    let mut mock = MockBackend::new();
    let capabilities = Capabilities::of_driver("mock", DriverVersion::CUDA_13_0);
    assert!(!capabilities.pool_self_import);
    mock.expect_capabilities().returning(move || capabilities.clone());
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_clock_ns().returning(|| 0);
    permit_free(&mut mock);
    mock
}

fn codes(mock: &MockBackend, ops: &[&str]) -> Vec<i32> {
    let cases = read(with_ops(ops).as_bytes()).expect("valid");
    let CaseReplay { observed, .. } = replay_case(mock, &cases[0], |_, _| {});
    observed.iter().map(|observed| observed.code).collect()
}

/// An address in a trace is not an address of the process that replays it.
#[test]
fn only_memory_of_the_case_is_registered_and_all_of_it_is_unregistered_at_the_end() {
    let mut mock = mock();
    let registered = Arc::new(Mutex::new(Vec::<Span>::new()));
    let log = Arc::clone(&registered);
    mock.expect_host_register().returning(move |span, _| {
        log.lock().expect("unpoisoned").push(span);
        match span.ptr.is_null() {
            true => Err(Error::from_code("host_register", Code::INVALID_VALUE)),
            false => Ok(()),
        }
    });
    let seen = Arc::clone(&registered);
    mock.expect_host_unregister().times(1).returning(move |ptr| {
        assert_eq!(ptr, seen.lock().expect("unpoisoned")[0].ptr);
        Ok(())
    });
    let answers = codes(
        &mock,
        &[
            r#"{"op":"host_memory","buf":5,"bytes":8192,"code":0}"#,
            r#"{"op":"host_register","buf":5,"offset":100,"bytes":4096,"flags":1,"code":0}"#,
            r#"{"op":"host_register","buf":5,"offset":4096,"bytes":4097,"flags":1,"code":1}"#,
            r#"{"op":"host_register","buf":99,"offset":268435456,"bytes":1,"flags":1,"code":1}"#,
            r#"{"op":"host_register","buf":99,"offset":0,"bytes":4096,"flags":1,"code":1}"#,
        ],
    );
    assert_eq!(answers, [0, 0, 1, 1, 1]);
    let registered = registered.lock().expect("unpoisoned");
    let [first, null] = registered[..] else { panic!("asked for {registered:?}") };
    assert_eq!((first.ptr.0 % PAGE_BYTES, first.bytes), (100, 4096));
    assert!(null.ptr.is_null(), "the back end refuses that by itself");
}

#[test]
fn memory_of_the_process_is_whole_pages_of_a_bounded_size() {
    for bytes in [0_u64, 5000, (1 << 30) + 4096, 1 << 63] {
        let op = format!(r#"{{"op":"host_memory","buf":5,"bytes":{bytes},"code":0}}"#);
        let error = error(with_ops(&[&op]));
        assert!(error.contains(":3: ") && error.contains("whole pages"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_pool_of_the_case_is_not_imported_where_drivers_do_not_survive_that() {
    use std::os::fd::IntoRawFd;

    let mut mock = mock();
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_pool_create().returning(|_| Ok(unsafe { PoolHandle::from_raw(0x9) }));
    mock.expect_pool_destroy().returning(|_| Ok(()));
    mock.expect_pool_export().returning(|_, _| {
        let file = std::fs::File::open("/dev/null").expect("every Unix has one");
        Ok(ShareableHandle(file.into_raw_fd()))
    });
    mock.expect_pool_import().times(1).returning(|handle, _| {
        assert_eq!(handle, ShareableHandle(-1), "what was not exported is asked for");
        Err(Error::from_code("pool_import", Code::UNKNOWN))
    });
    let answers = codes(
        &mock,
        &[
            r#"{"op":"pool_create","pool":0,"alloc_type":"pinned","location":{"kind":"device","id":0},"handle_types":1,"max_bytes":0,"code":0}"#,
            r#"{"op":"pool_export","pool":0,"share":0,"handle_types":1,"code":0}"#,
            r#"{"op":"pool_import","pool":1,"share":0,"handle_types":1,"code":0}"#,
            r#"{"op":"pool_import","pool":1,"share":7,"handle_types":1,"code":999}"#,
        ],
    );
    assert_eq!(answers, [0, 0, Code::NOT_SUPPORTED, Code::UNKNOWN]);
}

/// A pool with an allocation at `SHARED`, exported and imported under so many ids, and then this.
/// Gives the addresses that were filled, and those that were freed: in stream order or not.
fn with_imports(imports: &[u32], then: &[&str]) -> (Vec<DevicePtr>, Vec<(bool, DevicePtr)>) {
    let mut mock = MockBackend::new();
    let mut capabilities = Capabilities::of_driver("mock", DriverVersion::CUDA_13_0);
    capabilities.pool_self_import = true;
    mock.expect_capabilities().returning(move || capabilities.clone());
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_clock_ns().returning(|| 0);
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_pool_create().returning(|_| Ok(unsafe { PoolHandle::from_raw(0x9) }));
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_pool_import().returning(|_, _| Ok(unsafe { PoolHandle::from_raw(0xa) }));
    mock.expect_pool_destroy().returning(|_| Ok(()));
    mock.expect_pool_export().returning(|_, _| Ok(ShareableHandle(3)));
    mock.expect_pool_alloc().returning(|_, _, _| Ok(SHARED));
    mock.expect_pool_export_pointer().returning(|_| Ok(ExportedPointer([1; SHARED_BLOB_BYTES])));
    mock.expect_pool_import_pointer().returning(|_, _| Ok(SHARED));
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_stream_create().returning(|_, _| Ok(unsafe { StreamHandle::from_raw(0x57) }));
    mock.expect_stream_destroy().returning(|_| Ok(()));
    mock.expect_stream_synchronize().returning(|_| Ok(()));
    let (filled, freed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let note = Arc::clone(&filled);
    mock.expect_memset().returning(move |span, _, _| {
        note.lock().expect("unpoisoned").push(span.ptr);
        Ok(())
    });
    let note = Arc::clone(&freed);
    mock.expect_free().returning(move |ptr| {
        note.lock().expect("unpoisoned").push((false, ptr));
        Ok(())
    });
    let note = Arc::clone(&freed);
    mock.expect_free_async().returning(move |ptr, _| {
        note.lock().expect("unpoisoned").push((true, ptr));
        Ok(())
    });
    let share = [
        r#"{"op":"pool_create","pool":0,"alloc_type":"pinned","location":{"kind":"device","id":0},"handle_types":1,"max_bytes":0,"code":0}"#,
        r#"{"op":"pool_export","pool":0,"share":0,"handle_types":1,"code":0}"#,
        r#"{"op":"pool_import","pool":1,"share":0,"handle_types":1,"code":0}"#,
        r#"{"op":"pool_alloc","buf":0,"pool":0,"bytes":4096,"code":0}"#,
        r#"{"op":"pool_export_pointer","buf":0,"offset":0,"share":1,"code":0}"#,
    ];
    let import = |id: &u32| {
        format!(r#"{{"op":"pool_import_pointer","buf":{id},"pool":1,"share":1,"code":0}}"#)
    };
    let imports: Vec<String> = imports.iter().map(import).collect();
    let imports = imports.iter().map(String::as_str);
    let ops: Vec<&str> = share.into_iter().chain(imports).chain(then.iter().copied()).collect();
    codes(&mock, &ops);
    let filled = filled.lock().expect("unpoisoned").clone();
    let freed = freed.lock().expect("unpoisoned").clone();
    (filled, freed)
}

const SHARED: DevicePtr = DevicePtr(0x20_0000);
const FILL: &str = r#"{"op":"memset","buf":0,"offset":0,"bytes":4096,"value":1,"code":0}"#;
const FILL_IMPORT: &str = r#"{"op":"memset","buf":5,"offset":0,"bytes":4096,"value":1,"code":0}"#;
const FREE_IMPORT: &str = r#"{"op":"free","buf":5,"code":0}"#;
const FREE_EXPORTED: &str = r#"{"op":"free","buf":0,"code":0}"#;
const END_IMPORT: &str = r#"{"op":"pool_free","buf":5,"code":0}"#;
const END_SECOND: &str = r#"{"op":"pool_free","buf":6,"code":0}"#;

#[test]
fn memory_that_was_freed_is_known_by_no_id_whichever_named_it() {
    let null = DevicePtr::NULL;
    let (filled, freed) = with_imports(&[5], &[FREE_IMPORT, FILL, FILL_IMPORT, FREE_EXPORTED]);
    assert_eq!((filled, freed), (vec![null; 2], vec![(false, SHARED), (false, null)]));
    let (filled, freed) = with_imports(&[5], &[FREE_EXPORTED, FILL, FILL_IMPORT, FREE_IMPORT]);
    assert_eq!((filled, freed), (vec![null; 2], vec![(false, SHARED), (false, null)]));
}

#[test]
fn an_import_that_ends_leaves_the_memory_to_its_own_id() {
    let (filled, freed) = with_imports(&[5], &[END_IMPORT, FILL, FILL_IMPORT]);
    assert_eq!(filled, [SHARED, DevicePtr::NULL]);
    assert_eq!(freed, [(true, SHARED), (false, SHARED)], "the import, and the memory at the end");
}

#[test]
fn one_free_ends_all_imports_of_the_same_memory() {
    let (_, freed) = with_imports(&[5, 6], &[END_IMPORT, END_SECOND]);
    assert_eq!(freed, [(true, SHARED), (true, DevicePtr::NULL), (false, SHARED)]);
    let (_, freed) = with_imports(&[5, 6], &[]);
    assert_eq!(freed, [(true, SHARED), (false, SHARED)], "at the end of the case");
}

/// A back end that promises nothing may answer `pool_export` with any descriptor of the process.
#[cfg(unix)]
#[test]
fn a_descriptor_that_no_back_end_vouches_for_stays_open() {
    use std::os::fd::AsRawFd;

    let ours = std::fs::File::open("/dev/null").expect("every Unix has one");
    let number = ours.as_raw_fd();
    let mut mock = mock();
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_pool_create().returning(|_| Ok(unsafe { PoolHandle::from_raw(0x9) }));
    mock.expect_pool_destroy().returning(|_| Ok(()));
    mock.expect_pool_export().returning(move |_, _| Ok(ShareableHandle(number)));
    let answers = codes(
        &mock,
        &[
            r#"{"op":"pool_create","pool":0,"alloc_type":"pinned","location":{"kind":"device","id":0},"handle_types":1,"max_bytes":0,"code":0}"#,
            r#"{"op":"pool_export","pool":0,"share":0,"handle_types":1,"code":0}"#,
        ],
    );
    assert_eq!(answers, [0, 0]);
    assert!(ours.metadata().is_ok(), "it is still open");
}
