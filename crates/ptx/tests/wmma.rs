//! Matrices between memory and the registers of a warp: `wmma.load` and `wmma.store`.

mod machine;

use machine::{BASE, Flat, Journal, done, end, load, module, start};
use pagewise_ptx::execute::{Cause, Config, Kind, Step};
use pagewise_ptx::math::half::{Binary16, Half};
use pagewise_ptx::module::{Module, Target};

/// Where the second factor, the accumulators and the results are.
const B: u64 = BASE + (1 << 14);
const C: u64 = B + (1 << 14);
const D: u64 = C + (1 << 14);

/// A type of elements, with those of its accumulators and the shapes that have it.
struct Elements {
    kind: &'static str,
    sum: &'static str,
    shapes: &'static [[usize; 3]],
}

const SHAPES: &[[usize; 3]] = &[[16, 16, 16], [32, 8, 16], [8, 32, 16]];

const ALL: [Elements; 7] = [
    Elements { kind: "f16", sum: "f32", shapes: SHAPES },
    Elements { kind: "f16", sum: "f16", shapes: SHAPES },
    Elements { kind: "bf16", sum: "f32", shapes: SHAPES },
    Elements { kind: "u8", sum: "s32", shapes: SHAPES },
    Elements { kind: "s8", sum: "s32", shapes: SHAPES },
    Elements { kind: "tf32", sum: "f32", shapes: &[[16, 16, 8]] },
    Elements { kind: "f64", sum: "f64", shapes: &[[8, 8, 4]] },
];

/// The bytes of a small number.
fn encoded(kind: &str, value: usize) -> Vec<u8> {
    let single = value as f32;
    match kind {
        "f16" => Binary16::narrow(single).to_le_bytes().into(),
        "bf16" => ((single.to_bits() >> 16) as u16).to_le_bytes().into(),
        "u8" | "s8" => vec![value as u8],
        "s32" => (value as u32).to_le_bytes().into(),
        "f64" => (value as f64).to_le_bytes().into(),
        _ => single.to_le_bytes().into(),
    }
}

fn bytes_of(kind: &str) -> usize {
    encoded(kind, 0).len()
}

/// How many registers a fragment of so many elements has.
fn registers(kind: &str, elements: usize) -> usize {
    let bytes = bytes_of(kind);
    if kind == "f64" { elements / 32 } else { elements * bytes / 128 }
}

/// `{name0, name1, …}`
fn list(name: &str, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|index| format!("{name}{index}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// A matrix in memory: rows, columns, whether its rows are adjacent, and the elements from one line to
/// the next.
#[derive(Clone, Copy)]
struct Matrix {
    rows: usize,
    columns: usize,
    by_rows: bool,
    stride: usize,
}

impl Matrix {
    fn new(rows: usize, columns: usize, by_rows: bool, gap: usize) -> Self {
        let line = if by_rows { columns } else { rows };
        Self { rows, columns, by_rows, stride: line + gap }
    }

    fn at(self, row: usize, column: usize) -> usize {
        if self.by_rows { row * self.stride + column } else { column * self.stride + row }
    }

    fn order(self) -> &'static str {
        if self.by_rows { "row" } else { "col" }
    }

    /// Writes the elements, each of its row and column.
    fn write(self, memory: &mut Flat, at: u64, kind: &str, value: impl Fn(usize, usize) -> usize) {
        for row in 0..self.rows {
            for column in 0..self.columns {
                let element = encoded(kind, value(row, column));
                let place = at + (self.at(row, column) * element.len()) as u64;
                memory.write(place, &element);
            }
        }
    }
}

/// The kernel that multiplies matrices in memory.
fn kernel(
    elements: &Elements,
    shape: [usize; 3],
    factors: [Matrix; 2],
    sums: [Matrix; 2],
) -> String {
    let Elements { kind, sum, .. } = elements;
    let [m, n, k] = shape;
    let of_factor = |elements| if *kind == "f16" { 8 } else { registers(kind, elements) };
    let [a, b, c] = [of_factor(m * k), of_factor(n * k), registers(sum, m * n)];
    let (of_a, of_b) =
        (if *kind == "f64" { "b64" } else { "b32" }, if *sum == "f64" { "b64" } else { "b32" });
    let types = match *kind {
        "f16" => format!("{sum}.{sum}"),
        _ => format!("{sum}.{kind}.{kind}.{sum}"),
    };
    let shape = format!("m{m}n{n}k{k}");
    let [first, second] = factors;
    let [addend, result] = sums;
    let (a_list, b_list, c_list, d_list) = (list("a", a), list("b", b), list("c", c), list("d", c));
    let rounding = if *kind == "f64" { ".rn" } else { "" };
    module(&format!(
        ".visible .entry k(.param .u64 k_out) {{ .reg .b64 out;
         .reg .{of_a} a<{a}>, b<{b}>; .reg .{of_b} c<{c}>, d<{c}>;
         ld.param.u64 out, [k_out];
         wmma.load.a.sync.aligned.{}.{shape}.global.{kind} {a_list}, [out], {};
         wmma.load.b.sync.aligned.{}.{shape}.global.{kind} {b_list}, [out+{}], {};
         wmma.load.c.sync.aligned.{}.{shape}.global.{sum} {c_list}, [out+{}], {};
         wmma.mma.sync.aligned.{}.{}.{shape}{rounding}.{types} {d_list}, {a_list}, {b_list}, {c_list};
         wmma.store.d.sync.aligned.{}.{shape}.global.{sum} [out+{}], {d_list}, {};
         ret; }}",
        first.order(),
        first.stride,
        second.order(),
        B - BASE,
        second.stride,
        addend.order(),
        C - BASE,
        addend.stride,
        first.order(),
        second.order(),
        result.order(),
        D - BASE,
        result.stride,
    ))
}

