//! The binary: one module per subcommand, wiring only.

mod apiserver;
mod apply;
mod audit;
mod cluster;
mod command_line;
mod console;
mod container_disk;
mod controller_manager;
mod controller_program;
mod copies;
mod crds;
mod descriptors;
mod down;
mod exec_guarded;
mod export;
mod get;
mod hollow;
mod import;
mod kubeconfig;
mod lifecycle;
mod logging;
mod logs;
mod migrate;
mod network_setup;
mod node;
mod of_node;
mod port_forward;
mod process_memory;
mod progress;
mod quota;
mod rotating;
mod run;
mod scheduler;
mod shim;
mod ssh;
mod status;
mod subresource;
mod target;
mod terminal;
mod trouble;
mod up;
mod virt_api;
mod virt_controller;
mod virt_exportserver;
mod virt_handler;
mod virt_import;
mod virt_launcher;
mod virt_probe;
mod vnc;
mod waiting;
mod workbench;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use lifecycle::GuestVerb;
use logging::Program;

/// Run virtual machines through the Kubernetes API.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    logging: logging::Arguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(Box<up::Arguments>),
    Down(down::Arguments),
    Status(status::Arguments),
    Run(run::Arguments),
    Apply(apply::Arguments),
    Get(get::Arguments),
    /// Start a VM.
    Start(lifecycle::StartArguments),
    /// Stop a VM.
    Stop(lifecycle::StopArguments),
    /// Stop a VM and start it again.
    Restart(lifecycle::RestartArguments),
    /// Pause a VM.
    Pause(lifecycle::GuestArguments),
    /// Resume a paused VM.
    Unpause(lifecycle::GuestArguments),
    /// Press a VM's reset button.
    Reset(lifecycle::GuestArguments),
    /// Ask a VM's guest to reboot.
    SoftReboot(lifecycle::GuestArguments),
    Migrate(migrate::Arguments),
    Snapshot(copies::SnapshotArguments),
    Restore(copies::RestoreArguments),
    Clone(copies::CloneArguments),
    Export(export::Arguments),
    Import(import::Arguments),
    Console(console::Arguments),
    Ssh(ssh::Arguments),
    PortForward(port_forward::Arguments),
    Vnc(vnc::Arguments),
    Kubeconfig(kubeconfig::Arguments),
    Logs(logs::Arguments),
    Apiserver(apiserver::Arguments),
    ControllerManager(Box<controller_manager::Arguments>),
    Node(node::Arguments),
    Scheduler(scheduler::Arguments),
    VirtApi(Box<virt_api::Arguments>),
    VirtController(virt_controller::Arguments),
    VirtHandler(virt_handler::Arguments),
    VirtLauncher(virt_launcher::Arguments),
    Crds(crds::Arguments),
    VirtProbe(virt_probe::Arguments),
    #[command(hide = true)]
    ExecGuarded(exec_guarded::Arguments),
    #[command(hide = true)]
    Shim(shim::Arguments),
    #[command(hide = true)]
    ContainerDisk(container_disk::Arguments),
    #[command(hide = true)]
    VirtImport(Box<virt_import::Arguments>),
    #[command(hide = true)]
    VirtExportserver(Box<virt_exportserver::Arguments>),
    /// Enter a pod's network namespace and set it up.
    #[command(hide = true)]
    NetworkSetup,
}

