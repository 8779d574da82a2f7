//! `pagewise compare`: two recordings, or two back ends on random programs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum as _;
use pagewise_hal::{Backend, Error};
use pagewise_sim::RangeReads;
use pagewise_trace::campaign::{Campaign, Sides, Stage, carry_out};
use pagewise_trace::compare::{Levels, Tally, compare_recordings};
use pagewise_trace::differential::Rules;
use pagewise_trace::error::TraceError;
use pagewise_trace::format::{Case, Header, Op, RecordedOn};
use pagewise_trace::program::{Family, Offers};
use pagewise_trace::record::Recorder;
use pagewise_trace::report::{Report, TraceReport};
use pagewise_trace::run::Target;
use pagewise_trace::writer::TraceWriter;

use crate::args::{self, Compare, Level};
use crate::inputs::{self, Source};
use crate::output::{cannot_write, write_file};
use crate::programs::{Programs, program_text};
use crate::progress::{Progress, Unit};
use crate::status::{Answer, Failure};
use crate::table;
use crate::target::ChosenTarget;

/// Compares, and answers with a report.
pub(crate) fn compare(args: &Compare) -> Result<Answer, Failure> {
    let levels = levels(&args.levels);
    args.traces.iter().try_for_each(|trace| is_no_value(trace))?;
    match args.traces.as_slice() {
        [] => compare_on_programs(args, levels),
        [expected, got] => compare_traces(expected, got, args),
        _ => Err(Failure::Usage("give two traces to compare, or none".to_owned())),
    }
}

/// Refuses the name of a level or of a family that is no file: the list before it was not divided
/// by commas.
fn is_no_value(trace: &Path) -> Result<(), Failure> {
    let name = trace.to_string_lossy();
    let is_level = Level::from_str(&name, false).is_ok();
    let option = match (is_level, name.parse::<Family>().is_ok()) {
        (true, _) => "--levels",
        (_, true) => "--family",
        _ => return Ok(()),
    };
    if trace.exists() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "`{name}` is no file: write the values of {option} with commas between them and no spaces"
    )))
}

fn levels(wanted: &[Level]) -> Levels {
    Levels { pages: wanted.contains(&Level::Pages), events: wanted.contains(&Level::Events) }
}

fn report(traces: Vec<TraceReport>, start: Instant) -> Report {
    Report {
        ok: traces.iter().all(TraceReport::ok),
        simulated_s: traces.iter().map(|trace| trace.simulated_ns as f64).sum::<f64>() / 1e9,
        traces,
        wall_s: start.elapsed().as_secs_f64(),
    }
}

// ---- two recordings ---------------------------------------------------------------------------

fn compare_traces(expected: &Path, got: &Path, args: &Compare) -> Result<Answer, Failure> {
    let (start, levels) = (Instant::now(), levels(&args.levels));
    let unreadable = |error: TraceError| Failure::Input(error.to_string());
    let sources = inputs::sources(&[expected.to_owned(), got.to_owned()])?;
    let progress = Progress::start("compared", Unit::Bytes, inputs::total_bytes(&sources));
    let open = |path: &Path| {
        let opened = Source::from(path).trace(&progress).map_err(unreadable)?;
        Ok::<_, Failure>(opened.limited((&args.limits).into(), 0))
    };
    let mut recordings = (open(expected)?, open(got)?);
    let _busy = (recordings.0.time().busy(), recordings.1.time().busy());
    let mut tally = Tally::default();
    loop {
        let cases = (
            recordings.0.next_case().map_err(unreadable)?,
            recordings.1.next_case().map_err(unreadable)?,
        );
        match cases {
            (None, None) => break,
            (Some(expected), Some(got)) if expected.name == got.name => {
                tally.merge(compare_recordings(&expected, &got, levels));
                progress.case_done();
            }
            (expected, got) => {
                let name = |case: Option<Case>| case.map_or("none".to_owned(), |case| case.name);
                return Err(Failure::Input(format!(
                    "the recordings are not of the same program: case {} against case {}",
                    name(expected),
                    name(got)
                )));
            }
        }
    }
    let name = got.display().to_string();
    let report = report(vec![tally.report(name, Some(recordings.0.header()), None, None)], start);
    let text = table::full(&report);
    Ok(Answer::compared(&report, text))
}

// ---- random programs --------------------------------------------------------------------------