/// The product of matrices in memory has the elements that their places give.
fn compare(elements: &Elements, shape: [usize; 3], orders: [bool; 4], gap: usize) {
    let [m, n, k] = shape;
    let factors = [Matrix::new(m, k, orders[0], gap), Matrix::new(k, n, orders[1], gap)];
    let sums = [orders[2], orders[3]].map(|by_rows| Matrix::new(m, n, by_rows, gap));
    let first = |row: usize, column: usize| (3 * row + 5 * column + row * column) % 7;
    let second = |row: usize, column: usize| (2 * row + column + row * column) % 5;
    let addend = |row: usize, column: usize| (row + 3 * column) % 11;
    let mut memory = Flat::new(1 << 20);
    factors[0].write(&mut memory, BASE, elements.kind, first);
    factors[1].write(&mut memory, B, elements.kind, second);
    sums[0].write(&mut memory, C, elements.sum, addend);
    let mut expected = Flat::new(1 << 20);
    sums[1].write(&mut expected, D, elements.sum, |row, column| {
        addend(row, column) + (0..k).map(|at| first(row, at) * second(at, column)).sum::<usize>()
    });
    let text = kernel(elements, shape, factors, sums);
    let stats = done(&text, 1, 32, &mut memory, &mut Journal::default());
    let (factor, sum) = (bytes_of(elements.kind), bytes_of(elements.sum));
    let (read, written) = ((m * k + n * k) * factor + m * n * sum, m * n * sum);
    assert_eq!((stats.bytes_read, stats.bytes_written), (read as u64, written as u64));
    assert_eq!(
        memory.words(D, 4096),
        expected.words(D, 4096),
        "{} {} {shape:?} {orders:?}, {gap} elements apart",
        elements.kind,
        elements.sum
    );
}

#[test]
fn matrices_of_every_type_shape_and_order_are_loaded_and_stored() {
    for elements in &ALL {
        for shape in elements.shapes {
            for orders in 0..16 {
                let orders = [0, 1, 2, 3].map(|bit| orders >> bit & 1 == 1);
                for gap in [0, 16] {
                    compare(elements, *shape, orders, gap);
                }
            }
        }
    }
}

#[test]
fn lines_may_begin_at_any_multiple_of_an_element() {
    for elements in &ALL {
        for orders in [[true; 4], [false; 4]] {
            for gap in [1, 2, 3, 4] {
                compare(elements, elements.shapes[0], orders, gap);
            }
        }
    }
}

/// A kernel that loads accumulators, 64 bytes for each of 16 rows that are 1,024 bytes apart, and then
/// executes an instruction.
fn load_and(then: &str) -> String {
    let c = list("c", 8);
    module(&format!(
        ".visible .entry k(.param .u64 k_out) {{ .reg .b64 out; .reg .f32 c<8>;
         .shared .align 16 .b8 tile[1024];
         ld.param.u64 out, [k_out];
         wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {c}, [out], 256;
         {then}
         ret; }}"
    ))
}

