//! Damage to texts of PTX, by seed.

/// A small generator of numbers: the same on every machine.
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed, which is not 0.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below the limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Tokens that stand in for others.
const ODD: &[&str] = &[
    "0",
    "-1",
    "4294967295",
    "0x7fffffffffffffff",
    "0xffffffffffffffff",
    "%r1",
    "%q1",
    "%f1",
    "%p1",
    "{",
    "}",
    "[",
    "]",
    ";",
    ".u8",
    ".b64",
    ".f16x2",
    ".v4",
    "_",
    "%tid.x",
    "dyn",
    "1e300",
    "0f7F800000",
    "\u{e9}",
    ":",
    "@",
    "!",
    "|",
    "(",
    ")",
    "%r0",
    "%rd1",
    "%fd1",
    "%rs1",
    "1024",
    "+",
    "-",
    ",",
    ".align",
    ".local",
    ".shared",
    "<",
    ">",
    "[4294967295]",
    "<4294967295>",
    "1048576",
];

/// Characters that a text may have many of.
const SIGNS: &[u8] = b"{}[]()<>@!;:,.\"/*+-~0_%\n\0";

/// The tokens of a text: words and single other characters.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    let mut tokens = vec![String::new()];
    for character in text.chars() {
        let joins = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '$');
        let last = tokens.last().and_then(|token| token.chars().last());
        if !(joins(character) && last.is_some_and(joins)) {
            tokens.push(String::new());
        }
        if let Some(token) = tokens.last_mut() {
            token.push(character);
        }
    }
    tokens
}

/// The text of tokens of which one to three were changed.
pub(crate) fn damaged(tokens: &[String], random: &mut Random) -> String {
    let mut tokens = tokens.to_vec();
    for _ in 0..=random.below(3) {
        let (at, other) = (random.below(tokens.len()), random.below(tokens.len()));
        match random.below(6) {
            0 => tokens[at] = tokens[other].clone(),
            1 => tokens.swap(at, other),
            2 => drop(tokens.remove(at)),
            3 => tokens[at] = ODD[random.below(ODD.len())].to_owned(),
            4 => tokens.insert(at, tokens[other].clone()),
            _ => {
                let end = (at + random.below(40)).min(tokens.len());
                tokens.drain(at..end);
            }
        }
        if tokens.is_empty() {
            break;
        }
    }
    tokens.concat()
}

/// A text with any characters in places of its own, cut off, doubled, or of noise only.
pub(crate) fn scrambled(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => {
            let (from, length) = (random.below(bytes.len()), random.below(400));
            let piece: Vec<u8> = bytes[from..].iter().take(length).copied().collect();
            let at = random.below(bytes.len());
            for _ in 0..random.below(20) {
                bytes.splice(at..at, piece.iter().copied());
            }
        }
        2 => bytes = (0..random.below(300)).map(|_| random.below(256) as u8).collect(),
        3 => {
            // Many of one character, where depth or length could grow.
            let (at, sign) = (random.below(bytes.len()), SIGNS[random.below(SIGNS.len())]);
            bytes.splice(at..at, std::iter::repeat_n(sign, random.below(3000)));
        }
        _ => {
            for _ in 0..=random.below(6) {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
