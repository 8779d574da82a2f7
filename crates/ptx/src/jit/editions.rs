//! The pieces of a kernel, for launches of several sizes.
//!
//! A piece takes registers for lines that were lines when it was compiled. If they often are none, another
//! piece takes its place, which works on lanes and is right for each launch. A launch of another size may
//! have lines there again: `tid & (size - 1)` is one if `size` is a multiple of a warp. So it gets pieces
//! of its own.

use std::sync::{Arc, Mutex, PoisonError};

use super::compiled::Compiled;

/// The most sets of pieces of a kernel. Further sizes share the last one.
const MOST: usize = 8;

/// Sets of pieces, each with the sizes that it was begun for.
#[derive(Debug, Default)]
pub(crate) struct Editions(Mutex<Vec<(Vec<u32>, Arc<Compiled>)>>);

impl Editions {
    /// The pieces for a launch of some sizes: the last ones, unless they failed for other sizes.
    pub(crate) fn of(&self, sizes: Vec<u32>) -> Arc<Compiled> {
        let mut editions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = editions.iter().find(|(of, _)| *of == sizes);
        let last = editions.last().filter(|(_, last)| !last.has_failed() || editions.len() == MOST);
        if let Some((_, pieces)) = own.or(last) {
            return Arc::clone(pieces);
        }
        let pieces = Arc::<Compiled>::default();
        editions.push((sizes, Arc::clone(&pieces)));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(one: &Arc<Compiled>, other: &Arc<Compiled>) -> bool {
        Arc::ptr_eq(one, other)
    }

    #[test]
    fn sizes_share_pieces_until_these_fail() {
        let editions = Editions::default();
        let first = editions.of(vec![1]);
        assert!(is_same(&first, &editions.of(vec![2])));
        first.note_failure();
        assert!(is_same(&first, &editions.of(vec![1])), "its own");
        let second = editions.of(vec![2]);
        assert!(!is_same(&first, &second));
        assert!(is_same(&second, &editions.of(vec![3])), "the last ones");
        assert!(is_same(&first, &editions.of(vec![1])));
    }

    #[test]
    fn a_kernel_has_few_sets_of_pieces() {
        let editions = Editions::default();
        let all: Vec<_> = (0..2 * MOST as u32).map(|size| editions.of(vec![size])).collect();
        all.iter().for_each(|pieces| pieces.note_failure());
        let mut distinct: Vec<_> = Vec::new();
        for size in 0..100 {
            let pieces = editions.of(vec![size]);
            pieces.note_failure();
            if !distinct.iter().any(|one| is_same(one, &pieces)) {
                distinct.push(pieces);
            }
        }
        assert_eq!(distinct.len(), MOST);
    }
}
