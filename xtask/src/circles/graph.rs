//! The imports of a crate as a graph, and the circles in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use super::names::{Segments, Source};

type Sources = BTreeMap<Segments, Source>;

/// Files by number, and the names that one takes from another.
#[derive(Debug)]
pub(super) struct Graph<'a> {
    files: Vec<&'a Path>,
    arrows: Vec<BTreeMap<usize, BTreeSet<String>>>,
}

/// Files that import each other, and the arrows among them.
#[derive(Debug)]
pub(super) struct Circle<'a> {
    arrows: Vec<(&'a Path, &'a Path, Vec<&'a str>)>,
}

impl fmt::Display for Circle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (from, to, names) in &self.arrows {
            writeln!(f, "  {} -> {}: {}", from.display(), to.display(), names.join(", "))?;
        }
        Ok(())
    }
}

impl<'a> Graph<'a> {
    pub(super) fn new(sources: &'a Sources) -> Self {
        let number: BTreeMap<_, _> =
            sources.keys().enumerate().map(|(index, module)| (module, index)).collect();
        let mut arrows = vec![BTreeMap::<usize, BTreeSet<String>>::new(); sources.len()];
        for (module, source) in sources {
            let from = number[module];
            for path in &source.mentions {
                let Some((to, name)) = definition(sources, module, path, 0) else { continue };
                if to != module {
                    arrows[from].entry(number[to]).or_default().insert(name);
                }
            }
        }
        let files = sources.values().map(|source| source.file.as_path()).collect();
        Self { files, arrows }
    }

    /// Every group of files of which each reaches each other.
    pub(super) fn circles(&self) -> Vec<Circle<'_>> {
        let reached: Vec<BTreeSet<usize>> =
            (0..self.files.len()).map(|file| self.reached_from(file)).collect();
        let mut circles = Vec::new();
        let mut seen = BTreeSet::new();
        for file in 0..self.files.len() {
            if !reached[file].contains(&file) || !seen.insert(file) {
                continue;
            }
            let back = |other: &usize| reached[*other].contains(&file);
            let members: BTreeSet<usize> = reached[file].iter().copied().filter(back).collect();
            seen.extend(&members);
            circles.push(self.circle(&members));
        }
        circles
    }

    fn circle(&self, members: &BTreeSet<usize>) -> Circle<'_> {
        let mut arrows = Vec::new();
        for &from in members {
            for (to, names) in self.arrows[from].iter().filter(|(to, _)| members.contains(to)) {
                let names = names.iter().map(String::as_str).collect();
                arrows.push((self.files[from], self.files[*to], names));
            }
        }
        Circle { arrows }
    }

    fn reached_from(&self, file: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<usize> = self.arrows[file].keys().copied().collect();
        while let Some(other) = next.pop() {
            if reached.insert(other) {
                next.extend(self.arrows[other].keys());
            }
        }
        reached
    }
}

/// Deeper chains of re-exports are not followed, so that a loop among them ends.
const DEPTH_MAX: usize = 12;

/// The module that defines what a path names, seen from a module, and the item's name. `None` for
/// what other crates define, and for modules themselves.
fn definition<'a>(
    sources: &'a Sources,
    from: &[String],
    path: &[String],
    depth: usize,
) -> Option<(&'a Segments, String)> {
    let (first, rest) = path.split_first()?;
    if depth > DEPTH_MAX {
        return None;
    }
    match first.as_str() {
        "crate" => item(sources, Vec::new(), rest, depth),
        "self" if rest.is_empty() => None,
        "self" => item(sources, from.to_vec(), rest, depth),
        "super" => {
            let (_, above) = from.split_last()?;
            if rest.first().is_some_and(|next| next == "super") {
                return definition(sources, above, rest, depth);
            }
            item(sources, above.to_vec(), rest, depth)
        }
        _ => item(sources, from.to_vec(), path, depth),
    }
}

/// The same for a path below a module.
fn item<'a>(
    sources: &'a Sources,
    mut module: Segments,
    path: &[String],
    depth: usize,
) -> Option<(&'a Segments, String)> {
    let mut rest = path;
    while let Some((name, after)) = rest.split_first() {
        let child = [module.as_slice(), std::slice::from_ref(name)].concat();
        if !sources.contains_key(&child) {
            break;
        }
        (module, rest) = (child, after);
    }
    let name = rest.first()?;
    let (known, source) = sources.get_key_value(&module)?;
    if source.defines.contains(name) {
        return Some((known, name.clone()));
    }
    if let Some(stands_for) = source.brings.get(name) {
        // A name that stands for itself is of another crate.
        let whole = [stands_for.as_slice(), &rest[1..]].concat();
        return (whole != path).then(|| definition(sources, &module, &whole, depth + 1))?;
    }
    let within = |glob: &Segments| {
        let whole = [glob.as_slice(), rest].concat();
        definition(sources, &module, &whole, depth + 1)
    };
    source.globs.iter().find_map(within)
}
