//! The binary: one module per subcommand, wiring only.

mod crds;
mod exec_guarded;
mod run;
mod virt_launcher;
mod workbench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs virtual machines through the Kubernetes API.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    VirtLauncher(virt_launcher::Arguments),
    Crds(crds::Arguments),
    #[command(hide = true)]
    ExecGuarded(exec_guarded::Arguments),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let result = match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::VirtLauncher(arguments) => virt_launcher::run(arguments),
        Command::ExecGuarded(arguments) => exec_guarded::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments, &mut std::io::stdout().lock()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Prints the chain of causes once, on one line.
#[expect(clippy::print_stderr, reason = "this is where errors reach the user")]
fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("orlop: {error:#}");
    ExitCode::FAILURE
}
