//! Seeded random programs on two back ends, compared operation by operation.
//!
//! Without a GPU: the simulator against itself through the recorder, and against simulators that are
//! set up differently, which must be found out. With one: the simulator against the driver;
//! `REQUIRE_CUDA=1` makes its absence a failure. A failure prints the family, the seed, and a small
//! program that `pagewise record` and `pagewise replay` take. `PAGEWISE_OPS` asks for more than the
//! usual number of operations, `PAGEWISE_SEED` for others.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewise::{
    Backend, DiscardedContents, DriverVersion, MemoryContents, RangeReads, Result, SimBackend,
    SimConfig,
};
use pagewise_cuda::{CudaBackend, Cupti};
use pagewise_tests::gpu::{gpu, partly_skipped};
use pagewise_trace::campaign::{Campaign, Outcome, Sides, carry_out};
use pagewise_trace::compare::{Levels, Tally, compare_case};
use pagewise_trace::differential::{Rules, compare_backends};
use pagewise_trace::format::{Case, Header, Op, RecordedOn, RecordedOp};
use pagewise_trace::pace::Pace;
use pagewise_trace::program::{Family, Offers, RandomProgram};
use pagewise_trace::record::{Pass, Recorder, record_case};
use pagewise_trace::replay::replay_case;
use pagewise_trace::run::Session;
use pagewise_trace::writer::TraceWriter;

const VERSIONS: [DriverVersion; 4] = [
    DriverVersion::CUDA_12_0,
    DriverVersion::CUDA_12_2,
    DriverVersion::CUDA_12_8,
    DriverVersion::CUDA_13_0,
];

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn as_a_driver(offers: Offers) -> SimConfig {
    SimConfig::h200()
        .devices(offers.devices)
        .driver_version(offers.version)
        .range_reads(RangeReads::Driver)
        .discarded_contents(DiscardedContents::Driver)
}

fn simulator(config: SimConfig) -> Result<Session> {
    let backend = Arc::new(SimBackend::new(config)?);
    let paced = Arc::clone(&backend);
    let pace = move |pace: Pace| paced.pace_next_op(pace.call_ns, pace.faults);
    Ok(Session { backend, pace: Some(Box::new(pace)) })
}

fn campaign(family: Family, offers: Offers, ops: u64) -> Campaign {
    Campaign {
        family,
        seed: number("PAGEWISE_SEED", 1),
        ops,
        steps: 30,
        offers,
        rules: Rules { levels: Levels::ALL, repeat: 1 },
        max_disagreements: 0,
        shrink_tries: 300,
    }
}

/// A program as the commands take it.
fn text(case: &Case, offers: Offers) -> String {
    let recorded_on = RecordedOn::new(offers.devices, offers.version.0);
    let header = Header::new("shrunk", recorded_on);
    let mut writer = TraceWriter::plain(Vec::new(), &header).expect("in memory");
    writer.case(&case.name).expect("in memory");
    case.ops.iter().for_each(|line| writer.op(&line.recorded.op).expect("in memory"));
    String::from_utf8(writer.finish().expect("in memory")).expect("UTF-8")
}

fn assert_agrees(outcome: &Outcome, campaign: &Campaign) {
    assert!(outcome.ops >= campaign.ops);
    let Some(first) = &outcome.first else { return };
    panic!(
        "{} of {} programs disagree; {}: expected {}, got {}\n{}",
        outcome.disagreeing,
        outcome.programs,
        first.drawn.name,
        first.divergence.expected,
        first.divergence.got,
        text(&first.smallest, campaign.offers),
    );
}

// ---- without a GPU ----------------------------------------------------------------------------

#[test]
#[cfg(target_os = "linux")]
fn the_simulator_agrees_with_the_cuda_back_end_over_the_simulated_driver() {
    use pagewise_tests::driver::SimulatedDriver;

    let driver = SimulatedDriver::load();
    for version in VERSIONS {
        for family in Family::ALL {
            let offers = Offers { devices: 2, version };
            let campaign = campaign(family, offers, number("PAGEWISE_OPS", 100));
            let sides = Sides {
                reference: &|| {
                    // A new driver that acts as an old one, as a GPU's driver would.
                    driver.reset("devices=2 version=13000 reads=driver discarded=driver");
                    Ok(Arc::new(driver.builder().max_version(version).open()?))
                },
                // Its clock is its own: the reference's runs on the same model.
                other: &|| Ok(Session { pace: None, ..simulator(as_a_driver(offers))? }),
            };
            let outcome = carry_out(&campaign, &sides, |_, _| ()).expect("a driver");
            assert_agrees(&outcome, &campaign);
        }
    }
}

