//! The ways into a guest by virtctl: its console, its ports, its screen, SSH and copies.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::console::Console;

use super::Virtctl;
use super::guests::Terminal;

/// virtctl wants a terminal, which `script` gives it.
pub(crate) fn console(virtctl: &Virtctl<'_>) -> Result<()> {
    let words = virtctl.words(&["console", "v"])?.join(" ");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &words, "/dev/null"]).env("HOME", virtctl.0.data());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let input = child.stdin.take().context("no standard input")?;
    let output = child.stdout.take().context("no standard output")?;
    let mut first = Console::new(input, output);
    first.expect("Successfully connected to v console")?;
    first.send("")?;
    first.log_in("root", "orlop")?;
    ensure!(first.run("echo $((6 * 7))")? == "42");
    // A second one takes over, and the first ends.
    let mut second = Terminal::open(virtctl.0, "v")?;
    second.console.send("")?;
    ensure!(second.run("echo still here")? == "still here");
    first.rest();
    child.wait()?;
    Ok(())
}

/// A download of some megabytes three times over, and a port where nobody listens.
pub(crate) fn port_forward(virtctl: &Virtctl<'_>) -> Result<()> {
    let mut terminal = Terminal::open(virtctl.0, "v")?;
    terminal.console.send("")?;
    terminal.run("mkdir -p /tmp/www && head -c 3000000 /dev/urandom > /tmp/www/page && httpd -p 8080 -h /tmp/www")?;
    let sum = terminal.run("sha256sum < /tmp/www/page")?;
    drop(terminal);
    let mut forwarding = virtctl.spawn(&["port-forward", "vm/v", "18080:8080", "18081:8081"])?;
    line(&mut forwarding.errors, "forwarding tcp 127.0.0.1:18081 to 8081")?;
    for _ in 0..3 {
        let mut stream = TcpStream::connect("127.0.0.1:18080")?;
        stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no header")? + 4;
        ensure!(answer.len() - body == 3_000_000, "{} bytes came", answer.len() - body);
        ensure!(sum.starts_with(&checksum(&answer[body..])?), "other bytes came");
    }
    // Where nobody listens.
    let mut stream = TcpStream::connect("127.0.0.1:18081")?;
    let mut nothing = Vec::new();
    let _ = stream.read_to_end(&mut nothing);
    ensure!(nothing.is_empty());
    line(&mut forwarding.errors, "dialing VM: port 8081: Connection refused")?;
    Ok(())
}

/// Without a port here: what virtctl reads goes to the guest, and what the guest says is written. The namespace is part of the
/// name.
pub(crate) fn port_forward_stdio(virtctl: &Virtctl<'_>) -> Result<()> {
    let mut running = virtctl.spawn(&["port-forward", "--stdio", "vmi/v/default", "22"])?;
    let mut banner = String::new();
    running.output.read_line(&mut banner)?;
    ensure!(banner.starts_with("SSH-2.0-"), "{banner}");
    virtctl.refused(
        &["port-forward", "--stdio", "vmi/v/nowhere", "22"],
        "virtualmachineinstance.kubevirt.io \"v\" not found",
    )
}

/// A key pair of whom the guest lets in.
fn key(virtctl: &Virtctl<'_>) -> Result<PathBuf> {
    let key = virtctl.0.data().join("virtctl-key");
    if key.exists() {
        return Ok(key);
    }
    e2e::output(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key))?;
    let public = std::fs::read_to_string(key.with_extension("pub"))?;
    let mut terminal = Terminal::open(virtctl.0, "v")?;
    terminal.console.send("")?;
    terminal.run(&format!(
        "mkdir -p ~/.ssh && echo '{}' > ~/.ssh/authorized_keys && chmod -R go= ~ ~/.ssh",
        public.trim()
    ))?;
    Ok(key)
}

