//! The recordings of a real H200, replayed through the CUDA back end over the simulated driver.
//!
//! What the simulator answers directly, it must answer through the driver's C ABI, the table and
//! the back end too. So recordings made on either agree with replays on the other.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pagewise::{
    Backend, BackendExt, CopyAttributes, CopyFlags, DeviceId, DiscardedContents, DriverVersion,
    HostAccess, HostAllocFlags, HostTouch, Location, RangeReads, Result, SimBackend, SimConfig,
    SourceOrder, Span, SpanCopy, StreamHandle,
};
use pagewise_tests::driver::{Accesses, SimulatedDriver};
use pagewise_trace::compare::{Levels, Tally, compare_case, compare_recordings};
use pagewise_trace::format::{Case, Header};
use pagewise_trace::pace::Pace;
use pagewise_trace::reader::TraceReader;
use pagewise_trace::record::Recorder;
use pagewise_trace::replay::replay_case;
use pagewise_trace::report::{Count, TraceReport};
use pagewise_trace::run::{Input, Options, Session, Target, run};
use pagewise_trace::writer::TraceWriter;

/// Libraries that no session uses, and the host's accesses in sessions.
struct Drivers(Arc<Mutex<Vec<Arc<SimulatedDriver>>>>, Accesses);

impl Default for Drivers {
    fn default() -> Self {
        Self(Arc::default(), Accesses::Declared)
    }
}

/// A library in use, given back at the end.
struct Lent {
    driver: Option<Arc<SimulatedDriver>>,
    home: Arc<Mutex<Vec<Arc<SimulatedDriver>>>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        home.extend(self.driver.take());
    }
}

impl Target for Drivers {
    fn open(&self, header: &Header) -> Result<Session> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let driver = free.unwrap_or_else(SimulatedDriver::load);
        let machine = &header.recorded_on;
        let (gpus, version) = (machine.gpus, machine.cuda_driver_version);
        let host_faults = if self.1 == Accesses::Plain { "real" } else { "declared" };
        driver.reset(&format!(
            "devices={gpus} version={version} reads=driver discarded=driver \
             host_faults={host_faults}"
        ));
        let backend = Arc::new(driver.builder_with(self.1).open()?);
        for device in 0..gpus {
            backend.prepare_device(DeviceId(device.cast_signed()))?;
        }
        let lent = Lent { driver: Some(Arc::clone(&driver)), home: Arc::clone(&self.0) };
        let pace = move |pace: Pace| {
            let _held = &lent;
            driver.pace(pace.call_ns, &pace.faults);
        };
        Ok(Session { backend, pace: Some(Box::new(pace)) })
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}

fn recording(family: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces/h200-580");
    folder.join(format!("{family}.jsonl.zst"))
}

fn replay(family: &str) -> TraceReport {
    replay_with(family, Accesses::Declared)
}

fn replay_with(family: &str, accesses: Accesses) -> TraceReport {
    let inputs = vec![Input::file(recording(family))];
    let drivers = Drivers(Arc::default(), accesses);
    let mut report = run(inputs, &drivers, Options::default(), &|| {});
    report.traces.remove(0)
}

fn missed(count: Count) -> u64 {
    count.checked - count.agree
}

/// Contract, pages and events: all.
fn assert_agrees(family: &str) {
    let report = replay(family);
    assert_eq!(report.error, None, "{family}");
    assert!(report.contract.checked > 0, "{family}: nothing was checked");
    let differ =
        [report.contract, report.range_attributes, report.pages, report.events].map(missed);
    assert_eq!(differ, [0; 4], "{family}: {:?}", report.first_divergence);
}

#[test]
fn calls_answer_as_recorded() {
    for family in ["contract", "attrs", "two-gpu-contract", "two-gpu-attrs"] {
        assert_agrees(family);
    }
}

#[test]
fn pools_answer_as_recorded() {
    assert_agrees("pools");
}

#[test]
fn pages_move_as_recorded() {
    for family in ["small", "migrate", "advise", "timing", "discard"] {
        assert_agrees(family);
    }
}

