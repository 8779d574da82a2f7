//! Small maps of pages: a line of characters for each side, each for one page or for many.

use std::fmt::Write as _;

use pagewise_hal::PAGE_BYTES;
use pagewise_trace::format::PageMap;

/// Characters in a line of a map.
const COLUMNS: u64 = 64;

/// Stretches of pages that are listed below a map.
const MOST_STRETCHES: usize = 4;

/// The pages that a stretch of bytes lies on, such as `pages 0..16` or `page 3`.
pub(crate) fn pages(offset: u64, bytes: u64) -> String {
    let (first, end) = pages_of(offset, bytes);
    if end.saturating_sub(first) == 1 {
        return format!("page {first}");
    }
    format!("pages {first}..{end}")
}

fn pages_of(offset: u64, bytes: u64) -> (u64, u64) {
    (offset / PAGE_BYTES, offset.saturating_add(bytes).div_ceil(PAGE_BYTES))
}

/// Pages that are all alike: the first, the one behind the last, and their letter.
type Stretch = (u64, u64, char);

/// Two page tables of the same buffer, around the pages that differ, and these pages.
pub(crate) fn compared(expected: &PageMap, got: &PageMap) -> String {
    let (expected, got) = (stretches(expected), stretches(got));
    let differ = differing(&expected, &got);
    let (Some(first), Some(last)) = (differ.first(), differ.last()) else { return String::new() };
    let window = Window::around(first.0, last.1);
    let differing: Vec<Stretch> = differ.iter().map(|&(from, to, ..)| (from, to, '^')).collect();
    let mut text = window.heading();
    window.line(&mut text, "expected", &expected, ' ');
    window.line(&mut text, "got", &got, ' ');
    window.line(&mut text, "differ", &differing, ' ');
    for (from, to, expected, got) in differ.iter().take(MOST_STRETCHES) {
        let word = |letter: char| match letter {
            'H' => "mapped",
            '.' => "not mapped",
            _ => "no such page",
        };
        let (expected, got) = (word(*expected), word(*got));
        _ = writeln!(text, "    pages {from}..{to}: expected {expected}, got {got}");
    }
    if let more @ 1.. = differ.len().saturating_sub(MOST_STRETCHES) {
        _ = writeln!(text, "    and {more} more stretches");
    }
    text
}

/// The pages of a buffer that each side has something to say about, by offset and length in bytes.
pub(crate) fn marked(expected: &[(u64, u64)], got: &[(u64, u64)]) -> String {
    let stretches = |parts: &[(u64, u64)]| -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut parts: Vec<_> = parts.iter().map(|part| pages_of(part.0, part.1)).collect();
        parts.sort_unstable();
        for (from, to) in parts {
            match stretches.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => stretches.push((from, to, 'x')),
            }
        }
        stretches
    };
    let (expected, got) = (stretches(expected), stretches(got));
    let all = || expected.iter().chain(&got);
    let (Some(first), Some(end)) = (all().map(|it| it.0).min(), all().map(|it| it.1).max()) else {
        return String::new();
    };
    let window = Window::around(first, end);
    let mut text = window.heading();
    window.line(&mut text, "expected", &expected, '.');
    window.line(&mut text, "got", &got, '.');
    text
}

fn stretches(map: &PageMap) -> Vec<Stretch> {
    let mut at = 0_u64;
    let runs = map.runs().iter().map(|run| {
        let from = at;
        at = at.saturating_add(run.pages);
        (from, at, if run.mapped { 'H' } else { '.' })
    });
    runs.collect()
}

/// The stretches that two maps give different letters; a blank where one has no pages.
fn differing(a: &[Stretch], b: &[Stretch]) -> Vec<(u64, u64, char, char)> {
    let mut edges: Vec<u64> = a.iter().chain(b).flat_map(|&(from, to, _)| [from, to]).collect();
    edges.sort_unstable();
    edges.dedup();
    let letter = |map: &[Stretch], page: u64| {
        let at = map.partition_point(|&(_, to, _)| to <= page);
        map.get(at).filter(|&&(from, ..)| from <= page).map_or(' ', |&(.., letter)| letter)
    };
    let between = edges.windows(2).map(|edge| (edge[0], edge[1]));
    let letters = between.map(|(from, to)| (from, to, letter(a, from), letter(b, from)));
    letters.filter(|(_, _, a, b)| a != b).collect()
}

