//! A recording made on a back end agrees with its replay on the same back end.

use std::path::PathBuf;

use pagewise::{
    Advice, AllocationType, AttachFlags, Backend, BackendExt, DeviceId, DevicePtr,
    DiscardedContents, DriverVersion, Error, HandleTypes, HostAccess, HostRegisterFlags, HostTouch,
    KernelAccess, KernelAccesses, KernelParam, KernelWalk, LaunchShape, Location, PoolProps,
    RangeReads, ShareableHandle, SimBackend, SimConfig, Span, StreamHandle, StridedSpan,
};
use pagewise_trace::compare::{Levels, Tally, compare_case, compare_recordings};
use pagewise_trace::format::{AttributeValue, Case, Header, Op, OpLine};
use pagewise_trace::reader::TraceReader;
use pagewise_trace::record::{Pass, Recorder, merge, record_case};
use pagewise_trace::replay::replay_case;
use pagewise_trace::report::TraceReport;
use pagewise_trace::writer::TraceWriter;

fn shipped(family: &str) -> TraceReader<'static> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces/h200-580");
    TraceReader::open(&folder.join(format!("{family}.jsonl.zst"))).expect("a recording")
}

fn simulator(header: &Header) -> SimBackend {
    let config = SimConfig::h200()
        .devices(header.recorded_on.gpus)
        .driver_version(DriverVersion(header.recorded_on.cuda_driver_version))
        .range_reads(RangeReads::Driver)
        .discarded_contents(DiscardedContents::Driver);
    SimBackend::new(config).expect("address space")
}

/// Records a shipped recording's program on the simulator and compares the two recordings.
fn recorded_again(family: &str) -> TraceReport {
    let mut reader = shipped(family);
    let header = reader.header().clone();
    let shared = simulator(&header);
    let mut tally = Tally::default();
    while let Some(case) = reader.next_case().expect("a case") {
        let fresh = simulator(&header);
        let backend = if case.uses_pools() { &shared } else { &fresh };
        let again = record_case(backend, &case, Pass::Observed).expect("a program");
        tally.merge(compare_recordings(&case, &again, Levels::ALL));
    }
    tally.report(family.to_owned(), Some(&header), None, None)
}

#[test]
fn programs_of_shipped_recordings_record_the_same_on_the_simulator() {
    let families = ["contract", "attrs", "migrate", "advise", "discard", "small", "pools"];
    for family in families.into_iter().chain(["two-gpu-peer", "two-gpu-attrs"]) {
        let report = recorded_again(family);
        assert!(report.contract.checked > 900, "{family}: {report:?}");
        assert!(report.pages.checked > 400, "{family}: {report:?}");
        assert!(report.ok(), "{family}: {:?}", report.first_divergence);
    }
}

fn first_case(family: &str) -> (Header, Case) {
    let mut reader = shipped(family);
    let case = reader.next_case().expect("a case").expect("one case at least");
    (reader.header().clone(), case)
}

/// The case as a reader finds it in a trace that it was written to: with the same operations.
fn read_back(header: &Header, recorded: &Case) -> Case {
    let mut writer = TraceWriter::plain(Vec::new(), header).expect("in memory");
    writer.whole_case(recorded).expect("in memory");
    let bytes = writer.finish().expect("in memory");
    let mut reader = TraceReader::new("written", bytes.as_slice()).expect("a header");
    let read = reader.next_case().expect("valid").expect("a case");
    assert_eq!(read.ops, recorded.ops);
    read
}

fn run(header: &Header, case: &Case, pass: Pass) -> Case {
    record_case(&simulator(header), case, pass).expect("a program")
}

