//! Places in a source file, and rewriting it from the inside out.

use std::ops::Range;

/// Bytes of a source file.
pub(super) type Bytes = Range<usize>;

/// The byte at which a line and column begin; both count from 1, columns in characters.
pub(super) fn offset(source: &str, line: usize, column: usize) -> Option<usize> {
    let before: usize = source.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = source.get(before..)?;
    let (within, _) = rest.char_indices().nth(column.checked_sub(1)?)?;
    Some(before + within)
}

/// A part of the source that is written anew.
pub(super) trait Rewrite {
    /// The bytes that it replaces; none, where it inserts.
    fn bytes(&self) -> Bytes;

    /// The new text. `render` gives the text of a smaller part, itself written anew.
    fn write(&self, render: &dyn Fn(&Bytes) -> String) -> String;
}

/// The text of a part of the source with its rewrites carried out. A rewrite inside another is
/// carried out by the outer one, when it asks for its own parts.
pub(super) fn render<R: Rewrite>(source: &str, part: &Bytes, rewrites: &[R]) -> String {
    let inside = |bytes: &Bytes| part.start <= bytes.start && bytes.end <= part.end;
    let mut inside: Vec<&R> = rewrites.iter().filter(|rewrite| inside(&rewrite.bytes())).collect();
    // Of those that begin together an insertion comes first, then the outer one.
    inside.sort_by_key(|rewrite| {
        let bytes = rewrite.bytes();
        (bytes.start, !bytes.is_empty(), usize::MAX - bytes.end)
    });
    let mut text = String::new();
    let mut done = part.start;
    for rewrite in inside {
        let bytes = rewrite.bytes();
        if bytes.start < done {
            continue;
        }
        text.push_str(&source[done..bytes.start]);
        text.push_str(&rewrite.write(&|inner| render(source, inner, rewrites)));
        done = bytes.end;
    }
    text.push_str(&source[done..part.end]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_characters_and_not_bytes() {
        let source = "a\nå = b\n";
        assert_eq!(offset(source, 2, 3), source.find('='));
        assert_eq!((offset(source, 2, 9), offset(source, 0, 1)), (None, None));
    }

    struct Brackets(Bytes);

    impl Rewrite for Brackets {
        fn bytes(&self) -> Bytes {
            self.0.clone()
        }

        fn write(&self, render: &dyn Fn(&Bytes) -> String) -> String {
            if self.0.is_empty() {
                return "+".to_owned();
            }
            format!("[{}]", render(&(self.0.start + 1..self.0.end)))
        }
    }

    #[test]
    fn what_is_inside_another_rewrite_is_written_by_it() {
        let rewrites = [Brackets(3..5), Brackets(1..6), Brackets(1..1), Brackets(8..9)];
        assert_eq!(render("0123456789", &(0..10), &rewrites), "0+[2[4]5]67[]9");
    }
}
