//! Fragments of `wmma` and matrices of `ldmatrix`: loads, products and stores agree.

mod machine;

use machine::{BASE, Flat, Journal, done, kernel, module, words};
use pagewise_ptx::math::half::{Binary16, Brain16, Half};

/// The shapes that most types have.
const COMMON: [(usize, usize, usize); 3] = [(16, 16, 16), (32, 8, 16), (8, 32, 16)];

/// The types of a product: of the factors, of the accumulators, and the product's modifiers.
const TYPES: [(&str, &str, &str); 7] = [
    ("f16", "f32", "f32.f32"),
    ("f16", "f16", "f16.f16"),
    ("bf16", "f32", "f32.bf16.bf16.f32"),
    ("s8", "s32", "s32.s8.s8.s32"),
    ("u8", "s32", "s32.u8.u8.s32"),
    ("tf32", "f32", "f32.tf32.tf32.f32"),
    ("f64", "f64", "f64.f64.f64.f64"),
];

/// The bytes of a small number.
fn encode(kind: &str, value: i32) -> Vec<u8> {
    match kind {
        "f16" => Binary16::narrow(value as f32).to_le_bytes().to_vec(),
        "bf16" => Brain16::narrow(value as f32).to_le_bytes().to_vec(),
        "s8" | "u8" => vec![value as u8],
        "s32" => value.to_le_bytes().to_vec(),
        "f64" => f64::from(value).to_le_bytes().to_vec(),
        _ => (value as f32).to_le_bytes().to_vec(),
    }
}

/// The registers of a fragment with so many elements.
fn registers(name: &str, kind: &str, elements: usize) -> (String, usize) {
    let bytes = encode(kind, 0).len();
    let count = match (name, kind) {
        ("a" | "b", "f16") => 8,
        _ => elements * bytes / 32 / bytes.max(4),
    };
    let list: Vec<_> = (0..count).map(|index| format!("{name}{index}")).collect();
    (list.join(", "), count)
}

/// A matrix in memory: its order, and the elements from one line to the next.
#[derive(Clone, Copy)]
struct Order {
    row: bool,
    stride: usize,
}

impl Order {
    /// A matrix with gaps between lines, or none: the stride is then left out.
    fn new(row: bool, (rows, columns): (usize, usize), gap: usize) -> Self {
        Self { row, stride: if row { columns } else { rows } + gap }
    }

    fn name(self) -> &'static str {
        if self.row { "row" } else { "col" }
    }

    fn index(self, row: usize, column: usize) -> usize {
        if self.row { row * self.stride + column } else { column * self.stride + row }
    }
}

/// The elements of a product, and the ones that a kernel leaves.
fn compare(types: (&str, &str, &str), shape: (usize, usize, usize), rows: [bool; 4], gap: usize) {
    let (factor, sum, product) = types;
    let (m, n, k) = shape;
    let extents = [(m, k), (k, n), (m, n), (m, n)];
    let orders: [_; 4] = std::array::from_fn(|at| Order::new(rows[at], extents[at], gap));
    let least = if factor == "u8" { 0 } else { -3 };
    let value = |at: usize, row: usize, column: usize| {
        ((row * 5 + column * 3 + at + row * column) % 7) as i32 + least
    };
    let mut memory = Flat::new(1 << 20);
    let place = |at: usize| BASE + 8192 * at as u64;
    for at in 0..3 {
        let kind = if at == 2 { sum } else { factor };
        for row in 0..extents[at].0 {
            for column in 0..extents[at].1 {
                let bytes = encode(kind, value(at, row, column));
                let offset = orders[at].index(row, column) * bytes.len();
                memory.write(place(at) + offset as u64, &bytes);
            }
        }
    }
    let names = ["a", "b", "c", "d"];
    let lists: [_; 4] = std::array::from_fn(|at| {
        let kind = if at >= 2 { sum } else { factor };
        registers(names[at], kind, extents[at].0 * extents[at].1)
    });
    let width = if factor == "f64" { 64 } else { 32 };
    let declared: String =
        (0..4).map(|at| format!(".reg .b{width} {}<{}>; ", names[at], lists[at].1)).collect();
    let access = |at: usize, what: &str| {
        let kind = if at >= 2 { sum } else { factor };
        let stride = if gap == 0 { String::new() } else { format!(", {}", orders[at].stride) };
        let name = format!(
            "wmma.{what}.{}.sync.aligned.{}.m{m}n{n}k{k}.global.{kind}",
            names[at],
            orders[at].name()
        );
        let (fragment, matrix) = (format!("{{{}}}", lists[at].0), format!("[out+{}]", 8192 * at));
        if what == "load" {
            format!("{name} {fragment}, {matrix}{stride};\n")
        } else {
            format!("{name} {matrix}, {fragment}{stride};\n")
        }
    };
    let text = module(&format!(
        ".visible .entry k(.param .u64 k_out) {{ .reg .b64 out; ld.param.u64 out, [k_out];
         {declared}\n{}{}{}
         wmma.mma.sync.aligned.{}.{}.m{m}n{n}k{k}.{product} {{{}}}, {{{}}}, {{{}}}, {{{}}};
         {} ret; }}",
        access(0, "load"),
        access(1, "load"),
        access(2, "load"),
        orders[0].name(),
        orders[1].name(),
        lists[3].0,
        lists[0].0,
        lists[1].0,
        lists[2].0,
        access(3, "store"),
    ));
    done(&text, 1, 32, &mut memory, &mut Journal::default());
    let words = memory.words(place(3), 2048);
    let left: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for row in 0..m {
        for column in 0..n {
            let products = (0..k).map(|at| value(0, row, at) * value(1, at, column));
            let expected = encode(sum, value(2, row, column) + products.sum::<i32>());
            let offset = orders[3].index(row, column) * expected.len();
            let got = &left[offset..offset + expected.len()];
            assert_eq!(got, expected, "{types:?} {shape:?} {rows:?} {gap}: {row}, {column}");
        }
    }
}

