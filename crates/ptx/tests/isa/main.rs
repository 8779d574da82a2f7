//! `ISA.md`: which instructions of PTX are executed, which are refused, and how each is proved.
//!
//! `data/isa.txt` lists PTX's instructions. Each form is loaded in a module of its own, so the table
//! says how this crate answers, and not how it should. `PTX_ISA=write` writes the table again.

mod grammar;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use grammar::{Line, canonical, module, sections};
use pagewise_ptx::module::{Module, Target};
use pagewise_ptx::syntax::parse;
use pagewise_ptx::syntax::tree::{Item, StatementKind};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ISA.md");

/// The opcodes of the recorded forms: all that a body holds.
fn recorded() -> BTreeSet<String> {
    let bodies = include_str!("../../data/forms.txt").lines();
    let bodies = bodies.filter_map(|line| line.split(['\t', '/']).next());
    let all = bodies.flat_map(|body| body.split(';'));
    let opcodes = all.filter_map(|one| {
        // A brace, labels and a guard may stand before the opcode.
        let is_before = |word: &str| word == "{" || word.starts_with('@') || word.ends_with(':');
        one.split_whitespace().find(|word| !is_before(word))
    });
    // Not declarations, or the brace behind the last instruction.
    opcodes.filter(|word| word.starts_with(char::is_alphabetic)).map(canonical).collect()
}

/// The opcodes of the corpus's kernels, with those of their debug information left out.
fn in_kernels() -> BTreeSet<String> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let mut found = BTreeSet::new();
    for folder in ["ptx", "ptx/nvrtc", "kernels"] {
        for entry in fs::read_dir(corpus.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "ptx") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for item in parse(&text).unwrap().items {
                let Item::Function(function) = item else { continue };
                for statement in function.body.unwrap_or_default() {
                    if let StatementKind::Instruction(instruction) = statement.kind {
                        found.insert(canonical(instruction.opcode));
                    }
                }
            }
        }
    }
    found
}

/// The numbers of a line or of the whole table.
#[derive(Default, Clone, Copy)]
struct Count {
    forms: usize,
    executed: usize,
    recorded: usize,
    in_kernels: usize,
}

/// How the forms of a line are answered.
struct Row {
    count: Count,
    /// The reasons of refusals, each with its opcodes.
    refused: BTreeMap<String, Vec<String>>,
}

fn row(line: &Line, recorded: &BTreeSet<String>, kernels: &BTreeSet<String>) -> Row {
    let mut row = Row { count: Count::default(), refused: BTreeMap::new() };
    for (opcode, operands) in &line.forms {
        row.count.forms += 1;
        match Module::load(&module(opcode, operands), &Target { compute: (9, 0) }) {
            Ok(_) => {
                let known = canonical(opcode);
                row.count.executed += 1;
                row.count.recorded += usize::from(recorded.contains(&known));
                row.count.in_kernels += usize::from(kernels.contains(&known));
            }
            Err(error) => {
                assert!(error.line > 0 && !error.message.is_empty(), "{opcode}: {error}");
                row.refused.entry(error.message).or_default().push(opcode.clone());
            }
        }
    }
    row
}

/// A pattern as a reader knows it: `{a|b}` as `{a, b}`, and `{|.c}` as `[.c]`.
fn shown(pattern: &str) -> String {
    let mut text = String::new();
    let mut rest = pattern;
    while let Some((before, inside)) = rest.split_once('{') {
        let (choices, after) = inside.split_once('}').unwrap_or((inside, ""));
        text += before;
        match choices.strip_prefix('|') {
            Some(optional) => _ = write!(text, "[{}]", optional.replace('|', ", ")),
            None => _ = write!(text, "{{{}}}", choices.replace('|', ", ")),
        }
        rest = after;
    }
    text + rest
}

