//! Records of device faults of kernels of which each thread accesses several arrays, beside an H200's
//! (tests/data/adjacent-accesses).

use pagewise_hal::{
    Backend, BackendExt, DeviceId, HostAccess, HostTouch, KernelParam, LaunchShape, StreamHandle,
};
use pagewise_sim::{SimBackend, SimConfig};

const STORES: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/adjacent-accesses/stores.tsv"
));
const LOADS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/adjacent-accesses/loads.tsv"
));

const BYTES: u64 = 8 << 20;
const ROW: u32 = 2048;

/// A recorded row: the block, the arrays that each thread accesses, and the mean of the records.
struct Row {
    block: [u32; 2],
    arrays: usize,
    records: f64,
}

/// The recorded rows. A run that lost records has fewer than half of the others.
fn rows(recorded: &str) -> Vec<Row> {
    let row = |line: &str| {
        let [block, arrays, records] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let (x, y) = block.split_once('x')?;
        let counts: Vec<f64> = records.split(' ').filter_map(|count| count.parse().ok()).collect();
        let most = counts.iter().copied().fold(0.0, f64::max);
        let whole: Vec<f64> = counts.into_iter().filter(|count| *count > most / 2.0).collect();
        Some(Row {
            block: [x.parse().ok()?, y.parse().ok()?],
            arrays: arrays.parse().ok()?,
            records: whole.iter().sum::<f64>() / whole.len() as f64,
        })
    };
    recorded.lines().skip(1).map(|line| row(line).expect("a row")).collect()
}

/// The head of a kernel with so many parameters `p0` and on: `%d1` is the offset of a thread's word.
fn head(parameters: usize) -> String {
    let parameters: Vec<String> =
        (0..parameters).map(|nth| format!(".param .u64 p{nth}")).collect();
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n\
         .visible .entry accesses({})\n{{\n\
         .reg .b32 %r<12>;\n.reg .b32 %v<9>;\n.reg .b64 %d<4>;\n.shared .align 4 .b8 tile[1024];\n\
         mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n\
         mad.lo.u32 %r4, %r1, %r2, %r3;\n\
         mov.u32 %r5, %ctaid.y;\nmov.u32 %r6, %ntid.y;\nmov.u32 %r7, %tid.y;\n\
         mad.lo.u32 %r8, %r5, %r6, %r7;\nmad.lo.u32 %r4, %r8, {ROW}, %r4;\n\
         mul.wide.u32 %d1, %r4, 4;\n",
        parameters.join(", ")
    )
}

/// An access of a thread to its word of an array.
fn access(array: usize, instruction: &str) -> String {
    format!("ld.param.u64 %d2, [p{array}];\nadd.s64 %d2, %d2, %d1;\n{instruction};\n")
}

/// A kernel that reads a word of the first array and writes it to the others, behind a barrier if its
/// blocks are tiles.
fn stores(row: &Row) -> String {
    let mut text = head(row.arrays + 1) + &access(0, "ld.global.u32 %r9, [%d2]");
    if row.block[1] > 1 {
        text += "mad.lo.u32 %r10, %r7, 16, %r3;\nshl.b32 %r10, %r10, 2;\nmov.u32 %r11, tile;\n\
                 add.u32 %r10, %r10, %r11;\nst.shared.u32 [%r10], %r9;\nbar.sync 0;\n\
                 ld.shared.u32 %r9, [%r10];\n";
    }
    let stores = (1..=row.arrays).map(|array| access(array, "st.global.u32 [%d2], %r9"));
    text + &stores.collect::<String>() + "ret;\n}\n"
}

/// A kernel that reads a word of each array.
fn loads(row: &Row) -> String {
    let load = |array| access(array, &format!("ld.global.u32 %v{array}, [%d2]"));
    head(row.arrays) + &(0..row.arrays).map(load).collect::<String>() + "ret;\n}\n"
}

/// The records of device faults of a kernel with so many arrays, of which the host wrote the first.
fn records(row: &Row, text: &str, (arrays, written): (usize, usize), seed: u64) -> u64 {
    let sim = SimBackend::new(SimConfig::h200().seed(seed)).expect("room");
    let spans = (0..arrays).map(|_| sim.alloc(BYTES).expect("room")).collect::<Vec<_>>();
    for &span in &spans[..written] {
        let fill = HostTouch { span, stride_bytes: 1, access: HostAccess::Write(1) };
        // SAFETY: no other code uses memory of the machine.
        unsafe { sim.host_touch(fill) }.expect("live");
    }
    // SAFETY: text is no binary, so it need not be whole.
    let module = unsafe { sim.module_load(DeviceId(0), text.as_bytes()) }.expect("PTX");
    let kernel = sim.module_function(module, "accesses").expect("there");
    let [x, y] = row.block;
    let grid = match y {
        1 => [(BYTES / 4) as u32 / x, 1, 1],
        _ => [ROW / x, (BYTES / 4) as u32 / ROW / y, 1],
    };
    let shape = LaunchShape { grid, block: [x, y, 1], shared_bytes: 0 };
    let params: Vec<KernelParam> =
        spans.iter().map(|span| KernelParam::new(span.ptr.0.to_ne_bytes())).collect();
    // SAFETY: no other code uses memory of the machine, and the kernel stays within the arrays.
    let launched = unsafe { sim.launch(kernel, shape, &params, StreamHandle::NULL) };
    launched.expect("the kernel ends");
    sim.counters().gpu_faults
}

/// How far the records of a row are off, with two seeds in the mean, as a part of the H200's.
fn off(row: &Row, records: impl Fn(u64) -> u64) -> f64 {
    let here = (records(0) + records(1)) as f64 / 2.0;
    let off = (here - row.records).abs() / row.records;
    assert!(off < 0.3, "{:?}, {} arrays: {here}, {}", row.block, row.arrays, row.records);
    off
}

fn mean(of: impl Iterator<Item = f64>, rows: usize) -> f64 {
    of.sum::<f64>() / rows as f64
}

#[test]
fn a_kernel_with_adjacent_stores_has_about_as_many_records_as_on_an_h200() {
    let rows = rows(STORES);
    assert_eq!(rows.len(), 21);
    let off = |row: &Row| {
        let (text, arrays) = (stores(row), (row.arrays + 1, 1));
        off(row, |seed| records(row, &text, arrays, seed))
    };
    let mean = mean(rows.iter().map(off), rows.len());
    assert!(mean < 0.12, "off by {mean} in the mean");
}

#[test]
fn a_kernel_with_adjacent_loads_has_about_as_many_records_as_on_an_h200() {
    let rows = rows(LOADS);
    assert_eq!(rows.len(), 18);
    let off = |row: &Row| {
        let (text, arrays) = (loads(row), (row.arrays, row.arrays));
        off(row, |seed| records(row, &text, arrays, seed))
    };
    let mean = mean(rows.iter().map(off), rows.len());
    assert!(mean < 0.17, "off by {mean} in the mean");
}
