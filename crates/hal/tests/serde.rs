//! Data types survive serialization, under the names of their variants and fields.
#![cfg(feature = "serde")]

use std::fmt::Debug;

use pagewise_hal::{
    Advice, AttachFlags, BatchSupport, CallName, CallRecords, Capabilities, CopyCause,
    DeviceAccess, DeviceId, DevicePtr, DeviceTouch, DriverVersion, ErrorKind, EventLog,
    KernelAccess, KernelAccesses, KernelParam, KernelWalk, LaunchShape, Location, MemoryEvent,
    Operation, PageRun, Processor, Span, StreamHandle, StridedSpan,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) {
    let text = serde_json::to_string(&value).expect("plain data");
    assert_eq!(serde_json::from_str::<T>(&text).expect("what was written"), value, "{text}");
}

#[test]
fn every_kind_of_data_survives() {
    let span = Span::new(DevicePtr(0x7f00_0000), 4096);
    survives(span);
    survives(Location::host_numa(3));
    survives(Advice(99));
    survives(AttachFlags::from_bits_retain(0x15));
    survives(DriverVersion::CUDA_12_2);
    survives(ErrorKind::OutOfMemory);
    survives(PageRun { pages: 3, mapped: true });
    survives(DeviceTouch {
        device: DeviceId(1),
        span,
        stride_bytes: 4096,
        access: DeviceAccess::Write(7),
        blocks: 132,
        threads: 1024,
    });
    let places = vec![StridedSpan { span, stride_bytes: 4 }];
    let walks = vec![KernelWalk { access: KernelAccess::Update, places }];
    survives(KernelAccesses { device: DeviceId(1), blocks: 132, threads: 1024, walks });
    survives(LaunchShape::linear(132, 1024));
    survives(KernelParam::from(span.ptr));
    survives(MemoryEvent::Copy {
        address: 4096,
        bytes: 61_440,
        from: Processor::HOST,
        to: Processor::device(1),
        cause: CopyCause::Prefetch,
        duration_ns: 3000,
    });
    let call = CallName::from((Operation::Prefetch, StreamHandle::checked(16)));
    survives(CallRecords::new(call, 3));
    let text = serde_json::to_string(&call).expect("plain data");
    assert_eq!(text, r#"{"operation":"prefetch","stream":16}"#);
    survives(EventLog::of_calls(1).since(0));
    let capabilities = Capabilities::of_driver("sim", DriverVersion::CUDA_13_0);
    assert_eq!(capabilities.prefetch_batch, BatchSupport::Native);
    survives(capabilities);
}
