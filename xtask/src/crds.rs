//! The CRDs as files: `deploy/crds/NAME.yaml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// Where the CRDs are checked in, from the root.
const FOLDER: &str = "deploy/crds";

/// Writes every CRD, and removes files that are none any more.
pub(crate) fn write(root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| format!("create {FOLDER}"))?;
    let files = generate()?;
    for name in present(&folder)?.keys().filter(|name| !files.contains_key(*name)) {
        std::fs::remove_file(folder.join(name)).with_context(|| format!("remove {FOLDER}/{name}"))?;
    }
    for (name, text) in files {
        std::fs::write(folder.join(&name), text).with_context(|| format!("write {FOLDER}/{name}"))?;
    }
    Ok(())
}

/// What is not as [`write()`] would leave it.
pub(crate) fn stale(root: &Path) -> Result<Vec<String>> {
    let expected = generate()?;
    let present = present(&root.join(FOLDER))?;
    let differs = expected.iter().filter(|(name, text)| present.get(*name) != Some(*text)).map(|(name, _)| name);
    let extra = present.keys().filter(|name| !expected.contains_key(*name));
    Ok(differs
        .chain(extra)
        .map(|name| format!("{FOLDER}/{name}: differs from what the types say; run `cargo xtask crds`"))
        .collect())
}

fn generate() -> Result<BTreeMap<String, String>> {
    api::crd::all()
        .context("generate the CRDs")?
        .iter()
        .map(|crd| {
            let name = crd.metadata.name.clone().unwrap_or_default();
            let yaml = api::crd::to_yaml(crd).with_context(|| format!("print {name}"))?;
            Ok((format!("{name}.yaml"), yaml))
        })
        .collect()
}

fn present(folder: &Path) -> Result<BTreeMap<String, String>> {
    if !folder.is_dir() {
        return Ok(BTreeMap::new());
    }
    std::fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| {
                    let entry = entry?;
                    let text = std::fs::read_to_string(entry.path())?;
                    Ok((entry.file_name().to_string_lossy().into_owned(), text))
                })
                .collect()
        })
        .with_context(|| format!("read {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_missing_and_a_foreign_file_are_stale() {
        let root = tempfile::tempdir().unwrap();
        write(root.path()).unwrap();
        assert_eq!(stale(root.path()).unwrap(), Vec::<String>::new());

        let folder = root.path().join(FOLDER);
        std::fs::write(folder.join("kubevirts.kubevirt.io.yaml"), "edited by hand\n").unwrap();
        std::fs::remove_file(folder.join("virtualmachines.kubevirt.io.yaml")).unwrap();
        std::fs::write(folder.join("left-over.yaml"), "").unwrap();
        let problems = stale(root.path()).unwrap();
        assert_eq!(problems.len(), 3, "{problems:?}");

        write(root.path()).unwrap();
        assert_eq!(stale(root.path()).unwrap(), Vec::<String>::new());
    }
}
