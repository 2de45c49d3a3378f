//! Every module and every public item says what it is for.
//!
//! `missing_docs` asks the same of every field and variant, too, which fills the tree with comments that repeat a name. They
//! are documented where their name does not say enough.

use anyhow::{Context, Result};
use syn::visit::{self, Visit};

use super::File;

/// Complaints about modules and public items of libraries and programs that have no documentation. Tests are left out.
pub(super) fn undocumented(sources: &[File]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for File { path, text } in sources.iter().filter(|source| is_checked(&source.path)) {
        let tree = syn::parse_file(text).with_context(|| format!("parse {path}"))?;
        if !is_documented(&tree.attrs) {
            complaints.push(format!("{path}: the module has no documentation"));
        }
        let mut search = Search { path, complaints: &mut complaints };
        search.visit_file(&tree);
    }
    Ok(complaints)
}

fn is_checked(path: &str) -> bool {
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    path.starts_with("crates/") && path.contains("/src/") && !is_test
}

struct Search<'a> {
    path: &'a str,
    complaints: &'a mut Vec<String>,
}

impl Search<'_> {
    fn check(&mut self, visibility: &syn::Visibility, attributes: &[syn::Attribute], name: &syn::Ident) {
        if matches!(visibility, syn::Visibility::Public(_)) && !is_documented(attributes) {
            self.complaints.push(format!("{}: {name} is public and has no documentation", self.path));
        }
    }
}

impl<'tree> Visit<'tree> for Search<'_> {
    fn visit_item(&mut self, item: &'tree syn::Item) {
        match item {
            syn::Item::Const(item) => self.check(&item.vis, &item.attrs, &item.ident),
            syn::Item::Enum(item) => self.check(&item.vis, &item.attrs, &item.ident),
            syn::Item::Fn(item) => self.check(&item.vis, &item.attrs, &item.sig.ident),
            syn::Item::Static(item) => self.check(&item.vis, &item.attrs, &item.ident),
            syn::Item::Struct(item) => self.check(&item.vis, &item.attrs, &item.ident),
            syn::Item::Trait(item) => self.check(&item.vis, &item.attrs, &item.ident),
            syn::Item::Type(item) => self.check(&item.vis, &item.attrs, &item.ident),
            // A test may do without.
            syn::Item::Mod(item) if item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) => return,
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, function: &'tree syn::ImplItemFn) {
        self.check(&function.vis, &function.attrs, &function.sig.ident);
    }

    fn visit_item_fn(&mut self, _: &'tree syn::ItemFn) {}
}

/// Whether there is a doc comment, or a word that the item is hidden or its lack of documentation is expected.
fn is_documented(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("doc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        undocumented(&[File { path: "crates/x/src/a.rs".into(), text: text.into() }]).unwrap()
    }

    #[test]
    fn what_is_public_says_what_it_is_for() {
        assert_eq!(complaints("fn private() {}"), ["crates/x/src/a.rs: the module has no documentation"]);
        let found = complaints("//! A module.\npub struct S;\nimpl S { pub fn f() {} }\npub(crate) enum E {}");
        let expected = ["S", "f"].map(|name| format!("crates/x/src/a.rs: {name} is public and has no documentation"));
        assert_eq!(found, expected);
    }

    #[test]
    fn fields_variants_and_tests_may_do_without() {
        let fields =
            "//! A module.\n/// A type.\npub struct S { pub a: u8 }\n/// Another.\npub enum E { A, B { c: u8 } }";
        assert_eq!(complaints(fields), [""; 0]);
        assert_eq!(complaints("//! A module.\n#[cfg(test)]\nmod tests { pub fn f() {} }"), [""; 0]);
        let test = File { path: "crates/x/tests/a.rs".into(), text: "pub fn f() {}".into() };
        assert_eq!(undocumented(&[test]).unwrap(), [""; 0]);
    }
}
