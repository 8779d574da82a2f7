//! Links the texts of several modules to one.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use thiserror::Error;

use crate::error::LoadError;
use crate::lower::is_service;
use crate::syntax::pieces::{Declared, Mark, Piece, Shape, marks, pieces};
use crate::syntax::tree::{Linking, Module};

/// A module that is linked.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'t> {
    /// Its name in messages.
    pub name: &'t str,
    /// Its text.
    pub text: &'t str,
}

/// The reason why modules do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LinkError {
    /// A text is no PTX.
    #[error("{unit}: {error}")]
    Text {
        /// The module.
        unit: String,
        /// The defect.
        error: LoadError,
    },
    /// No module defines a name that one uses.
    #[error("Undefined reference to '{name}' in '{unit}'")]
    Undefined {
        /// The name.
        name: String,
        /// The module that uses it.
        unit: String,
    },
    /// Two modules define a name, and neither is `.weak`.
    #[error("Multiple definition of '{name}' in '{unit}', first defined in '{first}'")]
    Twice {
        /// The name.
        name: String,
        /// The second module.
        unit: String,
        /// The first one.
        first: String,
    },
    /// A function has other parameters or results in another module.
    #[error("Prototype doesn't match for '{name}' in '{unit}', first defined in '{first}'")]
    Prototype {
        /// The function.
        name: String,
        /// The second module.
        unit: String,
        /// The module that defines it, or the first one.
        first: String,
    },
    /// A variable has another size in another module.
    #[error("Size doesn't match for '{name}' in '{unit}', first specified in '{first}'")]
    Size {
        /// The variable.
        name: String,
        /// The second module.
        unit: String,
        /// The first one.
        first: String,
    },
}

/// A module that is read.
struct Read<'t> {
    unit: Unit<'t>,
    header: Module<'t>,
    pieces: Vec<Piece<'t>>,
}

impl<'t> Read<'t> {
    fn of(unit: &Unit<'t>) -> Result<Self, LinkError> {
        let (header, pieces) = pieces(unit.text)
            .map_err(|error| LinkError::Text { unit: unit.name.to_owned(), error })?;
        Ok(Self { unit: *unit, header, pieces })
    }

    fn declared(&self) -> impl Iterator<Item = &Declared<'t>> {
        self.pieces.iter().flat_map(|piece| &piece.declared)
    }

    /// The words of all items but the declarations of a name.
    fn uses(&self, name: &str) -> bool {
        let declares = |piece: &Piece<'_>| piece.declared.iter().any(|one| one.name == name);
        let others = self.pieces.iter().filter(|piece| piece.kept && !declares(piece));
        others
            .flat_map(|piece| marks(&self.unit.text[piece.span.clone()]))
            .any(|(_, mark)| matches!(mark, Mark::Word(word) if word == name))
    }
}

/// Whether other modules see the name.
fn is_seen(one: &Declared<'_>) -> bool {
    !matches!(one.linking, Linking::Static) || one.dynamic
}

fn is_weak(one: &Declared<'_>) -> bool {
    matches!(one.linking, Linking::Weak | Linking::Common)
}

/// Links modules: the text of one module with all of their items. Of several definitions of a name
/// one stays, and names that only one module sees stay apart.
///
/// # Errors
/// If a text is no PTX, if a name is used and defined nowhere, or defined twice.
pub fn link(units: &[Unit<'_>]) -> Result<String, LinkError> {
    let units = units.iter().map(Read::of).collect::<Result<Vec<_>, _>>()?;
    agree(&units)?;
    let chosen = definitions(&units)?;
    for read in &units {
        let missing = read.declared().find(|one| {
            !one.defined
                && !one.dynamic
                && is_seen(one)
                && !chosen.contains_key(one.name)
                && !is_service(one.name)
                && read.uses(one.name)
        });
        if let Some(one) = missing {
            let (name, unit) = (one.name.to_owned(), read.unit.name.to_owned());
            return Err(LinkError::Undefined { name, unit });
        }
    }
    let mut text = header(&units);
    let (names, mut files) = (names(&units), 0);
    for (index, read) in units.iter().enumerate() {
        let renamed = renamed(index, read, &names);
        let mut last_file = 0;
        for (place, piece) in read.pieces.iter().enumerate().filter(|(_, piece)| piece.kept) {
            // The definition that another module's replaces is left out.
            let is_lost = |one: &Declared<'_>| {
                let seen = one.defined && is_seen(one);
                seen && chosen.get(one.name).is_some_and(|found| *found != (index, place))
            };
            if !piece.declared.is_empty() && piece.declared.iter().all(is_lost) {
                continue;
            }
            copy(&read.unit.text[piece.span.clone()], &renamed, files, &mut last_file, &mut text);
        }
        files += last_file + 1;
    }
    Ok(text)
}