#[test]
fn a_list_of_another_length_is_recorded_at_its_length_and_replayed_at_it() {
    let (header, _) = first_case("attrs");
    let recorder = Recorder::new(simulator(&header));
    let ptr = recorder.alloc_managed(4096, AttachFlags::GLOBAL).expect("memory");
    let span = Span::new(ptr, 4096);
    for processor in [-1, 0] {
        recorder.advise_ordinal(span, Advice::SET_ACCESSED_BY, processor).expect("known");
    }
    for slots in [0, 1, 2, 5, 1024, 1025] {
        let answer = recorder.range_accessed_by(span, &mut vec![7; slots]);
        assert_eq!(answer.is_ok(), slots > 0, "{slots}");
    }
    let case = read_back(&header, &recorder.take_case("lists"));
    let lists = case.ops.iter().filter_map(|line| match line.recorded.op {
        Op::RangeAttributes { slots, .. } => Some((slots, line.recorded.observed.code)),
        _ => None,
    });
    let expected =
        [(Some(0), 1), (Some(1), 0), (None, 0), (Some(5), 0), (Some(1024), 0), (None, 0)];
    assert_eq!(lists.collect::<Vec<_>>(), expected);
    let again = run(&header, &case, Pass::Observed);
    let compared = compare_recordings(&case, &again, Levels::ALL);
    let mut tally = Tally::default();
    tally.merge(compared);
    let report = tally.report("lists".to_owned(), Some(&header), None, None);
    assert!(report.ok(), "{:?}", report.first_divergence);
    let lengths = again.ops.iter().filter_map(|line| {
        let attributes = line.recorded.observed.attributes.as_ref()?;
        Some(attributes.get("accessed_by")?.1.clone())
    });
    let of = |list: &[i32]| Some(AttributeValue::List(list.to_vec()));
    let mut lengths = lengths.skip(1);
    assert_eq!(lengths.next(), Some(of(&[0])));
    assert_eq!(lengths.next(), Some(of(&[0, -1])));
    assert_eq!(lengths.next(), Some(of(&[0, -1, -2, -2, -2])));
}

#[test]
fn two_runs_on_the_simulator_leave_nothing_unstable_and_times_that_are_equal() {
    let (header, case) = first_case("migrate");
    let observed = [(), ()].map(|()| run(&header, &case, Pass::Observed));
    let timed = [(), (), ()].map(|()| run(&header, &case, Pass::Timed));
    let merged = merge(&observed, &timed).expect("runs of one program");
    for line in &merged.ops {
        let observed = &line.recorded.observed;
        let ns = observed.ns.expect("three timed runs");
        assert!(observed.unstable.is_empty(), "line {}", line.line);
        assert_eq!((Some(ns.min), Some(ns.max)), (observed.ns_profiled, observed.ns_profiled));
    }
    assert!(timed[0].ops.iter().all(|line| line.recorded.observed.events.is_empty()));
    assert!(observed[0].ops.iter().any(|line| !line.recorded.observed.events.is_empty()));
}

#[test]
fn what_differs_between_runs_is_marked_and_the_lowest_time_is_kept() {
    let (header, case) = first_case("migrate");
    let first = run(&header, &case, Pass::Observed);
    let mut second = first.clone();
    let touched = first.ops.iter().position(|line| !line.recorded.observed.events.is_empty());
    let touched = touched.expect("a fault");
    let other = &mut second.ops[touched].recorded.observed;
    other.events.pop();
    other.code = 1;
    other.ns_profiled = Some(7);
    let merged = merge(&[first.clone(), second], &[]).expect("runs of one program");
    for (at, (line, was)) in merged.ops.iter().zip(&first.ops).enumerate() {
        let (observed, was) = (&line.recorded.observed, &was.recorded.observed);
        assert_eq!(observed.unstable.is_empty(), at != touched, "operation {at}");
        assert_eq!((&observed.events, observed.code), (&was.events, was.code));
    }
    let observed = &merged.ops[touched].recorded.observed;
    assert_eq!(observed.unstable, ["code", "events"]);
    assert_eq!((observed.ns_profiled, observed.ns), (Some(7), None));
}

#[test]
fn runs_of_different_programs_are_not_merged() {
    let (header, case) = first_case("migrate");
    let first = run(&header, &case, Pass::Observed);
    let mut shorter = first.clone();
    shorter.ops.pop();
    let mut renamed = first.clone();
    renamed.name = "another".to_owned();
    for other in [shorter, renamed] {
        assert!(merge(&[first.clone(), other], &[]).is_err());
    }
    assert!(merge(&[], &[first]).is_err());
}

/// The program for what no shipped recording has: see `tests/data/programs/README.md`.
#[test]
fn the_fresh_program_has_pools_contents_and_attachment_and_replays_as_it_was_recorded() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/programs/fresh.jsonl");
    let none = Header::new("none", shipped("migrate").header().recorded_on.clone());
    let mut reader = TraceReader::open_program(&path, none).expect("a program");
    let header = reader.header().clone();
    assert_eq!((header.family.as_str(), header.recorded_on.gpus), ("fresh", 1));
    let mut seen: Vec<&str> = Vec::new();
    let mut attached = Vec::new();
    let mut tally = Tally::default();
    while let Some(case) = reader.next_case().expect("a case") {
        let recorded = run(&header, &case, Pass::Observed);
        let again = replay_case(&simulator(&header), &recorded, |_, _| ());
        tally.merge(compare_case(&recorded, &again, false));
        for line in &recorded.ops {
            seen.push(line.recorded.op.name());
            if let Op::StreamAttach { flags, .. } = line.recorded.op {
                assert!(matches!(flags, 1 | 2 | 4), "flags {flags} end the process on a GPU");
                attached.push(flags);
            }
        }
    }
    for (name, least) in [
        ("pool_alloc", 50),
        ("memset", 100),
        ("memcpy", 50),
        ("prefetch", 100),
        ("stream_attach", 100),
    ] {
        assert!(seen.iter().filter(|&&other| other == name).count() >= least, "{name}");
    }
    assert!([1, 2, 4].iter().all(|flags| attached.contains(flags)));
    assert!(tally.agrees(), "{:?}", tally.first_divergence());
}

