//! Random kernels of integers near which sums and products of lanes wrap.

use crate::machine::kernel;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const WORDS: usize = 8;
const DOUBLES: usize = 6;
const PREDICATES: usize = 4;
/// The bytes that a thread writes.
pub(crate) const ROW: usize = 128;
/// How many kernels tests try.
pub(crate) const KERNELS: u64 = 400;

/// Numbers near which the sums and products of lanes wrap, and others.
const EDGES: [&str; 12] = [
    "0",
    "1",
    "-1",
    "4",
    "31",
    "0x7fffffff",
    "0x80000000",
    "0x7ffffff0",
    "0xfffffff0",
    "0x10000",
    "-2048",
    "0x1234567",
];

fn one_of<'a>(numbers: &mut StdRng, texts: &[&'a str]) -> &'a str {
    texts[numbers.random_range(0..texts.len())]
}

fn word(numbers: &mut StdRng) -> String {
    format!("%w{}", numbers.random_range(0..WORDS))
}

fn word_or_number(numbers: &mut StdRng) -> String {
    if numbers.random_ratio(1, 3) { one_of(numbers, &EDGES).to_owned() } else { word(numbers) }
}

fn double(numbers: &mut StdRng) -> String {
    format!("%d{}", numbers.random_range(0..DOUBLES))
}

fn predicate(numbers: &mut StdRng) -> String {
    format!("%p{}", numbers.random_range(0..PREDICATES))
}

/// One instruction on random registers.
fn instruction(numbers: &mut StdRng) -> String {
    let (d, e) = (word(numbers), double(numbers));
    let [a, b] = [word_or_number(numbers), word_or_number(numbers)];
    let c = word(numbers);
    let [x, y] = [double(numbers), double(numbers)];
    let sign = one_of(numbers, &["u32", "s32"]);
    let wide = one_of(numbers, &["u64", "s64"]);
    let p = predicate(numbers);
    let order = one_of(numbers, &["lt", "le", "gt", "ge", "eq", "ne"]);
    let count = numbers.random_range(0..40);
    match numbers.random_range(0..31) {
        0 | 1 => format!("add.{sign} {d}, {a}, {b}"),
        2 => format!("sub.{sign} {d}, {a}, {b}"),
        3 => format!("mul.lo.{sign} {d}, {a}, {b}"),
        4 => format!("mad.lo.{sign} {d}, {a}, {b}, {c}"),
        5 | 6 => format!("mul.wide.{sign} {e}, {a}, {b}"),
        7 => format!("mad.wide.{sign} {e}, {a}, {b}, {x}"),
        8 => format!("shl.b32 {d}, {c}, {count}"),
        9 => format!("shl.b64 {e}, {x}, {count}"),
        10 => format!("add.{wide} {e}, {x}, {y}"),
        11 => format!("sub.{wide} {e}, {x}, {y}"),
        12 => format!("mul.lo.{wide} {e}, {x}, {y}"),
        13 => format!("cvt.{wide}.{sign} {e}, {c}"),
        14 => format!("cvt.{sign}.{wide} {d}, {x}"),
        15 => format!("mov.b32 {d}, {a}"),
        16 | 17 => format!("setp.{order}.{sign} {p}, {c}, {b}"),
        18 => format!("setp.{order}.{wide} {p}, {x}, {y}"),
        19 => format!("selp.b32 {d}, {a}, {b}, {p}"),
        20 => format!("and.b32 {d}, {c}, {b}"),
        21 => format!("div.{sign} {d}, {c}, {b}"),
        22 => format!("mov.b64 {{{d}, {c}}}, {x}"),
        23 => format!("rem.{sign} {d}, {c}, {b}"),
        24 => format!("shr.{sign} {d}, {c}, {count}"),
        25 => format!("shr.{wide} {e}, {x}, {count}"),
        26 => format!("and.b64 {e}, {x}, {}", one_of(numbers, &EDGES)),
        27 => format!("{}.{wide} {e}, {x}, {y}", one_of(numbers, &["div", "rem"])),
        28 => format!("and.b32 {d}, {c}, {}", one_of(numbers, &EDGES)),
        29 => format!("mul.hi.{sign} {d}, {c}, {b}"),
        _ => format!("bfi.b32 {d}, {c}, {d}, 3, {}", count % 32),
    }
}

/// A kernel of random instructions, of which some are for a part of the threads only.
pub(crate) fn text(seed: u64) -> String {
    let mut numbers = StdRng::seed_from_u64(seed);
    let mut body = format!(
        ".reg .b32 %w<{WORDS}>; .reg .b64 %d<{DOUBLES}>, %row; .reg .pred %p<{PREDICATES}>;\n"
    );
    for register in 0..WORDS {
        let (factor, addend) = (one_of(&mut numbers, &EDGES), one_of(&mut numbers, &EDGES));
        body += &format!("mad.lo.s32 %w{register}, %t, {factor}, {addend};\n");
    }
    for register in 0..DOUBLES {
        let from = word(&mut numbers);
        body += &format!("cvt.s64.s32 %d{register}, {from};\n");
    }
    for register in 0..PREDICATES {
        body += &format!("setp.lt.u32 %p{register}, %t, {};\n", numbers.random_range(0..40));
    }
    for _ in 0..30 {
        if numbers.random_ratio(1, 6) {
            body += &format!("@{} ", predicate(&mut numbers));
        }
        body += &instruction(&mut numbers);
        body += ";\n";
    }
    body += &format!("mad.wide.u32 %row, %t, {ROW}, %out;\n");
    for register in 0..WORDS {
        body += &format!("st.global.b32 [%row+{}], %w{register};\n", 4 * register);
    }
    for register in 0..DOUBLES {
        body += &format!("st.global.b64 [%row+{}], %d{register};\n", 4 * WORDS + 8 * register);
    }
    for register in 0..PREDICATES {
        let at = 4 * WORDS + 8 * DOUBLES + 4 * register;
        body += &format!("selp.u32 %w0, 1, 0, %p{register}; st.global.b32 [%row+{at}], %w0;\n");
    }
    kernel(&format!("{body} ret;"))
}
