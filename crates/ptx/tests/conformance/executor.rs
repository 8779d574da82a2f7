//! All forms of the recording, executed as kernels.

use std::fmt::Write as _;

use pagewise_ptx::execute::{Config, Step};
use pagewise_ptx::module::{Module, Target};

use crate::machine::{BASE, Flat, Journal, VARIABLES, load, start};
use crate::operands::bits;
use crate::recording::{Form, forms};

/// Bytes of an element of an operand: registers have at least 16 bits.
fn size(kind: &str) -> usize {
    bits(kind).max(16) as usize / 8
}

/// Declarations before the kernel of a form that has their name, as `conformance/form.py` has them.
fn declared() -> [(&'static str, String); 3] {
    let words = (0..20_u32).map(|n| 0x9e37_79b9_u32.wrapping_mul(n).wrapping_add(0x7f4a_7c15));
    let words: Vec<_> = words.map(|word| word.to_string()).collect();
    let constants = format!(".const .align 16 .b32 constants[20] = {{{}}};\n", words.join(", "));
    let copied = ".func (.param .align 16 .b8 back[16]) copied(.param .align 16 .b8 given[16]) {
         .reg .b32 r<4>; ld.param.v4.b32 {r0, r1, r2, r3}, [given];
         st.param.v4.b32 [back], {r0, r1, r2, r3}; ret; }\n";
    [
        ("constants", constants),
        ("copied", copied.to_owned()),
        ("empty_function", ".func empty_function() { ret; }\n".to_owned()),
    ]
}

/// The text of a form's kernel, as `conformance/record.py` makes it.
fn kernel(form: &Form) -> String {
    let count = form.kinds.len() + form.sizes.len() + 1;
    let params: Vec<_> = (0..count).map(|index| format!(".param .u64 p{index}")).collect();
    // Without clusters such an access is an illegal instruction.
    let in_cluster = form.body.contains("mapa") && form.body.contains("complete_tx::bytes");
    let mut text = String::from(".version 9.0\n.target sm_90\n.address_size 64\n");
    for (name, declaration) in declared() {
        if form.body.contains(name) {
            text += &declaration;
        }
    }
    let _ = writeln!(
        text,
        ".visible .entry form({}) {} {{",
        params.join(", "),
        if in_cluster { ".reqnctapercluster 1" } else { "" },
    );
    let at = |text: &mut String, param: usize, size: usize| {
        let _ = writeln!(
            text,
            "ld.param.u64 at, [p{param}]; cvta.to.global.u64 at, at; mul.wide.u32 n8, n, {size}; \
             add.u64 at, at, n8;"
        );
    };
    for (index, kind) in form.kinds.iter().enumerate() {
        let _ = writeln!(text, ".reg .b{} a{index};", size(kind) * 8);
    }
    for (index, kind) in form.sizes.iter().enumerate() {
        let _ = writeln!(text, ".reg .b{} d{index};", size(kind) * 8);
    }
    text.push_str(
        ".reg .pred p, q; .reg .b32 lane, sa, sbase, n, t; .reg .b64 ga, at, n8;
         .shared .align 16 .b8 shared[512];
         mov.u32 lane, %tid.x; mov.u32 t, %ctaid.x; mad.lo.u32 n, t, 32, lane;
         mov.u32 sbase, shared; mad.lo.u32 sa, lane, 16, sbase;\n",
    );
    at(&mut text, count - 1, 16);
    text.push_str("mov.u64 ga, at;\n");
    for (index, kind) in form.kinds.iter().enumerate() {
        at(&mut text, index, size(kind));
        let _ = writeln!(text, "ld.global.b{} a{index}, [at];", size(kind) * 8);
    }
    let _ = writeln!(text, "{}", form.body);
    for (index, kind) in form.sizes.iter().enumerate() {
        at(&mut text, form.kinds.len() + index, size(kind));
        let _ = writeln!(text, "st.global.b{} [at], d{index};", size(kind) * 8);
    }
    text.push_str("ret;\n}\n");
    text
}

/// Bytes behind the arrays: matrices in global memory take 4 KiB for each block.
const SCRATCH_BYTES: usize = 8192;

/// Forms of the recording that are executed: none may drop out of the comparison unseen.
const EXECUTED: usize = 5377;

