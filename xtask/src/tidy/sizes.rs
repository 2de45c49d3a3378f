//! Files and functions stay short, and what is too long only gets shorter.
//!
//! A file should stay below 400 lines without its tests, a function below 70. What is longer is listed with its size in
//! `xtask/sizes.txt`; the list is a ratchet: nothing on it may grow, and nothing may join it past 800 and 120.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::File;

const LIST: &str = "xtask/sizes.txt";

/// What a size is aimed at, and what it may never exceed.
struct Limit {
    aim: usize,
    most: usize,
}

const FILE: Limit = Limit { aim: 400, most: 800 };
const FUNCTION: Limit = Limit { aim: 70, most: 120 };

/// Complaints about what is too long, and about records that can be lowered.
pub(super) fn too_long(root: &Path, sources: &[File]) -> Result<Vec<String>> {
    let list = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("read {LIST}"))?;
    Ok(compare(&measure(sources)?, &recorded(&list)?))
}

/// Writes down what is too long today.
pub(super) fn record(root: &Path, sources: &[File]) -> Result<()> {
    let mut list = "# Longer than they should be, in lines; made by `cargo xtask tidy --record`.\n".to_owned();
    for (name, size) in measure(sources)?.iter().filter(|(name, size)| **size > limit(name).aim) {
        list.push_str(&format!("{size} {name}\n"));
    }
    std::fs::write(root.join(LIST), list).with_context(|| format!("write {LIST}"))
}

fn limit(name: &str) -> &'static Limit {
    if name.contains("::") { &FUNCTION } else { &FILE }
}

fn compare(measured: &BTreeMap<String, usize>, recorded: &BTreeMap<String, usize>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, &size) in measured {
        let Limit { aim, most } = limit(name);
        match recorded.get(name) {
            _ if size > *most => complaints.push(format!("{name}: {size} lines, the most is {most}; split it")),
            None if size > *aim => complaints.push(format!("{name}: {size} lines, the aim is {aim}; split it")),
            Some(&before) if size > before => complaints.push(format!("{name}: grew from {before} to {size} lines")),
            Some(&before) if size < before => {
                complaints.push(format!("{name}: shrank to {size} lines; run `cargo xtask tidy --record`"));
            }
            _ => {}
        }
    }
    let gone = recorded.keys().filter(|name| !measured.contains_key(*name));
    complaints.extend(gone.map(|name| format!("{name}: is gone; run `cargo xtask tidy --record`")));
    complaints
}

fn recorded(list: &str) -> Result<BTreeMap<String, usize>> {
    list.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (size, name) = line.split_once(' ').with_context(|| format!("{LIST}: {line:?} is no record"))?;
            Ok((name.to_owned(), size.parse().with_context(|| format!("{LIST}: {line:?}"))?))
        })
        .collect()
}

/// Lines by file and by function (`file::function`), tests left out of both.
fn measure(sources: &[File]) -> Result<BTreeMap<String, usize>> {
    let mut sizes = BTreeMap::new();
    for File { path, text } in sources {
        let tree = syn::parse_file(text).with_context(|| format!("parse {path}"))?;
        let mut measure = Measure { path, scope: Vec::new(), tests: 0, sizes: &mut sizes };
        measure.visit_file(&tree);
        let tests = measure.tests;
        sizes.insert(path.clone(), text.lines().count().saturating_sub(tests));
    }
    Ok(sizes)
}

struct Measure<'a> {
    path: &'a str,
    /// Modules and types around the current item.
    scope: Vec<String>,
    /// Lines of test modules.
    tests: usize,
    sizes: &'a mut BTreeMap<String, usize>,
}

impl Measure<'_> {
    fn function(&mut self, name: &syn::Ident, block: &syn::Block) {
        let scope = self.scope.iter().map(|part| format!("{part}::")).collect::<String>();
        self.sizes.insert(format!("{}::{scope}{name}", self.path), lines(block));
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        visit(self);
        self.scope.pop();
    }
}

impl<'tree> Visit<'tree> for Measure<'_> {
    fn visit_item_mod(&mut self, module: &'tree syn::ItemMod) {
        if module.attrs.iter().any(is_cfg_test) {
            self.tests += lines(module);
            return;
        }
        self.within(module.ident.to_string(), |this| visit::visit_item_mod(this, module));
    }

    fn visit_item_impl(&mut self, item: &'tree syn::ItemImpl) {
        let of = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let with =
            item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last()).map(|last| last.ident.to_string());
        let name = [with, of].into_iter().flatten().collect::<Vec<_>>().join(" for ");
        self.within(name, |this| visit::visit_item_impl(this, item));
    }

    fn visit_item_fn(&mut self, function: &'tree syn::ItemFn) {
        self.function(&function.sig.ident, &function.block);
        self.within(function.sig.ident.to_string(), |this| visit::visit_item_fn(this, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'tree syn::ImplItemFn) {
        self.function(&function.sig.ident, &function.block);
        self.within(function.sig.ident.to_string(), |this| visit::visit_impl_item_fn(this, function));
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test")
}

fn lines(item: &impl Spanned) -> usize {
    let span = item.span();
    span.end().line - span.start().line + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(functions: usize, body: usize) -> File {
        let function = |n| format!("fn f{n}() {{\n{}}}\n", "    call();\n".repeat(body));
        let tests = "#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        File { path: "a.rs".into(), text: (0..functions).map(function).collect::<String>() + tests }
    }

    fn sizes(records: &[(&str, usize)]) -> BTreeMap<String, usize> {
        records.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect()
    }

    #[test]
    fn tests_do_not_count() {
        let measured = measure(&[source(2, 10)]).unwrap();
        assert_eq!(measured, sizes(&[("a.rs", 24), ("a.rs::f0", 12), ("a.rs::f1", 12)]));
    }

    #[test]
    fn short_things_need_no_record() {
        assert!(compare(&sizes(&[("a.rs", 400), ("a.rs::f", 70)]), &sizes(&[])).is_empty());
    }

    #[test]
    fn long_things_may_only_shrink() {
        let record = sizes(&[("a.rs", 500)]);
        assert!(compare(&sizes(&[("a.rs", 500)]), &record).is_empty());
        assert_eq!(compare(&sizes(&[("a.rs", 501)]), &record).len(), 1, "it grew");
        assert_eq!(compare(&sizes(&[("a.rs", 499)]), &record).len(), 1, "the record is too high");
        assert_eq!(compare(&sizes(&[]), &record).len(), 1, "the record is left over");
        assert_eq!(compare(&sizes(&[("a.rs::f", 71)]), &sizes(&[])).len(), 1, "it is new");
    }

    #[test]
    fn no_record_excuses_the_longest() {
        assert_eq!(compare(&sizes(&[("a.rs", 801)]), &sizes(&[("a.rs", 801)])).len(), 1);
        assert_eq!(compare(&sizes(&[("a.rs::f", 121)]), &sizes(&[("a.rs::f", 121)])).len(), 1);
    }
}
