//! Functions in place of calls to them: a call by name does as a call by address, which stays a call.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::{load, module, words};
use pieces::{LIMITED, Launched, seen};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Whether a function is called by its name.
#[derive(Clone, Copy, PartialEq)]
enum Calls {
    ByName,
    ByAddress,
}

impl Calls {
    /// A call of a function of one of the two signatures.
    fn call(self, function: &str, arguments: &str, prototype: &str) -> String {
        match self {
            Self::ByName => format!("call (b), {function}, ({arguments});"),
            Self::ByAddress => format!(
                ".reg .b64 %address; mov.u64 %address, {function};
                 form: .callprototype {prototype}; call (b), %address, ({arguments}), form;"
            ),
        }
    }

    /// A call of the function `f{index}` that takes `%x` and `%e`, and gives `%y`.
    fn of_numbers(self, index: usize, guard: &str) -> String {
        let prototype = "(.param .b32 _) _ (.param .b32 _, .param .b64 _)";
        let call = self.call(&format!("f{index}"), "a, c", prototype);
        let call = call.replace("call (", &format!("{guard} call ("));
        format!(
            "{{ .param .b32 a; .param .b64 c; .param .b32 b;
             st.param.b32 [a], %x; st.param.b64 [c], %e; {call} {guard} ld.param.b32 %y, [b]; }}"
        )
    }

    /// A call of the function `s{index}` that takes a structure of `%x`, `%y` and `%e`, and gives another.
    fn of_structures(self, index: usize) -> String {
        let prototype = "(.param .align 8 .b8 _[16]) _ (.param .align 8 .b8 _[16])";
        let call = self.call(&format!("s{index}"), "a", prototype);
        format!(
            "{{ .param .align 8 .b8 a[16]; .param .align 8 .b8 b[16];
             st.param.v2.b32 [a], {{%x, %y}}; st.param.b64 [a+8], %e; {call}
             ld.param.b64 %e, [b]; ld.param.v2.b32 {{%x, %y}}, [b+8]; }}"
        )
    }
}

/// The bodies of functions of numbers: of their arguments `a` and `c` they make `r`.
const OF_NUMBERS: [&str; 8] = [
    "ld.param.b32 %x, [a]; add.u32 %x, %x, 7; st.param.b32 [r], %x;",
    // The upper half of an argument, and another part of it beside it.
    "ld.param.b32 %x, [c+4]; ld.param.u16 %y, [c+2]; xor.b32 %x, %x, %y; st.param.b32 [r], %x;",
    // Two returns.
    "ld.param.b32 %x, [a]; st.param.b32 [r], %x; and.b32 %y, %x, 5; setp.eq.u32 %p, %y, 4; @%p ret;
     add.u32 %x, %x, 100; st.param.b32 [r], %x;",
    // A loop of as many rounds as each lane's argument says.
    "ld.param.b32 %x, [a]; and.b32 %y, %x, 7; again: mul.lo.u32 %x, %x, 3; add.s32 %y, %y, -1;
     setp.gt.s32 %p, %y, 0; @%p bra again; st.param.b32 [r], %x;",
    // A table of jumps.
    "ld.param.b32 %x, [a]; ld.param.b64 %e, [c]; and.b32 %y, %x, 1; cvt.u32.u64 %z, %e;
     list: .branchtargets one, two; brx.idx %y, list;
     one: add.u32 %x, %x, %z; two: mul.lo.u32 %x, %x, 5; st.param.b32 [r], %x;",
    // The address of an argument.
    "mov.b64 %e, c; add.u64 %e, %e, 1; ld.local.u8 %x, [%e]; ld.param.b32 %y, [a];
     add.u32 %x, %x, %y; st.param.b32 [r], %x;",
    // A variable in local memory, and a result that is written twice.
    ".local .align 4 .b8 room[16]; ld.param.b32 %x, [a]; st.param.b32 [r], 3; and.b32 %y, %x, 3;
     mov.b64 %e, room; mul.wide.u32 %g, %y, 4; add.u64 %e, %e, %g; st.local.b32 [room], 11;
     st.local.b32 [room+4], 12; st.local.b32 [room+8], 13; st.local.b32 [room+12], 14;
     ld.local.b32 %y, [%e]; add.u32 %x, %x, %y; st.param.b32 [r], %x;",
    // Some lanes write their result only.
    "ld.param.b32 %x, [a]; st.param.b32 [r], %x; setp.gt.u32 %p, %x, 12; mul.lo.u32 %x, %x, 9;
     @%p st.param.b32 [r], %x;",
];

