//! Times kernels here, in ptoxide, and as loops in C, on one core.
//!
//! Each of the executors runs the same PTX over the same bytes, and the results are compared. Prints
//! a line of JSON for each kernel: seconds of the fastest of several runs. Here a kernel is interpreted, and
//! with its pieces compiled; the first of these runs compiles them.
//!
//! With the name of a kernel and a count, that kernel runs so often here and nowhere else, for profilers:
//! two counts differ by the instructions of the runs between them.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pagewise_ptx::execute::{
    AssertFailure, Config, Host, Kind, Launch, Memory, Step, Stop, Window,
};
use pagewise_ptx::module::{Instance, Module, Target};
use ptoxide::{Argument, Context, LaunchParams};

const TEXT: &str = include_str!("../kernels.ptx");

unsafe extern "C" {
    fn c_saxpy(x: *const f32, y: *mut f32, threads: usize);
    fn c_rounds(x: *const f32, out: *mut f32, threads: usize, n: usize);
    fn c_gemm(a: *const f32, b: *const f32, c: *mut f32, n: usize);
    fn c_sums(x: *const f32, out: *mut f32, blocks: usize);
}

/// A kernel with its shape and its arguments.
struct Case {
    name: &'static str,
    /// Its place in the text: ptoxide has no names.
    index: usize,
    grid: [u32; 2],
    block: [u32; 2],
    /// The elements of each buffer; the last one is the result.
    buffers: Vec<usize>,
    number: Option<u64>,
}

fn cases() -> Vec<Case> {
    let case = |name, index, grid, block, buffers: &[usize], number| {
        let buffers = buffers.to_vec();
        Case { name, index, grid, block, buffers, number }
    };
    vec![
        case("saxpy", 0, [256, 1], [256, 1], &[1 << 16, 1 << 16], None),
        case("rounds", 1, [16, 1], [256, 1], &[1 << 12, 1 << 12], Some(256)),
        case("gemm", 2, [6, 6], [16, 16], &[96 * 96, 96 * 96, 96 * 96], Some(96)),
        case("sums", 3, [256, 1], [256, 1], &[1 << 16, 256], None),
    ]
}

/// Numbers between -1 and 1, the same everywhere.
fn input(buffer: usize, elements: usize) -> Vec<f32> {
    (0..elements).map(|i| ((i * 37 + buffer * 11) % 255) as f32 / 128.0 - 1.0).collect()
}

/// The fastest of several runs, in seconds, and the result.
fn fastest(runs: u32, mut run: impl FnMut() -> (f64, Vec<f32>)) -> (f64, Vec<f32>) {
    let mut best = run();
    for _ in 1..runs {
        let (seconds, result) = run();
        if seconds < best.0 {
            best = (seconds, result);
        }
    }
    best
}

/// Buffers one behind another.
struct Flat(Vec<u128>);

const BASE: u64 = 0x7f00_0000_0000;

impl Memory for Flat {
    fn window(&mut self, address: u64, bytes: u32, _: Kind) -> Result<Window, Stop> {
        let length = 16 * self.0.len() as u64;
        let inside = address.wrapping_sub(BASE).checked_add(bytes.into());
        if inside.is_none_or(|end| end > length) {
            return Err(Stop::Refused("no memory".to_owned()));
        }
        // SAFETY: the vector stays where it is while the kernel runs, and nothing else uses it.
        Ok(unsafe { Window::new(BASE, length, self.0.as_mut_ptr().cast()) })
    }

    fn generation(&self) -> u64 {
        0
    }
}

struct Nothing;

impl Host for Nothing {
    fn print(&mut self, _: &[u8]) {}
    fn assert_failed(&mut self, _: &AssertFailure) {}
    fn allocate(&mut self, _: u64) -> Option<u64> {
        None
    }
    fn free(&mut self, _: u64) -> bool {
        false
    }
}

