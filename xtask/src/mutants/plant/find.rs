//! Finding the code that mutants change.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, BinOp, Block, Expr, ExprBinary, ExprMatch, ExprStruct, ExprUnary, File, Pat};

use super::sites::{ArmChanges, Site};
use crate::mutants::list::{Genre, Mutant, Number};
use crate::mutants::text::Bytes;

/// The places of a file's mutants.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) sites: Vec<Site>,
    pub(super) unviable: Vec<Number>,
}

/// Finds the places of mutants, each given with the byte that it begins at.
pub(super) fn sites(source: &str, file: &File, wanted: &[(usize, Number, &Mutant)]) -> Found {
    let mut by_place = BTreeMap::<_, Vec<_>>::new();
    for &(at, number, mutant) in wanted {
        let change = (number, mutant.replacement.clone());
        by_place.entry((mutant.genre as u8, at)).or_default().push(change);
    }
    let mut finder = Finder { source, wanted: by_place, found: Found::default() };
    finder.visit_file(file);
    finder.found
}

struct Finder<'s> {
    source: &'s str,
    wanted: BTreeMap<(u8, usize), Vec<(Number, String)>>,
    found: Found,
}

fn bytes(node: &impl Spanned) -> Bytes {
    node.span().byte_range()
}

impl Finder<'_> {
    fn at(&mut self, genre: Genre, at: usize) -> Vec<(Number, String)> {
        self.wanted.remove(&(genre as u8, at)).unwrap_or_default()
    }

    /// A function's body: its mutants begin at its first statement, or at its brace.
    fn body(&mut self, block: &Block) {
        let brace = block.brace_token.span.open().byte_range();
        let first = block.stmts.first().map(|statement| bytes(statement).start);
        let places = [Some(bytes(block).start), first];
        let values: Vec<_> = places
            .into_iter()
            .flatten()
            .flat_map(|place| self.at(Genre::Body, place))
            .map(|(number, value)| (number, if value.is_empty() { "()".to_owned() } else { value }))
            .collect();
        if !values.is_empty() {
            self.found.sites.push(Site::Body { at: brace.end, values });
        }
    }
}

/// Whether an operand of a chain of `&&` is a `let`.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(chain) if matches!(chain.op, BinOp::And(_)) => {
            has_let(&chain.left) || has_let(&chain.right)
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.body(&node.block);
        visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.body(&node.block);
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        node.default.iter().for_each(|block| self.body(block));
        visit::visit_trait_item_fn(self, node);
    }

    fn visit_expr_binary(&mut self, node: &'ast ExprBinary) {
        let others = self.at(Genre::Binary, bytes(&node.op).start);
        let (left, right) = (bytes(&node.left), bytes(&node.right));
        let is_and = matches!(node.op, BinOp::And(_));
        if is_and && (has_let(&node.left) || has_let(&node.right)) {
            self.found.unviable.extend(others.iter().map(|(number, _)| *number));
        } else if is_and || matches!(node.op, BinOp::Or(_)) {
            // Either becomes the other; nothing else is asked for.
            for (other, _) in others {
                let (left, right) = (left.clone(), right.clone());
                self.found.sites.push(Site::Lazy { left, is_and, right, other });
            }
        } else if !others.is_empty() {
            let operator = self.source[bytes(&node.op)].to_owned();
            self.found.sites.push(Site::Binary { left, operator, right, others });
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast ExprUnary) {
        let at = bytes(&node.op).start;
        if let Some((without, _)) = self.at(Genre::Unary, at).pop() {
            let operator = self.source[bytes(&node.op)].to_owned();
            let operand = bytes(&node.expr);
            self.found.sites.push(Site::Unary { at, operator, operand, without });
        }
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast ExprMatch) {
        let catches_all = |arm: &Arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none();
        let may_lose_arms = node.arms.iter().any(catches_all);
        for arm in &node.arms {
            let mut left_out =
                self.at(Genre::Arm, bytes(arm).start).pop().map(|(number, _)| number);
            if !may_lose_arms {
                self.found.unviable.extend(left_out.take());
            }
            let mut changes = ArmChanges { left_out, ..ArmChanges::default() };
            let condition = arm.guard.as_ref().map(|(_, condition)| bytes(condition));
            if let Some(condition) = &condition {
                for (number, value) in self.at(Genre::Guard, condition.start) {
                    let place =
                        if value == "true" { &mut changes.always } else { &mut changes.never };
                    *place = Some(number);
                }
            }
            let ArmChanges { left_out, always, never } = changes;
            if left_out.or(always).or(never).is_some() {
                let between = bytes(&arm.pat).end..bytes(&arm.fat_arrow_token).start;
                self.found.sites.push(Site::Arm { between, condition, changes });
            }
        }
        visit::visit_expr_match(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast ExprStruct) {
        let mut without = Vec::new();
        for (n, field) in node.fields.iter().enumerate() {
            let changes = self.at(Genre::Field, bytes(field).start);
            without.extend(changes.into_iter().map(|(number, _)| (number, n)));
        }
        if let Some(base) = node.rest.as_ref().filter(|_| !without.is_empty()) {
            let fields = node.fields.iter().map(bytes).collect();
            let (path, base) = (bytes(&node.path), bytes(base));
            let bytes = bytes(node);
            self.found.sites.push(Site::Struct { bytes, path, fields, base, without });
        }
        visit::visit_expr_struct(self, node);
    }
}