#[test]
fn a_matrix_that_waits_lists_all_of_its_missing_pages_at_once() {
    let c = list("c", 8);
    let store =
        format!("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [out+{}], {c}, 256;", D - BASE);
    let mut memory = Flat::new(1 << 20);
    let words: Vec<u32> = (0..4096).collect();
    memory.write_words(BASE, &words);
    // Four rows are in each page.
    let pages_of = |at: u64| (0..4).map(move |page| (at - BASE) / 4096 + page);
    memory.missing = pages_of(BASE).chain(pages_of(D)).collect();
    let mut run = start(&load_and(&store), "k", 1, 32, &BASE.to_le_bytes(), &Config::default());
    let mut journal = Journal::default();
    for (at, kind) in [(BASE, Kind::Read), (D, Kind::Write)] {
        assert!(matches!(run.step(&mut memory, &mut journal, 1 << 20), Step::Waiting));
        let waits: Vec<(u64, Kind)> = run
            .outstanding()
            .iter()
            .map(|wait| ((wait.address - BASE) / 4096, wait.kind))
            .collect();
        let expected: Vec<(u64, Kind)> = pages_of(at).map(|page| (page, kind)).collect();
        assert_eq!(waits, expected);
        memory.missing.retain(|page| pages_of(at).all(|one| one != *page));
        memory.generation += 1;
    }
    assert!(matches!(run.step(&mut memory, &mut journal, 1 << 20), Step::Done(_)));
    for row in 0..16 {
        assert_eq!(memory.words(D + 1024 * row, 16), memory.words(BASE + 1024 * row, 16), "{row}");
    }
}

/// The end of a kernel that stores rows of 64 bytes in 1,024 bytes of shared memory: `stride` floats apart,
/// from a byte on.
fn store_in_tile(stride: u32, offset: u32) -> Step {
    let c = list("c", 8);
    let store = format!(
        "{{ .reg .b32 s; mov.u32 s, tile;
         wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [s+{offset}], {c}, {stride}; }}"
    );
    let mut memory = Flat::new(1 << 20);
    let ended = end(&load_and(&store), 1, 32, &mut memory, &mut Journal::default());
    assert!(memory.fences_hold());
    ended
}

#[test]
fn a_matrix_outside_of_memory_ends_the_kernel() {
    assert!(matches!(store_in_tile(16, 0), Step::Done(_)));
    // The last row, or its last bytes, are behind the memory.
    for (stride, offset) in [(17, 0), (16, 64), (16, 16)] {
        match store_in_tile(stride, offset) {
            Step::Trap(report) => {
                assert!(matches!(report.cause, Cause::OutsideShared { .. }), "{report}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_matrix_between_the_places_of_its_elements_ends_the_kernel() {
    for offset in [2, 1] {
        match store_in_tile(16, offset) {
            Step::Trap(report) => {
                assert!(matches!(report.cause, Cause::Misaligned { .. }), "{report}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn matrices_in_local_memory_are_refused() {
    let text = module(
        ".visible .entry k() { .local .align 16 .b8 own[1024]; .reg .b32 a; .reg .f32 c<8>;
         mov.u32 a, own;
         wmma.load.c.sync.aligned.row.m16n16k16.local.f32 {c0, c1, c2, c3, c4, c5, c6, c7}, [a]; ret; }",
    );
    let target = Target { compute: (9, 0) };
    let error = Module::load(&text, &target).expect_err("local memory");
    assert!(error.to_string().contains("global or shared memory"), "{error}");
    load(&text.replace(".local.f32", ".shared.f32"));
}

/// Eight products of `.tf32` with an addend, as an H100 adds them: four, and then four.
#[test]
fn products_of_tf32_are_added_by_fours() {
    let a = [
        0xc000_e000,
        0x3ee4_2000,
        0x4038_0000,
        0x3e89_a000,
        0x3ee3_e000,
        0x3e1c_c000,
        0xbf92_a000,
        0x3ed7_2000,
    ];
    let b = [
        0xc019_2000,
        0x3f84_4000,
        0xbeca_0000,
        0x3f88_4000,
        0xbf01_2000,
        0x4066_4000,
        0x3f37_e000,
        0xbf59_a000,
    ];
    let (addend, of_wmma, of_mma) = (0xbed8_7368, 0x4049_d436, 0x4049_d437);
    let mut memory = Flat::new(1 << 20);
    memory.write_words(BASE, &a.repeat(16));
    memory.write_words(B, &b.repeat(16));
    memory.write_words(C, &[addend; 256]);
    let factor = |by_rows| {
        Matrix::new(if by_rows { 16 } else { 8 }, if by_rows { 8 } else { 16 }, by_rows, 0)
    };
    let sums = [Matrix::new(16, 16, true, 0); 2];
    let tf32 = &ALL[5];
    let text = kernel(tf32, [16, 16, 8], [factor(true), factor(false)], sums);
    done(&text, 1, 32, &mut memory, &mut Journal::default());
    assert_eq!(memory.words(D, 256), [of_wmma; 256]);
    assert_eq!(pagewise_ptx::math::matrix::dot_tf32(&a, &b, addend), of_mma);
}
