//! Sentences of comments and documents, and the words in them that hide a subject or a reason.

/// Words that stand for a subject that the sentence does not name.
const HIDING: [&str; 9] = [
    "somebody",
    "someone",
    "nobody",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "whoever",
    "whose",
];

/// The words after "what" in a clause that has it as its subject.
const VERBS: [&str; 28] = [
    "is", "was", "are", "were", "has", "had", "can", "cannot", "may", "must", "goes", "stays",
    "comes", "remains", "happens", "lies", "depends", "needs", "follows", "belongs", "counts",
    "moves", "leaves", "travels", "does", "makes", "keeps", "becomes",
];

/// Words with which the first line of an item's comment asks instead of saying what the item is.
const ASKING: [&str; 5] = ["what", "who", "whom", "whoever", "why"];

/// Words with which the first line of a file asks, too. They may begin the comment of an item: "How
/// many pages are resident" says what a number is.
const ASKING_OF_FILES: [&str; 5] = ["which", "how", "where", "when", "whether"];

/// Pairs of words that stand in a SAFETY comment in place of the reason.
const UNREASONED: [(&str, &str); 3] = [("as", "above"), ("see", "above"), ("caller", "duty")];

/// A SAFETY comment with fewer words, itself counted, has no room for a duty and its reason.
const SAFETY_WORDS_MIN: usize = 5;

/// Text that belongs together: one paragraph of a comment or of a document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Paragraph {
    /// Each line's number and its text.
    lines: Vec<(usize, String)>,
    /// Whether it says what an item is: the first of a comment.
    describes: bool,
    /// Whether that item is a file.
    begins_file: bool,
}

impl Paragraph {
    /// Whether it says why an unsafe block is sound.
    fn is_safety(&self) -> bool {
        self.lines.first().is_some_and(|(_, text)| text.starts_with("SAFETY"))
    }
}

/// The comments of a source file that have lines of their own, without code.
pub(super) fn paragraphs_of_source(text: &str) -> Vec<Paragraph> {
    let lines: Vec<_> = text.lines().map(|line| documentation(line).map(str::to_owned)).collect();
    let mut found = paragraphs(lines.iter().cloned());
    for paragraph in &mut found {
        let before = paragraph.lines.first().map_or(0, |(line, _)| line - 1);
        paragraph.describes = before == 0 || lines[before - 1].is_none();
        paragraph.begins_file = before == 0 && text.starts_with("//!");
    }
    found.extend(paragraphs(text.lines().map(|line| note(line).map(str::to_owned))));
    found
}

/// The text of a line of a `//!` or `///` comment.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("//!").or(line.strip_prefix("///"))
}

/// The text of a line of a `//` comment, which may stand in an example of the documentation.
fn note(line: &str) -> Option<&str> {
    documentation(line).unwrap_or(line).trim_start().strip_prefix("//").filter(|text| {
        // Other lines of documentation are no comments of an example.
        text.is_empty() || text.starts_with(' ')
    })
}

/// The paragraphs of a Markdown document, without code.
pub(super) fn paragraphs_of_document(text: &str) -> Vec<Paragraph> {
    paragraphs(text.lines().map(|line| Some(line.to_owned())))
}

/// Groups lines. `None` is a line of something else.
fn paragraphs(lines: impl Iterator<Item = Option<String>>) -> Vec<Paragraph> {
    let mut found = vec![Paragraph::default()];
    let mut in_code = false;
    for (index, line) in lines.enumerate() {
        let text = line.as_deref().unwrap_or_default().trim();
        in_code = line.is_some() && (in_code != text.starts_with("```"));
        let begins = ["- ", "| ", "#", "```", "SAFETY"].iter().any(|b| text.starts_with(b));
        let begins = begins || text.is_empty();
        if begins && found.last().is_none_or(|last| !last.lines.is_empty()) {
            found.push(Paragraph::default());
        }
        if let Some(last) = found.last_mut().filter(|_| !in_code && !text.is_empty()) {
            let text = text.trim_start_matches(['-', '#', ' ']);
            last.lines.push((index + 1, without_code(text)));
        }
    }
    found.retain(|paragraph| !paragraph.lines.is_empty());
    found
}

/// The line with what is between backticks replaced by a word.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { "code" }).collect()
}

struct Word {
    line: usize,
    /// Lower case, without punctuation and without a possessive.
    text: String,
    /// Punctuation after it.
    after: String,
}