/// virtctl runs the machine's own client, which comes back to virtctl for its connection.
pub(crate) fn with_key(virtctl: &Virtctl<'_>, verb: &str, words: &[&str]) -> Result<Command> {
    let key = key(virtctl)?.display().to_string();
    let known = format!("-oUserKnownHostsFile={}", virtctl.0.data().join("virtctl-known").display());
    let mut all = vec![verb, "--identity-file", &key];
    all.extend(["--local-ssh-opts", "-oStrictHostKeyChecking=accept-new", "--local-ssh-opts", &known]);
    all.extend(words);
    let mut command = virtctl.command(&all)?;
    // That second virtctl is not told which kubeconfig the first one was given.
    command.env("KUBECONFIG", virtctl.0.kubeconfig());
    Ok(command)
}

pub(crate) fn ssh(virtctl: &Virtctl<'_>) -> Result<()> {
    for target in ["root@vm/v", "root@vmi/v/default"] {
        let said = e2e::output(&mut with_key(virtctl, "ssh", &[target, "--command", "echo $((6 * 7))"])?)?;
        ensure!(said.trim() == "42", "{said}");
    }
    let failed = with_key(virtctl, "ssh", &["root@vm/nobody", "--command", "true"])?.output()?;
    let said = String::from_utf8_lossy(&failed.stderr);
    ensure!(!failed.status.success() && said.contains("\"nobody\" not found"), "{said}");
    Ok(())
}

/// There and back, and it is what it was.
pub(crate) fn scp(virtctl: &Virtctl<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (here, back) = (folder.path().join("here"), folder.path().join("back"));
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&here, &bytes)?;
    let (source, result) = (here.display().to_string(), back.display().to_string());
    e2e::output(&mut with_key(virtctl, "scp", &[&source, "root@vmi/v:/tmp/copied"])?)?;
    let sum = e2e::output(&mut with_key(virtctl, "ssh", &["root@vmi/v", "--command", "sha256sum < /tmp/copied"])?)?;
    ensure!(sum.starts_with(&checksum(&bytes)?), "the guest has other bytes: {sum}");
    e2e::output(&mut with_key(virtctl, "scp", &["root@vmi/v:/tmp/copied", &result])?)?;
    ensure!(std::fs::read(&back)? == bytes, "other bytes came back");
    Ok(())
}

fn checksum(bytes: &[u8]) -> Result<String> {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(bytes)?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().next().context("no sum")?.to_owned())
}

pub(crate) fn vnc(virtctl: &Virtctl<'_>) -> Result<()> {
    let mut proxy = virtctl.spawn(&["vnc", "v", "--proxy-only", "--port", "15900"])?;
    line(&mut proxy.output, "\"port\":15900")?;
    let mut stream = TcpStream::connect("127.0.0.1:15900")?;
    let mut greeting = [0; 12];
    stream.read_exact(&mut greeting)?;
    ensure!(greeting.starts_with(b"RFB 003."), "{greeting:?}");
    // Whoever is there is left in peace by one that asks so, and has to go for one that does not.
    let peaceful = ["vnc", "v", "--proxy-only", "--preserve-session"];
    virtctl.refused(&peaceful, "Active VNC connection. Request denied.")?;
    let mut second = virtctl.spawn(&["vnc", "v", "--proxy-only"])?;
    line(&mut second.output, "\"port\":")?;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    Ok(())
}

pub(crate) fn screenshot(virtctl: &Virtctl<'_>) -> Result<()> {
    let picture = virtctl.0.data().join("picture.png");
    virtctl.ok(&["vnc", "screenshot", "v", "--file", &picture.display().to_string()])?;
    ensure!(std::fs::read(&picture)?.starts_with(b"\x89PNG"));
    std::fs::remove_file(&picture)?;
    let moved = ["vnc", "screenshot", "v", "--move-cursor", "--file", &picture.display().to_string()];
    virtctl.ok(&moved)?;
    ensure!(std::fs::read(&picture)?.starts_with(b"\x89PNG"));
    Ok(())
}

/// The first line with these words.
pub(crate) fn line(lines: &mut impl std::io::BufRead, words: &str) -> Result<String> {
    loop {
        let mut line = String::new();
        ensure!(lines.read_line(&mut line)? > 0, "it never said {words:?}");
        if line.contains(words) {
            return Ok(line);
        }
    }
}
