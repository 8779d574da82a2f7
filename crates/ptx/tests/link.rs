//! Several modules link to one, as `nvlink` links them.

mod machine;

use machine::{BASE, Flat, Journal, done};
use pagewise_ptx::link::{LinkError, Unit, link};

const HEADER: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";
const DECLARED: &str = ".extern .func (.param .b32 r) f(.param .b32 n);\n";

/// A function that multiplies by a number.
fn function(linking: &str, name: &str, factor: u32) -> String {
    format!(
        "{linking} .func (.param .b32 r) {name}(.param .b32 n) {{
         .reg .b32 %n; ld.param.u32 %n, [n]; mul.lo.u32 %n, %n, {factor}; st.param.b32 [r], %n; ret; }}\n"
    )
}

/// A kernel that stores what functions make of 5.
fn kernel(functions: &[&str]) -> String {
    let calls: String = functions
        .iter()
        .map(|name| {
            format!(
                "{{ .param .b32 x; st.param.b32 [x], 5; .param .b32 y; call.uni (y), {name}, (x);
                 ld.param.b32 %r, [y]; }} st.global.u32 [%a], %r; add.u64 %a, %a, 4;\n"
            )
        })
        .collect();
    format!(
        ".visible .entry k(.param .u64 o) {{ .reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [o];
         {calls} ret; }}\n"
    )
}

fn linked(units: &[String]) -> Result<String, LinkError> {
    let names = ["a.ptx", "b.ptx", "c.ptx"];
    let units: Vec<_> = names.iter().zip(units).map(|(name, text)| Unit { name, text }).collect();
    link(&units)
}

/// The words that the kernel of linked modules leaves.
fn run(units: &[String], words: usize) -> Vec<u32> {
    let text = linked(units).unwrap();
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    done(&text, 1, 1, &mut memory, &mut journal);
    memory.words(BASE, words)
}

#[test]
fn a_module_calls_a_function_of_another_in_any_order() {
    let caller = format!("{HEADER}{DECLARED}{}", kernel(&["f"]));
    let callee = format!("{HEADER}{}", function(".visible", "f", 3));
    assert_eq!(run(&[caller.clone(), callee.clone()], 1), [15]);
    assert_eq!(run(&[callee, caller], 1), [15]);
}

#[test]
fn functions_of_one_name_that_no_other_module_sees_stay_apart() {
    let first =
        format!("{HEADER}{}{DECLARED}{}", function("", "helper", 7), kernel(&["f", "helper"]));
    let calls = function(".visible", "f", 2).replace(
        "mul.lo.u32 %n, %n, 2;",
        "{ .param .b32 q; st.param.b32 [q], %n; .param .b32 w; call.uni (w), helper, (q); ld.param.b32 %n, [w]; }",
    );
    let second = format!("{HEADER}{}{calls}", function("", "helper", 11));
    assert_eq!(run(&[first, second], 2), [55, 35]);
}

#[test]
fn variables_of_one_name_that_no_other_module_sees_stay_apart() {
    let reads = |name: &str, value: u32| {
        format!(
            "{HEADER}.global .align 4 .u32 v = {value};
             .visible .func (.param .b32 r) {name}(.param .b32 n) {{ .reg .b32 %n; .reg .b64 %b;
             mov.u64 %b, v; ld.global.u32 %n, [%b]; st.param.b32 [r], %n; ret; }}\n"
        )
    };
    let first = format!("{}{DECLARED}{}", reads("g", 45), kernel(&["f", "g"]));
    assert_eq!(run(&[first, reads("f", 46)], 2), [46, 45]);
}

#[test]
fn a_weak_definition_gives_way_to_another_and_the_first_of_two_stays() {
    let caller = format!("{HEADER}{DECLARED}{}", kernel(&["f"]));
    let of = |linking: &str, factor: u32| format!("{HEADER}{}", function(linking, "f", factor));
    assert_eq!(run(&[caller.clone(), of(".weak", 3), of(".visible", 4)], 1), [20]);
    assert_eq!(run(&[caller.clone(), of(".visible", 4), of(".weak", 3)], 1), [20]);
    assert_eq!(run(&[caller, of(".weak", 3), of(".weak", 4)], 1), [15]);
}

