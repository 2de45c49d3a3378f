//! `orlop ssh`: the machine's own ssh, with the API as its way to the guest. Needs no route to the guest.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::target::{Target, machine};
use crate::waiting::entered_within;

/// Log in to a VM with ssh, through the API server.
#[derive(clap::Args)]
#[group(id = "ssh")]
pub(crate) struct Arguments {
    /// The VM, with the name of the user in it: admin@web. The default is your own user name.
    #[arg(value_name = "[USER@]VM")]
    vm: String,
    /// Command to run in the VM instead of a shell, and further arguments of ssh in front of it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// Port of the guest's SSH server.
    #[arg(short, long, default_value_t = 22, env = "ORLOP_SSH_PORT")]
    port: u16,
    /// File with your private key.
    #[arg(short, long, value_name = "FILE", env = "ORLOP_SSH_IDENTITY_FILE")]
    identity_file: Option<PathBuf>,
    /// File with the keys of the VMs that you know.
    #[arg(long, value_name = "FILE", env = "ORLOP_SSH_KNOWN_HOSTS")]
    known_hosts: Option<PathBuf>,
    /// How long to wait for a VM that does not run yet, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, env = "ORLOP_SSH_TIMEOUT")]
    timeout: u64,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { vm, timeout, target, .. } = arguments;
    let (_, name) = user_and_name(vm);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let namespace = runtime.block_on(async {
        let client = target.client().await?;
        machine(&client, name).await?;
        entered_within(&client, name, Duration::from_secs(*timeout)).await?;
        anyhow::Ok(client.default_namespace().to_owned())
    })?;
    let this = std::env::current_exe().context("find this program")?;
    let words = words(arguments, &this.to_string_lossy(), &namespace)?;
    // Returns only if there is no ssh: the terminal and the exit code are ssh's own.
    let error = Command::new("ssh").args(words).exec();
    Err(error).context("run ssh; is an SSH client installed?")
}

fn user_and_name(vm: &str) -> (Option<&str>, &str) {
    match vm.rsplit_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, vm),
    }
}

/// What ssh is called with. Its way to the guest is this program again.
fn words(arguments: &Arguments, this: &str, namespace: &str) -> anyhow::Result<Vec<String>> {
    let Arguments { vm, command, port, identity_file, known_hosts, timeout: _, target } = arguments;
    let (user, name) = user_and_name(vm);
    let mut way: Vec<String> = [this, "port-forward", name, &port.to_string(), "--stdio"].map(str::to_owned).to_vec();
    way.extend(target.words());
    let way: Vec<String> = way.iter().map(|word| quoted(word)).collect::<anyhow::Result<_>>()?;
    let mut words = vec!["-o".to_owned(), format!("ProxyCommand={}", way.join(" "))];
    if let Some(file) = identity_file {
        words.extend(["-i".to_owned(), file.to_string_lossy().into_owned()]);
    }
    if let Some(file) = known_hosts {
        words.extend(["-o".to_owned(), format!("UserKnownHostsFile={}", file.display())]);
    }
    if let Some(user) = user {
        words.extend(["-l".to_owned(), user.to_owned()]);
    }
    // As virtctl names them, so that both know the same keys.
    words.push(format!("vmi.{name}.{namespace}"));
    words.extend(command.iter().cloned());
    Ok(words)
}

/// A word as the shell and ssh read it: ssh expands `%`, and gives the rest to a shell.
fn quoted(word: &str) -> anyhow::Result<String> {
    if word.contains(['\n', '\r', '\0']) {
        bail!("{word:?} must not contain control characters");
    }
    Ok(format!("'{}'", word.replace('%', "%%").replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn of(line: &[&str]) -> Vec<String> {
        let line = Line::parse_from(["ssh"].iter().chain(line));
        words(&line.arguments, "/opt/my orlop", "lab").unwrap()
    }

    #[test]
    fn ssh_goes_through_the_api_to_the_same_server() {
        let words = of(&["root@web", "-n", "lab", "--kubeconfig", "a%b'c", "-i", "key"]);
        let way = "ProxyCommand='/opt/my orlop' 'port-forward' 'web' '22' '--stdio' '--kubeconfig' 'a%%b'\\''c' \
                   '--namespace' 'lab'";
        assert_eq!(words, ["-o", way, "-i", "key", "-l", "root", "vmi.web.lab"]);
    }

    #[test]
    fn what_follows_the_name_is_run_in_the_guest() {
        let words = of(&["web", "uname", "-a"]);
        assert_eq!(words.last_chunk(), Some(&["vmi.web.lab".to_owned(), "uname".to_owned(), "-a".to_owned()]));
    }
}
