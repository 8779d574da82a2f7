//! Hostile recordings: any bytes, and shipped recordings with bytes changed.
//!
//! A recording that can be read is replayed on a simulator and compared, as `pagewise replay` would
//! do it, if the case is short and names little memory. The reader's limits bound the cost of other
//! files; they have tests of their own.

use std::sync::OnceLock;

use pagewise_hal::{FaultAccess, RecordedBlock, RecordedBlocksWriter, RecordedStep};
use pagewise_sim::{SimBackend, SimConfig};
use pagewise_trace::compare::compare_case;
use pagewise_trace::format::{Case, Launch, LaunchShape, Op, PackedAccesses, Part};
use pagewise_trace::reader::TraceReader;
use pagewise_trace::replay::replay_case;

use crate::{Choices, Log, NO_CODE};

/// Most operations of a case that are replayed.
const REPLAYED_OPS_MAX: usize = 64;
/// Most bytes that an operation of such a case names.
const NAMED_BYTES_MAX: u64 = 32 << 20;
/// Most cases of a file that are replayed.
const REPLAYED_CASES_MAX: usize = 4;
/// Most bytes of a shipped recording that are changed and read.
const SHIPPED_BYTES_MAX: u64 = 16 << 10;

/// A recording that the others are changed from: small, with operations of many kinds.
const SHIPPED: &[u8] = include_bytes!("../../tests/data/traces/h200-580/batch.jsonl.zst");

/// The first line of a recording of two devices.
const HEADER: &str = "{\"format\":\"pagewise-trace\",\"version\":1,\"family\":\"launch\",\
     \"recorded_on\":{\"gpus\":2,\"cuda_driver_version\":13000}}";

/// Reads the bytes as a recording: as they are, or as changes of one.
///
/// # Panics
/// If reader, replayer or simulator does.
pub fn attack(choices: &mut Choices<'_>, log: &mut Log) {
    let file = match choices.below(5) {
        0 => choices.rest().to_vec(),
        4 => with_a_launch(choices),
        1 => changed(SHIPPED.to_vec(), choices),
        _ => changed(plain_text(choices), choices),
    };
    read(&file, log);
}

/// The first lines of the shipped recording, uncompressed.
fn plain_text(choices: &mut Choices<'_>) -> Vec<u8> {
    static TEXT: OnceLock<Vec<u8>> = OnceLock::new();
    let text = TEXT
        .get_or_init(|| zstd::stream::decode_all(SHIPPED).expect("the shipped recording is whole"));
    let wanted = (1 + choices.below(SHIPPED_BYTES_MAX)).min(text.len() as u64) as usize;
    let whole_lines = text[..wanted].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    text[..whole_lines].to_vec()
}

/// A recording with a launch of a kernel, of which the accesses are changed before they are packed.
fn with_a_launch(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut writer = RecordedBlocksWriter::default();
    for block in 0..choices.below(6) {
        let mut step = || match choices.below(5) {
            0 => {
                RecordedStep::Resumption { of_grid: choices.below(2) == 0, round: choices.below(4) }
            }
            1 => RecordedStep::Order(vec![1, 0]),
            kind => RecordedStep::Access {
                range: 0,
                offset: choices.below(4 << 20),
                access: [FaultAccess::Read, FaultAccess::Write, FaultAccess::Atomic]
                    [kind as usize - 2],
                ahead: choices.below(3) as u32,
                waited: kind > 2,
                joined: choices.below(2) == 0,
            },
        };
        let warps = (0..2).map(|warp| (warp, (0..4).map(|_| step()).collect())).collect();
        writer.push(&RecordedBlock { block, slot: choices.below(8) as u32, warps });
    }
    let accesses = PackedAccesses::pack(&changed(writer.finish(), choices));
    let shape = LaunchShape {
        grid: [choices.below(7) as u32, 1, 1],
        block: [choices.below(70) as u32, 1, 1],
        multiprocessors: [132, 1, choices.below(4) as u32][choices.below(3) as usize],
        blocks_each: choices.below(3) as u32,
        ..LaunchShape::default()
    };
    let ranges = vec![Part { buf: 0, offset: 0, bytes: 4 << 20 }];
    let launch = Launch { device: choices.below(3) as i32, stream: None, shape, ranges, accesses };
    let mut line = Op::Launch(Box::new(launch)).to_json();
    line["code"] = 0.into();
    let text = format!(
        "{HEADER}\n{{\"case\":\"one\"}}\n\
         {{\"op\":\"alloc_managed\",\"buf\":0,\"bytes\":4194304,\"attach_flags\":1,\"code\":0}}\n\
         {line}\n"
    );
    text.into_bytes()
}