fn words(paragraph: &Paragraph) -> Vec<Word> {
    let words = paragraph.lines.iter().flat_map(|(line, text)| {
        text.split_whitespace().map(|word| {
            let kept = word.trim_matches(|c: char| !c.is_alphanumeric());
            let after = word.rsplit(char::is_alphanumeric).next().unwrap_or_default();
            let text = kept.to_lowercase();
            let text = text.strip_suffix("'s").unwrap_or(&text).to_owned();
            Word { line: *line, text, after: after.to_owned() }
        })
    });
    words.collect()
}

/// Lines with a hidden subject or reason, each with the words that hide it.
pub(super) fn offences(paragraph: &Paragraph) -> Vec<(usize, String)> {
    let words = words(paragraph);
    let at = |index: usize| words.get(index).map_or("", |word| word.text.as_str());
    let mut found = if paragraph.is_safety() { unreasoned(&words) } else { Vec::new() };
    for (index, word) in words.iter().enumerate() {
        let begins = index == 0 || words[index - 1].after.contains(['.', ';', ':', '|']);
        let next = at(index + 1);
        let hides = match word.text.as_str() {
            text if HIDING.contains(&text) => Some(text.to_owned()),
            "no" if next == "one" => Some("no one".to_owned()),
            text if index == 0 && paragraph.describes && ASKING.contains(&text) => {
                Some(format!("{text}, of an item")).filter(|_| !is_question(&words))
            }
            text if index == 0 && paragraph.begins_file && ASKING_OF_FILES.contains(&text) => {
                Some(format!("{text}, of a file"))
            }
            text @ ("what" | "whatever") if begins && VERBS.contains(&next) => {
                Some(format!("{text} {next}")).filter(|_| !is_question(&words[index..]))
            }
            text if begins && is_inverted(text, next, at(index + 2)) => {
                Some(format!("{text} {next}, before its subject"))
            }
            "is" | "are" | "was" | "were" if next == "out" && at(index + 2) != "of" => {
                Some(format!("{} out", word.text))
            }
            _ => None,
        };
        found.extend(hides.map(|hides| (word.line, hides)));
    }
    found
}

/// Lines of a SAFETY comment that point elsewhere for the reason, or leave it out.
fn unreasoned(words: &[Word]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if let Some(first) = words.first().filter(|_| words.len() < SAFETY_WORDS_MIN) {
        found.push((first.line, "SAFETY without a reason".to_owned()));
    }
    for pair in words.windows(2) {
        if UNREASONED.contains(&(&pair[0].text, &pair[1].text)) {
            found.push((pair[0].line, format!("SAFETY: {} {}", pair[0].text, pair[1].text)));
        }
    }
    found
}

/// Whether a sentence that begins with these words has its subject last, as `Compared are results`
/// and `Not noted are sleeps` do.
fn is_inverted(first: &str, second: &str, third: &str) -> bool {
    const FORMS: [&str; 4] = ["is", "are", "was", "were"];
    const NOUNS: [&str; 4] = ["feed", "need", "seed", "speed"];
    let participle = |word: &str| word.ends_with("ed") && !NOUNS.contains(&word) || word == "left";
    match first {
        "not" => participle(second) && FORMS.contains(&third),
        "left" if second == "out" => FORMS.contains(&third),
        word => participle(word) && FORMS.contains(&second),
    }
}

