//! The forms of PTX's instructions, as `data/isa.txt` lists them.

use std::fmt::Write as _;

/// A line of the list: a pattern of opcodes, and their operands.
pub(crate) struct Line {
    pub(crate) pattern: String,
    /// The instructions: the opcode, and its operands as they are written.
    pub(crate) forms: Vec<(String, String)>,
}

/// A part of the list.
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

/// The whole list.
pub(crate) fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in include_str!("../../data/isa.txt").lines().filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            sections.push(Section { title: title.to_owned(), lines: Vec::new() });
            continue;
        }
        let (pattern, operands) = line.split_once('\t').unwrap_or_else(|| panic!("no tab: {line}"));
        // Alternatives among special registers are part of the operands.
        let (pattern, operands) = match operands.split_once("%{") {
            Some((before, names)) => (format!("{pattern} {before}%{{{names}"), String::new()),
            None => (pattern.to_owned(), operands.to_owned()),
        };
        let forms = expanded(&pattern)
            .into_iter()
            .map(|text| match text.split_once(' ') {
                Some((opcode, rest)) => (opcode.to_owned(), written(opcode, rest)),
                None => (text.clone(), written(&text, &operands)),
            })
            .collect();
        sections.last_mut().expect("a title comes first").lines.push(Line { pattern, forms });
    }
    sections
}

/// All texts of a pattern with alternatives in braces.
fn expanded(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (choices, after) = rest.split_once('}').unwrap_or_else(|| panic!("no `}}`: {pattern}"));
    let rests = expanded(after);
    let each = choices.split('|');
    each.flat_map(|choice| rests.iter().map(move |rest| format!("{before}{choice}{rest}")))
        .collect()
}

/// The bits of a register for a type.
fn bits(kind: &str) -> Option<u32> {
    Some(match kind {
        "pred" => 1,
        "e4m3x2" | "e5m2x2" | "e2m3x2" | "e3m2x2" | "ue8m0x2" => 16,
        "tf32" | "u16x2" | "s16x2" | "f16x2" | "bf16x2" => 32,
        "f32x2" => 64,
        "bf16" => 16,
        _ => {
            let digits = kind.strip_prefix(['b', 'u', 's', 'f'])?;
            digits.parse().ok().filter(|bits| [8, 16, 32, 64, 128].contains(bits))?
        }
    })
}

/// A register of a width. Letters name different ones.
fn register(letter: char, bits: u32) -> String {
    let number = "dabcefghDAB".find(letter).unwrap_or(0) % 8;
    let prefix = match bits {
        1 => 'p',
        ..=16 => 'h',
        32 => 'r',
        64 => 'l',
        _ => 'x',
    };
    format!("%{prefix}{number}")
}

/// The operands of an opcode. A letter is a register of the opcode's last type, a capital one of its
/// first, and `a:32` one of 32 bits; `p` and `q` are predicates; `[m]`, `[s]`, `[o]` and `[t]` are
/// addresses of memory, of shared memory, of a parameter and of a texture.
fn written(opcode: &str, operands: &str) -> String {
    match operands {
        "-" => return String::new(),
        "X" if opcode.contains("cas") => return written(opcode, "d:128, [m], a:128, b:128"),
        "X" => return written(opcode, "d:128, [m], a:128"),
        "C" if opcode.contains("cas") => return written(opcode, "d, [m], a, b"),
        "C" => return written(opcode, "d, [m], a"),
        "L" => return "last".to_owned(),
        "T" => return "%r0, table".to_owned(),
        _ => {}
    }
    let kinds: Vec<u32> = opcode.split('.').skip(1).filter_map(bits).collect();
    let (first, last) = (kinds.first().copied(), kinds.last().copied());
    let letters: Vec<char> = operands.chars().collect();
    let is_name =
        |c: Option<&char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || "%_.".contains(*c));
    let (mut text, mut at) = (String::new(), 0);
    while at < letters.len() {
        let letter = letters[at];
        at += 1;
        let alone = !is_name(at.checked_sub(2).and_then(|before| letters.get(before)))
            && !is_name(letters.get(at));
        if !alone || !letter.is_ascii_alphabetic() {
            text.push(letter);
            continue;
        }
        if letters.get(at) == Some(&':') {
            let digits: String =
                letters[at + 1..].iter().take_while(|c| c.is_ascii_digit()).collect();
            at += 1 + digits.len();
            text += &register(letter, digits.parse().expect("a width"));
            continue;
        }
        text += &match letter {
            'p' => "%p1".to_owned(),
            'q' => "%p2".to_owned(),
            'm' => "%l30".to_owned(),
            's' => "%l31".to_owned(),
            't' => "%l29".to_owned(),
            'o' => "parameter".to_owned(),
            'D' | 'A' | 'B' => register(letter, first.unwrap_or(32)),
            _ => register(letter, last.unwrap_or(32)),
        };
    }
    text
}

/// A module with one instruction.
pub(crate) fn module(opcode: &str, operands: &str) -> String {
    let mut text = String::from(
        ".version 9.0\n.target sm_90\n.address_size 64\n\
         .visible .func (.param .b32 r) fn(.param .b32 n) { ret; }\n\
         .visible .func fn0() { ret; }\n\
         .visible .entry form(.param .align 16 .b8 parameter[16])\n{\n\
         .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %l<32>; .param .align 16 .b8 frame[16];\n",
    );
    if operands.contains("%x") {
        text.push_str(".reg .b128 %x<8>;\n");
    }
    let _ = write!(
        text,
        "table: .branchtargets first, last;\nfirst:\n{opcode} {operands};\nlast:\nret;\n}}\n"
    );
    text
}

/// An opcode with its modifiers in the order of the alphabet.
pub(crate) fn canonical(opcode: &str) -> String {
    let mut parts: Vec<_> = opcode.split('.').collect();
    parts[1..].sort_unstable();
    parts.join(".")
}
