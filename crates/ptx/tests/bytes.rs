//! Registers of 8 bits: conversions of them, and vectors of them in wider registers.

mod machine;

use machine::{kernel, module, words};
use pagewise_ptx::module::{Module, Target};

fn refusal(body: &str) -> String {
    Module::load(&kernel(body), &Target { compute: (9, 0) }).unwrap_err().to_string()
}

#[test]
fn a_bfloat_becomes_the_nearest_byte_and_back() {
    // Thread by thread 0, 100, 200, 300, -100, -200, a NaN: as an H100 converts each of 65,536.
    let numbers = [0x0000_u32, 0x42c8, 0x4348, 0x4396, 0xc2c8, 0xc348, 0x7fc0];
    let choices: String = numbers
        .iter()
        .enumerate()
        .map(|(thread, bits)| format!("setp.eq.u32 %p, %t, {thread}; @%p mov.b32 %w, {bits};\n"))
        .collect();
    let text = |to: &str, back: &str| {
        kernel(&format!(
            ".reg .b8 %m; .reg .b16 %h, %o, %b; .reg .b32 %w, %x; .reg .pred %p; mov.b32 %w, 0;
             {choices}
             cvt.u16.u32 %h, %w; cvt.rzi.{to}.bf16 %m, %h; mov.b16 %o, {{%m, 0}};
             cvt.rn.bf16.{to} %b, %m; {back} st.global.u32 [%mine], %x;"
        ))
    };
    let result = "mov.b32 %x, {%o, %b};";
    let threads = numbers.len() as u32;
    let unsigned = words(&text("u8", result), 1, threads, numbers.len());
    assert_eq!(
        unsigned,
        [0, 0x42c8_0064, 0x4348_00c8, 0x437f_00ff, 0, 0, 0],
        "bytes in the lower halves, bfloats of them in the upper"
    );
    let signed = words(&text("s8", result), 1, threads, numbers.len());
    assert_eq!(signed, [0, 0x42c8_0064, 0x42fe_007f, 0x42fe_007f, 0xc2c8_009c, 0xc300_0080, 0]);
}

#[test]
fn wider_registers_are_put_together_of_bytes_and_taken_apart() {
    let text = kernel(
        ".reg .b8 %a, %b, %c; .reg .b16 %h; .reg .b32 %w;
         add.u32 %w, %t, 0x44332211; mov.b32 {%a, %b, _, %c}, %w;
         mov.b16 %h, {%b, %a}; mov.b16 {%a, _}, %h;
         mov.b32 %w, {%a, 7, %c, %b}; st.global.u32 [%mine], %w;",
    );
    assert_eq!(words(&text, 1, 2, 2), [0x2244_0722, 0x2244_0722]);
}

#[test]
fn bytes_are_refused_where_an_instruction_takes_wider_registers() {
    let declared = ".reg .b8 %m; .reg .b16 %h; mov.b16 %h, 1;";
    for (instruction, reason) in [
        ("cvt.rzi.u8.bf16 %h, %h;", "is of a register of type .b8"),
        ("add.u16 %h, %m, %m;", "`%m` has 8 bits"),
        ("mov.b16 %h, {%h, 0};", "`%h` has 16 bits"),
        ("mov.b16 {%h, _}, %h;", "`%h` has 16 bits"),
    ] {
        let error = refusal(&format!("{declared} {instruction}"));
        assert!(error.contains(reason), "{instruction}: {error}");
    }
}

#[test]
fn functions_take_and_give_no_integers_of_16_or_8_bits() {
    for signature in ["f(.param .u16 p)", "(.param .s8 r) f()", "f(.reg .pred p)"] {
        let text = module(&format!(".visible .func {signature} {{ ret; }}"));
        let error = Module::load(&text, &Target { compute: (9, 0) }).unwrap_err().to_string();
        assert!(error.contains("make it .b8, .b16 or wider"), "{error}");
    }
    for signature in ["f(.param .b16 p)", "(.param .b8 r) f()", "f(.param .u8 p[4])"] {
        let text = module(&format!(".visible .func {signature} {{ ret; }}"));
        assert!(Module::load(&text, &Target { compute: (9, 0) }).is_ok(), "{signature}");
    }
}
