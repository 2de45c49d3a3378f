//! The command line: what was typed goes before what the environment says.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// Reads the words, as clap does.
///
/// Guarantee: a flag that was typed may exclude others that were typed, and never one that only the environment has set. Of
/// `orlop migrate --cancel` and `ORLOP_MIGRATE_WATCH`, the flag counts.
///
/// # Errors
/// When they make no sense, or ask for help.
pub(crate) fn parse(command: &Command, words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    match command.clone().try_get_matches_from(words) {
        Err(error) if error.kind() == ErrorKind::ArgumentConflict => {
            let typed = without_variables(command.clone()).try_get_matches_from(words)?;
            yielding(command.clone(), &typed).try_get_matches_from(words)
        }
        parsed => parsed,
    }
}

fn without_variables(command: Command) -> Command {
    command.mut_args(without_variable).mut_subcommands(without_variables)
}

fn without_variable(argument: Arg) -> Arg {
    argument.env(None::<&'static str>)
}

/// The same command, where flags that a typed one excludes have no variable.
fn yielding(command: Command, typed: &ArgMatches) -> Command {
    let is_typed = |argument: &Arg| typed.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine);
    let excludes = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|found| found.get_id() == other.get_id())
    };
    let excluded: Vec<_> = command
        .get_arguments()
        .filter(|argument| {
            let mut others = command.get_arguments().filter(|other| is_typed(other));
            others.any(|other| excludes(argument, other) || excludes(other, argument))
        })
        .map(|argument| argument.get_id().clone())
        .collect();
    let command = excluded.into_iter().fold(command, |command, id| command.mut_arg(id, without_variable));
    match typed.subcommand() {
        Some((name, typed)) => command.mut_subcommand(name, |command| yielding(command, typed)),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// $PATH stands for the variable of a flag: it is set wherever tests run.
    fn command() -> Command {
        let to = Arg::new("to").long("to").env("PATH");
        let cancel = Arg::new("cancel").long("cancel").num_args(0).conflicts_with_all(["to", "until"]);
        let until = Arg::new("until").long("until");
        let from = Arg::new("from").long("from").env("PATH").conflicts_with("until");
        Command::new("orlop").subcommand(Command::new("migrate").args([to, cancel, until, from]))
    }

    fn set(words: &[&str]) -> Result<Vec<&'static str>, ErrorKind> {
        let words: Vec<OsString> = ["orlop", "migrate"].iter().chain(words).map(Into::into).collect();
        let matches = parse(&command(), &words).map_err(|error| error.kind())?;
        let matches = matches.subcommand_matches("migrate").unwrap();
        let is_set = |id: &&str| matches.value_source(id).is_some_and(|source| source != ValueSource::DefaultValue);
        Ok(["to", "cancel", "until", "from"].into_iter().filter(is_set).collect())
    }

    #[test]
    fn a_typed_flag_goes_before_the_variable_of_one_that_it_excludes() {
        assert_eq!(set(&[]), Ok(vec!["to", "from"]));
        assert_eq!(set(&["--cancel"]), Ok(vec!["cancel", "from"]));
        // Whichever of the two says that they exclude each other.
        assert_eq!(set(&["--until", "x"]), Ok(vec!["to", "until"]));
    }

    #[test]
    fn two_that_were_typed_and_exclude_each_other_are_refused() {
        assert_eq!(set(&["--cancel", "--to", "x"]), Err(ErrorKind::ArgumentConflict));
        assert_eq!(set(&["--from", "x", "--until", "x"]), Err(ErrorKind::ArgumentConflict));
    }
}
