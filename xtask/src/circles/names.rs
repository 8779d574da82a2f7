//! The names of one file: what it defines, what it re-exports or imports, and what it mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

use crate::command::Outcome;

/// A path in the code, by segments.
pub(super) type Segments = Vec<String>;

/// One file as a module.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) file: PathBuf,
    /// Names of items that the file defines.
    pub(super) defines: BTreeSet<String>,
    /// Names that a `use` brings, and what each stands for.
    pub(super) brings: BTreeMap<String, Segments>,
    /// Modules of which a `use` brings everything.
    pub(super) globs: Vec<Segments>,
    /// Every path that the code mentions.
    pub(super) mentions: BTreeSet<Segments>,
    /// Modules in files of their own that only tests have.
    tests: BTreeSet<String>,
}

impl Source {
    pub(super) fn parse(path: &Path, text: &str) -> Outcome<Self> {
        let file = syn::parse_file(text).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut source = Self { file: path.to_owned(), ..Self::default() };
        source.visit_file(&file);
        Ok(source)
    }

    fn define(&mut self, item: &Item) {
        let ident = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Macro(syn::ItemMacro { ident: Some(ident), .. }) => ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            _ => return,
        };
        self.defines.insert(ident.to_string());
    }

    fn bring(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.bring(&path.tree, &with(&path.ident)),
            UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                self.add(last, before.to_vec());
            }
            UseTree::Name(name) => self.add(name.ident.to_string(), with(&name.ident)),
            UseTree::Rename(name) => self.add(name.rename.to_string(), with(&name.ident)),
            UseTree::Glob(_) => self.globs.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.bring(tree, before)),
        }
    }

    fn add(&mut self, name: String, path: Segments) {
        self.brings.insert(name, path);
    }

    /// Paths in the arguments of a macro, which `syn` leaves as tokens.
    fn mention_tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.mention(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.mention(&mut path);
                    self.mention_tokens(group.stream());
                }
                _ => self.mention(&mut path),
            }
        }
        self.mention(&mut path);
    }

    fn mention(&mut self, path: &mut Segments) {
        if !path.is_empty() {
            self.mentions.insert(std::mem::take(path));
        }
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Mod(module) = item
            && is_of_tests(&module.attrs)
        {
            self.tests.insert(module.ident.to_string());
            return;
        }
        if attributes(item).is_some_and(is_of_tests) {
            return;
        }
        self.define(item);
        if let Item::Use(item) = item {
            let before = self.brings.clone();
            self.bring(&item.tree, &[]);
            // A module that only hands names on does not need them itself.
            if matches!(item.vis, syn::Visibility::Inherited) {
                let own = self.brings.iter().filter(|(name, _)| !before.contains_key(*name));
                self.mentions.extend(own.map(|(_, path)| path.clone()));
            }
        }
        visit::visit_item(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.mentions.insert(path.segments.iter().map(|it| it.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.mention_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// The attributes of an item that can be for tests only.
fn attributes(item: &Item) -> Option<&[Attribute]> {
    match item {
        Item::Fn(item) => Some(&item.attrs),
        Item::Impl(item) => Some(&item.attrs),
        Item::Struct(item) => Some(&item.attrs),
        Item::Use(item) => Some(&item.attrs),
        Item::Const(item) => Some(&item.attrs),
        _ => None,
    }
}

/// Whether an item is there in tests only.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        let condition = attribute.parse_args::<syn::Path>();
        attribute.path().is_ident("cfg") && condition.is_ok_and(|path| path.is_ident("test"))
    };
    attributes.iter().any(is_test)
}

/// Takes out the files that only tests have.
pub(super) fn leave_out_tests(sources: &mut BTreeMap<Segments, Source>) {
    let mut tests = Vec::new();
    for (module, source) in &*sources {
        tests.extend(
            source
                .tests
                .iter()
                .map(|name| [module.as_slice(), std::slice::from_ref(name)].concat()),
        );
    }
    sources.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
}
