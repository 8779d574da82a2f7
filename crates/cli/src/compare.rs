//! `pagewise compare`: two recordings, or two back ends on random programs.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pagewise_hal::{Backend, DriverVersion, Error};
use pagewise_sim::RangeReads;
use pagewise_trace::campaign::{Campaign, Disagreement, Outcome, Sides, Stage, carry_out};
use pagewise_trace::compare::{Levels, Tally, compare_recordings};
use pagewise_trace::differential::Rules;
use pagewise_trace::error::TraceError;
use pagewise_trace::format::{Case, Header, RecordedOn};
use pagewise_trace::program::{Family, Offers};
use pagewise_trace::reader::TraceReader;
use pagewise_trace::record::Recorder;
use pagewise_trace::report::{Report, TraceReport};
use pagewise_trace::run::Target;
use pagewise_trace::writer::TraceWriter;

use crate::args::{self, Compare, Level};
use crate::output::{cannot_write, write_file};
use crate::progress::Progress;
use crate::status::Failure;
use crate::table;
use crate::target::ChosenTarget;

/// Compares, and returns the report and the text for people.
pub(crate) fn compare(args: &Compare) -> Result<(Report, String), Failure> {
    let levels = levels(&args.levels);
    match args.traces.as_slice() {
        [] => compare_on_programs(args, levels),
        [expected, got] => compare_traces(expected, got, args),
        _ => Err(Failure::Usage("give two traces to compare, or none".to_owned())),
    }
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

fn compare_traces(
    expected: &Path,
    got: &Path,
    args: &Compare,
) -> Result<(Report, String), Failure> {
    let (start, levels) = (Instant::now(), levels(&args.levels));
    let unreadable = |error: TraceError| Failure::Input(error.to_string());
    let open = |path| {
        let opened = TraceReader::open(path).map_err(unreadable)?;
        Ok(opened.limited((&args.limits).into(), 0))
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
    Ok((report, text))
}

// ---- random programs --------------------------------------------------------------------------

fn compare_on_programs(args: &Compare, levels: Levels) -> Result<(Report, String), Failure> {
    let start = Instant::now();
    let reference = ChosenTarget::new(args.backend, None, RangeReads::Driver, levels.events)?;
    let other = ChosenTarget::new(args::BackendArg::Sim, None, RangeReads::Driver, true)?;
    let wanted = wanted_machine(args);
    let header = Header::new("random", reference.describe(&wanted));
    let program_header = Header::new("random", wanted);
    let families = families(args)?;
    let mut programs =
        TraceWriter::plain(Vec::new(), &program_header).map_err(|why| unwritten(args, &why))?;
    let progress = Progress::start("compared");
    let mut results = Vec::new();
    for &family in &families {
        let campaign = campaign(args, family, levels, &reference, &header)?;
        let sides = Sides {
            reference: &|| Ok(recorded(args.backend, reference.open(&header)?.backend)),
            other: &|| other.open(&header),
        };
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
                _ = write_program(&mut programs, case);
                progress.case_done();
            }
        });
        kept?;
        results.push((family, outcome.map_err(|error| no_back_end(&error))?));
    }
    progress.end();
    if let Some(path) = &args.programs {
        write_file(path, &programs.finish().map_err(|error| cannot_write(path, &error))?)?;
    }
    let mut text = String::new();
    let mut traces = Vec::new();
    for (family, outcome) in results {
        describe(&mut text, args, family, &outcome);
        if let Some(first) = &outcome.first {
            explain(&mut text, first, &program_header, args.save.as_deref())?;
        }
        traces.push(outcome.report(family, &header));
    }
    let report = report(traces, start);
    let agree = report.traces.iter().filter(|family| family.ok()).count();
    let (count, wall_s) = (report.traces.len(), report.wall_s);
    let summary = format!("{agree} of {count} families agree in everything, in {wall_s:.1} s.\n");
    let text = format!("{}\n{text}\n{summary}", table::table(&report));
    Ok((report, text))
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
    RecordedOn {
        gpu: None,
        gpus: args.devices,
        driver: None,
        cuda_driver_version: args.ceiling,
        host_page_bytes: None,
        host_numa_nodes: None,
        system: None,
    }
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
        offers: Offers { devices: args.devices, version: DriverVersion(args.ceiling) },
        rules,
        max_disagreements: args.max_disagreements,
        shrink_tries: args.shrink,
    })
}

fn no_back_end(error: &Error) -> Failure {
    Failure::Input(format!("no back end to compare with: {error}"))
}

fn describe(text: &mut String, args: &Compare, family: Family, outcome: &Outcome) {
    let Outcome { programs, disagreeing, by_chance, .. } = *outcome;
    let seed = args.seed;
    _ = write!(text, "{family}, seed {seed}: {programs} programs, {disagreeing} disagree");
    if by_chance > 0 {
        _ = write!(text, "; {by_chance} more did once and not again");
    }
    if disagreeing > 0 && disagreeing == args.max_disagreements {
        text.push_str("; stopped there");
    }
    text.push('\n');
}

/// The first disagreement and its smallest program, which is saved if the arguments ask for it.
fn explain(
    text: &mut String,
    first: &Disagreement,
    header: &Header,
    save: Option<&Path>,
) -> Result<(), Failure> {
    let Disagreement { drawn, smallest, divergence } = first;
    let line = smallest.ops.iter().position(|op| op.line == divergence.line);
    let operation = line.map_or(0, |at| at.saturating_add(1));
    let level = divergence.level.name();
    _ = writeln!(
        text,
        "  {}: {} operations, shrunk to {}; operation {operation} of those disagrees at level {level}",
        drawn.name,
        drawn.ops.len(),
        smallest.ops.len(),
    );
    _ = writeln!(text, "  expected {}", table::shown(&divergence.expected.to_string()));
    _ = writeln!(text, "  got      {}", table::shown(&divergence.got.to_string()));
    let program = program_text(smallest, header);
    for line in program.lines() {
        _ = writeln!(text, "    {line}");
    }
    let Some(path) = save else { return Ok(()) };
    write_file(path, program.as_bytes())
}

/// The text of a program, as `pagewise record` reads it.
fn program_text(case: &Case, header: &Header) -> String {
    let written = TraceWriter::plain(Vec::new(), header).and_then(|mut writer| {
        write_program(&mut writer, case)?;
        writer.finish()
    });
    // Writing to memory cannot fail.
    String::from_utf8_lossy(&written.unwrap_or_default()).into_owned()
}

fn write_program(writer: &mut TraceWriter<Vec<u8>>, case: &Case) -> io::Result<()> {
    writer.case(&case.name)?;
    case.ops.iter().try_for_each(|line| writer.op(&line.recorded.op))
}

fn unwritten(args: &Compare, error: &io::Error) -> Failure {
    let path = args.programs.as_deref().unwrap_or(Path::new("programs"));
    cannot_write(path, error)
}