/// A few bytes overwritten, removed, repeated or put in.
fn changed(mut file: Vec<u8>, choices: &mut Choices<'_>) -> Vec<u8> {
    for _ in 0..choices.below(4) {
        if file.is_empty() {
            break;
        }
        let at = choices.below(file.len() as u64) as usize;
        let end = (at + 1 + choices.below(64) as usize).min(file.len());
        match choices.below(5) {
            0 => file[at] = choices.byte(),
            1 => file[at] ^= 1 << choices.below(8),
            2 => drop(file.drain(at..end)),
            3 => {
                let piece = file[at..end].to_vec();
                file.splice(at..at, piece);
            }
            _ => {
                let digits = choices.edge().to_string();
                file.splice(at..at, digits.into_bytes());
            }
        }
    }
    file
}

/// Reads to the end or to the first error, and replays what is small.
fn read(file: &[u8], log: &mut Log) {
    let opened = log.call("open", || TraceReader::new("attack", file), code_of);
    let Ok(mut reader) = opened else { return };
    let mut replayed = 0;
    while let Ok(Some(case)) = log.call("next_case", || reader.next_case(), code_of) {
        if replayed < REPLAYED_CASES_MAX && is_small(&case) {
            replayed += 1;
            log.call("replay", || replay(&case), |()| 0);
        }
    }
}

/// 0, or [`NO_CODE`] for a file that is refused.
fn code_of<T, E>(answer: &Result<T, E>) -> i32 {
    if answer.is_ok() { 0 } else { NO_CODE }
}

fn replay(case: &Case) {
    let config = SimConfig::h200().devices(2);
    let Ok(sim) = SimBackend::new(config) else { return };
    let replayed = replay_case(&sim, case, |_, _| ());
    let _ = compare_case(case, &replayed, true);
}

fn is_small(case: &Case) -> bool {
    case.ops.len() <= REPLAYED_OPS_MAX
        && case.ops.iter().all(|line| named_bytes(&line.recorded.op) <= NAMED_BYTES_MAX)
}

/// How many bytes an operation names.
fn named_bytes(op: &Op) -> u64 {
    let all =
        |parts: &[Part]| parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.bytes));
    match op {
        Op::AllocManaged { bytes, .. }
        | Op::AllocDevice { bytes, .. }
        | Op::AllocPinned { bytes, .. }
        | Op::PoolAlloc { bytes, .. }
        | Op::Memcpy { bytes, .. } => *bytes,
        Op::Prefetch { part, .. }
        | Op::Memset { part, .. }
        | Op::MemsetD16 { part, .. }
        | Op::MemsetD32 { part, .. }
        | Op::HostTouch { part, .. }
        | Op::DeviceTouch { part, .. } => part.bytes,
        Op::PrefetchBatch(batch) | Op::DiscardPrefetchBatch(batch) => all(&batch.ranges),
        Op::DiscardBatch { ranges, .. } => all(ranges),
        Op::Launch(launch) => all(&launch.ranges).saturating_add(launch.accesses.len()),
        Op::MemcpyBatch(batch) => {
            batch.copies.iter().fold(0, |sum: u64, copy| sum.saturating_add(copy.bytes))
        }
        _ => 0,
    }
}
