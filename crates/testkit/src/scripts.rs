//! Programs that tests write.

use std::path::Path;
use std::process::Command;

/// Writes a program that can be run at once. Another process writes the file: a child that a parallel test forks at that
/// moment would hold it open for writing, and the kernel runs no such file.
///
/// # Panics
/// When it cannot be written.
pub fn program(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    let mut install = Command::new("install");
    install.args(["-m", "755"]).arg(&draft).arg(path);
    assert!(install.status().unwrap().success(), "{} was not written", path.display());
    std::fs::remove_file(&draft).unwrap();
}
