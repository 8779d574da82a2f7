//! `pagewise doctor`: reports what this machine's CUDA driver offers, or why there is none.

mod findings;
mod text;

use findings::Findings;
use pagewise_hal::DriverVersion;

use crate::status::Answer;

/// Looks, and says what there is. Never fails: the missing parts are the answer.
pub(crate) fn doctor(ceiling: Option<DriverVersion>) -> Answer {
    let findings = Findings::look(ceiling);
    Answer::new(text::text(&findings), &findings)
}
