//! The NUMA nodes of the host, as the system lists them.

use std::fs;
use std::ops::RangeInclusive;

/// NUMA nodes that are online. A system without such a list has node 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NumaNodes(Vec<RangeInclusive<i32>>);

impl NumaNodes {
    pub(crate) fn of_this_machine() -> Self {
        let listed = fs::read_to_string("/sys/devices/system/node/online");
        let parsed = listed.ok().and_then(|text| Self::parse(&text));
        parsed.unwrap_or_else(|| Self(vec![0..=0]))
    }

    /// Such as `0-1,4`.
    fn parse(text: &str) -> Option<Self> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
        };
        text.trim().split(',').map(range).collect::<Option<Vec<_>>>().map(Self)
    }

    pub(crate) fn contains(&self, node: i32) -> bool {
        self.0.iter().any(|range| range.contains(&node))
    }

    fn nodes(&self) -> impl Iterator<Item = i32> {
        self.0.iter().cloned().flatten()
    }
}

/// The host's NUMA nodes that are online, ascending.
#[must_use]
pub fn host_numa_nodes() -> Vec<i32> {
    NumaNodes::of_this_machine().nodes().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranges_are_understood_and_others_are_not() {
        let parse = |text| NumaNodes::parse(text).map(|nodes| nodes.nodes().collect::<Vec<_>>());
        assert_eq!(parse("0\n"), Some(vec![0]));
        assert_eq!(parse("0-1,4"), Some(vec![0, 1, 4]));
        assert_eq!(parse("zero"), None);
        assert!(NumaNodes::of_this_machine().contains(0));
    }
}