#[test]
fn pages_move_between_devices_as_recorded() {
    for family in ["two-gpu-migrate", "two-gpu-advise", "two-gpu-peer"] {
        assert_agrees(family);
    }
}

/// A family's agreement with the recording: checked and agreeing, of each level.
fn agreement(family: &str, accesses: Accesses) -> [(u64, u64); 4] {
    let report = replay_with(family, accesses);
    assert_eq!(report.error, None, "{family}");
    let TraceReport { contract, range_attributes, pages, events, first_divergence, .. } = report;
    let agreement = [contract, range_attributes, pages, events].map(|c| (c.checked, c.agree));
    println!("{family}, {accesses:?}: {agreement:?} {first_divergence:?}");
    agreement
}

/// The families of which plain reads and writes of memory, which fault, agree with the recording in
/// other operations than declared accesses do.
fn with_other_agreement<'a>(families: &[&'a str]) -> Vec<&'a str> {
    if pagewise::host_fault_support().mechanism.is_none() {
        println!("skipped: {}", pagewise::host_fault_support().why);
        return Vec::new();
    }
    let differs = |family: &&&str| {
        agreement(family, Accesses::Plain) != agreement(family, Accesses::Declared)
    };
    families.iter().filter(differs).copied().collect()
}

#[test]
fn genuine_faults_of_the_host_agree_with_the_recordings_as_declared_accesses_do() {
    let sample = ["small", "advise", "discard", "thrash", "two-gpu-migrate"];
    assert_eq!(with_other_agreement(&sample), [""; 0]);
}

/// `cargo test -p pagewise-tests --test driver_replay -- --ignored` replays all recordings.
#[test]
#[ignore = "takes minutes"]
fn genuine_faults_of_the_host_agree_with_all_recordings_as_declared_accesses_do() {
    let folder = recording("small").with_file_name("");
    let files = std::fs::read_dir(folder).expect("the recordings are there");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("text"));
    let mut families: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".jsonl.zst")?.to_owned())).collect();
    families.sort();
    assert!(families.len() > 10, "{families:?}");
    let families: Vec<&str> = families.iter().map(String::as_str).collect();
    assert_eq!(with_other_agreement(&families), [""; 0]);
}

/// Which faults a parallel kernel raises varies from run to run; bytes and residency do not.
#[test]
fn parallel_kernels_move_the_recorded_bytes() {
    let aggregate = replay("parallel").aggregate.expect("a parallel family");
    assert_eq!((aggregate.h2d_bytes_ratio, aggregate.d2h_bytes_ratio), (Some(1.0), Some(1.0)));
    assert!(aggregate.host_mapped_agree);
}

