//! The manual page, and the scripts with which shells complete arguments.

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use crate::args::Cli;
use crate::status::Answer;

/// The page as it ships: a test compares it with what the parser says of itself.
const PAGE: &str = include_str!("../pagewise.1");

/// `pagewise man`
pub(crate) fn page() -> Answer {
    Answer::new(PAGE.to_owned(), &json!({ "page": PAGE }))
}

/// `pagewise completions`
pub(crate) fn completions(shell: Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pagewise", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let fields = json!({ "shell": shell.to_string(), "script": script });
    Answer::new(script, &fields)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use clap::Command;
    use clap_mangen::Man;

    use super::*;

    /// The text of a page, without the definitions that each part of one begins with.
    fn rendered(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
        let mut text = Vec::new();
        render(&mut text).expect("in memory");
        let text = String::from_utf8(text).expect("text");
        let is_definition = |line: &&str| line.contains(".ds Aq ");
        text.lines().filter(|line| !is_definition(line)).map(|line| format!("{line}\n")).collect()
    }

    /// One page: the command, then each subcommand with its arguments.
    fn generated() -> String {
        let mut command = Cli::command();
        command.build();
        // Without a version it is the same in every release.
        let man = Man::new(command.clone()).source("pagewise");
        let mut text = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n".to_owned();
        text += &rendered(|page| {
            man.render_title(page)?;
            man.render_name_section(page)?;
            man.render_synopsis_section(page)?;
            man.render_description_section(page)?;
            man.render_options_section(page)?;
            man.render_extra_section(page)
        });
        // `calibrate` is there only with its feature, and the page is that of the default features.
        let is_left_out = |command: &&Command| ["help", "calibrate"].contains(&command.get_name());
        for subcommand in command.get_subcommands().filter(|command| !is_left_out(command)) {
            let man = Man::new(subcommand.clone());
            let section = rendered(|page| {
                man.render_synopsis_section(page)?;
                man.render_description_section(page)?;
                man.render_options_section(page)?;
                man.render_extra_section(page)
            });
            let name = subcommand.get_name().to_uppercase();
            // Its sections become parts of one.
            _ = write!(text, ".SH {name}\n{}", section.replace(".SH ", ".SS "));
        }
        text.replace(" EXTRA\n", " \"EXIT STATUS AND JSON\"\n")
    }

    #[test]
    fn the_page_that_ships_is_what_the_parser_says() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("pagewise.1");
        if std::env::var_os("PAGEWISE_WRITE_MANUAL").is_some() {
            std::fs::write(&file, generated()).expect("a checkout that can be written");
        }
        let there = std::fs::read_to_string(&file).expect("the checkout has its manual page");
        assert_eq!(
            there,
            generated(),
            "run `PAGEWISE_WRITE_MANUAL=1 cargo test -p pagewise-cli manual` and commit the page"
        );
    }
}
