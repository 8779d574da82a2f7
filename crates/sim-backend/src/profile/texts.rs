//! The documents that ship with the crate, as text.

/// Name and text of each document, in the order in which they are listed.
pub(super) const DOCUMENTS: &[(&str, &str)] = &[
    ("h200", include_str!("../../profiles/h200.toml")),
    ("a100", include_str!("../../profiles/a100.toml")),
    ("l4", include_str!("../../profiles/l4.toml")),
    ("rtx4060ti-16gb", include_str!("../../profiles/rtx4060ti-16gb.toml")),
    ("v100", include_str!("../../profiles/v100.toml")),
    ("gtx1080ti", include_str!("../../profiles/gtx1080ti.toml")),
    ("gh200", include_str!("../../profiles/gh200.toml")),
    ("wsl", include_str!("../../profiles/wsl.toml")),
];

/// The text of a document, by name, upper or lower case.
pub(super) fn text(name: &str) -> Option<&'static str> {
    let found = DOCUMENTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, text)| *text)
}

/// The names, for messages.
pub(super) fn names() -> String {
    DOCUMENTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