fn main() -> ExitCode {
    let parsed = command_line::parse(&Arguments::command(), &words(std::env::args_os()));
    let parsed = parsed.and_then(|matches| {
        Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut Arguments::command()))
    });
    let Arguments { logging, command } = parsed.unwrap_or_else(|error| error.exit());
    let log = logging.start(program(&command));
    let result = match command {
        Command::Up(arguments) => up::run(*arguments, &log, &mut std::io::stdout()),
        Command::Down(arguments) => down::run(&arguments, &mut std::io::stdout()),
        Command::Status(arguments) => status::run(&arguments, &mut std::io::stdout()),
        Command::Shim(arguments) => shim::run(&arguments, &log),
        Command::ContainerDisk(arguments) => container_disk::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Apply(arguments) => apply::run(&arguments, &mut std::io::stdout()),
        Command::Get(arguments) => get::run(&arguments, &mut std::io::stdout()),
        Command::Start(arguments) => lifecycle::start(&arguments, &mut std::io::stdout()),
        Command::Stop(arguments) => lifecycle::stop(&arguments, &mut std::io::stdout()),
        Command::Restart(arguments) => lifecycle::restart(&arguments, &mut std::io::stdout()),
        Command::Pause(arguments) => lifecycle::run_guest(&arguments, GuestVerb::Pause, &mut std::io::stdout()),
        Command::Unpause(arguments) => lifecycle::run_guest(&arguments, GuestVerb::Unpause, &mut std::io::stdout()),
        Command::Reset(arguments) => lifecycle::run_guest(&arguments, GuestVerb::Reset, &mut std::io::stdout()),
        Command::SoftReboot(arguments) => {
            lifecycle::run_guest(&arguments, GuestVerb::SoftReboot, &mut std::io::stdout())
        }
        Command::Migrate(arguments) => migrate::run(&arguments, &mut std::io::stdout()),
        Command::Snapshot(arguments) => copies::snapshot(&arguments, &mut std::io::stdout()),
        Command::Restore(arguments) => copies::restore(&arguments, &mut std::io::stdout()),
        Command::Clone(arguments) => copies::clone(&arguments, &mut std::io::stdout()),
        Command::Export(arguments) => export::run(&arguments, &mut std::io::stdout()),
        Command::Import(arguments) => import::run(&arguments, &mut std::io::stdout()),
        Command::Console(arguments) => console::run(&arguments),
        Command::Ssh(arguments) => ssh::run(&arguments),
        Command::PortForward(arguments) => port_forward::run(&arguments, &mut std::io::stdout()),
        Command::Vnc(arguments) => vnc::run(&arguments, &mut std::io::stdout()),
        Command::Kubeconfig(arguments) => kubeconfig::run(&arguments, &mut std::io::stdout()),
        Command::Logs(arguments) => logs::run(&arguments, &mut std::io::stdout()),
        Command::Apiserver(arguments) => apiserver::run(arguments, &mut std::io::stdout()),
        Command::ControllerManager(arguments) => controller_manager::run(*arguments),
        Command::Node(arguments) => node::run(arguments, &mut std::io::stdout()),
        Command::Scheduler(arguments) => scheduler::run(arguments),
        Command::VirtApi(arguments) => virt_api::run(*arguments, &mut std::io::stdout()),
        Command::VirtController(arguments) => virt_controller::run(arguments),
        Command::VirtHandler(arguments) => virt_handler::run(arguments),
        Command::VirtLauncher(arguments) => virt_launcher::run(arguments, &log),
        Command::VirtProbe(arguments) => virt_probe::run(arguments),
        Command::VirtImport(arguments) => virt_import::run(*arguments),
        Command::VirtExportserver(arguments) => virt_exportserver::run(*arguments),
        Command::NetworkSetup => network_setup::run(),
        Command::ExecGuarded(arguments) => exec_guarded::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments, &mut std::io::stdout().lock()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Who logs: what runs for long tells what it does, whoever asks for an answer reads that.
fn program(command: &Command) -> Program {
    match command {
        Command::Up(_) => Program::Serves("orlop"),
        Command::Apiserver(_) => Program::Serves("apiserver"),
        Command::ControllerManager(_) => Program::Serves("kube-controllers"),
        Command::Node(arguments) if !arguments.serves() => Program::Answers,
        Command::Node(_) | Command::Shim(_) => Program::Serves("node"),
        Command::Scheduler(_) => Program::Serves("scheduler"),
        Command::VirtApi(_) => Program::Serves("virt-api"),
        Command::VirtController(_) => Program::Serves("virt-controller"),
        Command::VirtHandler(_) => Program::Serves("virt-handler"),
        Command::VirtLauncher(_) => Program::Serves("virt-launcher"),
        _ => Program::Answers,
    }
}

/// The words of the command line. A copy of this program that is called by the name of a subcommand is that one: images of
/// container disks run it so.
fn words(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    const CONTAINER_DISK: &str = "container-disk";
    let mut words: Vec<OsString> = given.into_iter().collect();
    let is_copy = |word: &OsString| std::path::Path::new(word).file_name().is_some_and(|name| name == CONTAINER_DISK);
    if words.first().is_some_and(is_copy) {
        words.insert(1, CONTAINER_DISK.into());
    }
    words
}

/// Prints the chain of causes once, on one line.
#[expect(clippy::print_stderr, reason = "this is where errors reach the user")]
fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("orlop: {}", manager::errors::chain(error.as_ref()));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn a_copy_by_another_name_is_that_subcommand() {
        let words = |given: &[&str]| super::words(given.iter().map(Into::into));
        assert_eq!(
            words(&["/usr/bin/container-disk", "--no-op"]),
            ["/usr/bin/container-disk", "container-disk", "--no-op"]
        );
        assert_eq!(words(&["/usr/bin/orlop", "up"]), ["/usr/bin/orlop", "up"]);
    }

    #[test]
    fn flags_do_not_collide() {
        super::Arguments::command().debug_assert();
    }

    /// What kills, deletes or overwrites is typed each time.
    #[test]
    fn no_environment_variable_makes_a_command_destructive() {
        let destructive = ["purge", "force", "grace-period", "kill", "cancel", "stop", "overwrite"];
        // One kills when the time is over, the other writes over a file.
        let of_verbs = [("down", "timeout"), ("export", "output")];
        let mut found = Vec::new();
        let mut left = vec![super::Arguments::command()];
        while let Some(command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            let verb = command.get_name().to_owned();
            for flag in command.get_arguments() {
                let Some(name) = flag.get_long() else { continue };
                if destructive.contains(&name) || of_verbs.contains(&(verb.as_str(), name)) {
                    assert_eq!(flag.get_env(), None, "{verb} --{name}");
                    found.push(format!("{verb} --{name}"));
                }
            }
        }
        for known in ["down --purge", "down --timeout", "migrate --cancel", "restore --stop", "export --output"] {
            assert!(found.iter().any(|found| found == known), "{known} among {found:?}");
        }
    }
}
