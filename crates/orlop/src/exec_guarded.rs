//! `orlop exec-guarded`: becomes QEMU, which is killed when its parent ends. Internal.

use std::ffi::OsString;

use anyhow::Context;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Process to watch: the program is killed when it ends.
    parent: i32,
    /// Program to run, with its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { parent, command } = arguments;
    let (program, rest) = command.split_first().context("no program was given")?;
    let error = hypervisor::process::exec_guarded(*parent, program, rest);
    Err(error).with_context(|| format!("run {}", program.display()))
}
