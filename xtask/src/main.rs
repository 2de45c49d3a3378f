//! `cargo xtask`: chores of the workspace that are no part of the product.

mod compatibility;
mod controllers;
mod crds;
mod facts;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the Orlop workspace.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the table of fields in `docs/compatibility.md`, from the rules.
    Compatibility,
    /// Write the table in `docs/controllers.md`, from the tables of controllers.
    Controllers,
    /// Write the CRDs that are checked in, from the types.
    Crds,
    /// Write the API server's facts about the built-in kinds.
    Facts {
        /// A directory with Kubernetes' `resources.json`, `schemas.json` and `protobuf.json`.
        from: PathBuf,
    },
    /// Check generated files, documents, sources and sizes.
    Tidy {
        /// Record today's sizes of the files and functions that are too long, instead of failing on them.
        #[arg(long)]
        record: bool,
    },
}

#[expect(clippy::print_stderr, reason = "this is where errors reach the developer")]
fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let root = root();
    let result = match command {
        Command::Compatibility => compatibility::write(&root),
        Command::Controllers => controllers::write(&root),
        Command::Crds => crds::write(&root),
        Command::Facts { from } => facts::write(&root, &from),
        Command::Tidy { record } => tidy::run(&root, record),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root: this crate is one level below it.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}
