//! Atomics on memory that the run accesses alone do as those on memory that others may access too.

#[path = "harness/machine.rs"]
mod machine;

use machine::{Machine, pack};
use pagewise_ptx::execute::{Config, Launch};

/// Places that the lanes modify, and room for the old values.
const BYTES: u64 = 1024;

/// A kernel in which the lanes take turns at four places.
fn kernel(form: &str, width: usize) -> String {
    let (values, convert) = match (form.rsplit('.').next(), width) {
        (Some("f32"), _) => (".f32", "cvt.rn.f32.u32 %v, %t;"),
        (Some("f64"), _) => (".f64", "cvt.rn.f64.u32 %v, %t;"),
        (_, 8) => (".b64", "cvt.u64.u32 %v, %k;"),
        _ => (".b32", "mov.b32 %v, %k;"),
    };
    let second = if form.starts_with("cas") { ", %v" } else { "" };
    let bits = if width == 8 { "b64" } else { "b32" };
    format!(
        ".version 8.0 .target sm_80 .address_size 64
         .visible .entry k(.param .u64 to) {{
         .reg .b32 %t, %k, %o; .reg .b64 %to, %at, %mine; .reg {values} %v, %old;
         ld.param.u64 %to, [to]; mov.u32 %t, %laneid; mul.lo.u32 %k, %t, 0x9e3779b1;
         and.b32 %k, %k, 0x8000003f; {convert}
         and.b32 %o, %t, 3; mul.wide.u32 %at, %o, 8; add.s64 %at, %at, %to;
         mul.wide.u32 %mine, %t, 8; add.s64 %mine, %mine, %to;
         atom.global.{form} %old, [%at], %v{second};
         st.global.{bits} [%mine+256], %old; ret; }}"
    )
}

/// All bytes after the kernel.
fn after(text: &str, waits: bool) -> Vec<u8> {
    let mut machine = Machine::new();
    let to = machine.memory.allocate(BYTES);
    machine.memory.write(to, &[5_u64.to_le_bytes(), [0; 8], [9; 8], [0; 8]].concat());
    if waits {
        machine.memory.wait_for_pages();
    }
    let instance = machine.load(text).unwrap();
    let kernel = instance.kernel("k").unwrap();
    let params = pack(&kernel, &[to.to_le_bytes().to_vec()]);
    let launch = Launch {
        grid: [1, 1, 1],
        block: [32, 1, 1],
        dynamic_shared: 0,
        params: &params,
        cooperative: false,
        cluster: None,
    };
    machine.launch(&kernel, launch, &Config::default()).unwrap();
    machine.memory.read(to, BYTES as usize)
}

#[test]
fn atomics_do_the_same_where_other_threads_may_access_the_memory() {
    let widths = [
        (4, vec!["add.u32", "add.s32", "add.f32", "min.u32", "min.s32", "max.u32", "max.s32"]),
        (4, vec!["and.b32", "or.b32", "xor.b32", "exch.b32", "cas.b32", "inc.u32", "dec.u32"]),
        (8, vec!["add.u64", "add.f64", "min.u64", "min.s64", "max.u64", "max.s64"]),
        (8, vec!["and.b64", "or.b64", "xor.b64", "exch.b64", "cas.b64"]),
    ];
    for (width, forms) in widths {
        for form in forms {
            let text = kernel(form, width);
            let alone = after(&text, false);
            assert_eq!(alone, after(&text, true), "{form}");
            assert!(alone[256..512].iter().any(|&byte| byte != 0), "{form}");
        }
    }
}
