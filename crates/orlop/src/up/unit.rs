//! `orlop up --print-unit`: the unit for systemd.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// This program, where a service may rely on it: not in a directory that the next build changes and `cargo clean` empties.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    outside_of_builds(std::env::current_exe().context("find this program")?)
}

/// Cargo leaves these beside what it builds; the tag it writes only into a directory that it has made itself.
fn outside_of_builds(program: PathBuf) -> anyhow::Result<PathBuf> {
    let is_cargos = |folder: &Path| [".fingerprint", "CACHEDIR.TAG"].iter().any(|name| folder.join(name).exists());
    if program.ancestors().any(is_cargos) {
        bail!(
            "{} is in a build directory, which no service should depend on. Install it first:\n\
             \x20 sudo install {0} /usr/local/bin/orlop\n\
             \x20 /usr/local/bin/orlop up --print-unit",
            program.display()
        );
    }
    Ok(program)
}

/// A unit whose restart spares the VMs: only the process itself is ended, not the pods that it has started. When the machine
/// is shut down, guests are powered off first: systemd would end QEMU under them.
///
/// It starts the program with these flags and variables, and with this directory, which is absolute: a service has another
/// working directory.
pub(crate) fn unit(program: &Path, flags: &[String], settings: &[(String, String)], data: &Path) -> String {
    // Dollar signs have a meaning in commands, and none in settings.
    let words =
        |words: &[String]| words.iter().map(|word| quote(word).replace('$', "$$")).collect::<Vec<_>>().join(" ");
    let program = program.display().to_string();
    let folder = ["--data-dir".to_owned(), data.display().to_string()];
    let start = words(&[std::slice::from_ref(&program), &without_folder(flags), &folder].concat());
    let down = words(&[&[program, "down".to_owned()], &folder[..]].concat());
    let settings: String =
        settings.iter().map(|(name, value)| format!("Environment={}\n", quote(&format!("{name}={value}")))).collect();
    format!(
        "[Unit]\n\
         Description=Orlop: virtual machines through the Kubernetes API\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         \n\
         [Service]\n\
         # Up is when VMs can be started; `systemctl status` shows how it is.\n\
         Type=notify\n\
         {settings}\
         ExecStart={start}\n\
         Restart=always\n\
         RestartSec=1\n\
         # Pods outlive this process: its restart spares the VMs. `orlop down` stops them, as the machine's own end does.\n\
         KillMode=process\n\
         ExecStop=/bin/sh -c '[ \"$$(systemctl is-system-running)\" != stopping ] || exec \"$$@\"' -- {down}\n\
         TimeoutStopSec=330\n\
         Delegate=yes\n\
         TasksMax=infinity\n\
         LimitNOFILE=1048576\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// Flags but for `--data-dir`.
fn without_folder(flags: &[String]) -> Vec<String> {
    let mut flags = flags.iter();
    let mut kept = Vec::new();
    while let Some(flag) = flags.next() {
        match flag.as_str() {
            "--data-dir" => drop(flags.next()),
            other if other.starts_with("--data-dir=") => {}
            _ => kept.push(flag.clone()),
        }
    }
    kept
}

/// As systemd reads words: percent signs and quotes have a meaning.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_service_is_made_of_a_program_that_the_next_build_takes_away() {
        for mark in ["CACHEDIR.TAG", "debug/.fingerprint"] {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("debug/orlop");
            std::fs::create_dir(folder.path().join("debug")).unwrap();
            assert_eq!(outside_of_builds(program.clone()).unwrap(), program, "an installed one");
            std::fs::write(folder.path().join(mark), "").unwrap();
            let refused = outside_of_builds(program).unwrap_err().to_string();
            assert!(refused.contains("is in a build directory") && refused.contains("sudo install"), "{refused}");
        }
    }

    #[test]
    fn a_dollar_sign_is_itself_in_flags_and_in_settings() {
        let flags = ["up", "--image-dir", "/srv/$one"].map(str::to_owned);
        let settings = [("ORLOP_IMAGE_DIR".to_owned(), "/srv/$two".to_owned())];
        let unit = unit(Path::new("/usr/bin/orlop"), &flags, &settings, Path::new("/srv"));
        assert!(unit.contains("ExecStart=/usr/bin/orlop up --image-dir \"/srv/$$one\" --data-dir /srv\n"), "{unit}");
        assert!(unit.contains("Environment=\"ORLOP_IMAGE_DIR=/srv/$two\"\n"), "{unit}");
    }

    #[test]
    fn the_unit_starts_what_was_asked_for_and_spares_the_pods() {
        let flags = ["up", "--data-dir", "my data", "--listen=[::]:6443", "--data-dir=twice"].map(str::to_owned);
        let settings = [("ORLOP_BRIDGE".to_owned(), "br 0".to_owned())];
        let unit = unit(Path::new("/usr/bin/orlop"), &flags, &settings, Path::new("/srv/my data"));
        let start = "ExecStart=/usr/bin/orlop up \"--listen=[::]:6443\" --data-dir \"/srv/my data\"\n";
        assert!(unit.contains(&format!("Environment=\"ORLOP_BRIDGE=br 0\"\n{start}")), "{unit}");
        assert!(unit.contains("KillMode=process\n") && unit.contains("Type=notify\n"));
        // Only the machine's own end stops them.
        assert!(unit.contains("is-system-running"), "{unit}");
        assert!(unit.contains(" -- /usr/bin/orlop down --data-dir \"/srv/my data\"\n"), "{unit}");
    }
}