#[test]
fn products_of_fragments_are_products_of_matrices() {
    for types in TYPES {
        let shapes = match types.0 {
            "tf32" => vec![(16, 16, 8)],
            "f64" => vec![(8, 8, 4)],
            _ => COMMON.to_vec(),
        };
        for shape in shapes {
            for bits in 0..16 {
                let rows = std::array::from_fn(|at| bits >> at & 1 == 0);
                compare(types, shape, rows, 0);
                compare(types, shape, rows, 16);
            }
        }
    }
}

#[test]
fn matrices_that_are_stored_are_loaded_again() {
    for (store, load, turned) in
        [("", "", false), (".trans", ".trans", false), (".trans", "", true), ("", ".trans", true)]
    {
        let text = kernel(&format!(
            ".shared .align 16 .b8 rows[512]; .reg .b32 s, r<4>, q<4>, one, two;
             mad.lo.u32 r0, %t, 0x20002, 0x10000; add.u32 r1, r0, 0x400040;
             add.u32 r2, r1, 0x400040; add.u32 r3, r2, 0x400040;
             mov.u32 s, rows; mad.lo.u32 s, %t, 16, s;
             stmatrix.sync.aligned.m8n8.x4{store}.shared.b16 [s], {{r0, r1, r2, r3}};
             bar.warp.sync -1;
             ldmatrix.sync.aligned.m8n8.x4{load}.shared.b16 {{q0, q1, q2, q3}}, [s];
             st.global.u32 [%mine], q0; st.global.u32 [%mine+128], q1;
             st.global.u32 [%mine+256], q2; st.global.u32 [%mine+384], q3;"
        ));
        // The elements of the four matrices are numbered line by line.
        let element = |matrix: u32, row: u32, column: u32| matrix * 64 + row * 8 + column;
        let expected: Vec<u32> = (0..128)
            .map(|index| {
                let (matrix, row, column) = (index / 32, index % 32 / 4, index % 4 * 2);
                let of = |part: u32| match turned {
                    false => element(matrix, row, column + part),
                    true => element(matrix, column + part, row),
                };
                of(0) | of(1) << 16
            })
            .collect();
        assert_eq!(words(&text, 1, 32, 128), expected, "{store} {load}");
    }
}

#[test]
fn a_product_waits_for_the_lanes_of_its_warp() {
    let text = kernel(
        ".reg .pred p; .reg .b32 a, i, one, d<2>; and.b32 a, %t, 1; setp.eq.s32 p, a, 0;
         mov.u32 i, 0; mov.u32 one, 0; @p mov.u32 one, 0x01010101;
         @p bra product;
         wait: add.u32 i, i, 1; setp.lt.u32 p, i, %t; @p bra wait;
         mov.u32 one, 0x01010101;
         product:
         mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {d0, d1}, {one}, {one}, {0, 0};
         st.global.u32 [%mine], d0;",
    );
    assert_eq!(words(&text, 1, 32, 32), [16; 32]);
}

#[test]
fn a_matrix_in_registers_is_turned() {
    let text = kernel(
        ".reg .b32 a, d; mad.lo.u32 a, %t, 0x20002, 0x10000;
         movmatrix.sync.aligned.m8n8.trans.b16 d, a; st.global.u32 [%mine], d;",
    );
    // The elements are numbered row by row.
    let element = |row: u32, column: u32| row * 8 + column;
    let expected: Vec<u32> = (0..32)
        .map(|lane| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            element(column, row) | element(column + 1, row) << 16
        })
        .collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}