#[test]
fn the_simulator_agrees_with_itself_through_the_recorder() {
    for (family, version) in Family::ALL.into_iter().zip(VERSIONS.into_iter().cycle()) {
        let offers = Offers { devices: 2, version };
        let campaign = campaign(family, offers, number("PAGEWISE_OPS", 200));
        let sides = Sides {
            reference: &|| Ok(Arc::new(Recorder::new(simulator(as_a_driver(offers))?.backend))),
            other: &|| simulator(as_a_driver(offers)),
        };
        let outcome = carry_out(&campaign, &sides, |_, _| ()).expect("address space");
        assert_agrees(&outcome, &campaign);
    }
}

/// The comparison has something to compare.
#[test]
fn random_programs_move_pages_read_attributes_and_fail() {
    let offers = Offers { devices: 2, version: DriverVersion::CUDA_13_0 };
    let (mut kinds, mut codes) = (Vec::new(), Vec::new());
    for family in Family::ALL {
        for number in 0..12 {
            let program = RandomProgram::new(family, 9, number, 30, offers).case();
            let backend = simulator(as_a_driver(offers)).expect("address space").backend;
            let case = record_case(&*backend, &program, Pass::Observed).expect("a program");
            for observed in case.ops.iter().map(|line| &line.recorded.observed) {
                codes.push(observed.code);
                kinds.extend(observed.events.iter().map(|event| event.kind.as_str().to_owned()));
            }
        }
    }
    for kind in ["copy_h2d", "copy_d2h", "copy_d2d", "cpu_fault", "gpu_fault", "remote_map"] {
        assert!(kinds.iter().filter(|other| *other == kind).count() > 20, "{kind}");
    }
    for code in [0, 1, 101] {
        assert!(codes.iter().filter(|&&other| other == code).count() > 4, "{code}");
    }
}

#[test]
fn random_programs_fill_and_copy_by_each_call_and_are_refused_by_some() {
    for version in VERSIONS {
        let offers = Offers { devices: 1, version };
        let mut codes: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for number in 0..40 {
            let program = RandomProgram::new(Family::Copies, 9, number, 30, offers).case();
            let backend = simulator(as_a_driver(offers)).expect("address space").backend;
            let case = record_case(&*backend, &program, Pass::Observed).expect("a program");
            for RecordedOp { op, observed } in case.ops.iter().map(|line| &line.recorded) {
                codes.entry(op.name()).or_default().push(observed.code);
            }
        }
        let count = |name: &str, code| codes[name].iter().filter(|&&other| other == code).count();
        for name in ["memset_d16", "memset_d32", "memcpy_batch"] {
            assert!(count(name, 0) > 20, "{name} at {version}: {:?}", codes[name]);
            assert!(count(name, 1) > 4, "{name} at {version}: {:?}", codes[name]);
        }
    }
}

#[test]
fn a_recorder_gives_the_case_that_was_carried_out_on_it() {
    let offers = Offers { devices: 2, version: DriverVersion::CUDA_13_0 };
    for family in Family::ALL {
        for number in 0..6 {
            let program = RandomProgram::new(family, 3, number, 30, offers).case();
            let fresh = || simulator(as_a_driver(offers)).expect("address space").backend;
            let expected = record_case(&*fresh(), &program, Pass::Observed).expect("a program");
            let recorder = Recorder::new(fresh());
            let replayed = replay_case(&recorder, &program, |_, _| ());
            assert_eq!(replayed.observed.len(), program.ops.len());
            let noted = recorder.take_case(program.name.clone());
            // What freed the rest at the end of the case stands at the end of what was noted.
            assert!(noted.ops.len() >= expected.ops.len(), "{}", program.name);
            for (noted, expected) in noted.ops.iter().zip(&expected.ops) {
                let (noted, expected) = (&noted.recorded, &expected.recorded);
                assert_eq!(noted.op.name(), expected.op.name(), "{}", program.name);
                let mut observed = noted.observed.clone();
                // Freed by then, so that its records have no name any more.
                observed.events.clone_from(&expected.observed.events);
                assert_eq!(observed, expected.observed, "{}: {:?}", program.name, expected.op);
                assert_eq!(noted.observed.events.len(), expected.observed.events.len());
            }
            let rest = &noted.ops[expected.ops.len()..];
            let frees = |op: &Op| {
                matches!(op, Op::Free { .. } | Op::FreePinned { .. } | Op::PoolDestroy { .. })
            };
            assert!(rest.iter().all(|line| frees(&line.recorded.op)), "{}", program.name);
            assert_eq!(recorder.left_out(), 0, "{}", program.name);
            let again = replay_case(&*fresh(), &noted, |_, _| ());
            let tally = compare_case(&noted, &again, false);
            assert!(tally.agrees(), "{}: {:?}", program.name, tally.first_divergence());
        }
    }
}

/// Random programs of every family read the same whether contents are in memory or described.
#[test]
fn described_contents_are_those_in_memory() {
    let offers = Offers { devices: 2, version: DriverVersion::CUDA_13_0 };
    for family in Family::ALL {
        let campaign = campaign(family, offers, 1500);
        let described = || simulator(as_a_driver(offers).contents(MemoryContents::Described));
        let sides =
            Sides { reference: &|| Ok(simulator(as_a_driver(offers))?.backend), other: &described };
        let outcome = carry_out(&campaign, &sides, |_, _| ()).expect("address space");
        assert_agrees(&outcome, &campaign);
    }
}