#[test]
fn a_name_that_is_used_and_defined_nowhere_is_named() {
    let caller = format!("{HEADER}{DECLARED}{}", kernel(&["f"]));
    let undefined = "Undefined reference to 'f' in 'a.ptx'";
    let of = |units: &[String]| linked(units).unwrap_err().to_string();
    assert_eq!(of(std::slice::from_ref(&caller)), undefined);
    // A function that only its module sees defines nothing for others.
    assert_eq!(of(&[caller, format!("{HEADER}{}", function("", "f", 3))]), undefined);
    let unused = format!("{HEADER}{DECLARED}.visible .entry k() {{ ret; }}");
    assert!(linked(&[unused]).is_ok());
}

#[test]
fn a_name_that_two_modules_define_is_named_with_both() {
    let of = |factor: u32| format!("{HEADER}{}", function(".visible", "f", factor));
    let error = linked(&[of(3), of(4)]).unwrap_err().to_string();
    assert_eq!(error, "Multiple definition of 'f' in 'b.ptx', first defined in 'a.ptx'");
}

#[test]
fn modules_agree_in_the_form_of_each_name() {
    let of = |units: &[String]| linked(units).unwrap_err().to_string();
    let caller = format!("{HEADER}{DECLARED}{}", kernel(&["f"]));
    let other = ".visible .func (.param .b64 r) f(.param .b64 n) { ret; }";
    assert_eq!(
        of(&[caller, format!("{HEADER}{other}")]),
        "Prototype doesn't match for 'f' in 'b.ptx', first defined in 'b.ptx'"
    );
    // Numbers of as many bits are alike; floats and arrays are not.
    let of_word = |kind: &str, name: &str| {
        let caller = format!("{HEADER}.extern .func f(.param .b32 n); {}", kernel(&[]));
        linked(&[caller, format!("{HEADER}.visible .func f(.param .{kind} {name}) {{ ret; }}")])
    };
    assert!(of_word("s32", "n").is_ok());
    for (kind, name) in [("f32", "n"), ("b64", "n"), ("b8", "n[4]")] {
        let error = of_word(kind, name).unwrap_err().to_string();
        assert!(error.starts_with("Prototype doesn't match for 'f'"), "{kind} {name}: {error}");
    }
    let variable = |text: &str| format!("{HEADER}{text};");
    let declared = variable(".extern .global .align 4 .u32 v");
    assert_eq!(
        of(&[declared.clone(), variable(".visible .global .align 8 .u64 v = 43")]),
        "Size doesn't match for 'v' in 'b.ptx', first specified in 'a.ptx'"
    );
    let defined = |value: u32| variable(&format!(".visible .global .align 4 .u32 v = {value}"));
    // The first module that mentions a variable is named, as on an H200.
    assert_eq!(
        of(&[declared, defined(41), defined(42)]),
        "Multiple definition of 'v' in 'c.ptx', first defined in 'a.ptx'"
    );
    let common = variable(".common .global .align 4 .u32 v");
    assert!(linked(&[common.clone(), common]).is_ok());
}

#[test]
fn a_text_that_is_no_ptx_is_named_with_its_line() {
    let error = linked(&[HEADER.to_owned(), format!("{HEADER}.visible .func f( {{")]);
    assert!(error.unwrap_err().to_string().starts_with("b.ptx: line 4, "));
}

#[test]
fn source_lines_keep_their_files() {
    let of = |name: &str, file: &str| {
        format!("{HEADER}.file 1 \"{file}\"\n.visible .entry {name}() {{ .loc 1 7 0\n trap; }}\n")
    };
    let text = linked(&[of("k", "first.cu"), of("l", "second.cu")]).unwrap();
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    for (name, file) in [("k", "first.cu"), ("l", "second.cu")] {
        let mut run = machine::start(&text, name, 1, 1, &[], &Default::default());
        let end = format!("{:?}", run.step(&mut memory, &mut journal, 1000));
        assert!(end.contains(file), "{end}");
    }
}
