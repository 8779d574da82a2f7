//! Documented differences, recognised in what both sides saw of a step.

use super::carry_out::Subject;
use super::scenario::{Action, Seen, Step};

/// The difference of one step, if there is one.
#[derive(Debug, Default)]
pub(super) struct Explained {
    pub(super) id: Option<&'static str>,
    pub(super) unexplained: Option<String>,
    /// Whether the managers are in different states from here on.
    pub(super) ends: bool,
}

/// Compares what the peer saw of a step with what was seen here.
pub(super) fn differences(step: &Step, ours: &Seen, subject: Subject) -> Explained {
    let peer = &step.seen;
    // These leave the managers in different states, also where nothing shows it yet.
    let hides = subject.is_reset_of_more
        || subject.is_owned_view && matches!(step.action, Action::Drop { .. });
    if peer == ours && !hides {
        return Explained::default();
    }
    match recognised(step, ours, subject) {
        Some((id, ends)) => Explained { id: Some(id), unexplained: None, ends },
        None => {
            let what = format!("{:?}\n  theirs {peer:?}\n  ours   {ours:?}", step.action);
            Explained { id: None, unexplained: Some(what), ends: true }
        }
    }
}

/// The id of a documented difference, and whether it ends the scenario.
fn recognised(step: &Step, ours: &Seen, subject: Subject) -> Option<(&'static str, bool)> {
    let peer = &step.seen;
    let (their, our) = (peer.refused.as_deref(), ours.refused.as_deref());
    let same_state = peer.pending == ours.pending && peer.lost == ours.lost;
    match &step.action {
        Action::Reset if subject.is_reset_of_more => Some(("reset-leaves-memory", true)),
        Action::Drop { .. } if subject.is_owned_view => Some(("own-of-view", true)),
        Action::EndDeferral if peer.calls.is_empty() && ours.pending == (0, 0) => {
            Some(("deferral-end", true))
        }
        Action::View { .. } | Action::Fill { .. } | Action::Ipc { .. } if our == Some("freed") => {
            Some(("freed-is-refused", their.is_none()))
        }
        Action::View { .. } if (their, our) == (None, Some("past the end")) => {
            Some(("view-past-end", true))
        }
        Action::View { .. } | Action::Own { .. } if (their, our) == (Some("freed"), None) => {
            Some((if is_view(step) { "object-goes-first" } else { "own-of-freed" }, true))
        }
        Action::Fill { .. } if our == Some("shared") => Some(("foreign-fill", false)),
        Action::Ipc { .. } if (their, our) == (Some("cuda 1"), Some("no handle")) => {
            Some(("no-handle-says-why", false))
        }
        Action::Free { .. } if our == Some("held") => Some(("held-memory-stays", true)),
        Action::Free { .. } | Action::Drop { .. } if has_failed(peer) && has_failed(ours) => {
            Some(("failing-destructor", true))
        }
        Action::Free { .. } if subject.is_view && peer.calls.is_empty() && their.is_none() => {
            Some(("free-of-view", true))
        }
        Action::Drop { .. } if is_lost_twice(peer, ours) => Some(("freed-twice", false)),
        Action::Drop { .. } if is_final(peer) != is_final(ours) => {
            Some(("object-goes-first", true))
        }
        Action::Host { mapped: false, .. } | Action::Pin { mapped: false, .. }
            if their == our && peer.calls.len() == 1 =>
        {
            Some(("every-kind-is-retried", true))
        }
        Action::Memalloc { .. }
        | Action::Managed { .. }
        | Action::Host { .. }
        | Action::Pin { .. }
            if their == our && same_state && is_in_vain(peer, ours) =>
        {
            Some(("no-retry-in-vain", false))
        }
        _ => None,
    }
}

fn is_view(step: &Step) -> bool {
    matches!(step.action, Action::View { .. })
}

/// Whether a call of the driver failed.
fn has_failed(seen: &Seen) -> bool {
    seen.calls.iter().any(|call| call.contains('!'))
}

/// A second try that could not succeed, as nothing was freed before it.
fn is_in_vain(peer: &Seen, ours: &Seen) -> bool {
    let [first, second] = &peer.calls[..] else { return false };
    first == second && first.ends_with("!2") && ours.calls == [first.clone()]
}

/// A destructor that frees what was freed, which fails unseen.
fn is_lost_twice(peer: &Seen, ours: &Seen) -> bool {
    peer.calls == ours.calls && peer.pending == ours.pending && peer.lost == ours.lost + 1
}

/// Whether a finalizer of a plug-in's pointer ran.
fn is_final(seen: &Seen) -> bool {
    seen.calls.iter().any(|call| call.starts_with("final"))
}