/// Whether the sentence that begins here asks.
fn is_question(words: &[Word]) -> bool {
    let end = words.iter().find(|word| word.after.contains(['.', '?', '!']));
    end.is_some_and(|word| word.after.contains('?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        paragraphs_of_source(text).iter().flat_map(offences).collect()
    }

    fn words_found(sentence: &str) -> Vec<String> {
        found(&format!("/// {sentence}")).into_iter().map(|(_, word)| word).collect()
    }

    #[test]
    fn words_that_stand_for_a_subject_are_found() {
        assert_eq!(
            words_found("Nobody may use it; somebody's buffer, whose end is near."),
            ["nobody", "somebody", "whose"]
        );
        assert_eq!(words_found("No one asks. No page moves."), ["no one"]);
        assert_eq!(words_found("The stream's owner frees it."), Vec::<String>::new());
    }

    #[test]
    fn what_is_found_as_a_subject_only() {
        assert_eq!(words_found("Pages move. What is there stays."), ["what is"]);
        assert_eq!(words_found("Pages move; what stays is mapped."), ["what stays"]);
        assert_eq!(words_found("It says what is there."), Vec::<String>::new());
        assert_eq!(words_found("What is there?"), Vec::<String>::new());
        assert_eq!(words_found("It is so. What the driver does, it does."), Vec::<String>::new());
    }

    #[test]
    fn an_item_s_first_line_says_what_it_is() {
        assert_eq!(words_found("What the driver does."), ["what, of an item"]);
        assert_eq!(words_found("Who maps."), ["who, of an item"]);
        assert_eq!(words_found("The processor that maps. Why is not said."), Vec::<String>::new());
        assert_eq!(words_found("What is a page?"), Vec::<String>::new());
        assert_eq!(found("/// A page.\n///\n/// Why it is there."), []);
        assert_eq!(found("let a = 1;\n//! Why it is there.").len(), 1);
    }

    #[test]
    fn the_first_line_of_a_file_does_not_ask() {
        assert_eq!(found("//! Which pages move."), [(1, "which, of a file".to_owned())]);
        assert_eq!(found("//! The pages that move.\n//!\n//! Which they are is recorded."), []);
        assert_eq!(found("/// Which pages move."), [], "an item's comment may");
    }

    #[test]
    fn a_sentence_that_begins_with_its_verb_is_found() {
        let before = |words: &str| vec![format!("{words}, before its subject")];
        assert_eq!(words_found("Compared are results."), before("compared are"));
        assert_eq!(words_found("It waits. Not noted are sleeps."), before("not noted"));
        assert_eq!(words_found("Left out is the time."), before("left out"));
        assert_eq!(words_found("Results are compared. Left pages are free."), Vec::<String>::new());
        assert_eq!(words_found("It is not known; seed is a number."), Vec::<String>::new());
    }

    #[test]
    fn out_is_found_where_it_means_outstanding() {
        assert_eq!(words_found("The memory is out."), ["is out"]);
        assert_eq!(words_found("The entry is out of date."), Vec::<String>::new());
    }

    #[test]
    fn sentences_go_on_over_lines_and_lines_are_told() {
        assert_eq!(
            found("\n/// It says\n/// what is there, and nobody\n/// asks."),
            [(3, "nobody".to_owned())]
        );
        assert_eq!(
            found("/// First.\n/// What is next\n/// is second."),
            [(2, "what is".to_owned())]
        );
    }

    #[test]
    fn code_is_left_out() {
        let text = "//! `nobody` asks.\n//! ```\n//! let nobody = 1;\n//! ```\n//! End.\n\
                    let nobody = 1; // nobody\nlet url = \"a://nobody\";\n";
        assert_eq!(found(text), []);
        assert_eq!(found("//! ```\n//! x\n//! ```\n//! Nobody."), [(4, "nobody".to_owned())]);
    }

    #[test]
    fn comments_beside_code_are_read_too() {
        assert_eq!(found("    // Pages that nobody\n    // maps."), [(1, "nobody".to_owned())]);
        assert_eq!(found("/// A page.\n// Nobody maps it."), [(2, "nobody".to_owned())]);
        assert_eq!(found("// Why it is there."), [], "it describes no item");
    }

    #[test]
    fn a_safety_comment_gives_its_own_reason() {
        let about = |text: &str| {
            let offences = found(&format!("// A note.\n// SAFETY: {text}"));
            offences.into_iter().map(|(_, words)| words).collect::<Vec<_>>()
        };
        assert_eq!(about("the range is live, as above."), ["SAFETY: as above"]);
        assert_eq!(about("for the range's life see\n// above."), ["SAFETY: see above"]);
        assert_eq!(about("that it stays live is the caller's duty."), ["SAFETY: caller duty"]);
        assert_eq!(about("nobody uses this memory here."), ["nobody"]);
        assert_eq!(about("null, or live."), ["SAFETY without a reason"]);
        assert_eq!(about("no work uses the memory."), Vec::<String>::new());
        assert_eq!(found("// The rule is as above."), [], "it is no SAFETY comment");
    }

    #[test]
    fn safety_comments_of_examples_are_read() {
        let text = "/// ```\n/// // SAFETY: nobody uses the memory.\n/// ```\n/// End.";
        assert_eq!(found(text), [(2, "nobody".to_owned())]);
    }

    #[test]
    fn each_paragraph_and_item_of_a_document_begins_anew() {
        let text =
            "It says\n\nWhat is new\n- what is old\n| a | what is here |\n\n```text\nnobody\n```\n";
        let offences = paragraphs_of_document(text).iter().flat_map(offences).collect::<Vec<_>>();
        let expected = [(3, "what is"), (4, "what is"), (5, "what is")];
        assert_eq!(offences, expected.map(|(line, word)| (line, word.to_owned())));
    }
}
