//! Installs a copy of this program in the data directory, which no new build and no `cargo clean` removes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Below the data directory.
const INSTALLED: &str = "program/orlop";

/// Copies this program into the data directory, unless it is there already, and returns its path.
///
/// # Guarantees
/// Processes of an earlier copy keep running: the new copy takes its name, not its file.
pub(super) fn install(data: &Path) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("find this program")?;
    // After a rebuild the name leads elsewhere, or nowhere; this does not.
    copy(Path::new("/proc/self/exe"), &data.join(INSTALLED)).with_context(|| format!("copy {}", this.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    if is_same(from, to).unwrap_or(false) {
        return Ok(to.to_owned());
    }
    let directory = to.parent().context("this program has no parent directory")?;
    std::fs::create_dir_all(directory)?;
    let draft = to.with_extension("new");
    std::fs::copy(from, &draft)?;
    std::fs::File::open(&draft)?.set_modified(std::fs::metadata(from)?.modified()?)?;
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(&draft, to)?;
    Ok(to.to_owned())
}

/// By size and time, which the copy has of its original.
fn is_same(one: &Path, other: &Path) -> std::io::Result<bool> {
    let (one, other) = (std::fs::metadata(one)?, std::fs::metadata(other)?);
    Ok(one.len() == other.len() && one.modified()? == other.modified()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_copy_is_made_once_and_anew_for_another_program() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("a/b/orlop"));
        std::fs::write(&from, "one").unwrap();
        copy(&from, &to).unwrap();
        let first = std::fs::metadata(&to).unwrap();
        assert_eq!(first.mode() & 0o777, 0o755);
        copy(&from, &to).unwrap();
        assert_eq!(std::fs::metadata(&to).unwrap().ino(), first.ino());
        let running = std::fs::File::open(&to).unwrap();
        std::fs::write(&from, "two").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "two");
        assert_eq!(std::io::read_to_string(running).unwrap(), "one");
    }
}
