//! The parser takes the shapes of nvcc's output, and refuses other texts with their place.

use pagewise_ptx::syntax::parse;
use pagewise_ptx::syntax::tree::{Initial, Item, Number, Operand, StatementKind};

fn module(body: &str) -> String {
    format!(".version 8.0\n.target sm_75\n.address_size 64\n{body}")
}

fn kernel(body: &str) -> String {
    module(&format!(".visible .entry k(.param .u64 p) {{\n{body}\n}}"))
}

#[test]
fn operands_of_every_shape_are_read() {
    let text = kernel("@!%p1 x.y %r1, -3, 0f3F800000, {%r2, _}, [%rd1+-8], a|b, !%p2, sym+4;");
    let tree = parse(&text).unwrap();
    let Item::Function(function) = &tree.items[0] else { panic!("no function") };
    let StatementKind::Instruction(instruction) = &function.body.as_ref().unwrap()[0].kind else {
        panic!("no instruction")
    };
    assert_eq!(instruction.guard, Some(("%p1", true)));
    assert_eq!(
        instruction.operands,
        [
            Operand::Name("%r1"),
            Operand::Number(Number::Integer(3_u64.wrapping_neg())),
            Operand::Number(Number::Single(0x3f80_0000)),
            Operand::Vector(vec![Operand::Name("%r2"), Operand::Name("_")]),
            Operand::Address { base: Some("%rd1"), offset: -8, more: false },
            Operand::Pair("a", "b"),
            Operand::Not("%p2"),
            Operand::Sum("sym", 4),
        ]
    );
}

#[test]
fn variables_keep_their_attributes_and_values() {
    let text =
        module(".visible .global .attribute(.managed) .align 8 .u64 t[2] = {generic(f)+8, 0x10};");
    let tree = parse(&text).unwrap();
    let Item::Variable(variable) = &tree.items[0] else { panic!("no variable") };
    assert!(variable.managed);
    assert_eq!(
        (variable.align, variable.kind, &variable.sizes[..]),
        (Some(8), "u64", &[Some(2)][..])
    );
    let values = Initial::List(vec![
        Initial::Symbol { name: "f", offset: 8, generic: true },
        Initial::Number(Number::Integer(16)),
    ]);
    assert_eq!(variable.initial, Some(values));
}

#[test]
fn an_error_names_its_line_and_column() {
    let error = parse(&kernel("add.u32 %r1 %r2;")).unwrap_err();
    assert_eq!((error.line, error.column), (5, 13));
    assert!(error.message.contains("expected `;`"), "{error}");
}

#[test]
fn deep_nesting_ends_in_an_error_or_a_tree() {
    let braces = "{".repeat(100_000);
    assert!(parse(&kernel(&braces)).is_err());
    assert!(parse(&module(&format!(".global .u32 a = {braces};"))).is_err());
    assert!(parse(&kernel(&format!("x {};", "{".repeat(1000)))).is_err());
    let balanced = format!("{}{}", "{".repeat(10_000), "}".repeat(10_000));
    assert!(parse(&kernel(&balanced)).is_ok());
}

#[test]
fn a_text_that_is_cut_anywhere_never_panics() {
    let text = kernel(
        ".reg .b32 %r<4>; .loc 1 2 3, function_name f, inlined_at 1 2 3\nl: mov.u32 %r1, {1,2}; call (a), f, (b); /* x */ \"s\"",
    );
    for end in 0..text.len() {
        let _ = parse(&text[..end]);
    }
}
