//! `orlop logs`: the console output of a guest, and the logs of components.
//!
//! A launcher's container has both, on two streams: the guest's console is its standard output and nothing else, its own log
//! is its standard error. Whoever holds the container marks each line with its stream, so no guest can write a line of ours.

mod component;
mod launcher;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::target::Target;
use crate::up::paths;
use component::Component;
use launcher::Stream;

/// Show the console output of a VM, or the log of a component.
#[derive(clap::Args)]
#[group(id = "logs")]
pub(crate) struct Arguments {
    /// Name of the VM whose console output to show or, with `--component virt-launcher`, the log of its launcher.
    vm: Option<String>,
    /// Component of `orlop up` whose log to show.
    #[arg(long, value_enum, value_name = "NAME", env = "ORLOP_LOGS_COMPONENT")]
    component: Option<Component>,
    /// Node whose agent's log to show, where this machine is several nodes.
    #[arg(long, value_name = "NAME", requires = "component", env = "ORLOP_LOGS_NODE")]
    node: Option<String>,
    #[command(flatten)]
    part: Part,
    #[command(flatten)]
    target: Target,
}

/// Which part of a log.
#[derive(clap::Args)]
#[group(id = "logs_part")]
struct Part {
    /// Keep printing new lines as they are written.
    #[arg(short, long, env = "ORLOP_LOGS_FOLLOW")]
    follow: bool,
    /// Number of lines to show, counted from the end.
    #[arg(long, value_name = "LINES", env = "ORLOP_LOGS_TAIL")]
    tail: Option<usize>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { vm, component, node, part, target } = arguments;
    let shown = match (vm, component) {
        (Some(vm), None) => launcher::show(vm, Stream::Console, part, target, out),
        (Some(vm), Some(Component::VirtLauncher)) => launcher::show(vm, Stream::Own, part, target, out),
        (None, Some(Component::VirtLauncher)) => bail!("name the VM: `orlop logs VM --component virt-launcher`"),
        (None, Some(_)) if target.names_context() => {
            bail!("components log on the machine that they run on; leave out --context there")
        }
        (None, Some(component)) => component::show(*component, &log_of(&target.data(), node.as_deref())?, part, out),
        (Some(_), Some(_)) => bail!("only virt-launcher has a log for each VM; leave out the VM for other components"),
        (None, None) => bail!("name a VM or a component: `orlop logs VM` or `orlop logs --component NAME`"),
    };
    match shown {
        // Who reads has read enough.
        Err(error)
            if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        shown => shown.context("show the log"),
    }
}

/// The log of the process that a component runs in.
fn log_of(data: &Path, node: Option<&str>) -> anyhow::Result<PathBuf> {
    let Some(node) = node else { return Ok(paths::own_log(data)) };
    // One name of a directory, and nothing that leads elsewhere.
    let is_name = Path::new(node).file_name().is_some_and(|name| name == node);
    ensure!(is_name, "{node:?} is not a valid node name");
    Ok(paths::agent_log(data, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_node_is_its_agents() {
        let data = Path::new("/d");
        assert_eq!(log_of(data, None).unwrap(), paths::own_log(data));
        assert_eq!(log_of(data, Some("here-0")).unwrap(), paths::agent_log(data, "here-0"));
        for wrong in ["", "..", "a/b", "/etc/passwd"] {
            assert!(log_of(data, Some(wrong)).is_err(), "{wrong}");
        }
    }
}
