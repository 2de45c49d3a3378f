//! `orlop exec-guarded`: becomes QEMU, to be killed with its parent. Not for people.

use std::ffi::OsString;

use anyhow::Context;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The process whose end is the end of the program.
    parent: i32,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { parent, command } = arguments;
    let (program, rest) = command.split_first().context("no program")?;
    let error = hypervisor::process::exec_guarded(*parent, program, rest);
    Err(error).with_context(|| format!("run {}", program.display()))
}
