//! Recordings of programs: the moment at which the file appears, and the calls that it holds.

use std::path::{Path, PathBuf};

use pagewise::{
    Device, ErrorKind, Machine, ManagedBuffer, Recording, Result, SimBackend, SimConfig, Stream,
};
use pagewise_trace::reader::TraceReader;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("readable");
    entries.map(|entry| entry.expect("readable").file_name().into()).collect()
}

/// The names of the operations of all cases.
fn operations(path: &Path) -> Vec<&'static str> {
    let mut reader = TraceReader::open(path).expect("a trace");
    let mut names = Vec::new();
    while let Some(case) = reader.next_case().expect("a case") {
        names.extend(case.ops.iter().map(|line| line.recorded.op.name()));
    }
    names
}

const ALLOCATED_AND_FREED: [&str; 3] = ["alloc_managed", "host_touch", "free"];

fn allocate(machine: &Machine) -> Result<ManagedBuffer<u8>> {
    ManagedBuffer::zeroed(machine, 4096)
}

fn start(path: &Path) -> Recording {
    pagewise::record(pagewise::sim().expect("address space"), path).expect("writable")
}

#[test]
fn the_file_appears_when_the_recording_ends_and_replaces_an_older_one() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("trace.jsonl");
    std::fs::write(&path, "older").expect("writable");
    let recording = start(&path);
    drop(allocate(recording.machine())?);
    assert_eq!(std::fs::read(&path).expect("readable"), b"older");
    let written = recording.finish()?;
    assert_eq!((written.ops, written.to_string().as_str()), (3, "3 operations in 1 case"));
    assert_eq!(operations(&path), ALLOCATED_AND_FREED);
    assert_eq!(names(folder.path()), [Path::new("trace.jsonl")]);
    Ok(())
}

#[test]
fn a_dropped_recording_is_written_also_by_a_panic() {
    let folder = folder();
    let path = folder.path().join("trace.jsonl.gz");
    drop(start(&path));
    assert!(operations(&path).is_empty());
    let run = || {
        let recording = start(&path);
        let _buffer = allocate(recording.machine()).expect("room");
        panic!("a failing test");
    };
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(operations(&path), ALLOCATED_AND_FREED);
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_runs() {
    let folder = folder();
    let machine = Machine::from(pagewise::sim().expect("address space"));
    for (path, says) in [
        (folder.path().join("none/trace.jsonl"), "none/trace.jsonl: cannot write"),
        (folder.path().to_owned(), "it is a directory"),
    ] {
        let error = pagewise::record(&machine, path).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
        assert!(error.detail().contains(says), "{error}");
    }
    assert!(names(folder.path()).is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_of_finish_and_a_failure_of_drop() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let recording = pagewise::record(&machine, "/dev/full")?;
    drop(allocate(recording.machine())?);
    let error = recording.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
    assert_eq!(machine.failures_on_drop(), 0);
    drop(pagewise::record(&machine, "/dev/full")?);
    assert_eq!(machine.failures_on_drop(), 1);
    Ok(())
}

#[test]
fn memory_and_streams_from_before_are_refused_and_by_address_left_out() -> Result<()> {
    let folder = folder();
    let machine = Machine::from(pagewise::sim()?);
    let (old, stream) = (allocate(&machine)?, Stream::new(&machine, Device::FIRST)?);
    let recording = pagewise::record(&machine, folder.path().join("trace.jsonl"))?;
    let recorded = recording.machine();
    let error = allocate(recorded)?.prefetch(Device::FIRST, &stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    old.prefetch(Device::FIRST, &stream)?;
    let legacy = Stream::legacy_default(recorded);
    recorded.prefetch_spans(&[old.region().span()], Device::FIRST.into(), legacy.handle())?;
    let path = recording.path().to_owned();
    assert_eq!(recording.finish()?.to_string(), "3 operations in 1 case, 1 call left out");
    assert_eq!(operations(&path), ALLOCATED_AND_FREED);
    Ok(())
}

#[test]
fn calls_after_the_end_work_and_are_not_noted() -> Result<()> {
    let folder = folder();
    let recording = start(&folder.path().join("trace.jsonl"));
    let (machine, path) = (recording.machine().clone(), recording.path().to_owned());
    let mut before = allocate(&machine)?;
    assert_eq!(recording.finish()?.ops, 2);
    let mut after = allocate(&machine)?;
    (before.write()?[7], after.write()?[8]) = (1, 2);
    assert_eq!((before.read()?[7], after.read()?[8]), (1, 2));
    before.free()?;
    after.free()?;
    assert_eq!(operations(&path), ALLOCATED_AND_FREED[..2]);
    Ok(())
}

#[test]
fn the_header_names_devices_driver_and_back_end() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("mine.jsonl.zst");
    let config = SimConfig::h200().devices(2).driver_version(pagewise::DriverVersion::CUDA_12_2);
    let backend = std::sync::Arc::new(SimBackend::new(config)?);
    pagewise::record(backend, &path)?.finish()?;
    let reader = TraceReader::open(&path).expect("a trace");
    let machine = &reader.header().recorded_on;
    assert_eq!((machine.gpus, machine.cuda_driver_version), (2, 12020));
    assert!(machine.system.as_deref().is_some_and(|system| system.ends_with("back end sim")));
    assert_eq!(reader.header().family, "mine");
    Ok(())
}