/// Registered memory, a pool that is exported and imported, and a handle of device memory.
fn share(backend: &dyn Backend) -> pagewise::Result<()> {
    const PAGE: u64 = pagewise::PAGE_BYTES;
    let (stream, fd) = (StreamHandle::PER_THREAD, HandleTypes::POSIX_FILE_DESCRIPTOR);
    let pages = vec![0_u8; 4 * PAGE as usize];
    let start = (pages.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE);
    let at = |offset, bytes| Span::new(DevicePtr(start + offset), bytes);
    let device = DeviceId(0);
    let managed = Span::new(backend.alloc_managed(PAGE, AttachFlags::GLOBAL)?, PAGE);
    let flags = HostRegisterFlags::PORTABLE;
    // SAFETY: one thread uses the memory, which outlives its registration. A registration that is
    // refused does nothing.
    unsafe {
        backend.host_register(at(100, 2 * PAGE), flags)?;
        assert!(backend.host_register(at(PAGE, PAGE), flags).is_err(), "it is registered");
        assert!(backend.host_register(managed, flags).is_err(), "it is the driver's");
        backend.memset(at(100, 64), 7, stream)?;
        backend.memcpy(managed.ptr, at(100, 64).ptr, 64, stream)?;
        let touch = HostTouch { span: at(100, PAGE), stride_bytes: 1, access: HostAccess::Read };
        assert_eq!(backend.host_touch(touch)?, 7 * 64);
        assert!(backend.host_unregister(at(PAGE, 0).ptr).is_err(), "not its first byte");
        backend.host_unregister(at(100, 0).ptr)?;
        assert!(backend.host_unregister(at(100, 0).ptr).is_err(), "it is not registered");
        backend.free(managed.ptr)?;
    }
    let props = PoolProps {
        allocation_type: AllocationType(1),
        location: Location::device(device),
        handle_types: fd,
        max_bytes: 0,
    };
    let pool = backend.pool_create(props)?;
    let memory = backend.pool_alloc(pool, PAGE, stream)?;
    let handle = backend.pool_export(pool, fd)?;
    let blob = backend.pool_export_pointer(memory)?;
    let plain = backend.alloc_device(device, PAGE)?;
    let shared = backend.ipc_mem_handle(plain)?;
    // SAFETY: the simulator takes handles of its own process. Imports are freed before what they
    // import, and no work uses the memory.
    unsafe {
        let imported = backend.pool_import(handle, fd)?;
        assert_eq!(backend.pool_import(handle, fd)?, imported);
        assert!(backend.pool_import(ShareableHandle(-1), fd).is_err(), "it is none");
        assert_eq!(backend.pool_import_pointer(imported, blob)?, memory);
        assert!(backend.pool_import_pointer(pool, blob).is_err(), "it is no import");
        backend.free_async(memory, stream)?;
        backend.free_async(memory, stream)?;
        assert!(backend.ipc_open_mem_handle(device, shared).is_err(), "it is of this process");
        assert!(backend.ipc_close_mem_handle(plain).is_err(), "it was not opened");
        backend.pool_destroy(imported)?;
        backend.pool_destroy(pool)?;
        backend.free(plain)?;
        #[cfg(unix)]
        drop(<std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(handle.0));
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn registered_memory_and_exports_are_recorded_and_replay_as_they_were() {
    let header = Header::new("shared", shipped("migrate").header().recorded_on.clone());
    let recorder = Recorder::new(simulator(&header));
    share(&recorder).expect("the simulator imports its own");
    assert_eq!(recorder.left_out(), 0);
    let recorded = recorder.take_case("shared");
    let has = |name| recorded.ops.iter().any(|line| line.recorded.op.name() == name);
    for name in ["host_memory", "host_register", "host_unregister", "pool_export", "pool_import"] {
        assert!(has(name), "{name}");
    }
    for name in ["pool_export_pointer", "pool_import_pointer", "ipc_mem_handle"] {
        assert!(has(name), "{name}");
    }
    assert!(has("ipc_open_mem_handle") && has("ipc_close_mem_handle"));

    let read = read_back(&header, &recorded);

    let again = replay_case(&simulator(&header), &read, |_, _| ());
    let tally = compare_case(&read, &again, false);
    assert!(tally.agrees(), "{:?}", tally.first_divergence());
    let recorded_again = run(&header, &read, Pass::Observed);
    assert_eq!(recorded_again.ops.len(), read.ops.len());
}

/// A pool and plain memory of another machine, between calls on memory of this one.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn use_other_machine(backend: &dyn Backend, there: &SimBackend) -> pagewise::Result<u64> {
    const BYTES: u64 = 8192;
    let (stream, fd) = (StreamHandle::PER_THREAD, HandleTypes::POSIX_FILE_DESCRIPTOR);
    let device = DeviceId(0);
    let props = PoolProps {
        allocation_type: AllocationType(1),
        location: Location::device(device),
        handle_types: fd,
        max_bytes: 0,
    };
    let pool = there.pool_create(props)?;
    let memory = there.pool_alloc(pool, BYTES, stream)?;
    let (handle, blob) = (there.pool_export(pool, fd)?, there.pool_export_pointer(memory)?);
    let shared = there.ipc_mem_handle(there.alloc_device(device, BYTES)?)?;
    let own = Span::new(backend.alloc_managed(BYTES, AttachFlags::GLOBAL)?, BYTES);
    // SAFETY: the other machine lives on and frees nothing, and one thread uses the memory.
    unsafe {
        let imported = backend.pool_import(handle, fd)?;
        drop(<std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(handle.0));
        let pooled = backend.pool_import_pointer(imported, blob)?;
        let opened = backend.ipc_open_mem_handle(device, shared)?;
        for ptr in [pooled, opened, own.ptr] {
            backend.memset(Span::new(ptr, BYTES), 3, stream)?;
        }
        backend.memcpy(pooled, own.ptr, BYTES, stream)?;
        backend.ipc_close_mem_handle(opened)?;
        backend.free_async(pooled, stream)?;
        backend.pool_destroy(imported)?;
        let touch = HostTouch { span: own, stride_bytes: 1, access: HostAccess::Read };
        let sum = backend.host_touch(touch)?;
        backend.free(own.ptr)?;
        Ok(sum)
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn memory_of_another_machine_is_left_out_and_the_rest_replays_as_it_was() {
    let header = Header::new("shared", shipped("migrate").header().recorded_on.clone());
    let recorder = Recorder::new(simulator(&header));
    let there = simulator(&header);
    assert_eq!(use_other_machine(&recorder, &there).expect("live memory"), 3 * 8192);
    // Two of opening the pool and its memory, two of the handle, three fills and copies, and the
    // free and the end of the pool.
    assert!(recorder.left_out() >= 6, "{}", recorder.left_out());
    let read = read_back(&header, &recorder.take_case("shared"));
    let again = replay_case(&simulator(&header), &read, |_, _| ());
    let tally = compare_case(&read, &again, false);
    assert!(tally.agrees(), "{:?}", tally.first_divergence());
    let kept: Vec<_> = read.ops.iter().map(|line| line.recorded.op.name()).collect();
    assert_eq!(kept, ["alloc_managed", "memset", "host_touch", "free"]);
}

/// Two kernels over three buffers, one of them by one thread, and what the host finds then.
fn kernels(backend: &dyn Backend) -> Result<(), Error> {
    let spans = [backend.alloc(1 << 20)?, backend.alloc(4 << 20)?, backend.alloc(1 << 20)?];
    let strided = |span, stride_bytes| StridedSpan { span, stride_bytes };
    let scattered =
        (0..300_u64).rev().map(|at| strided(Span::new(spans[1].ptr.offset(at * 9001), 8), 8));
    let walks = vec![
        KernelWalk { access: KernelAccess::Load, places: vec![strided(spans[0], 4)] },
        KernelWalk { access: KernelAccess::Atomic, places: scattered.collect() },
        KernelWalk { access: KernelAccess::Update, places: vec![strided(spans[2], 4)] },
    ];
    // SAFETY: only this test knows the memory, it is used from one thread, and freed once.
    unsafe {
        for (blocks, threads) in [(1, 1), (32, 64)] {
            let walks = walks.clone();
            let kernel = KernelAccesses { device: DeviceId(0), blocks, threads, walks };
            backend.kernel_accesses(&kernel, StreamHandle::NULL)?;
            // The kernel's results, which no trace holds.
            let result = std::ptr::with_exposed_provenance_mut::<u8>(spans[2].ptr.0 as usize);
            result.write(5);
            for span in spans {
                let access = HostAccess::Read;
                backend.host_touch(HostTouch { span, stride_bytes: 4096, access })?;
            }
        }
        spans.iter().try_for_each(|span| backend.free(span.ptr))
    }
}

#[test]
fn declared_kernels_are_recorded_and_replay_with_equal_pages_and_events() {
    let header = Header::new("kernels", shipped("migrate").header().recorded_on.clone());
    let recorder = Recorder::new(simulator(&header));
    kernels(&recorder).expect("inside");
    assert_eq!(recorder.left_out(), 0);
    let recorded = recorder.take_case("kernels");
    let read = read_back(&header, &recorded);
    let again = replay_case(&simulator(&header), &read, |_, _| ());
    let tally = compare_case(&read, &again, true);
    assert!(tally.agrees(), "{:?}", tally.first_divergence());
    let unstable = |line: &&OpLine| line.recorded.observed.unstable == ["sum"];
    assert_eq!(read.ops.iter().filter(unstable).count(), 4, "reads of results");
    let faults = |case: &Case| case.ops.iter().map(|op| op.recorded.observed.events.len()).sum();
    let events: usize = faults(&read);
    assert!(events > 300, "{events}");
}

/// A kernel in PTX that doubles the words of a buffer, launched over and over between reads of the host.
fn launches(backend: &dyn Backend) -> Result<(), Error> {
    const DOUBLE: &str = ".version 8.0\n.target sm_60\n.address_size 64
        .visible .entry double(.param .u64 words) {
            .reg .b32 %r<5>; .reg .b64 %rd<4>;
            ld.param.u64 %rd1, [words]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
            mad.lo.s32 %r1, %r1, %r2, %r3; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
            ld.global.u32 %r4, [%rd1]; shl.b32 %r4, %r4, 1; st.global.u32 [%rd1], %r4; ret; }";
    let span = backend.alloc(8 << 20)?;
    // SAFETY: only this test knows the memory, it is used from one thread, and freed once.
    unsafe {
        let module = backend.module_load(DeviceId(0), DOUBLE.as_bytes())?;
        let double = backend.module_function(module, "double")?;
        for _ in 0..3 {
            let access = HostAccess::Write(1);
            backend.host_touch(HostTouch { span, stride_bytes: 1 << 16, access })?;
            let shape = LaunchShape::linear(8192, 256);
            let params = [KernelParam::new(span.ptr.0.to_le_bytes())];
            backend.launch(double, shape, &params, StreamHandle::NULL)?;
            let access = HostAccess::Read;
            backend.host_touch(HostTouch { span, stride_bytes: 4096, access })?;
        }
        backend.module_unload(module)?;
        backend.free(span.ptr)
    }
}

#[test]
fn launches_of_code_are_recorded_and_replay_with_equal_pages_and_events() {
    let header = Header::new("launches", shipped("migrate").header().recorded_on.clone());
    let recorder = Recorder::new(simulator(&header));
    launches(&recorder).expect("inside");
    assert_eq!(recorder.left_out(), 0);
    let recorded = recorder.take_case("launches");
    let read = read_back(&header, &recorded);
    let kept: Vec<_> = read.ops.iter().map(|line| line.recorded.op.name()).collect();
    assert_eq!(kept.iter().filter(|name| **name == "launch").count(), 3, "{kept:?}");
    let again = replay_case(&simulator(&header), &read, |_, _| ());
    let tally = compare_case(&read, &again, true);
    assert!(tally.agrees(), "{:?}", tally.first_divergence());
    let events: usize = read.ops.iter().map(|op| op.recorded.observed.events.len()).sum();
    assert!(events > 300, "{events}");
}

#[test]
fn what_host_memory_held_when_it_was_registered_is_left_out() {
    let header = Header::new("shared", shipped("migrate").header().recorded_on.clone());
    let recorder = Recorder::new(simulator(&header));
    let (zeros, sixes) = (vec![0_u8; 4096], vec![6; 4096]);
    for (bytes, left_out) in [(&zeros, 0), (&sixes, 1)] {
        let span = Span::new(DevicePtr(bytes.as_ptr().expose_provenance() as u64), 4096);
        // SAFETY: only this thread uses the memory, which outlives its registration.
        unsafe {
            recorder.host_register(span, HostRegisterFlags::PORTABLE).expect("live memory");
            recorder.host_unregister(span.ptr).expect("registered");
        }
        assert_eq!(recorder.left_out(), left_out, "full of {}", bytes[0]);
    }
}