/// The pages that a map shows.
struct Window {
    from: u64,
    to: u64,
    /// Pages for each character.
    scale: u64,
}

impl Window {
    /// The fewest pages for each character, a power of two, that show all from `first` to `end`.
    fn around(first: u64, end: u64) -> Self {
        let mut scale = 1_u64;
        loop {
            let from = first.checked_div(scale).map_or(0, |at| at.saturating_mul(scale));
            let columns = end.saturating_sub(from).div_ceil(scale);
            if columns <= COLUMNS {
                return Self { from, to: end, scale };
            }
            scale = scale.saturating_mul(2);
        }
    }

    fn heading(&self) -> String {
        let Self { from, to, scale } = self;
        let each = match scale {
            1 => "a page for each character".to_owned(),
            _ => format!("{scale} pages for each character, * for unlike ones"),
        };
        format!("    pages {from}..{to}, {each}:\n")
    }

    /// The letter of the pages of each character, or `*` where they are not alike.
    fn line(&self, text: &mut String, side: &str, map: &[Stretch], other: char) {
        _ = write!(text, "    {side:<9}");
        let mut from = self.from;
        while from < self.to {
            let to = from.saturating_add(self.scale).min(self.to);
            text.push(letter(map, from, to, other));
            from = to;
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
}

/// The letter of the pages `from..to`; `other` stands for pages in no stretch.
fn letter(map: &[Stretch], from: u64, to: u64, other: char) -> char {
    let first = map.partition_point(|stretch| stretch.1 <= from);
    let inside = map[first..].iter().take_while(|stretch| stretch.0 < to);
    let mut letters = Vec::new();
    let mut at = from;
    for &(start, end, letter) in inside {
        if start > at {
            letters.push(other);
        }
        letters.push(letter);
        at = end;
    }
    if at < to {
        letters.push(other);
    }
    letters.dedup();
    match letters.as_slice() {
        [letter] => *letter,
        _ => '*',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> PageMap {
        text.parse().expect("a page map")
    }

    #[test]
    fn a_map_shows_the_pages_that_differ_page_by_page_where_they_are_few() {
        let text = compared(&map("832.,31H,161."), &map("832.,16H,176."));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "pages 848..863, a page for each character:",
                "expected HHHHHHHHHHHHHHH",
                "got      ...............",
                "differ   ^^^^^^^^^^^^^^^",
                "pages 848..863: expected mapped, got not mapped",
            ]
        );
    }

    #[test]
    fn a_map_of_many_pages_has_at_most_64_characters_and_marks_unlike_pages() {
        let text = compared(&map("1000000."), &map("8H,999984.,8H"));
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert!(lines[0].contains("16384 pages for each character, * for unlike ones"), "{text}");
        let got = lines[2].trim_start().trim_start_matches("got").trim_start();
        assert!(got.len() <= 64 && got.starts_with("*.") && got.ends_with('*'), "{got}");
        assert_eq!(lines[4].trim(), "pages 0..8: expected not mapped, got mapped");
        assert_eq!(lines[5].trim(), "pages 999992..1000000: expected not mapped, got mapped");
    }

    #[test]
    fn maps_of_different_lengths_differ_where_one_ends() {
        let text = compared(&map("4H"), &map("2H"));
        assert!(text.contains("pages 2..4: expected mapped, got no such page"), "{text}");
    }

    #[test]
    fn marks_of_both_sides_lie_above_each_other() {
        let text = marked(&[(0, 8192), (8192, 1)], &[(16384, 4096)]);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            ["pages 0..5, a page for each character:", "expected xxx..", "got      ....x"]
        );
    }
}