/// The reasons of refusals, with the opcodes where a line's others are executed.
fn reasons(row: &Row) -> String {
    let whole = row.count.executed == 0 && row.refused.len() == 1;
    let each = row.refused.iter().map(|(reason, opcodes)| {
        let reason = reason.replace('`', "");
        if whole {
            return reason;
        }
        let first: Vec<_> = opcodes.iter().take(4).map(|opcode| format!("`{opcode}`")).collect();
        let more = opcodes.len().saturating_sub(4);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}: {reason}", first.join(", "))
    });
    each.collect::<Vec<_>>().join("; ")
}

fn table() -> String {
    let (recorded, kernels) = (recorded(), in_kernels());
    let (mut all, mut text) = (Count::default(), String::new());
    for section in sections() {
        let _ = write!(
            text,
            "\n## {}\n\n| instruction | forms | executed | recorded | in kernels | refused |\n\
             | --- | --- | --- | --- | --- | --- |\n",
            section.title
        );
        for line in &section.lines {
            let row = row(line, &recorded, &kernels);
            let Count { forms, executed, recorded, in_kernels } = row.count;
            all.forms += forms;
            all.executed += executed;
            all.recorded += recorded;
            all.in_kernels += in_kernels;
            let _ = writeln!(
                text,
                "| `{}` | {forms} | {executed} | {recorded} | {in_kernels} | {} |",
                shown(&line.pattern),
                reasons(&row)
            );
        }
    }
    let Count { forms, executed, recorded, in_kernels } = all;
    format!(
        "# PTX's instructions here\n\n\
         Made by `tests/isa`, which loads each form in a module of its own: do not change it by hand \
         (`PTX_ISA=write cargo test -p pagewise-ptx --test isa` writes it again). `data/isa.txt` lists \
         the forms. It follows the manual of PTX 9.0 and is not all of it: combinations of cache hints, \
         of shapes and of state spaces are there by example.\n\n\
         - executed: a module with the form loads, and its kernels run it.\n\
         - recorded: an H200's results of the form are in `data`, and are equal in every bit \
         (`tests/conformance`).\n\
         - in kernels: a kernel of `tests/corpus` has it, and its outputs are an H200's.\n\
         - refused: the module is refused with the line and this reason.\n\n\
         Of {forms} forms, {executed} are executed and {} refused. Of the executed ones, {recorded} are \
         recorded, and {in_kernels} are in kernels.\n{text}",
        forms - executed
    )
}

#[test]
fn the_table_of_the_isa_says_how_modules_are_answered() {
    let table = table();
    if std::env::var("PTX_ISA").is_ok_and(|how| how == "write") {
        fs::write(TABLE, &table).unwrap();
    }
    let written = fs::read_to_string(TABLE).unwrap_or_default();
    assert!(table == written, "ISA.md is old: PTX_ISA=write cargo test -p pagewise-ptx --test isa");
}

#[test]
fn every_recorded_form_and_every_instruction_of_the_corpus_is_in_the_table() {
    let listed: BTreeSet<String> = sections()
        .iter()
        .flat_map(|section| &section.lines)
        .flat_map(|line| line.forms.iter().map(|(opcode, _)| canonical(opcode)))
        .collect();
    let known: BTreeSet<_> = recorded().union(&in_kernels()).cloned().collect();
    let missing: Vec<_> = known.difference(&listed).collect();
    assert!(missing.is_empty(), "{} are not in data/isa.txt: {missing:?}", missing.len());
}

#[test]
fn a_modifier_that_no_instruction_has_is_refused_by_name() {
    for opcode in
        ["fence.gpu.bogus", "membar.gl.bogus", "prefetch.bogus.L1", "exit.bogus", "add.ca.u32"]
    {
        let operands = if opcode.starts_with("add") { "%r0, %r1, %r2" } else { "" };
        let error = Module::load(&module(opcode, operands), &Target { compute: (9, 0) });
        let error = error.expect_err(opcode);
        assert!(error.message.contains("the modifier `."), "{opcode}: {error}");
        assert_eq!(error.line, 11, "{opcode}: {error}");
    }
}