/// Fills of 2 and 4 bytes and batches of copies between managed, device and pinned memory, with
/// refusals of each, and what the host finds in the end.
fn fills_and_copies(backend: &dyn Backend) -> Result<()> {
    const BYTES: u64 = 4 << 20;
    let stream = StreamHandle::PER_THREAD;
    let managed = backend.alloc(BYTES)?;
    let device = Span::new(backend.alloc_device(DeviceId(0), BYTES)?, BYTES);
    let pinned = Span::new(backend.alloc_pinned(BYTES, HostAllocFlags::empty())?, BYTES);
    let part = |of: Span, offset: u64, bytes| Span::new(of.ptr.offset(offset), bytes);
    let host = HostTouch { span: managed, stride_bytes: 4096, access: HostAccess::Write(3) };
    let hinted = CopyAttributes {
        source_order: SourceOrder::ANY,
        source_hint: Location::HOST,
        destination_hint: Location::device(DeviceId(0)),
        flags: CopyFlags::PREFER_OVERLAP_WITH_COMPUTE,
    };
    let copies = [
        SpanCopy::new(device.ptr, managed.ptr, 4096),
        SpanCopy::new(pinned.ptr, managed.ptr.offset(2 << 20), 8),
        SpanCopy::new(managed.ptr.offset(3 << 20), device.ptr, 4096),
    ];
    let empty = SpanCopy::new(device.ptr, managed.ptr, 0);
    let attributes = [CopyAttributes::default(), hinted];
    // SAFETY: only this function knows the memory. It waits for the stream before the host looks,
    // copies of a batch do not overlap, and each allocation is freed once.
    unsafe {
        backend.host_touch(host)?;
        backend.memset_d16(part(managed, 2, 4096), 0x0102, stream)?;
        backend.memset_d32(part(managed, 2 << 20, 8192), 0x0304_0506, stream)?;
        assert!(backend.memset_d16(part(managed, 1, 2), 1, stream).is_err(), "an odd address");
        assert!(backend.memset_d32(part(managed, 4, 6), 1, stream).is_err(), "no whole values");
        backend.memset_d32(part(device, 8192, 4096), 7, stream)?;
        backend.memcpy_batch(&copies, &attributes, &[0, 2], stream)?;
        assert!(backend.memcpy_batch(&copies, &attributes, &[0, 0], stream).is_err(), "starts");
        let partly = [copies[0], empty, copies[2]];
        assert!(
            backend.memcpy_batch(&partly, &attributes[..1], &[0], stream).is_err(),
            "a copy of 0 bytes"
        );
        backend.stream_synchronize(stream)?;
        let access = HostAccess::Read;
        for span in [managed, part(pinned, 0, 8)] {
            backend.host_touch(HostTouch { span, stride_bytes: 1, access })?;
        }
        backend.free_pinned(pinned.ptr)?;
        backend.free(device.ptr)?;
        backend.free(managed.ptr)
    }
}

/// The operations that a back end was asked for, as a reader finds them in the written trace.
fn recorded_on<B: Backend>(backend: B, header: &Header) -> Case {
    let recorder = Recorder::new(backend);
    fills_and_copies(&recorder).expect("live memory");
    assert_eq!(recorder.left_out(), 0);
    let recorded = recorder.take_case("fills and copies");
    let mut writer = TraceWriter::plain(Vec::new(), header).expect("in memory");
    writer.whole_case(&recorded).expect("in memory");
    let bytes = writer.finish().expect("in memory");
    let mut reader = TraceReader::new("written", bytes.as_slice()).expect("a header");
    let read = reader.next_case().expect("valid").expect("a case");
    assert_eq!(read.ops, recorded.ops);
    read
}

#[test]
fn fills_and_batches_of_copies_replay_on_each_back_end_as_the_other_recorded_them() {
    let header = TraceReader::open(&recording("migrate")).expect("a recording").header().clone();
    let simulator = || {
        let config = SimConfig::h200()
            .driver_version(DriverVersion(header.recorded_on.cuda_driver_version))
            .range_reads(RangeReads::Driver)
            .discarded_contents(DiscardedContents::Driver);
        SimBackend::new(config).expect("address space")
    };
    let drivers = Drivers::default();
    let session = || drivers.open(&header).expect("a simulated driver");
    let on_simulator = recorded_on(simulator(), &header);
    let on_driver = recorded_on(session().backend, &header);
    for name in ["memset_d16", "memset_d32", "memcpy_batch"] {
        let codes = on_simulator.ops.iter().filter(|line| line.recorded.op.name() == name);
        let codes: Vec<_> = codes.map(|line| line.recorded.observed.code).collect();
        assert!(codes.contains(&0) && codes.contains(&1), "{name}: {codes:?}");
    }
    for case in [&on_simulator, &on_driver] {
        for again in [
            replay_case(&simulator(), case, |_, _| ()),
            replay_case(&*session().backend, case, |_, _| ()),
        ] {
            let tally = compare_case(case, &again, false);
            assert!(tally.agrees(), "{:?}", tally.first_divergence());
        }
    }
    let mut tally = Tally::default();
    tally.merge(compare_recordings(&on_simulator, &on_driver, Levels::ALL));
    assert!(tally.agrees(), "{:?}", tally.first_divergence());
}
