//! Memory of the process itself, and what goes to other processes, seen from the back end's side.

mod common;

use std::sync::{Arc, Mutex};

use common::{error, read, with_ops};
use pagewise_hal::mock::{MockBackend, permit_free};
use pagewise_hal::{Capabilities, Code, DriverVersion, Error, PAGE_BYTES, Span};
use pagewise_trace::replay::{CaseReplay, replay_case};

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

    use pagewise_hal::{PoolHandle, ShareableHandle};

    let mut mock = mock();
    // SAFETY: the mock takes any handle.
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

/// What `pool_export` of a back end that promises nothing answers may be anybody's descriptor.
#[cfg(unix)]
#[test]
fn a_descriptor_that_no_back_end_vouches_for_stays_open() {
    use std::os::fd::AsRawFd;

    use pagewise_hal::{PoolHandle, ShareableHandle};

    let ours = std::fs::File::open("/dev/null").expect("every Unix has one");
    let number = ours.as_raw_fd();
    let mut mock = mock();
    // SAFETY: the mock takes any handle.
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
