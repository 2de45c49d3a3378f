//! Every dependency is there because code names it.

use super::File;

/// Only generated code names these.
const GENERATED: [&str; 2] = ["prost", "tonic-prost"];
/// These are there for a feature that they turn on in somebody else's dependency: package, dependency.
const FOR_A_FEATURE: [(&str, &str); 1] = [("xtask", "proc-macro2")];
/// Packages whose library has another name.
const LIBRARIES: [(&str, &str); 1] = [("md-5", "md5")];

/// What may use a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The package itself, in whichever directory its sources are.
    Normal,
    /// All of its sources.
    Dev,
    /// Its build script.
    Build,
}

/// Complaints about dependencies that no source names which they are there for.
pub(super) fn unused(manifests: &[File], sources: &[File]) -> Vec<String> {
    let packages: Vec<&str> = manifests.iter().map(|manifest| package(&manifest.path)).collect();
    let mut complaints = Vec::new();
    for File { path, text } in manifests {
        let package = package(path);
        let own: Vec<&File> = sources.iter().filter(|source| owner(&packages, &source.path) == Some(package)).collect();
        for (line, kind, name) in dependencies(text) {
            let is_for_a_feature = FOR_A_FEATURE.contains(&(package, name));
            let library = LIBRARIES.iter().find(|(package, _)| *package == name).map(|(_, library)| *library);
            let library = library.map_or_else(|| name.replace('-', "_"), str::to_owned);
            let is_named = || own.iter().any(|source| uses(kind, package, source) && has_word(&source.text, &library));
            if !GENERATED.contains(&name) && !is_for_a_feature && !is_named() {
                complaints.push(format!("{path}:{line}: no source that may use {name} names it"));
            }
        }
    }
    complaints
}

/// The directory of a manifest; empty for the workspace's own.
fn package(manifest: &str) -> &str {
    manifest.rsplit_once('/').map_or("", |(package, _)| package)
}

/// The package that a source belongs to: the innermost.
fn owner<'a>(packages: &[&'a str], source: &str) -> Option<&'a str> {
    let holds = |package: &&&str| package.is_empty() || within(package, source).is_some();
    packages.iter().filter(holds).max_by_key(|package| package.len()).copied()
}

/// A path below a directory.
fn within<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(directory)?.strip_prefix('/')
}

/// The dependencies of a manifest, with the numbers of their lines.
fn dependencies(manifest: &str) -> Vec<(usize, Kind, &str)> {
    let mut kind = None;
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        if let Some(section) = line.strip_prefix('[') {
            kind = match section.trim_end().trim_end_matches(']').rsplit('.').next() {
                // What its members may name.
                _ if section.starts_with("workspace.") => None,
                Some("dependencies") => Some(Kind::Normal),
                Some("dev-dependencies") => Some(Kind::Dev),
                Some("build-dependencies") => Some(Kind::Build),
                _ => None,
            };
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        // What continues the line before is indented.
        if let Some(kind) = kind.filter(|_| name.starts_with(|first: char| first.is_ascii_alphanumeric())) {
            found.push((index + 1, kind, name));
        }
    }
    found
}

fn uses(kind: Kind, package: &str, source: &File) -> bool {
    let path = within(package, &source.path).unwrap_or(&source.path);
    let is_script = path == "build.rs";
    match kind {
        Kind::Normal => !is_script && !["tests/", "benches/", "examples/"].iter().any(|other| path.starts_with(other)),
        Kind::Dev => !is_script,
        Kind::Build => is_script,
    }
}

/// Whether a name stands in code, and is not a piece of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let continues = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(continues) && !text[at + word.len()..].starts_with(continues))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"a\"\n\n[dependencies]\nmd-5.workspace = true\nserde-saphyr = \"1\"\n\
                            tokio = { workspace = true, features = [\n    \"rt\",\n] }\n\n[dev-dependencies]\nrand = \"1\"\n\n\
                            [build-dependencies]\nprotox = \"1\"\n";

    fn complaints(sources: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let workspace = ("Cargo.toml", "[workspace.dependencies]\nunheard-of = \"1\"\n");
        let manifests = [workspace, ("crates/a/Cargo.toml", MANIFEST), ("crates/a/b/Cargo.toml", "")];
        unused(&manifests.each_ref().map(file), &sources.iter().map(file).collect::<Vec<_>>())
    }

    const USED: [(&str, &str); 3] = [
        ("crates/a/src/lib.rs", "use md5::Md5;\nuse serde_saphyr::from_str;\nuse tokio::spawn;"),
        ("crates/a/tests/x.rs", "use rand::Rng;"),
        ("crates/a/build.rs", "protox::compile();"),
    ];

    #[test]
    fn a_dependency_that_is_named_is_fine() {
        assert_eq!(complaints(&USED), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_that_no_source_names_is_told() {
        let told = |path: &str, line: &str| {
            let complaints = complaints(&USED.map(|(own, text)| (own, if own == path { line } else { text })));
            let names = |complaint: &String| complaint.split(' ').nth(6).unwrap().to_owned();
            complaints.iter().map(names).collect::<Vec<_>>()
        };
        assert_eq!(
            told("crates/a/src/lib.rs", "use serde_saphyr_of_others; my_tokio(); md5()"),
            ["serde-saphyr", "tokio"]
        );
        assert_eq!(told("crates/a/tests/x.rs", ""), ["rand"]);
        assert_eq!(told("crates/a/build.rs", ""), ["protox"]);
        let without = complaints(&[]);
        assert_eq!(without[0], "crates/a/Cargo.toml:5: no source that may use md-5 names it");
        assert_eq!(without.len(), 5);
    }

    #[test]
    fn what_only_tests_name_is_a_dependency_of_tests() {
        let mut sources = USED;
        sources[1].1 = "use rand::Rng; use tokio::spawn;";
        sources[0].1 = "use md5::Md5; use serde_saphyr::from_str;";
        assert_eq!(complaints(&sources), ["crates/a/Cargo.toml:7: no source that may use tokio names it"]);
    }

    #[test]
    fn a_source_counts_for_the_innermost_package() {
        let mut sources = USED;
        sources[1].0 = "crates/a/b/src/lib.rs";
        assert_eq!(complaints(&sources), ["crates/a/Cargo.toml:12: no source that may use rand names it"]);
    }
}
