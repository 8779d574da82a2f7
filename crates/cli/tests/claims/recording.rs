//! Programs that `pagewise::record` recorded, replayed by the command.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use pagewise::inject::{FaultInjector, Sweep};
use pagewise::recording::Written;
use pagewise::resource::ManagedMemoryResource;
use pagewise::{
    Backend, Code, Device, DeviceProgram, Machine, ManagedBuffer, Place, Result, Stream,
};

use pagewise_trace::format::{Header, RecordedOn};
use pagewise_trace::record::{Recorder, recover};

use crate::common::{Files, json, pagewise, status, stderr};

/// A program with buffers, views of the host, advice, movement, device programs and a pool.
fn program(machine: &Machine) -> Result<()> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let mut numbers = ManagedBuffer::from_slice(machine, &[3_u32; 1 << 19])?;
    let mut table = ManagedBuffer::<u8>::zeroed(machine, 100_000)?;
    table.set_read_mostly(true)?;
    numbers.set_preferred_location(Some(Device::FIRST.into()))?;
    numbers.accessed_by().insert(Place::HOST)?;
    numbers.range(..1 << 18)?.prefetch(Device::FIRST, &stream)?;
    numbers.run_on_device(DeviceProgram::write(Device::FIRST, 7).stride(4096), &stream)?;
    table.run_on_device(DeviceProgram::read(Device::FIRST).stride(4096), &stream)?;
    numbers.write()?[5] = table.read()?[99_999].into();
    _ = numbers.discard(&stream)?;
    let pool = Arc::new(ManagedMemoryResource::new_pool(machine, Some(Device::FIRST.into()))?);
    let mut pooled = ManagedBuffer::<f32>::from_resource(pool, 5000, &stream)?;
    pooled.run_on_device(DeviceProgram::write(Device::FIRST, 1).stride(64), &stream)?;
    stream.synchronize()?;
    pooled.write()?[0] = 1.0;
    numbers.free()
}

/// Records the program on a machine and says what was written.
fn recorded(machine: impl Into<Machine>, path: &str) -> Written {
    let recording = pagewise::record(machine, path).expect("writable");
    program(recording.machine()).expect("the simulator has room");
    recording.finish().expect("writable")
}

/// Claims that the command replays a trace and that all agrees, and gives its operations.
fn replays(path: &str) -> u64 {
    let output = pagewise(&["replay", "--json", path]);
    let report = json(&output);
    assert_eq!(status(&output), 0, "{report:#} {}", stderr(&output));
    let trace = &report["traces"][0];
    for level in ["contract", "pages", "events"] {
        assert!(trace[level]["checked"].as_u64() > Some(0), "{level}: {report:#}");
    }
    trace["ops"].as_u64().expect("a number of operations")
}

#[test]
fn a_recorded_program_replays_with_all_agreeing_whatever_the_compression() {
    let files = Files::new();
    for name in ["plain.jsonl", "small.jsonl.gz", "smaller.jsonl.zst"] {
        let path = files.path(name);
        let written = recorded(pagewise::sim().expect("address space"), &path);
        assert_eq!((written.cases, written.left_out), (1, 0));
        assert!(written.ops > 20, "{written}");
        assert_eq!(replays(&path), written.ops);
    }
    let starts: &[(&str, &[u8])] = &[
        ("plain.jsonl", b"{\"format\""),
        ("small.jsonl.gz", &[0x1f, 0x8b]),
        ("smaller.jsonl.zst", &[0x28, 0xb5, 0x2f, 0xfd]),
    ];
    for (name, start) in starts {
        assert!(std::fs::read(files.path(name)).expect("readable").starts_with(start), "{name}");
    }
    assert_eq!(files.names().len(), 3, "no temporary file is left");
}

#[test]
fn any_back_end_can_be_recorded_wrapped_or_not() {
    let files = Files::new();
    let path = files.path("trace.jsonl");
    let sim = || pagewise::sim().expect("address space");
    let any: Arc<dyn Backend> = sim();
    let plain = recorded(any, &path);
    assert_eq!(replays(&path), plain.ops);
    let injector = Arc::new(FaultInjector::around(sim()));
    assert_eq!(recorded(&injector, &path), plain);
    assert_eq!(replays(&path), plain.ops);

    let recording = pagewise::record(sim(), &path).expect("writable");
    let twice = recorded(recording.machine(), &files.path("inner.jsonl"));
    assert_eq!((twice, recording.finish().expect("writable")), (plain, plain));
    assert_eq!(replays(&path), replays(&files.path("inner.jsonl")));
}

#[test]
fn a_program_that_gives_up_at_any_call_replays_with_all_agreeing() {
    let files = Files::new();
    let path = files.path("trace.jsonl");
    let open = RefCell::new(None);
    let fresh = || {
        let recording = pagewise::record(pagewise::sim()?, &path)?;
        let backend = recording.backend();
        *open.borrow_mut() = Some(recording);
        Ok(backend)
    };
    let sweep = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
    let swept = sweep.run(fresh, |backend, failing| {
        let answer = backend.watch(|| program(&Machine::from(backend)));
        assert!(failing.is_some() || answer.is_ok(), "{answer:?}");
        let recording = open.borrow_mut().take().expect("recorded");
        let written = recording.finish()?;
        assert_eq!(written.left_out, 0, "call {failing:?}: {answer:?}");
        let output = pagewise(&["replay", &path]);
        assert_eq!(status(&output), 0, "call {failing:?}: {}", stderr(&output));
        Ok(())
    });
    assert!(swept.expect("the same calls each time").calls > 25);
}