/// Forms that the compiler of a GPU refuses.
const REFUSED: usize = 205;

/// A form with as many operands and results as any has.
fn wide_form() -> Form {
    let kinds = vec!["b32".to_owned(); 3];
    let sizes = vec!["b32".to_owned(); 8];
    Form { body: String::new(), kinds, sizes, operands: Vec::new(), results: Vec::new() }
}

/// How a form went.
enum Outcome {
    Equal,
    Refused(String),
    Differs(String),
}

/// Runs a form, by the interpreter alone or by compiled pieces from the second warp on.
fn run(form: &Form, compile_after: Option<u32>) -> Outcome {
    let text = kernel(form);
    if let Err(error) = Module::load(&text, &Target { compute: (9, 0) }) {
        return Outcome::Refused(error.to_string());
    }
    let count = form.kinds.len() + form.sizes.len() + 1;
    // Of each operand and result, and of 16 bytes for each case.
    let array_bytes = (16 * form.operands.len()).next_power_of_two();
    let array = |index: usize| BASE + (array_bytes * index) as u64;
    let has_variables = form.body.contains("constants");
    let variable_bytes = if has_variables { (VARIABLES - BASE) as usize + 4096 } else { 0 };
    let mut memory = Flat::new((array_bytes * count + SCRATCH_BYTES).max(variable_bytes));
    for (index, kind) in form.kinds.iter().enumerate() {
        let values = form.operands.iter().map(|case| case[index].to_le_bytes());
        let bytes: Vec<u8> = values.flat_map(|bytes| bytes[..size(kind)].to_vec()).collect();
        memory.write(array(index), &bytes);
    }
    let params: Vec<u8> = (0..count).flat_map(|index| array(index).to_le_bytes()).collect();
    let blocks = form.operands.len() as u32 / 32;
    let config = Config { instruction_limit: Some(10_000_000), compile_after, ..Config::default() };
    let mut run = start(&text, "form", blocks, 32, &params, &config);
    if has_variables {
        let constants = load(&text).instantiate(&[VARIABLES]).expect("one variable").contents(0);
        memory.write(VARIABLES, &constants);
    }
    let mut journal = Journal::default();
    let end = loop {
        match run.step(&mut memory, &mut journal, 1_000_000) {
            Step::Paused => {}
            other => break other,
        }
    };
    if !matches!(end, Step::Done(_)) {
        return Outcome::Differs(format!("{end:?}"));
    }
    for (index, kind) in form.sizes.iter().enumerate() {
        let (place, size) = (array(form.kinds.len() + index), size(kind));
        let words = memory.words(place, (form.operands.len() * size).div_ceil(4));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (case, got) in bytes.chunks(size).take(form.operands.len()).enumerate() {
            let mut value = [0; 8];
            value[..size].copy_from_slice(got);
            let (got, expected) = (u64::from_le_bytes(value), form.results[case][index]);
            if got != expected {
                let operands = &form.operands[case];
                return Outcome::Differs(format!(
                    "d{index} of {operands:x?}: {expected:x}, not {got:x}"
                ));
            }
        }
    }
    Outcome::Equal
}

#[test]
fn every_form_that_a_gpu_refuses_is_refused() {
    let forms = include_str!("../../data/refused.txt").lines();
    let bodies: Vec<_> = forms.filter_map(|line| line.split('\t').next()).collect();
    let accepted: Vec<_> = bodies
        .iter()
        .filter(|body| {
            let form = Form { body: (**body).to_owned(), ..wide_form() };
            Module::load(&kernel(&form), &Target { compute: (9, 0) }).is_ok()
        })
        .collect();
    assert!(accepted.is_empty(), "{accepted:#?}");
    assert_eq!(bodies.len(), REFUSED);
}

#[test]
fn every_form_executes_as_on_an_h200() {
    let (mut compared, mut wrong) = (0, Vec::new());
    for form in &forms() {
        compared += 1;
        for (how, compile_after) in [("interpreted", None), ("compiled", Some(1))] {
            match run(form, compile_after) {
                Outcome::Equal => {}
                Outcome::Refused(answer) | Outcome::Differs(answer) => {
                    wrong.push(format!("{how}: {}: {answer}", form.body));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} forms:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(compared, EXECUTED);
}
