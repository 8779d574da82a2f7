//! Shifts, fields and permutations by constants, and logic by tables.

mod machine;

use std::fmt::Write as _;

use machine::{BASE, Flat, Journal, kernel, start};
use pagewise_ptx::execute::{Config, Step};
use pagewise_ptx::math::bits;

/// Threads of the kernels: some warps, of which the last ones run compiled pieces.
const THREADS: u32 = 128;

/// The operands of a thread.
fn operands(thread: u32) -> [u32; 3] {
    [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d].map(|factor: u32| factor.wrapping_mul(thread + 1))
}

/// The results of each instruction in each thread. The instructions have `%a`, `%b` and `%c` for operands, and
/// leave their results in `%d`.
fn results(instructions: &[String], compile_after: Option<u32>) -> Vec<u32> {
    let mut body = String::from(
        ".reg .b32 %a, %b, %c, %d, %x, %y; .reg .pred %p;
         add.u32 %d, %t, 1; mul.lo.u32 %a, %d, 0x9e3779b1; mul.lo.u32 %b, %d, 0x85ebca77;
         mul.lo.u32 %c, %d, 0xc2b2ae3d;\n",
    );
    for (index, instruction) in instructions.iter().enumerate() {
        let place = 4 * THREADS * index as u32;
        let _ = writeln!(body, "{instruction} st.global.u32 [%mine+{place}], %d;");
    }
    let count = THREADS as usize * instructions.len();
    let mut memory = Flat::new(4 * count);
    let config = Config { compile_after, ..Config::default() };
    let mut run = start(&kernel(&body), "k", 1, THREADS, &BASE.to_le_bytes(), &config);
    assert!(matches!(run.step(&mut memory, &mut Journal::default(), u64::MAX), Step::Done(_)));
    memory.words(BASE, count)
}

/// Each instruction with constants gives what it gives with registers that hold them.
fn constants_are_as_registers(instructions: &[(String, Vec<u32>)]) {
    let with_constants: Vec<_> = instructions
        .iter()
        .map(|(text, constants)| {
            let constants = constants.iter().map(|constant| format!(", {constant}"));
            format!("{text}{};", constants.collect::<String>())
        })
        .collect();
    let with_registers: Vec<_> = instructions
        .iter()
        .map(|(text, constants)| {
            let mut before = String::new();
            let mut after = String::new();
            for (constant, register) in constants.iter().zip(["%x", "%y"]) {
                let _ = write!(before, "mov.u32 {register}, {constant}; ");
                let _ = write!(after, ", {register}");
            }
            format!("{before}{text}{after};")
        })
        .collect();
    let expected = results(&with_registers, None);
    for compile_after in [None, Some(1)] {
        let got = results(&with_constants, compile_after);
        for (index, text) in with_constants.iter().enumerate() {
            let range = index * THREADS as usize..(index + 1) * THREADS as usize;
            assert_eq!(got[range.clone()], expected[range], "{text} {compile_after:?}");
        }
    }
}

#[test]
fn fields_with_constant_places_are_those_of_registers() {
    let places = [(0, 1), (0, 32), (31, 1), (5, 8), (24, 8), (5, 40), (40, 3), (3, 0), (16, 16)];
    let instructions: Vec<_> = places
        .into_iter()
        .flat_map(|(position, length)| {
            ["bfe.u32 %d, %a", "bfe.s32 %d, %a", "bfi.b32 %d, %a, %b"]
                .map(|text| (text.to_owned(), vec![position, length]))
        })
        .collect();
    constants_are_as_registers(&instructions);
}

#[test]
fn funnel_shifts_by_constants_are_those_by_registers() {
    let forms = ["l.wrap", "l.clamp", "r.wrap", "r.clamp"];
    let amounts = [0, 1, 7, 16, 31, 32, 33, 40];
    let instructions: Vec<_> = forms
        .into_iter()
        .flat_map(|form| amounts.map(|amount| (format!("shf.{form}.b32 %d, %a, %b"), vec![amount])))
        .collect();
    constants_are_as_registers(&instructions);
}

#[test]
fn permutations_by_constants_are_those_by_registers() {
    let selectors =
        [0x3210, 0x7654, 0x0123, 0x5410, 0x7632, 0x0000, 0x4444, 0x1526, 0x9876, 0xfedc, 0x1_0321];
    let instructions = selectors.map(|selector| ("prmt.b32 %d, %a, %b".to_owned(), vec![selector]));
    constants_are_as_registers(&instructions);
}

#[test]
fn logic_is_that_of_each_table() {
    let instructions: Vec<_> =
        (0..=u8::MAX).map(|table| format!("lop3.b32 %d, %a, %b, %c, {table};")).collect();
    for compile_after in [None, Some(1)] {
        let got = results(&instructions, compile_after);
        for (index, got) in got.iter().enumerate() {
            let (table, thread) = (index as u32 / THREADS, index as u32 % THREADS);
            let [a, b, c] = operands(thread);
            let expected = bits::logic(a, b, c, table as u8);
            assert_eq!(*got, expected, "table {table}, thread {thread}, {compile_after:?}");
        }
    }
}