#[test]
fn failures_inside_the_recording_are_answers_that_the_trace_holds() {
    let files = Files::new();
    let path = files.path("trace.jsonl");
    let sweep = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
    let swept = sweep.run(pagewise::sim, |backend, failing| {
        let recording = pagewise::record(backend, &path)?;
        let answer = backend.watch(|| program(recording.machine()));
        recording.finish()?;
        let output = pagewise(&["replay", &path]);
        let all_agree = status(&output) == 0;
        assert!(matches!(status(&output), 0 | 1), "it can be read: {}", stderr(&output));
        assert!(all_agree || failing.is_some(), "{answer:?}");
        Ok(())
    });
    assert!(swept.expect("the same calls each time").calls > 30);
}

#[test]
fn threads_are_recorded_one_call_after_another() {
    let files = Files::new();
    let path = files.path("trace.jsonl.zst");
    let backend = pagewise::sim().expect("address space");
    let recording = pagewise::record(backend, &path).expect("writable");
    std::thread::scope(|scope| {
        for value in [1, 2] {
            let machine = recording.machine();
            scope.spawn(move || {
                let stream = Stream::new(machine, Device::FIRST)?;
                let mut buffer = ManagedBuffer::<u8>::zeroed(machine, 3 << 20)?;
                for _ in 0..20 {
                    buffer.prefetch(Device::FIRST, &stream)?;
                    let fill = DeviceProgram::write(Device::FIRST, value).stride(4096);
                    buffer.run_on_device(fill, &stream)?;
                    assert_eq!(buffer.read()?[4096], value);
                }
                buffer.free()
            });
        }
    });
    let written = recording.finish().expect("writable");
    assert_eq!((written.cases, written.left_out), (1, 0));
    assert_eq!(replays(&path), written.ops);
}

/// Records the program in a file and in a journal, and gives the paths of both.
fn with_journal(files: &Files) -> (String, String) {
    let (path, journal) = (files.path("whole.jsonl"), files.path("journal"));
    let header = Header::new("journal", RecordedOn::new(1, 13_000));
    let sim = || pagewise::sim().expect("address space");
    let file = Recorder::to_file(sim(), Path::new(&path), &header).expect("writable");
    let noted = Recorder::to_journal(sim(), Path::new(&journal), &header).expect("writable");
    let file = Arc::new(file);
    for machine in [Machine::from(&file), Machine::from(Arc::new(noted))] {
        program(&machine).expect("the simulator has room");
        // Records of freed memory have no name at the end of the case; those of live memory have.
        let mut kept = ManagedBuffer::<u8>::zeroed(&machine, 8192).expect("room");
        let stream = Stream::new(&machine, Device::FIRST).expect("a device");
        kept.run_on_device(DeviceProgram::write(Device::FIRST, 7), &stream).expect("live");
        stream.synchronize().expect("live");
        kept.write().expect("live")[4096] = 1;
        std::mem::forget(kept);
    }
    file.finish().expect("writable");
    (path, journal)
}

#[test]
fn the_recording_of_a_journal_is_the_one_that_the_program_finished() {
    let files = Files::new();
    let (whole, journal) = with_journal(&files);
    let recovered = files.path("recovered.jsonl");
    let written = recover(Path::new(&journal), Path::new(&recovered)).expect("a journal");
    assert!(written.ops > 20, "{written}");
    let text = |path: &str| std::fs::read_to_string(path).expect("readable");
    assert_eq!(text(&recovered), text(&whole));
    assert_eq!(replays(&recovered), written.ops);
}

#[test]
fn a_journal_that_was_cut_off_anywhere_gives_a_recording_that_replays() {
    let files = Files::new();
    let (_, journal) = with_journal(&files);
    let bytes = std::fs::read(&journal).expect("readable");
    let ends: Vec<usize> =
        bytes.iter().enumerate().filter_map(|(at, b)| (*b == b'\n').then_some(at)).collect();
    let (cut, recovered) = (files.path("cut"), files.path("recovered.jsonl"));
    for (number, end) in ends.iter().enumerate().skip(2).step_by(5) {
        // In the middle of the line after it.
        std::fs::write(&cut, &bytes[..(end + 9).min(bytes.len())]).expect("writable");
        let written = recover(Path::new(&cut), Path::new(&recovered)).expect("a journal");
        assert_eq!(written.ops, number as u64 - 1);
        let output = pagewise(&["replay", &recovered]);
        assert_eq!(status(&output), 0, "{number} lines: {}", stderr(&output));
    }
}

#[test]
fn a_file_that_is_no_journal_makes_no_recording() {
    let files = Files::new();
    let (whole, journal) = with_journal(&files);
    let text = std::fs::read_to_string(&journal).expect("readable");
    let middle_is_nonsense = text.replacen("\"addresses\"", "\"addresses\":7,\"more\"", 1);
    let recording = std::fs::read_to_string(&whole).expect("readable");
    for wrong in ["", "{}\n", &middle_is_nonsense, &recording] {
        let path = files.add("wrong", wrong);
        let recovered = files.path("recovered.jsonl");
        let error = recover(Path::new(&path), Path::new(&recovered)).expect_err("no journal");
        assert!(error.to_string().starts_with("no journal: "), "{error}");
        assert!(!Path::new(&recovered).exists());
    }
}