/// The bodies of functions of structures: of `a` they make `r`.
const OF_STRUCTURES: [&str; 4] = [
    "ld.param.b64 %e, [a]; ld.param.b64 %g, [a+8]; st.param.v2.b64 [r], {%g, %e};",
    "ld.param.v2.b32 {%x, %y}, [a]; ld.param.b64 %e, [a+8]; st.param.b64 [r], %e;
     st.param.v2.b32 [r+8], {%y, %x};",
    "mov.b64 %e, a; ld.local.b64 %g, [%e+8]; st.param.b64 [r], %g; st.param.b64 [r+8], 77;",
    "ld.param.u8 %x, [a+3]; ld.param.b64 %e, [a+8]; st.param.b64 [r], %e; st.param.b32 [r+8], %x;
     st.param.b32 [r+12], 5;",
];

const REGISTERS: &str = ".reg .b32 %x, %y, %z, %i; .reg .b64 %e, %g, %d; .reg .pred %p, %q;";

/// A module of functions that may call those before them, and a kernel that calls them in a loop.
fn text(seed: u64, calls: Calls) -> String {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut functions = String::new();
    for index in 0..4 {
        let body = OF_NUMBERS.choose(random).unwrap();
        let mut inner = String::new();
        if index > 0 && random.random() {
            let guard = *["", "@%q", "@!%q"].choose(random).unwrap();
            inner = calls.of_numbers(random.random_range(0..index), guard);
        }
        functions += &format!(
            ".func (.param .b32 r) f{index}(.param .b32 a, .param .b64 c) {{ {REGISTERS}
             mov.u32 %y, 1; ld.param.b32 %x, [a]; ld.param.b64 %e, [c]; setp.lt.u32 %q, %x, 9;
             {inner} add.u32 %z, %y, 1; {body}
             ret; }}\n"
        );
        let body = OF_STRUCTURES.choose(random).unwrap();
        functions += &format!(
            ".func (.param .align 8 .b8 r[16]) s{index}(.param .align 8 .b8 a[16]) {{ {REGISTERS}
             {body} ret; }}\n"
        );
    }
    let mut body = String::new();
    for _ in 0..4 {
        let index = random.random_range(0..4);
        body += &match random.random_range(0..4) {
            0 => calls.of_structures(index),
            1 => calls.of_numbers(index, "@%q"),
            _ => calls.of_numbers(index, ""),
        };
        body += "add.u32 %x, %x, %y; xor.b32 %y, %y, %i; cvt.u64.u32 %g, %x; add.u64 %e, %e, %g;\n";
    }
    module(&format!(
        "{functions} .visible .entry k(.param .u64 k_out) {{ {REGISTERS}
         ld.param.u64 %d, [k_out]; mov.u32 %x, %tid.x; mul.wide.u32 %g, %x, 16; add.u64 %d, %d, %g;
         mov.u64 %e, 5; mov.u32 %y, 2; mov.u32 %i, 0;
         again: setp.lt.u32 %q, %y, %x; {body}
         add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 6; @%p bra again;
         st.global.v2.b32 [%d], {{%x, %y}}; st.global.b64 [%d+8], %e; ret; }}"
    ))
}

#[test]
fn calls_by_name_do_as_calls_by_address() {
    for seed in 0..120 {
        let texts = [Calls::ByName, Calls::ByAddress].map(|calls| text(seed, calls));
        let runs = texts.each_ref().map(|text| {
            let block = [[32, 1], [45, 1]][seed as usize % 2];
            let launched = Launched { text, name: "k", grid: 1, block, waits: false, quantum: 512 };
            let mut runs = vec![seen(launched, LIMITED, false)];
            // Compiling takes most of the time.
            if seed < 10 {
                runs.push(seen(launched, LIMITED, true));
            }
            runs
        });
        let first = &runs[0][0];
        for run in runs.iter().flatten() {
            assert_eq!(run.report, None, "{}", texts[0]);
            assert!(run.words == first.words, "seed {seed}: {}", texts[0]);
        }
    }
}

