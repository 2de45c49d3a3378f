//! `cargo xtask tidy`: what a reviewer should not have to look for.
//!
//! Every check is a function from the tree to a list of complaints, one line each, that begin with a path.

mod dependencies;
mod documented;
mod documents;
mod sizes;
mod soak;
mod sources;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{compatibility, controllers, crds};

/// A tracked file and its text.
pub(crate) struct File {
    /// From the root, with forward slashes.
    path: String,
    text: String,
}

pub(crate) fn run(root: &Path, record: bool) -> Result<()> {
    let paths = tracked(root)?;
    let rust = read(root, &paths, |path| path.ends_with(".rs"))?;
    let manifests = read(root, &paths, |path| path.ends_with("Cargo.toml"))?;
    let prose = read(root, &paths, |path| path.ends_with(".md"))?;
    if record {
        return sizes::record(root, &rust);
    }
    let mut complaints = crds::stale(root)?;
    complaints.extend(compatibility::stale(root)?);
    complaints.extend(controllers::stale(root)?);
    complaints.extend(documents::dangling(&prose, &paths));
    complaints.extend(documents::unknown_tests(&prose, &rust));
    complaints.extend(sources::leftovers(&rust));
    complaints.extend(dependencies::unused(&manifests, &rust));
    complaints.extend(documented::undocumented(&rust)?);
    let script = std::fs::read_to_string(root.join(".ci/soak")).context("read .ci/soak")?;
    complaints.extend(soak::left_out(&script, &rust));
    complaints.extend(sizes::too_long(root, &rust)?);
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("the tree is not tidy\n{}", complaints.join("\n"))
}

/// Every file git knows or would add, so that a new file is checked before it is committed.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("run git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let listed = String::from_utf8(output.stdout).context("git ls-files")?;
    Ok(listed.lines().filter(|path| root.join(path).exists()).map(str::to_owned).collect())
}

fn read(root: &Path, paths: &[String], wanted: impl Fn(&str) -> bool) -> Result<Vec<File>> {
    paths
        .iter()
        .filter(|path| wanted(path))
        .map(|path| {
            let text = std::fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"))?;
            Ok(File { path: path.clone(), text })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    /// So that it is checked with all tests, by the program that is built for them.
    #[test]
    fn the_tree_is_tidy() {
        if let Err(error) = super::run(&crate::root(), false) {
            panic!("{error:#}");
        }
    }
}
