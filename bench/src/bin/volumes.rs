//! What an import costs beside `curl` and `qemu-img convert` in the same run, and how long a copy of a disk takes.
//!
//! `cargo run --release -p bench --bin volumes -- [--folder DIR]`; on XFS and btrfs, copies share blocks.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::path::PathBuf;

use anyhow::Result;
use bench::rounds::own_profile;
use bench::volumes::{Format, copy, import};
use clap::Parser;

/// Figures of volumes.
#[derive(Parser)]
struct Arguments {
    /// Directory for everything that is written; its file system is what is measured.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Rounds of each comparison.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size of the disk that is imported, in MiB.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Size of the sparse disk that is copied, in GiB.
    #[arg(long, default_value_t = 10)]
    gib: u64,
    /// How much of it is data, in MiB.
    #[arg(long, default_value_t = 256)]
    data: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { folder, rounds, mib, gib, data } = Arguments::parse();
    let profile = own_profile();
    let place = folder.unwrap_or_else(std::env::temp_dir);
    for format in [Format::Raw, Format::Qcow2] {
        let round = tempfile::tempdir_in(&place)?;
        let mut figure = import(round.path(), format, mib, rounds).await?;
        figure["profile"] = profile.clone().into();
        println!("{figure}");
    }
    let round = tempfile::tempdir_in(&place)?;
    let mut figure = copy(round.path(), gib, data, rounds)?;
    figure["profile"] = profile.into();
    println!("{figure}");
    Ok(())
}
