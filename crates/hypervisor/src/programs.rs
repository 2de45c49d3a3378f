//! Finds the programs of other projects on this machine, such as QEMU.

use std::path::{Path, PathBuf};

/// A program by its name, as a shell finds it, or by its path.
#[must_use]
pub fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Programs of administrators are not in everybody's path.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// As QEMU is usually called.
pub const QEMU: &str = "qemu-system-x86_64";
/// As distributions call it that have one kind of guest only.
const OTHER_NAMES: [&str; 3] = ["/usr/libexec/qemu-kvm", "qemu-kvm", "kvm"];

/// QEMU: the one that was named; or, if that is the usual name and it is not there, what else it may be called.
#[must_use]
pub fn qemu(named: &Path) -> Option<PathBuf> {
    let others = OTHER_NAMES.iter().map(Path::new).filter(|_| named == Path::new(QEMU));
    std::iter::once(named).chain(others).find_map(find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name_and_by_its_path() {
        let shell = find(Path::new("sh")).unwrap();
        assert_eq!(find(&shell), Some(shell.clone()));
        assert_eq!(find(Path::new("no-such-program")), None);
        assert_eq!(find(Path::new("/no/such/program")), None);
    }
}