fn here(instance: &Instance, case: &Case, config: &Config) -> (f64, Vec<f32>, u64) {
    let mut memory = Flat(Vec::new());
    let mut params = Vec::new();
    let mut last = 0;
    for (index, &elements) in case.buffers.iter().enumerate() {
        last = memory.0.len();
        params.extend((BASE + 16 * last as u64).to_le_bytes());
        let values = input(index, elements);
        memory.0.extend(values.chunks(4).map(|four| {
            let mut word = [0; 16];
            for (place, value) in word.chunks_mut(4).zip(four) {
                place.copy_from_slice(&value.to_le_bytes());
            }
            u128::from_le_bytes(word)
        }));
    }
    params.extend(case.number.iter().flat_map(|number| number.to_le_bytes()));
    let kernel = instance.kernel(case.name).expect("the kernel is there");
    let launch = Launch {
        grid: [case.grid[0], case.grid[1], 1],
        block: [case.block[0], case.block[1], 1],
        dynamic_shared: 0,
        params: &params,
        cooperative: false,
        cluster: None,
    };
    let before = Instant::now();
    let mut run = kernel.start(&launch, config).expect("it starts");
    let stats = loop {
        match run.step(&mut memory, &mut Nothing, 1 << 24) {
            Step::Done(stats) => break stats,
            Step::Paused => {}
            other => panic!("{other:?}"),
        }
    };
    let seconds = before.elapsed().as_secs_f64();
    let words = memory.0[last..].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let result = words.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
    let elements = *case.buffers.last().unwrap();
    (seconds, result.take(elements).collect(), stats.thread_instructions)
}

fn in_ptoxide(case: &Case) -> (f64, Vec<f32>) {
    let mut context = Context::new_with_module(TEXT).expect("ptoxide takes the text");
    let mut arguments = Vec::new();
    let mut last = None;
    for (index, &elements) in case.buffers.iter().enumerate() {
        let buffer = context.alloc::<f32>(elements);
        context.write(buffer, &input(index, elements));
        arguments.push(Argument::ptr(buffer));
        last = Some(buffer);
    }
    arguments.extend(case.number.map(Argument::U64));
    let params = LaunchParams::func_id(case.index)
        .grid2d(case.grid[0], case.grid[1])
        .block2d(case.block[0], case.block[1]);
    let before = Instant::now();
    context.run(params, &arguments).expect("ptoxide runs it");
    let seconds = before.elapsed().as_secs_f64();
    let mut result = vec![0.0; *case.buffers.last().unwrap()];
    context.read(last.unwrap(), &mut result);
    (seconds, result)
}

fn in_c(case: &Case) -> (f64, Vec<f32>) {
    let mut buffers: Vec<Vec<f32>> =
        case.buffers.iter().enumerate().map(|(index, &elements)| input(index, elements)).collect();
    let mut result = buffers.pop().unwrap();
    let (x, out) = (buffers[0].as_ptr(), result.as_mut_ptr());
    let threads = (case.grid[0] * case.block[0]) as usize;
    let n = case.number.unwrap_or(0) as usize;
    let before = Instant::now();
    // SAFETY: the buffers have the elements that the loops reach.
    unsafe {
        match case.name {
            "saxpy" => c_saxpy(x, out, threads),
            "rounds" => c_rounds(x, out, threads, n),
            "gemm" => c_gemm(x, buffers[1].as_ptr(), out, n),
            _ => c_sums(x, out, case.grid[0] as usize),
        }
    }
    let seconds = before.elapsed().as_secs_f64();
    (seconds, black_box(result))
}

fn main() {
    let module = Module::load(TEXT, &Target { compute: (9, 0) }).expect("the text loads");
    let instance = Arc::new(module).instantiate(&[]).expect("no variables");
    let mut arguments = std::env::args().skip(1);
    if let (Some(name), Some(count)) = (arguments.next(), arguments.next()) {
        let case = cases().into_iter().find(|case| case.name == name).expect("a kernel's name");
        let count = count.parse().expect("a number");
        let (seconds, ..) =
            fastest(count, || (here(&instance, &case, &Config::default()).0, Vec::new()));
        return println!("{name}: {:.4} ms", seconds * 1e3);
    }
    for case in cases() {
        let mut instructions = 0;
        let mut fastest_here = |config: &Config| {
            fastest(9, || {
                let (seconds, result, count) = here(&instance, &case, config);
                instructions = count;
                (seconds, result)
            })
        };
        let interpreter = Config { compile_after: None, ..Config::default() };
        let (interpreted, expected) = fastest_here(&interpreter);
        // So that the first run compiles all pieces, as many runs would by default.
        let soon = Config { compile_after: Some(500), ..Config::default() };
        let (own, compiled) = fastest_here(&soon);
        let (c, in_c) = fastest(5, || in_c(&case));
        let (other, in_other) = fastest(2, || in_ptoxide(&case));
        let same =
            |result: &[f32]| result.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same(&compiled), "{}: compiled pieces differ", case.name);
        assert!(same(&in_c), "{}: C differs", case.name);
        assert!(same(&in_other), "{}: ptoxide differs", case.name);
        println!(
            r#"{{"kernel": "{}", "thread_instructions": {instructions}, "pagewise": {own:.9}, "interpreted": {interpreted:.9}, "ptoxide": {other:.9}, "c": {c:.9}}}"#,
            case.name
        );
    }
}
