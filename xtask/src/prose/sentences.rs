//! Sentences of comments and documents, and the words in them that hide a subject.

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

/// What a clause that has "what" as its subject goes on with.
const VERBS: [&str; 28] = [
    "is", "was", "are", "were", "has", "had", "can", "cannot", "may", "must", "goes", "stays",
    "comes", "remains", "happens", "lies", "depends", "needs", "follows", "belongs", "counts",
    "moves", "leaves", "travels", "does", "makes", "keeps", "becomes",
];

/// Words with which the first line of an item's comment asks instead of saying what the item is.
const ASKING: [&str; 5] = ["what", "who", "whom", "whoever", "why"];

/// Text that belongs together: one paragraph of a comment or of a document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Paragraph {
    /// Each line's number and its text.
    lines: Vec<(usize, String)>,
    /// Whether it says what an item is: the first of a comment.
    describes: bool,
}

/// The `//!` and `///` comments of a source file, without code.
pub(super) fn paragraphs_of_source(text: &str) -> Vec<Paragraph> {
    let comment = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("//!").or(line.strip_prefix("///")).map(str::to_owned)
    };
    let lines: Vec<_> = text.lines().map(comment).collect();
    let mut found = paragraphs(lines.iter().cloned());
    for paragraph in &mut found {
        let before = paragraph.lines.first().map_or(0, |(line, _)| line - 1);
        paragraph.describes = before == 0 || lines[before - 1].is_none();
    }
    found
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
        let begins =
            text.is_empty() || ["- ", "| ", "#", "```"].iter().any(|b| text.starts_with(b));
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

/// Lines with a hidden subject, each with the words that hide it.
pub(super) fn offences(paragraph: &Paragraph) -> Vec<(usize, String)> {
    let words = words(paragraph);
    let at = |index: usize| words.get(index).map_or("", |word| word.text.as_str());
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let begins = index == 0 || words[index - 1].after.contains(['.', ';', ':', '|']);
        let next = at(index + 1);
        let hides = match word.text.as_str() {
            text if HIDING.contains(&text) => Some(text.to_owned()),
            "no" if next == "one" => Some("no one".to_owned()),
            text if index == 0 && paragraph.describes && ASKING.contains(&text) => {
                Some(format!("{text}, of an item")).filter(|_| !is_question(&words))
            }
            text @ ("what" | "whatever") if begins && VERBS.contains(&next) => {
                Some(format!("{text} {next}")).filter(|_| !is_question(&words[index..]))
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
    fn code_and_other_comments_are_left_out() {
        let text = "//! `nobody` asks.\n//! ```\n//! let nobody = 1;\n//! ```\n//! End.\n\
                    // nobody\nlet nobody = 1;\n";
        assert_eq!(found(text), []);
        assert_eq!(found("//! ```\n//! x\n//! ```\n//! Nobody."), [(4, "nobody".to_owned())]);
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