#[test]
fn arguments_in_registers_take_no_local_memory() {
    let function = |body: &str| {
        module(&format!(
            ".func (.param .b32 r) f(.param .b32 a, .param .b64 c) {{ {REGISTERS} {body} ret; }}
             .visible .entry k(.param .u64 k_out) {{ {REGISTERS} ld.param.u64 %d, [k_out];
             mov.u32 %x, %tid.x; mov.u64 %e, 5; {}
             mul.wide.u32 %g, %x, 4; add.u64 %d, %d, %g; st.global.b32 [%d], %y; ret; }}",
            Calls::ByName.of_numbers(0, "").replace("f0", "f")
        ))
    };
    let local = |text: &str| load(text).kernels()[0].local;
    let text = function(OF_NUMBERS[0]);
    assert_eq!(local(&text), 0);
    assert_eq!(words(&text, 1, 3, 3), [7, 8, 9]);
    // An argument with an address, and a variable, are in memory.
    assert!(local(&function(OF_NUMBERS[5])) > 0);
    assert!(local(&function(OF_NUMBERS[6])) >= 16);
}

/// 64 functions of which each calls the one before it twice: 2^64 instructions, if all took the place of calls.
#[test]
fn a_module_does_not_grow_without_bound() {
    let mut functions = ".func f0() { ret; }\n".to_owned();
    for index in 1..64 {
        let before = index - 1;
        functions += &format!(".func f{index}() {{ call f{before}; call f{before}; ret; }}\n");
    }
    let text = module(&format!(
        "{functions} .visible .entry k(.param .u64 k_out) {{ .reg .pred %p; setp.ne.u32 %p, 0, 0;
         @%p call f63; .reg .b64 %d; ld.param.u64 %d, [k_out]; st.global.b32 [%d], 1; ret; }}"
    ));
    assert_eq!(words(&text, 1, 1, 1), [1]);
}

#[test]
fn functions_that_reach_themselves_stay_functions() {
    // Is a number even? Each asks the other about the number below.
    let asks = |name: &str, other: &str, at_zero: u32| {
        format!(
            ".func (.param .b32 r) {name}(.param .b32 a) {{ {REGISTERS} ld.param.b32 %x, [a];
             setp.eq.u32 %p, %x, 0; st.param.b32 [r], {at_zero}; @%p ret; sub.u32 %x, %x, 1;
             {{ .param .b32 c; .param .b32 b; st.param.b32 [c], %x; call (b), {other}, (c);
             ld.param.b32 %y, [b]; }} st.param.b32 [r], %y; ret; }}\n"
        )
    };
    let text = module(&format!(
        ".func (.param .b32 r) odd(.param .b32 a);\n{}{}
         .visible .entry k(.param .u64 k_out) {{ {REGISTERS} ld.param.u64 %d, [k_out];
         mov.u32 %x, %tid.x; mul.wide.u32 %g, %x, 4; add.u64 %d, %d, %g;
         {{ .param .b32 c; .param .b32 b; st.param.b32 [c], %x; call (b), even, (c);
         ld.param.b32 %y, [b]; }} st.global.b32 [%d], %y; ret; }}",
        asks("even", "odd", 1),
        asks("odd", "even", 0),
    ));
    assert_eq!(words(&text, 1, 9, 9), [1, 0, 1, 0, 1, 0, 1, 0, 1]);
}

/// Each has 15 MiB in local memory, so not even two of them fit into one frame.
#[test]
fn functions_with_much_local_memory_stay_functions() {
    let mut functions = ".func f0() { ret; }\n".to_owned();
    for index in 1..400 {
        let before = index - 1;
        functions += &format!(
            ".func f{index}() {{ .local .b8 room[15728640]; .reg .b64 %e; mov.b64 %e, room;
             st.local.b64 [room], %e; call f{before}; ret; }}\n"
        );
    }
    let text = module(&format!(
        "{functions} .visible .entry k(.param .u64 k_out) {{ call f1; .reg .b64 %d;
         ld.param.u64 %d, [k_out]; ret; }}"
    ));
    let local = load(&text).kernels()[0].local;
    assert!((15 << 20..16 << 20).contains(&local), "{local}");
}
