//! Claims about the calls that are made: the mock refuses every call that a test does not expect.

use std::sync::Arc;

use pagewise::mock::{MockBackend, Sequence, permit_free};
use pagewise::{
    Capabilities, Code, DeviceId, DevicePtr, DriverVersion, Error, ErrorKind, Machine,
    ManagedBuffer, MemoryInfo, Place, Stream,
};
use pagewise_example_testing::has_room;

fn with_free_bytes(free_bytes: u64) -> MockBackend {
    let mut mock = MockBackend::new();
    let info = MemoryInfo { free_bytes, total_bytes: 1 << 30 };
    mock.expect_memory_info().times(1).returning(move |_| Ok(info));
    mock
}

#[test]
fn half_of_what_is_free_counts_as_room() {
    assert_eq!(has_room(&with_free_bytes(200), DeviceId(0), 100), Ok(true));
    assert_eq!(has_room(&with_free_bytes(200), DeviceId(0), 101), Ok(false));
}

#[test]
fn an_error_of_the_driver_is_passed_on() {
    let mut mock = MockBackend::new();
    mock.expect_memory_info()
        .returning(|_| Err(Error::from_code("memory_info", Code::INVALID_DEVICE)));
    let error = has_room(&mock, DeviceId(9), 1).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidDevice, Some(101)));
}

/// A buffer works over a mock, too: it has addresses, and no contents.
#[test]
fn a_buffer_on_an_old_driver_prefetches_by_ordinal() -> pagewise::Result<()> {
    let mut mock = MockBackend::new();
    let mut order = Sequence::new();
    mock.expect_capabilities()
        .returning(|| Capabilities::of_driver("mock", DriverVersion::CUDA_12_0));
    mock.expect_alloc_managed()
        .times(1)
        .in_sequence(&mut order)
        .returning(|_, _| Ok(DevicePtr(0x20_0000)));
    mock.expect_prefetch_ordinal()
        .withf(|span, ordinal, _| span.bytes == 4096 && *ordinal == -1)
        .times(1)
        .in_sequence(&mut order)
        .returning(|_, _, _| Ok(()));
    permit_free(&mut mock);
    let machine = Machine::from(Arc::new(mock));
    let buffer = ManagedBuffer::<u8>::new(&machine, 4096)?;
    buffer.prefetch(Place::HOST, &Stream::legacy_default(&machine))?;
    assert_eq!(buffer.read().unwrap_err().kind(), ErrorKind::Unsupported);
    Ok(())
}
