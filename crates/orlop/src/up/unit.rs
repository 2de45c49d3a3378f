//! `orlop up --print-unit`: the service of systemd.

use std::path::Path;

/// A unit whose restart spares the VMs: only the process itself is ended, not the pods that it has started. When the machine
/// is shut down, guests are powered off first: systemd would end QEMU under them.
pub(crate) fn unit(program: &Path, arguments: &[String], data: &Path) -> String {
    let words = |words: &[String]| words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
    let program = program.display().to_string();
    let start = words(&[std::slice::from_ref(&program), arguments].concat());
    let down = words(&[program, "down".to_owned(), "--data-dir".to_owned(), data.display().to_string()]);
    format!(
        "[Unit]\n\
         Description=Orlop: virtual machines through the Kubernetes API\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         \n\
         [Service]\n\
         # Up is when VMs can be started; `systemctl status` shows how it is.\n\
         Type=notify\n\
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

/// As systemd reads words: percent signs and quotes have a meaning.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_starts_what_was_asked_for_and_spares_the_pods() {
        let arguments = ["up", "--data-dir", "/srv/my data"].map(str::to_owned);
        let unit = unit(Path::new("/usr/bin/orlop"), &arguments, Path::new("/srv/my data"));
        assert!(unit.contains("ExecStart=/usr/bin/orlop up --data-dir \"/srv/my data\"\n"), "{unit}");
        assert!(unit.contains("KillMode=process\n") && unit.contains("Type=notify\n"));
        // Only the machine's own end stops them.
        assert!(unit.contains("is-system-running"), "{unit}");
        assert!(unit.contains(" -- /usr/bin/orlop down --data-dir \"/srv/my data\"\n"), "{unit}");
    }
}
