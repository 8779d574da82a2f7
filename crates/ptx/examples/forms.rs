//! Measures each instruction form of the recording: nanoseconds for an instruction of a warp.
//!
//! usage: `cargo run --release -p pagewise-ptx --example forms [BEGINNING]`
//!
//! One kernel for each form repeats it in a loop with ordinary operands, and collects the results. The time of
//! the loop, some 10 ns, is part of it. The slowest forms come first, and those that do not run in a loop last.

#[path = "../tests/machine/mod.rs"]
mod machine;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::{BASE, Flat, Journal};
use pagewise_ptx::execute::{Config, Launch, Step};
use pagewise_ptx::module::{Module, Target};

const FORMS: &str = include_str!("../data/forms.txt");
const BYTES: usize = 4 << 20;
const ARRAY: u64 = BYTES as u64 / 64;
const BLOCKS: u32 = 8;
const THREADS: u32 = 128;
const ROUNDS: u64 = 128;

/// Bits of a register for an operand or a result of a kind.
fn bits(kind: &str) -> u32 {
    match kind {
        "f16x2" | "bf16x2" | "shift" | "lane" => 32,
        kind => {
            let digits = kind.trim_start_matches(|letter: char| !letter.is_ascii_digit());
            digits.parse::<u32>().map_or(32, |bits| bits.max(16))
        }
    }
}

/// An ordinary operand of a kind, different in each lane.
fn operand(kind: &str, index: u64) -> u64 {
    let random = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
    let part = (random % 1000) as f64 / 1000.0;
    let half = 0x3c00 | random & 0x3ff;
    let bfloat = 0x3f80 | random & 0x7f;
    match kind {
        "f32" | "near32" => (0.5 + part as f32).to_bits().into(),
        "f64" | "near64" | "nan64" => (0.5 + part).to_bits(),
        "f16" | "near16" => half,
        "f16x2" => half << 16 | half,
        "bf16" | "nearb16" => bfloat,
        "bf16x2" => bfloat << 16 | bfloat,
        "shift" | "lane" => random % 32,
        _ => random,
    }
}

/// The text of a kernel that repeats a form.
fn kernel(body: &str, kinds: &[&str], sizes: &[&str]) -> String {
    let mut text = String::from(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry form(.param .u64 base) {\n",
    );
    for (index, kind) in kinds.iter().enumerate() {
        let _ = writeln!(text, ".reg .b{} a{index};", bits(kind));
    }
    for (index, kind) in sizes.iter().enumerate() {
        let _ = writeln!(text, ".reg .b{} d{index}, e{index};", bits(kind));
    }
    text.push_str(
        ".reg .pred p, q, again; .reg .b32 lane, sa, sbase, n, t, rounds; .reg .b64 ga, at, n8;
         .shared .align 16 .b8 shared[4096];
         mov.u32 lane, %tid.x; mov.u32 t, %ctaid.x; mad.lo.u32 n, t, 128, lane;
         mov.u32 sbase, shared; mad.lo.u32 sa, lane, 16, sbase;
         ld.param.u64 at, [base]; mul.wide.u32 n8, n, 16; add.u64 ga, at, n8;\n",
    );
    for (index, kind) in kinds.iter().enumerate() {
        let (place, bits) = (ARRAY * (index as u64 + 1), bits(kind));
        let _ = writeln!(
            text,
            "mul.wide.u32 n8, n, {}; add.u64 at, at, n8; ld.global.b{bits} a{index}, [at+{place}]; \
             sub.u64 at, at, n8;",
            bits / 8
        );
    }
    for (index, kind) in sizes.iter().enumerate() {
        let _ = writeln!(text, "mov.b{} e{index}, 0;", bits(kind));
    }
    let _ = writeln!(text, "mov.u32 rounds, {ROUNDS};\nrepeat:\n{{ {body} }}");
    for (index, kind) in sizes.iter().enumerate() {
        let _ = writeln!(text, "xor.b{} e{index}, e{index}, d{index};", bits(kind));
    }
    text.push_str("sub.u32 rounds, rounds, 1; setp.ne.u32 again, rounds, 0; @again bra repeat;\n");
    for (index, kind) in sizes.iter().enumerate() {
        let _ = writeln!(text, "st.global.b{} [ga], e{index};", bits(kind));
    }
    text.push_str("ret;\n}\n");
    text
}

/// Nanoseconds of a round of a kernel; `None` if it does not end as it should.
fn round_ns(body: &str, kinds: &[&str], sizes: &[&str]) -> Option<f64> {
    let module = Module::load(&kernel(body, kinds, sizes), &Target { compute: (9, 0) }).ok()?;
    let instance = Arc::new(Arc::new(module).instantiate(&[]).ok()?);
    let kernel = instance.kernel("form")?;
    let mut memory = Flat::new(BYTES);
    for (index, kind) in kinds.iter().enumerate() {
        let size = bits(kind) as usize / 8;
        let first = BASE + ARRAY * (index as u64 + 1);
        for thread in 0..u64::from(BLOCKS * THREADS) {
            let value = operand(kind, thread + index as u64 * 7777 + 1);
            memory.write(first + thread * size as u64, &value.to_le_bytes()[..size]);
        }
    }
    let params = BASE.to_le_bytes();
    let launch = Launch {
        grid: [BLOCKS, 1, 1],
        block: [THREADS, 1, 1],
        dynamic_shared: 0,
        params: &params,
        cooperative: false,
        cluster: None,
    };
    let config = Config {
        instruction_limit: Some(200_000_000),
        compile_after: Some(4),
        ..Config::default()
    };
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let mut run = kernel.start(&launch, &config).ok()?;
        let begun = Instant::now();
        loop {
            match run.step(&mut memory, &mut Journal::default(), u64::MAX) {
                Step::Done(_) => break,
                Step::Paused => {}
                _ => return None,
            }
        }
        best = best.min(begun.elapsed());
    }
    let rounds = u64::from(BLOCKS * THREADS / 32) * ROUNDS;
    Some(best.as_nanos() as f64 / rounds as f64)
}

fn main() {
    let beginning = std::env::args().nth(1).unwrap_or_default();
    let (mut measured, mut failed) = (Vec::new(), Vec::new());
    for line in FORMS.lines().filter(|line| line.starts_with(&beginning)) {
        let fields: Vec<_> = line.split('\t').collect();
        let [body, kinds, sizes, _] = fields[..] else { panic!("four fields: {line}") };
        let kinds: Vec<_> = kinds.split(' ').collect();
        let sizes: Vec<_> = sizes.split(' ').collect();
        match round_ns(body, &kinds, &sizes) {
            Some(ns) => measured.push((ns, body)),
            None => failed.push(body),
        }
    }
    measured.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (ns, body) in measured {
        println!("{ns:9.1} ns  {body}");
    }
    for body in failed {
        println!("   failed     {body}");
    }
}
