//! Documented differences, recognised in what both sides saw of a step.

use std::collections::BTreeMap;
use std::fmt::Debug;

use super::allocation;
use super::scenario::{Action, Heard, Member, Seen};

/// A step, and the state before it, which was the same on both sides.
#[derive(Debug)]
pub(super) struct Context<'s> {
    pub(super) action: &'s Action,
    pub(super) before: &'s BTreeMap<u32, Member>,
    /// Whether shares are enforced.
    pub(super) is_active: bool,
}

/// The differences of one step.
#[derive(Debug, Default)]
pub(super) struct Explained {
    pub(super) ids: Vec<&'static str>,
    pub(super) unexplained: Option<String>,
    /// Whether the managers are in different states from here on.
    pub(super) ends: bool,
}

/// Compares what the peer saw of a step with what was seen here.
pub(super) fn differences(context: &Context<'_>, peer: &Seen, ours: &Seen) -> Explained {
    let mut explained = Explained::default();
    if peer.refused.is_some() && peer.refused == ours.refused {
        // The scenario is over: cubie has carried a part of the action out.
        explained.ends = true;
        if peer.members != ours.members {
            explained.ids.push(match context.action {
                Action::Allocate { .. } => "refused-queue-stays",
                _ => "refused-changes-nothing",
            });
        }
        return explained;
    }
    let mut peer = peer.clone();
    if equal_but_for_rounding(&mut peer, ours) {
        explained.ids.push("exact-shares");
    }
    if peer == *ours {
        return explained;
    }
    explained.ends = true;
    match of_action(context, &peer, ours) {
        Some(id) => explained.ids.push(id),
        None => explained.unexplained = Some(differing_fields(&peer, ours)),
    }
    explained
}

/// The id of the difference that this action has, if it is a documented one.
fn of_action(context: &Context<'_>, peer: &Seen, ours: &Seen) -> Option<&'static str> {
    match context.action {
        Action::Allocate { who } => allocation::difference(context, *who, peer, ours),
        Action::Chunks { .. } if evicted(peer) && !evicted(ours) => Some("question-evicts-nothing"),
        Action::Chunks { .. } => allocation::reason_of_refusal(peer, ours),
        Action::Register { share, .. } => of_share(share.as_ref(), peer, ours),
        Action::SetManual { share, .. } | Action::SetManualMode { share, .. } => {
            of_share(Some(share), peer, ours)
        }
        Action::Update { changes, .. } => {
            let share = changes.mem_proportion.flatten();
            of_share(share.as_ref(), peer, ours)
        }
        Action::SetAuto { .. } => of_share(None, peer, ours),
        Action::Available { .. } => {
            let is_negative = peer.answer.as_ref().is_some_and(|numbers| numbers[0] < 0);
            (is_negative && ours.answer == Some(vec![0])).then_some("available-is-not-negative")
        }
        _ => None,
    }
}

/// Whether a step took memory away to make room.
fn evicted(seen: &Seen) -> bool {
    seen.heard.iter().any(|heard| matches!(heard, Heard::Invalidate { .. }))
}

/// A change of a share that one side refuses, or the two for different reasons.
fn of_share(share: Option<&f64>, peer: &Seen, ours: &Seen) -> Option<&'static str> {
    match (peer.refused.as_deref(), ours.refused.as_deref()) {
        (_, Some("proportion")) if share == Some(&0.0) => Some("share-of-nothing"),
        (Some("auto pool"), None) if is_at_limit(ours) => Some("exact-shares"),
        _ => None,
    }
}

/// Whether the manual shares come to 0.95, up to the rounding of binary fractions.
fn is_at_limit(seen: &Seen) -> bool {
    let manual = seen.members.values().filter(|member| member.is_manual);
    (manual.map(|member| member.share).sum::<f64>() - 0.95).abs() < 1e-9
}

/// Takes our values where the peer's differ by no more than binary sums of decimal fractions do:
/// shares by less than a part in 10^12, caps by a byte, a warning at the limit itself. Says whether
/// any did.
fn equal_but_for_rounding(peer: &mut Seen, ours: &Seen) -> bool {
    let mut rounded = false;
    let warns = peer.warned == ["large manual pool"] && ours.warned.is_empty();
    if warns && is_at_limit(ours) {
        peer.warned.clear();
        rounded = true;
    }
    for (who, theirs) in &mut peer.members {
        let Some(Member { share, cap, .. }) = ours.members.get(who) else { continue };
        let bytes = theirs.cap.zip(*cap).map_or(0, |(theirs, ours)| theirs.abs_diff(ours));
        let is_close = (theirs.share - share).abs() < 1e-12 && bytes <= 1;
        if is_close && (theirs.share != *share || theirs.cap != *cap) {
            (theirs.share, theirs.cap) = (*share, *cap);
            rounded = true;
        }
    }
    rounded
}

/// The fields that differ, for people.
fn differing_fields(peer: &Seen, ours: &Seen) -> String {
    let mut text = String::new();
    let mut add = |name: &str, theirs: &dyn Debug, ours: &dyn Debug| {
        let (theirs, ours) = (format!("{theirs:?}"), format!("{ours:?}"));
        if theirs != ours {
            text += &format!("\n  {name}: theirs {theirs}\n    ours {ours}");
        }
    };
    add("refusal", &peer.refused, &ours.refused);
    add("answer", &peer.answer, &ours.answer);
    add("warnings", &peer.warned, &ours.warned);
    add("hooks", &peer.heard, &ours.heard);
    add("free bytes", &peer.free, &ours.free);
    let all =
        peer.members.keys().chain(ours.members.keys()).collect::<std::collections::BTreeSet<_>>();
    for who in all {
        add(&format!("instance {who}"), &peer.members.get(who), &ours.members.get(who));
    }
    text
}