fn compare_on_programs(args: &Compare, levels: Levels) -> Result<Answer, Failure> {
    let start = Instant::now();
    let reference = ChosenTarget::new(args.backend, None, Some(RangeReads::Driver), levels.events)?;
    let other = ChosenTarget::new(args::BackendArg::Sim, None, Some(RangeReads::Driver), true)?;
    let wanted = wanted_machine(args);
    let header = Header::new("random", reference.describe(&wanted));
    let program_header = Header::new("random", wanted);
    let mut programs =
        TraceWriter::plain(Vec::new(), &program_header).map_err(|why| unwritten(args, &why))?;
    let progress = Progress::start("compared", Unit::Operations, Some(args.ops));
    let sides = Sides {
        reference: &|| Ok(recorded(args.backend, reference.open(&header)?.backend)),
        other: &|| other.open(&header),
    };
    let mut outcomes = Vec::new();
    for family in families(args)? {
        let campaign = campaign(args, family, levels, &reference, &header)?;
        let mut kept = Ok(());
        let outcome = carry_out(&campaign, &sides, |case, stage| {
            if args.verbose {
                eprintln!("{}: {} operations", case.name, case.ops.len());
            }
            if let (Some(path), Ok(())) = (&args.trying, &kept) {
                kept = write_file(path, program_text(case, &program_header).as_bytes());
            }
            if stage == Stage::Drawn {
                // Writing to memory cannot fail.
                _ = programs.program(case);
                progress.advance(operations(case));
                progress.case_done();
            }
        });
        kept?;
        outcomes.push((family, outcome.map_err(|error| no_back_end(&error))?));
    }
    drop(progress);
    if let Some(path) = &args.programs {
        write_file(path, &programs.finish().map_err(|error| cannot_write(path, &error))?)?;
    }
    let programs =
        |(family, outcome): &(_, _)| Programs::of(args, *family, outcome, &program_header);
    let found: Vec<Programs> = outcomes.iter().map(programs).collect();
    let first = found.iter().find_map(|programs| programs.first.as_ref());
    if let (Some(first), Some(path)) = (first, &args.save) {
        write_file(path, first.program.as_bytes())?;
    }
    let traces = outcomes.into_iter().map(|(family, outcome)| outcome.report(family, &header));
    Ok(answer(args, &report(traces.collect(), start), &found))
}

fn answer(args: &Compare, report: &Report, found: &[Programs]) -> Answer {
    let mut text = String::new();
    found.iter().for_each(|programs| programs.describe(&mut text, args));
    let agree = report.traces.iter().filter(|family| family.ok()).count();
    let (count, wall_s) = (report.traces.len(), report.wall_s);
    let summary = format!("{agree} of {count} families agree in everything, in {wall_s:.1} s.\n");
    let text = format!("{}\n{text}\n{summary}", table::table(report));
    Answer::compared(report, text).with("programs", &found)
}

/// Puts the simulator into a recorder, so that this compares it with itself; a driver stays as it
/// is.
fn recorded(kind: args::BackendArg, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    match kind {
        args::BackendArg::Sim => Arc::new(Recorder::new(backend)),
        args::BackendArg::Cuda => backend,
    }
}

/// The machine that programs are for.
fn wanted_machine(args: &Compare) -> RecordedOn {
    RecordedOn::new(args.devices, args.ceiling.0)
}

/// The families that the arguments name, else those that the machine has enough devices for.
fn families(args: &Compare) -> Result<Vec<Family>, Failure> {
    let fits = |family: &Family| family.least_devices() <= args.devices;
    if args.family.is_empty() {
        return Ok(Family::ALL.into_iter().filter(fits).collect());
    }
    match args.family.iter().find(|family| !fits(family)) {
        None => Ok(args.family.clone()),
        Some(family) => {
            let least = family.least_devices();
            Err(Failure::Usage(format!("--family {family} needs --devices {least}")))
        }
    }
}

fn campaign(
    args: &Compare,
    family: Family,
    levels: Levels,
    reference: &ChosenTarget,
    header: &Header,
) -> Result<Campaign, Failure> {
    let families = if args.family.is_empty() { families(args)?.len() } else { args.family.len() };
    let session = reference.open(header).map_err(|error| no_back_end(&error))?;
    let mut rules = Rules { levels, ..Rules::of_reference(&*session.backend) };
    rules.repeat = args.repeat.unwrap_or(rules.repeat);
    Ok(Campaign {
        family,
        seed: args.seed,
        ops: args.ops.div_ceil(families as u64),
        steps: args.steps,
        offers: Offers { devices: args.devices, version: args.ceiling },
        rules,
        max_disagreements: args.max_disagreements,
        shrink_tries: args.shrink,
    })
}

fn no_back_end(error: &Error) -> Failure {
    Failure::Input(format!("no back end to compare with: {error}"))
}

/// The operations that count: all but sleeps.
fn operations(case: &Case) -> u64 {
    let counts = |op: &Op| !matches!(op, Op::Sleep { .. });
    case.ops.iter().filter(|line| counts(&line.recorded.op)).count() as u64
}

fn unwritten(args: &Compare, error: &io::Error) -> Failure {
    let path = args.programs.as_deref().unwrap_or(Path::new("programs"));
    cannot_write(path, error)
}
