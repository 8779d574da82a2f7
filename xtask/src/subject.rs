//! The subject of a commit message.

use std::fs;
use std::path::Path;

use crate::command::Outcome;

/// Most characters of a subject.
const SUBJECT_MAX: usize = 72;

/// The message in a file is one that the history takes: what git calls a `commit-msg` hook.
pub(crate) fn check(message: &Path) -> Outcome {
    let text = fs::read_to_string(message);
    let text = text.map_err(|error| format!("{}: {error}", message.display()))?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let subject = lines.next().unwrap_or_default();
    judge(subject)?;
    match lines.next() {
        Some(second) if !second.is_empty() => {
            Err("leave the second line empty: the subject is the first line alone".to_owned())
        }
        _ => Ok(()),
    }
}

/// A subject is `crate: summary`, or several crates, and short. Git's own merges and reverts pass.
fn judge(subject: &str) -> Outcome {
    if ["Merge ", "Revert ", "fixup! ", "squash! "].iter().any(|own| subject.starts_with(own)) {
        return Ok(());
    }
    let length = subject.chars().count();
    if length > SUBJECT_MAX {
        return Err(format!("the subject has {length} characters: {SUBJECT_MAX} are the most"));
    }
    let is_place = |place: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        !place.is_empty() && place.chars().all(known)
    };
    match subject.split_once(": ") {
        Some((places, summary)) if places.split(", ").all(is_place) && !summary.is_empty() => {
            match summary.ends_with('.') {
                false => Ok(()),
                true => Err("end the subject without a full stop".to_owned()),
            }
        }
        _ => Err("write the subject as `crate: imperative summary`, such as `sim: round discard \
                  ranges inwards to whole pages`"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_its_crates_and_is_short() {
        for good in ["sim: move pages", "hal, cuda-backend: add a call", "Merge branch 'x'"] {
            assert_eq!(judge(good), Ok(()), "{good}");
        }
        let longest = format!("sim: {}", "x".repeat(SUBJECT_MAX - 5));
        assert_eq!(judge(&longest), Ok(()));
        let long = format!("{longest}x");
        for bad in ["move pages", "sim: ", "Sim: move", "sim, : move", "sim: move pages.", &long] {
            assert!(judge(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_second_line_of_a_message_is_empty_and_comments_do_not_count() {
        let file = std::env::temp_dir().join(format!("pagewise-subject-{}", std::process::id()));
        let verdict = |text: &str| {
            fs::write(&file, text).expect("room");
            check(&file)
        };
        assert_eq!(verdict("sim: move pages\n\nWhy.\n"), Ok(()));
        assert_eq!(verdict("# of git\nsim: move pages\n"), Ok(()));
        assert!(verdict("sim: move pages\nWhy.\n").is_err());
        assert!(verdict("").is_err());
        fs::remove_file(&file).expect("written above");
        assert!(check(&file).is_err(), "there is no file");
    }
}
