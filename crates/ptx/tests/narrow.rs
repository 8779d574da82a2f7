//! Products of matrices of 4 bits and of single bits, and of halves with sums of another type.

mod machine;

use machine::{BASE, Flat, Journal, done, module};
use pagewise_ptx::math::half::{Binary16, Half};

/// A reproducible word.
fn word(index: usize) -> u32 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// The kinds of elements: their bits, and their value.
fn element(kind: &str, register: u32, index: usize) -> i32 {
    match kind {
        "b1" => (register >> index & 1) as i32,
        "s4" => ((register >> (4 * index)) << 28).cast_signed() >> 28,
        _ => (register >> (4 * index) & 15) as i32,
    }
}

/// The sums of a product of matrices, by what the manual says of the places of elements.
fn expected(
    (rows, depth): (usize, usize),
    (a, b): (&str, &str),
    how: &str,
    register: impl Fn(usize, usize) -> u32,
) -> Vec<Vec<i32>> {
    let packed = if a == "b1" { 32 } else { 8 };
    let groups = rows / 8;
    let of_a = groups * depth / packed / 4;
    let spot = |column: usize| (column / packed % 4, column / (packed * 4), column % packed);
    let (mut sums, b_words) = (vec![vec![0; 8]; rows], depth / packed / 4);
    for (row, line) in sums.iter_mut().enumerate() {
        for (column, sum) in line.iter_mut().enumerate() {
            let lane = row % 8 * 4 + column / 2;
            *sum = register(lane, of_a + b_words + row / 8 * 2 + column % 2).cast_signed();
            for k in 0..depth {
                let (place, step, part) = spot(k);
                let first = register(row % 8 * 4 + place, step * groups + row / 8);
                let second = register(column * 4 + place, of_a + step);
                let (x, y) = (element(a, first, part), element(b, second, part));
                let product = match how {
                    ".and.popc" => x & y,
                    ".xor.popc" => x ^ y,
                    _ => x * y,
                };
                *sum = sum.wrapping_add(product);
            }
        }
    }
    sums
}

/// Runs a product of registers that threads load, and compares its sums.
fn compare(rows: usize, depth: usize, (a, b): (&str, &str), how: &str) {
    let packed = if a == "b1" { 32 } else { 8 };
    let counts = [rows / 8 * depth / packed / 4, depth / packed / 4, rows / 4];
    let all: usize = counts.iter().sum();
    let list = |first: usize, count: usize| {
        let names: Vec<_> = (first..first + count).map(|index| format!("r{index}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let loads: String =
        (0..all).map(|r| format!("ld.global.u32 r{r}, [mine+{}];\n", 128 * r)).collect();
    let stores: String = (0..counts[2])
        .map(|r| format!("st.global.u32 [mine+{}], d{r};\n", 8192 + 128 * r))
        .collect();
    let results: Vec<_> = (0..counts[2]).map(|index| format!("d{index}")).collect();
    let text = module(&format!(
        ".visible .entry k(.param .u64 k_out) {{ .reg .b64 mine, at; .reg .b32 t, r<16>, d<4>;
         ld.param.u64 mine, [k_out]; mov.u32 t, %tid.x; mul.wide.u32 at, t, 4; add.s64 mine, mine, at;
         {loads}
         mma.sync.aligned.m{rows}n8k{depth}.row.col.s32.{a}.{b}.s32{how} {{{}}}, {}, {}, {};
         {stores} ret; }}",
        results.join(", "),
        list(0, counts[0]),
        list(counts[0], counts[1]),
        list(counts[0] + counts[1], counts[2]),
    ));
    let mut memory = Flat::new(1 << 20);
    let words: Vec<u32> = (0..32 * all).map(word).collect();
    memory.write_words(BASE, &words);
    done(&text, 1, 32, &mut memory, &mut Journal::default());
    let left = memory.words(BASE + 8192, 32 * counts[2]);
    let sums = expected((rows, depth), (a, b), how, |lane, register| words[32 * register + lane]);
    for (row, line) in sums.iter().enumerate() {
        for (column, sum) in line.iter().enumerate() {
            let lane = row % 8 * 4 + column / 2;
            let got = left[32 * (row / 8 * 2 + column % 2) + lane].cast_signed();
            assert_eq!(got, *sum, "m{rows}n8k{depth} {a} {b} {how}: {row}, {column}");
        }
    }
}

#[test]
fn products_of_4_bits_are_exact() {
    for kinds in [("s4", "s4"), ("s4", "u4"), ("u4", "s4"), ("u4", "u4")] {
        for (rows, depth) in [(8, 32), (16, 32), (16, 64)] {
            compare(rows, depth, kinds, "");
        }
    }
}

#[test]
fn products_of_bits_count_the_pairs() {
    for how in [".and.popc", ".xor.popc"] {
        for (rows, depth) in [(8, 128), (16, 128), (16, 256)] {
            compare(rows, depth, ("b1", "b1"), how);
        }
    }
}

/// A product of fragments of `wmma`: the matrices lie in memory, with 8 rows and 8 columns of sums.
#[test]
fn fragments_of_narrow_elements_are_loaded_by_their_lines() {
    let forms =
        [("s4", 32, ""), ("u4", 32, ""), ("b1", 128, ".xor.popc"), ("b1", 128, ".and.popc")];
    for (kind, depth, how) in forms {
        for gap in [0, 4] {
            // Words of a line, and from one line to the next.
            let per_word = if kind == "b1" { 32 } else { 8 };
            let stride = 4 + gap;
            let elements = stride * per_word;
            let text = module(&format!(
                ".visible .entry k(.param .u64 k_out) {{ .reg .b64 out; .reg .b32 a, b, c<2>, d<2>;
                 ld.param.u64 out, [k_out];
                 wmma.load.a.sync.aligned.row.m8n8k{depth}.global.{kind} {{a}}, [out], {elements};
                 wmma.load.b.sync.aligned.col.m8n8k{depth}.global.{kind} {{b}}, [out+1024], {elements};
                 wmma.load.c.sync.aligned.row.m8n8k{depth}.global.s32 {{c0, c1}}, [out+2048];
                 wmma.mma{how}.sync.aligned.row.col.m8n8k{depth}.s32.{kind}.{kind}.s32
                 {{d0, d1}}, {{a}}, {{b}}, {{c0, c1}};
                 wmma.store.d.sync.aligned.row.m8n8k{depth}.global.s32 [out+4096], {{d0, d1}}; ret; }}"
            ));
            let mut memory = Flat::new(1 << 20);
            let words: Vec<u32> = (0..1024).map(word).collect();
            memory.write_words(BASE, &words);
            done(&text, 1, 32, &mut memory, &mut Journal::default());
            let left = memory.words(BASE + 4096, 64);
            for (at, got) in left.iter().enumerate() {
                let (row, column) = (at / 8, at % 8);
                let of = |start: usize, line: usize, k: usize| {
                    element(kind, words[start + line * stride + k / per_word], k % per_word)
                };
                let pair = |k| (of(0, row, k), of(256, column, k));
                let each = (0..depth).map(|k| match (how, pair(k)) {
                    (".and.popc", (a, b)) => a & b,
                    (".xor.popc", (a, b)) => a ^ b,
                    (_, (a, b)) => a * b,
                });
                let sum = words[512 + at].cast_signed().wrapping_add(each.sum());
                assert_eq!(got.cast_signed(), sum, "{kind}{how} {gap}: {row}, {column}");
            }
        }
    }
}

