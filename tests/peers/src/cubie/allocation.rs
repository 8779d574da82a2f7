//! Documented differences of an allocation.

use super::explain::Context;
use super::scenario::{Heard, Member, Seen};

/// The instances that take part in an allocation, as they were before it.
struct Parties<'s> {
    /// Those of the owner in the group with queued requests.
    asking: Vec<&'s Member>,
    /// All of the owner in the group.
    peers: Vec<&'s Member>,
}

impl<'s> Parties<'s> {
    fn of(context: &Context<'s>, who: u32) -> Option<Self> {
        let one = context.before.get(&who)?;
        let is_peer = |other: u32, member: &Member| match one.owner {
            Some(_) => member.owner == one.owner && member.group == one.group,
            None => other == who,
        };
        let all = context.before.iter().filter(|(other, member)| is_peer(**other, member));
        let peers: Vec<_> = all.map(|(_, member)| member).collect();
        let asking = peers.iter().copied().filter(|member| !member.queued.is_empty()).collect();
        Some(Self { asking, peers })
    }

    /// Whether a requester holds an array that its requests do not replace.
    fn asking_keeps(&self) -> bool {
        self.asking.iter().any(|one| one.arrays.keys().any(|label| !one.queued.contains(label)))
    }

    /// Whether an instance of the owner that asks for nothing holds arrays.
    fn peer_keeps(&self) -> bool {
        self.peers.iter().any(|one| one.queued.is_empty() && !one.arrays.is_empty())
    }

    /// Whether requests replace arrays.
    fn replaces(&self) -> bool {
        self.asking.iter().any(|one| one.arrays.keys().any(|label| one.queued.contains(label)))
    }
}

/// The division that an allocation chose, if it chose one.
fn division(seen: &Seen) -> Option<(u64, u64)> {
    seen.heard.iter().find_map(|heard| match heard {
        Heard::Ready { chunks, chunk_length, .. } => Some((*chunks, *chunk_length)),
        Heard::Invalidate { .. } => None,
    })
}

/// Whether an instance that loses memory shares its owner with another, which may have worked at
/// another time.
fn loses_a_mixed_owner(context: &Context<'_>, lost: &[u32]) -> bool {
    let owner_of = |who: &u32| context.before.get(who).and_then(|member| member.owner);
    let of_owner = |owner| context.before.values().filter(move |one| one.owner == Some(owner));
    lost.iter().filter_map(owner_of).any(|owner| of_owner(owner).count() > 1)
}

/// The instances that lost their memory, in order.
fn losers(seen: &Seen) -> Vec<u32> {
    let lost = seen.heard.iter().filter_map(|heard| match heard {
        Heard::Invalidate { who } => Some(*who),
        Heard::Ready { .. } => None,
    });
    lost.collect()
}

/// The id of the difference between two allocations, if it is a documented one.
pub(super) fn difference(
    context: &Context<'_>,
    who: u32,
    peer: &Seen,
    ours: &Seen,
) -> Option<&'static str> {
    let parties = Parties::of(context, who)?;
    let keeps = parties.asking_keeps() || parties.peer_keeps();
    if ours.refused.as_deref() == Some("partition does not fit") && keeps {
        return Some("kept-division");
    }
    let (theirs, own) = (division(peer), division(ours));
    let is_out = peer.refused.as_deref() == Some("out of memory");
    let (lost, own_lost) = (losers(peer), losers(ours));
    if own_lost.len() > lost.len() && own_lost.starts_with(&lost) {
        return Some("headroom-is-freed-too");
    }
    if own_lost.is_empty() && !lost.is_empty() {
        return Some("no-eviction-in-vain");
    }
    if own_lost != lost && loses_a_mixed_owner(context, &lost) {
        return Some("latest-work-counts");
    }
    if parties.asking_keeps() && (is_out || theirs != own) {
        return Some("kept-arrays-are-no-room");
    }
    if parties.peer_keeps() && (is_out || theirs != own) {
        return Some("kept-division");
    }
    if parties.replaces() && theirs != own && context.is_active {
        return Some("replaced-makes-room-in-the-share");
    }
    if parties.replaces() && (is_out || theirs == own) {
        return Some("reuse-unless-short");
    }
    reason_of_refusal(peer, ours)
}

/// Refusals for want of memory by different names.
pub(super) fn reason_of_refusal(peer: &Seen, ours: &Seen) -> Option<&'static str> {
    const SHORT: [&str; 3] = ["nothing to chunk", "unchunkable", "single run"];
    let is_short = |seen: &Seen| seen.refused.as_deref().is_some_and(|name| SHORT.contains(&name));
    (is_short(peer) && is_short(ours)).then_some("refusals-say-what-is-missing")
}