/// Checks that all modules give each name the same form.
fn agree(units: &[Read<'_>]) -> Result<(), LinkError> {
    let mut first: HashMap<&str, (usize, &Declared<'_>)> = HashMap::new();
    for (index, read) in units.iter().enumerate() {
        for one in read.declared().filter(|one| is_seen(one) && !one.dynamic) {
            let &mut (known_unit, known) = first.entry(one.name).or_insert((index, one));
            let unit_name = |index: usize| units[index].unit.name.to_owned();
            let (name, unit) = (one.name.to_owned(), unit_name(index));
            match (&known.shape, &one.shape) {
                (Shape::Function(..), Shape::Function(..)) if known.shape != one.shape => {
                    // The message names the module with the definition, if only one has it.
                    let first = unit_name(if known.defined { known_unit } else { index });
                    return Err(LinkError::Prototype { name, unit, first });
                }
                (Shape::Variable(Some(a)), Shape::Variable(Some(b))) if a != b => {
                    return Err(LinkError::Size { name, unit, first: unit_name(known_unit) });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The module and the piece of each name that modules see.
fn definitions<'t>(units: &[Read<'t>]) -> Result<HashMap<&'t str, (usize, usize)>, LinkError> {
    let mut chosen: HashMap<&str, (usize, usize, bool)> = HashMap::new();
    // The message names the first module that mentions a variable, as the driver's does.
    let mut mentioned: HashMap<&str, usize> = HashMap::new();
    for (index, read) in units.iter().enumerate() {
        for (place, piece) in read.pieces.iter().enumerate() {
            for one in piece.declared.iter().filter(|one| is_seen(one)) {
                let is_mention = one.defined || matches!(one.shape, Shape::Variable(_));
                let first =
                    if is_mention { *mentioned.entry(one.name).or_insert(index) } else { 0 };
                let weak = is_weak(one);
                match chosen.get(one.name) {
                    _ if !one.defined => {}
                    // A weak definition replaces none.
                    Some(_) if weak => {}
                    Some(&(other, _, false)) if other != index => {
                        return Err(LinkError::Twice {
                            name: one.name.to_owned(),
                            unit: read.unit.name.to_owned(),
                            first: units[first].unit.name.to_owned(),
                        });
                    }
                    _ => _ = chosen.insert(one.name, (index, place, weak)),
                }
            }
        }
    }
    Ok(chosen.into_iter().map(|(name, (unit, piece, _))| (name, (unit, piece))).collect())
}

/// The newest version, and the target of the newest GPU.
fn header(units: &[Read<'_>]) -> String {
    let number = |target: &str| -> u32 {
        let digits = target.trim_start_matches("sm_");
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().unwrap_or(0)
    };
    let newest = |read: &&Read<'_>| {
        read.header.targets.iter().map(|target| number(target)).max().unwrap_or(0)
    };
    let version = units.iter().map(|read| read.header.version).max().unwrap_or((8, 0));
    let targets = units.iter().max_by_key(newest).map(|read| read.header.targets.join(", "));
    let mut text = format!(".version {}.{}\n", version.0, version.1);
    if let Some(targets) = targets.filter(|targets| !targets.is_empty()) {
        let _ = writeln!(text, ".target {targets}");
    }
    text.push_str(".address_size 64\n");
    text
}

/// How many modules declare each name.
fn names<'t>(units: &[Read<'t>]) -> HashMap<&'t str, usize> {
    let mut names = HashMap::new();
    for read in units {
        let own: HashSet<&str> = read.declared().map(|one| one.name).collect();
        for name in own {
            *names.entry(name).or_insert(0) += 1;
        }
    }
    names
}

/// New names for those that only this module sees and others have too.
fn renamed<'t>(
    index: usize,
    read: &Read<'t>,
    names: &HashMap<&str, usize>,
) -> HashMap<&'t str, String> {
    let clashes =
        |one: &&Declared<'_>| !is_seen(one) && names.get(one.name).is_some_and(|&n| n > 1);
    let clashing = read.declared().filter(clashes);
    clashing
        .map(|one| {
            let mut new = format!("{}${index}", one.name);
            while names.contains_key(new.as_str()) {
                new.push('$');
            }
            (one.name, new)
        })
        .collect()
}

/// Copies the text of an item, with its new names and numbers of files.
fn copy(
    piece: &str,
    renamed: &HashMap<&str, String>,
    files: u32,
    last_file: &mut u32,
    into: &mut String,
) {
    let mut done = 0;
    for (span, mark) in marks(piece) {
        let new = match mark {
            Mark::Word(word) => renamed.get(word).cloned(),
            Mark::File(file) => {
                *last_file = file.max(*last_file);
                Some(file.saturating_add(files).to_string())
            }
        };
        if let Some(new) = new {
            into.push_str(&piece[done..span.start]);
            into.push_str(&new);
            done = span.end;
        }
    }
    into.push_str(&piece[done..]);
    into.push('\n');
}