#[test]
fn sums_of_halves_begin_and_end_as_the_types_that_are_named() {
    for (d, c, shape) in [
        ("f32", "f16", (16, 16)),
        ("f16", "f32", (16, 16)),
        ("f16", "f32", (32, 8)),
        ("f32", "f16", (8, 32)),
    ] {
        let (m, n) = shape;
        let list = |name: &str, kind: &str| {
            let count = if kind == "f16" { 4 } else { 8 };
            let names: Vec<_> = (0..count).map(|index| format!("{name}{index}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let factor = "{a0, a1, a2, a3, a4, a5, a6, a7}";
        let text = module(&format!(
            ".visible .entry k(.param .u64 k_out) {{ .reg .b64 out; .reg .b32 a<8>, b<8>, c<8>, d<8>;
             ld.param.u64 out, [k_out];
             wmma.load.a.sync.aligned.row.m{m}n{n}k16.global.f16 {factor}, [out];
             wmma.load.b.sync.aligned.col.m{m}n{n}k16.global.f16 {}, [out+2048];
             wmma.load.c.sync.aligned.row.m{m}n{n}k16.global.{c} {}, [out+4096];
             wmma.mma.sync.aligned.row.col.m{m}n{n}k16.{d}.{c} {}, {factor}, {}, {};
             wmma.store.d.sync.aligned.row.m{m}n{n}k16.global.{d} [out+8192], {}; ret; }}",
            factor.replace('a', "b"),
            list("c", c),
            list("d", d),
            factor.replace('a', "b"),
            list("c", c),
            list("d", d),
        ));
        let half = |value: i32| Binary16::narrow(value as f32);
        let value = |seed: usize, at: usize| (word(seed + at) % 13) as i32 - 6;
        let mut memory = Flat::new(1 << 20);
        for at in 0..16 * m {
            memory.write(BASE + 2 * at as u64, &half(value(0, at)).to_le_bytes());
        }
        for at in 0..16 * n {
            memory.write(BASE + 2048 + 2 * at as u64, &half(value(999, at)).to_le_bytes());
        }
        // Sums that a half does not hold: they are rounded to the nearest, ties to even.
        let addend = |at: usize| if c == "f32" { 4097 + value(7, at) } else { value(7, at) };
        for at in 0..m * n {
            let place = BASE + 4096 + at as u64 * if c == "f16" { 2 } else { 4 };
            match c {
                "f16" => memory.write(place, &half(addend(at)).to_le_bytes()),
                _ => memory.write(place, &(addend(at) as f32).to_le_bytes()),
            }
        }
        done(&text, 1, 32, &mut memory, &mut Journal::default());
        let left = memory.words(BASE + 8192, m * n);
        for at in 0..m * n {
            let (row, column) = (at / n, at % n);
            let products = (0..16).map(|k| value(0, 16 * row + k) * value(999, 16 * column + k));
            let exact = addend(at) + products.sum::<i32>();
            let (got, expected) = match d {
                "f16" => (left[at / 2] >> (at % 2 * 16) & 0xffff, u32::from(half(exact))),
                _ => (left[at], (exact as f32).to_bits()),
            };
            assert_eq!(got, expected, "{d} {c} {shape:?}: {row}, {column}");
        }
    }
}
