use super::*;
use crate::mutants::list::Genre;

/// A mutant of the code at the first `^` of `marked`, which stands for nothing.
fn mutant(marked: &str, genre: Genre, replacement: &str) -> (String, Mutant) {
    let at = marked.find('^').expect("a mark");
    let line = marked[..at].matches('\n').count() + 1;
    let column = marked[..at].chars().rev().take_while(|&c| c != '\n').count() + 1;
    let [package, file, name] = [const { String::new() }; 3];
    let replacement = replacement.to_owned();
    let mutant =
        Mutant { package, file, name, genre, in_function: true, line, column, replacement };
    (marked.replacen('^', "", 1), mutant)
}

/// The planted text in one line, and what could not be planted.
fn planted(marked: &str, genre: Genre, replacements: &[&str]) -> (String, Vec<Number>) {
    let mut all = Vec::new();
    let mut source = String::new();
    for (index, replacement) in replacements.iter().enumerate() {
        let one;
        (source, one) = mutant(marked, genre, replacement);
        all.push((index + 1, one));
    }
    let mutants: Vec<_> = all.iter().map(|(number, mutant)| (*number, mutant)).collect();
    let planted = plant(&source, &mutants).expect("Rust");
    let words: Vec<_> = planted.text.split_whitespace().collect();
    syn::parse_file(&planted.text).expect("still Rust");
    (words.join(" ").replace("crate::mutant::", ""), planted.left_out)
}

fn assert_planted(marked: &str, genre: Genre, replacements: &[&str], expected: &str) {
    assert_eq!(planted(marked, genre, replacements), (expected.to_owned(), vec![]));
}

#[test]
fn a_function_returns_a_value_before_its_first_statement() {
    assert_planted(
        "fn f() -> u8 { ^let a = 1; a }",
        Genre::Body,
        &["0", "1"],
        "fn f() -> u8 { if is(1) { return 0; } if is(2) { return 1; } let a = 1; a }",
    );
    assert_planted(
        "impl A { fn f(&self) { ^g() } }",
        Genre::Body,
        &["()"],
        "impl A { fn f(&self) { if is(1) { return (); } g() } }",
    );
}

#[test]
fn operands_are_evaluated_once_whatever_the_operator() {
    assert_planted(
        "fn f() { g(a ^+ 1) }",
        Genre::Binary,
        &["-", "*"],
        "fn f() { g((match (a, 1) { (mutant_l, mutant_r) => \
         if is(1) { mutant_l - mutant_r } else if is(2) { mutant_l * mutant_r } \
         else { mutant_l + mutant_r } })) }",
    );
    assert_planted(
        "fn f() { a ^< b }",
        Genre::Binary,
        &["<="],
        "fn f() { (match (&(a), &(b)) { (mutant_l, mutant_r) => \
         if is(1) { *mutant_l <= *mutant_r } else { *mutant_l < *mutant_r } }) }",
    );
    assert_planted(
        "fn f() { a.b ^+= c; }",
        Genre::Binary,
        &["-="],
        "fn f() { (match (c) { mutant_r => \
         if is(1) { a.b -= mutant_r } else { a.b += mutant_r } }); }",
    );
}

#[test]
fn the_second_operand_of_and_and_or_stays_lazy() {
    let and = "fn f() { (if (a) != is(1) { b } else { is(1) }) }";
    assert_planted("fn f() { a ^&& b }", Genre::Binary, &["||"], and);
    let or = "fn f() { (if (a) != is(1) { !is(1) } else { b }) }";
    assert_planted("fn f() { a ^|| b }", Genre::Binary, &["&&"], or);
    for (a, b, mutant) in [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1)] {
        let (a, b, mutant) = (a == 1, b == 1, mutant == 1);
        let and = if a != mutant { b } else { mutant };
        let or = if a != mutant { !mutant } else { b };
        assert_eq!((and, or), if mutant { (a || b, a && b) } else { (a && b, a || b) });
    }
}

#[test]
fn an_operator_before_its_operand_is_left_out() {
    assert_planted(
        "fn f() { ^!a.b() }",
        Genre::Unary,
        &[""],
        "fn f() { (match (a.b()) { mutant_v => if is(1) { mutant_v } else { !mutant_v } }) }",
    );
}

#[test]
fn an_arm_is_left_out_by_its_condition() {
    assert_planted(
        "fn f() { match a { ^1 => 2, _ => 3 } }",
        Genre::Arm,
        &[""],
        "fn f() { match a { 1 if !is(1) => 2, _ => 3 } }",
    );
    assert_planted(
        "fn f() { match a { ^n if n > 1 => 2, _ => 3 } }",
        Genre::Arm,
        &[""],
        "fn f() { match a { n if !is(1) && (n > 1) => 2, _ => 3 } }",
    );
    assert_planted(
        "fn f() { match a { n if ^n > 1 => 2, _ => 3 } }",
        Genre::Guard,
        &["true", "false"],
        "fn f() { match a { n if !is(2) && (is(1) || (n > 1)) => 2, _ => 3 } }",
    );
}

#[test]
fn a_field_that_is_left_out_is_the_bases() {
    assert_planted(
        "fn f() { A { ^b, c: 1, ..d() } }",
        Genre::Field,
        &[""],
        "fn f() { (if is(1) { A { c: 1, ..d() } } else { A { b, c: 1, ..d() } }) }",
    );
}

#[test]
fn mutants_within_each_other_are_all_planted() {
    let source = "fn f(a: u8) -> u8 { a + a * !a }";
    let mutants = [
        mutant("fn f(a: u8) -> u8 { ^a + a * !a }", Genre::Body, "0").1,
        mutant("fn f(a: u8) -> u8 { a ^+ a * !a }", Genre::Binary, "-").1,
        mutant("fn f(a: u8) -> u8 { a + a ^* !a }", Genre::Binary, "/").1,
        mutant("fn f(a: u8) -> u8 { a + a * ^!a }", Genre::Unary, "").1,
    ];
    let mutants: Vec<_> = mutants.iter().enumerate().map(|(n, mutant)| (n + 1, mutant)).collect();
    let planted = plant(source, &mutants).expect("Rust");
    assert!(planted.left_out.is_empty() && syn::parse_file(&planted.text).is_ok());
    for number in 1..=4 {
        assert_eq!(planted.text.matches(&sites::switch(number)).count(), 1, "{}", planted.text);
    }
}

#[test]
fn what_cannot_be_planted_is_said_and_changes_nothing() {
    let chain = "fn f() { if let Some(a) = b ^&& c { } }";
    let (source, mutant_of_chain) = mutant(chain, Genre::Binary, "||");
    let planted = plant(&source, &[(1, &mutant_of_chain)]).expect("Rust");
    assert_eq!(planted, Planted { text: source, left_out: vec![], unviable: vec![1] });
    let arms = "fn f() { match a { ^A => 1, _ if b => 2, B => 3 } }";
    let (source, arm) = mutant(arms, Genre::Arm, "");
    let planted = plant(&source, &[(1, &arm)]).expect("Rust");
    assert_eq!(planted, Planted { text: source, left_out: vec![], unviable: vec![1] });
    let (source, mut constant) = mutant("const A: u8 = 1 ^+ 2;", Genre::Binary, "-");
    constant.in_function = false;
    let planted = plant(&source, &[(1, &constant)]).expect("Rust");
    assert_eq!(planted, Planted { text: source, left_out: vec![1], unviable: vec![] });
}