/// Each pair differs in one thing, which must be found, at its level, in a small program.
#[test]
fn a_difference_between_back_ends_is_found_and_made_small() {
    let offers = Offers { devices: 1, version: DriverVersion::CUDA_13_0 };
    let driver = || as_a_driver(offers);
    let other_kinds = [
        (Family::Advice, driver().range_reads(RangeReads::Pages), "attributes"),
        (Family::Contents, driver().contents(MemoryContents::Skipped), "sum"),
        (Family::Copies, driver().contents(MemoryContents::Skipped), "sum"),
        (Family::Calls, driver().driver_version(DriverVersion::CUDA_12_0), "code"),
    ];
    for (family, other, field) in other_kinds {
        let campaign = Campaign { max_disagreements: 3, ..campaign(family, offers, 2000) };
        let sides = Sides {
            reference: &|| Ok(simulator(driver())?.backend),
            other: &|| simulator(other.clone()),
        };
        let outcome = carry_out(&campaign, &sides, |_, _| ()).expect("address space");
        assert_eq!(outcome.disagreeing, 3, "{family}: it goes on to count, and stops at the limit");
        let first = outcome.first.expect("a disagreement");
        assert!(first.divergence.expected.get(field).is_some(), "{:?}", first.divergence);
        assert!(first.smallest.ops.len() <= 12, "{}", text(&first.smallest, offers));
        assert!(first.smallest.ops.len() <= first.drawn.ops.len());
        let tally = compared(&simulator(driver()).unwrap(), &sides, &first.smallest);
        assert_eq!(tally.first_divergence(), Some(&first.divergence), "it can be shown again");
    }
}

/// CUDA promises nothing of it, and an H200 does not show the same each time.
#[test]
fn what_discarded_memory_shows_is_no_disagreement() {
    let offers = Offers { devices: 1, version: DriverVersion::CUDA_13_0 };
    let kept = || as_a_driver(offers).discarded_contents(DiscardedContents::Kept);
    let sides = Sides {
        reference: &|| Ok(simulator(as_a_driver(offers))?.backend),
        other: &|| simulator(kept()),
    };
    let campaign = campaign(Family::Discard, offers, 3000);
    let outcome = carry_out(&campaign, &sides, |_, _| ()).expect("address space");
    assert_agrees(&outcome, &campaign);
}

/// Fills, and copies of what a device reaches by faults, are the work of many threads.
#[test]
fn the_order_of_the_faults_of_many_threads_is_no_disagreement() {
    let offers = Offers { devices: 1, version: DriverVersion::CUDA_13_0 };
    let sides = Sides {
        reference: &|| Ok(simulator(as_a_driver(offers).seed(1))?.backend),
        other: &|| simulator(as_a_driver(offers).seed(2)),
    };
    let campaign = campaign(Family::Contents, offers, 3000);
    let outcome = carry_out(&campaign, &sides, |_, _| ()).expect("address space");
    assert_agrees(&outcome, &campaign);
}

fn compared(reference: &Session, sides: &Sides<'_>, program: &Case) -> Tally {
    let rules = Rules::of_reference(&*reference.backend);
    let other = (sides.other)().expect("address space");
    compare_backends(&*reference.backend, &other, program, rules).expect("a program")
}

// ---- with a GPU -------------------------------------------------------------------------------

/// The driver with the records that there are.
fn driver(ceiling: DriverVersion) -> Option<Arc<CudaBackend>> {
    let open = || CudaBackend::builder().max_version(ceiling);
    let plain = gpu(open())?;
    let cupti = Cupti::open().and_then(|cupti| cupti.start().map(|()| cupti));
    match cupti {
        Ok(cupti) => gpu(open().observer(cupti)).map(Arc::new),
        Err(reason) => {
            partly_skipped(format!("events are not compared: {reason}"));
            Some(Arc::new(plain))
        }
    }
}

#[test]
fn the_simulator_agrees_with_the_driver() {
    for version in VERSIONS {
        let Some(driver) = driver(version) else { return };
        let offers = Offers { devices: driver.device_count().expect("a count"), version };
        for family in Family::ALL {
            let least = family.least_devices();
            if offers.devices < least {
                partly_skipped(format!("{family:?} needs {least} devices"));
                continue;
            }
            let mut campaign = campaign(family, offers, number("PAGEWISE_OPS", 100));
            campaign.rules = Rules::of_reference(&driver);
            let sides = Sides {
                reference: &|| Ok(Arc::clone(&driver) as Arc<dyn Backend>),
                other: &|| simulator(as_a_driver(offers)),
            };
            let outcome = carry_out(&campaign, &sides, |_, _| ()).expect("address space");
            assert_agrees(&outcome, &campaign);
        }
    }
}
