//! Every path that a document names exists, and every test.

use std::collections::BTreeSet;

use super::File;

/// Complaints about paths in backticks, and targets of links, that are not in the tree.
pub(super) fn dangling(documents: &[File], paths: &[String]) -> Vec<String> {
    let known = with_folders(paths);
    let mut complaints = Vec::new();
    for File { path, text } in documents {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose(text) {
            for name in code_spans(line).filter(|name| is_path(name)) {
                if !exists(&known, name) && !exists(&known, &join(folder, name)) {
                    complaints.push(format!("{path}:{number}: {name} does not exist"));
                }
            }
            for target in links(line) {
                let target = target.split('#').next().unwrap_or_default();
                if !target.is_empty() && !target.contains("://") && !exists(&known, &join(folder, target)) {
                    complaints.push(format!("{path}:{number}: {target} does not exist"));
                }
            }
        }
    }
    complaints
}

/// Complaints about names in backticks that look like those of tests, and that no source has. A changelog and decisions tell of what was.
pub(super) fn unknown_tests(documents: &[File], sources: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_of_today = |file: &&File| file.path != "CHANGELOG.md" && !file.path.starts_with("docs/adr/");
    for File { path, text } in documents.iter().filter(is_of_today) {
        for (number, line) in prose(text) {
            for name in code_spans(line).filter(|name| is_sentence(name)) {
                if !sources.iter().any(|source| has_name(&source.text, name)) {
                    complaints.push(format!("{path}:{number}: no test is called {name}"));
                }
            }
        }
    }
    complaints
}

/// Tests are named by sentences: at least four words.
fn is_sentence(name: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.split('_').count() >= 4 && name.split('_').all(is_word)
}

/// Whether a source has a function of this name, or the name in quotes, as metrics have it.
fn has_name(text: &str, name: &str) -> bool {
    // A counter's ending is added where it is shown.
    let name = name.strip_suffix("_total").unwrap_or(name);
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        (before.ends_with("fn ") && after.starts_with(['(', '<'])) || (before.ends_with('"') && after.starts_with('"'))
    })
}

/// The paths and all their parent directories.
fn with_folders(paths: &[String]) -> BTreeSet<&str> {
    let mut known = BTreeSet::new();
    for path in paths {
        let mut rest = path.as_str();
        known.insert(rest);
        while let Some((folder, _)) = rest.rsplit_once('/') {
            known.insert(folder);
            rest = folder;
        }
    }
    known
}

/// Numbered lines outside fenced blocks: what a block shows is a session, not a claim.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Paths have a slash, or the ending of a file that stands at the root. Absolute paths, other trees, URLs, globs over API names and commands are none.
fn is_path(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._/*-".contains(c));
    let elsewhere = name.starts_with(['/', '~', '-'])
        || name.starts_with("../")
        || [".io/", ".dev/"].iter().any(|host| name.contains(host));
    let file = [".md", ".toml"].iter().any(|ending| name.ends_with(ending));
    plain && !elsewhere && !name.starts_with('*') && (name.contains('/') || file)
}

fn join(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A name may end with a slash, and have a `*` in its last part.
fn exists(known: &BTreeSet<&str>, name: &str) -> bool {
    let name = name.trim_end_matches('/');
    match name.split_once('*') {
        None => known.contains(name),
        Some((before, after)) => known
            .iter()
            .any(|path| path.len() >= before.len() + after.len() && path.starts_with(before) && path.ends_with(after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let paths = ["docs/flow.md", "deploy/crds/a.yaml", "README.md"].map(str::to_owned);
        dangling(&[File { path: "docs/page.md".into(), text: text.into() }], &paths)
    }

    #[test]
    fn existing_paths_are_fine() {
        let text = "See `docs/flow.md`, `deploy/crds/*.yaml`, `deploy/`, `README.md`, [flow](flow.md#top), \
                    [up](../README.md), [web](https://example.org), `kubevirt.io/v1`, `/dev/kvm`, `orlop crds`.";
        assert_eq!(complaints(text), Vec::<String>::new());
    }

    #[test]
    fn a_missing_path_is_named_with_its_line() {
        assert_eq!(complaints("fine\nsee `docs/gone.md`\n"), ["docs/page.md:2: docs/gone.md does not exist"]);
        assert_eq!(complaints("[gone](gone.md)"), ["docs/page.md:1: gone.md does not exist"]);
        assert_eq!(complaints("`deploy/*.json`"), ["docs/page.md:1: deploy/*.json does not exist"]);
    }

    #[test]
    fn a_test_that_is_named_exists() {
        let source = File {
            path: "a.rs".into(),
            text: "async fn nothing_is_ever_lost() {}\nmetric(\"some_bytes_in_store\")".into(),
        };
        let complaints = |path: &str, text: &str| {
            unknown_tests(&[File { path: path.into(), text: text.into() }], std::slice::from_ref(&source))
        };
        let fine =
            "`nothing_is_ever_lost`, `some_bytes_in_store`, `peers_differential`, `not_a_test`, `ORLOP_IS_IN_CAPITALS`";
        assert_eq!(complaints("docs/a.md", fine), Vec::<String>::new());
        let gone = "fine\n`nothing_is_ever` and `nothing_is_ever_found`";
        assert_eq!(complaints("docs/a.md", gone), ["docs/a.md:2: no test is called nothing_is_ever_found"]);
        assert_eq!(complaints("docs/a.md", "`is_ever_lost_again`").len(), 1);
        assert_eq!(complaints("CHANGELOG.md", gone), Vec::<String>::new());
    }

    #[test]
    fn what_a_fenced_block_shows_is_not_checked() {
        assert_eq!(complaints("```\ncat `x/y.md`\n```\n"), Vec::<String>::new());
    }
}
