//! `orlop logs`: what a guest wrote to its console, and what the parts of Orlop wrote about themselves.
//!
//! A launcher's container has both, on two streams: the guest's console is its standard output and nothing else, its own log
//! is its standard error. Whoever holds the container marks each line with its stream, so no guest can write a line of ours.

mod component;
mod launcher;

use std::io::{ErrorKind, Write};

use anyhow::{Context as _, bail};

use crate::target::Target;
use crate::up::places;
use component::Component;
use launcher::Stream;

/// Show the console of a VM's guest, or the log of a component.
#[derive(clap::Args)]
#[group(id = "logs")]
pub(crate) struct Arguments {
    /// The VM whose guest's console to show or, with `--component virt-launcher`, whose launcher's log.
    vm: Option<String>,
    /// The component of `orlop up` whose log to show instead.
    #[arg(long, value_enum, value_name = "NAME", env = "ORLOP_LOGS_COMPONENT")]
    component: Option<Component>,
    #[command(flatten)]
    part: Part,
    #[command(flatten)]
    target: Target,
}

/// Which part of a log.
#[derive(clap::Args)]
#[group(id = "logs_part")]
struct Part {
    /// Go on with what is written from now on.
    #[arg(short, long, env = "ORLOP_LOGS_FOLLOW")]
    follow: bool,
    /// Only so many lines from the end.
    #[arg(long, value_name = "LINES", env = "ORLOP_LOGS_TAIL")]
    tail: Option<usize>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { vm, component, part, target } = arguments;
    let shown = match (vm, component) {
        (Some(vm), None) => launcher::show(vm, Stream::Console, part, target, out),
        (Some(vm), Some(Component::VirtLauncher)) => launcher::show(vm, Stream::Own, part, target, out),
        (None, Some(Component::VirtLauncher)) => bail!("of which VM? `orlop logs VM --component virt-launcher`"),
        (None, Some(component)) => component::show(*component, &places::own_log(&target.data()), part, out),
        (Some(_), Some(_)) => bail!("a VM has a console and a launcher; the other components are the machine's"),
        (None, None) => bail!("of what? `orlop logs VM` or `orlop logs --component NAME`"),
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
