//! The binary: one module per subcommand, wiring only.

mod admission;
mod apiserver;
mod cluster;
mod controller_manager;
mod crds;
mod exec_guarded;
mod hollow;
mod node;
mod program;
mod run;
mod scheduler;
mod virt_controller;
mod virt_handler;
mod virt_launcher;
mod workbench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing::level_filters::LevelFilter;

/// Runs virtual machines through the Kubernetes API.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// What to log on standard error: off, error, warn, info, debug or trace.
    #[arg(long, global = true, default_value = "warn", env = "ORLOP_LOG_LEVEL")]
    log_level: LevelFilter,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Apiserver(apiserver::Arguments),
    ControllerManager(Box<controller_manager::Arguments>),
    Node(node::Arguments),
    Scheduler(scheduler::Arguments),
    VirtController(virt_controller::Arguments),
    VirtHandler(virt_handler::Arguments),
    VirtLauncher(virt_launcher::Arguments),
    Crds(crds::Arguments),
    #[command(hide = true)]
    ExecGuarded(exec_guarded::Arguments),
}

fn main() -> ExitCode {
    let Arguments { log_level, command } = Arguments::parse();
    tracing_subscriber::fmt().with_max_level(log_level).with_writer(std::io::stderr).without_time().init();
    let result = match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Apiserver(arguments) => apiserver::run(arguments, &mut std::io::stdout()),
        Command::ControllerManager(arguments) => controller_manager::run(*arguments),
        Command::Node(arguments) => node::run(arguments),
        Command::Scheduler(arguments) => scheduler::run(arguments),
        Command::VirtController(arguments) => virt_controller::run(arguments),
        Command::VirtHandler(arguments) => virt_handler::run(arguments),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_do_not_collide() {
        super::Arguments::command().debug_assert();
    }
}
