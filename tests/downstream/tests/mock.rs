//! A downstream crate scripts the HAL's mock: everything it needs comes through the HAL.

use std::sync::Arc;

use pagewise_downstream::{Scratch, Staged, stage};
use pagewise_hal::mock::{MockBackend, Sequence, permit_free, predicate};
use pagewise_hal::{
    Advice, AttachFlags, Backend, BackendExt, Code, DeviceId, DevicePtr, Error, ErrorKind,
    Location, Span,
};

const SPAN: Span = Span::new(DevicePtr(0x1000), 4096);
const DEVICE: DeviceId = DeviceId(0);

#[test]
fn a_prefetch_that_succeeds_is_all_that_happens() {
    let mut mock = MockBackend::new();
    mock.expect_prefetch()
        .withf(|span, to, flags, _| *span == SPAN && *to == Location::device(DEVICE) && *flags == 0)
        .times(1)
        .returning(|_, _, _, _| Ok(()));
    assert_eq!(stage(&mock, SPAN, DEVICE), Ok(Staged::OnDevice));
}

#[test]
fn a_full_device_maps_the_range_instead_after_the_prefetch_failed() {
    let mut mock = MockBackend::new();
    let mut order = Sequence::new();
    mock.expect_prefetch()
        .times(1)
        .in_sequence(&mut order)
        .returning(|_, _, _, _| Err(Error::from_code("prefetch", Code::OUT_OF_MEMORY)));
    mock.expect_advise()
        .with(
            predicate::eq(SPAN),
            predicate::eq(Advice::SET_ACCESSED_BY),
            predicate::eq(Location::device(DEVICE)),
        )
        .times(1)
        .in_sequence(&mut order)
        .returning(|_, _, _| Ok(()));
    assert_eq!(stage(&mock, SPAN, DEVICE), Ok(Staged::MappedOnHost));
}

#[test]
fn another_error_is_passed_on_with_its_code() {
    let mut mock = MockBackend::new();
    mock.expect_prefetch()
        .returning(|_, _, _, _| Err(Error::from_code("prefetch", Code::INVALID_DEVICE)));
    let error = stage(&mock, SPAN, DEVICE).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidDevice, Some(101)));
}

#[test]
fn a_shared_mock_counts_frees_when_its_last_owner_goes() {
    let mut mock = MockBackend::new();
    mock.expect_alloc_managed()
        .with(predicate::eq(100), predicate::eq(AttachFlags::GLOBAL))
        .returning(|_, _| Ok(SPAN.ptr));
    mock.expect_free().with(predicate::eq(SPAN.ptr)).times(1).returning(|_| Ok(()));
    let backend: Arc<dyn Backend> = Arc::new(mock);
    let scratch = Scratch::new(Arc::clone(&backend), 100).unwrap();
    assert_eq!(scratch.span().bytes, 100);
    drop(scratch);
    assert_eq!(Arc::strong_count(&backend), 1, "so the count is checked when this test ends");
}

#[test]
fn conveniences_work_over_a_mock_and_frees_can_be_permitted() {
    let mut mock = MockBackend::new();
    mock.expect_alloc_managed().returning(|_, _| Ok(SPAN.ptr));
    mock.expect_device_count().returning(|| Ok(2));
    permit_free(&mut mock);
    assert_eq!(mock.alloc(4096), Ok(SPAN));
    assert_eq!(mock.devices(), Ok(vec![DeviceId(0), DeviceId(1)]));
    // SAFETY: no code uses the memory, because a mock's address has none behind it.
    assert_eq!(unsafe { mock.free(SPAN.ptr) }, Ok(()));
}
