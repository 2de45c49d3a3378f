//! `orlop status`: how every part of `orlop up` is.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::target::Data;
use crate::up::control::{self, Report};
use crate::up::{lock, places};

/// Show the health of every part of `orlop up` on this machine.
#[derive(clap::Args)]
#[group(id = "status")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: Data,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let data = arguments.data.folder()?;
    if lock::holder(&data)?.is_none() {
        bail!("orlop does not run here{}; `orlop up` starts it", left_running(&data));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let report = runtime.block_on(control::ask(&data)).context("ask `orlop up`; it may be starting")?;
    write!(out, "{}", tell(&report)).context("write to standard output")?;
    let ill = report.parts.values().filter(|trouble| trouble.is_some()).count();
    anyhow::ensure!(ill == 0, "{ill} of {} parts are not well", report.parts.len());
    Ok(())
}

/// Pods outlive the process that started them.
fn left_running(data: &Path) -> String {
    let pods = std::fs::read_dir(places::shims(data)).map_or(0, Iterator::count);
    if pods == 0 { String::new() } else { format!(", but {pods} of its pods may still run") }
}

fn tell(report: &Report) -> String {
    let Report { pid, server, parts, facts } = report;
    let mut lines = vec![format!("orlop {} is up, pid {pid}", env!("CARGO_PKG_VERSION"))];
    lines.push(format!("  {:18}{server}", "server"));
    lines.extend(facts.iter().map(|(name, value)| format!("  {name:18}{value}")));
    lines.push("parts".to_owned());
    lines.extend(parts.iter().map(|(name, trouble)| format!("  {name:18}{}", trouble.as_deref().unwrap_or("well"))));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_part_has_a_line() {
        let parts =
            BTreeMap::from([("node".to_owned(), None), ("scheduler".to_owned(), Some("sync: late".to_owned()))]);
        let facts = BTreeMap::from([("runtime".to_owned(), "runc 1".to_owned())]);
        let report = Report { pid: 7, server: "https://s".to_owned(), parts, facts };
        assert_eq!(
            tell(&report),
            format!(
                "orlop {} is up, pid 7\n\
                 \x20 server            https://s\n\
                 \x20 runtime           runc 1\n\
                 parts\n\
                 \x20 node              well\n\
                 \x20 scheduler         sync: late\n",
                env!("CARGO_PKG_VERSION")
            )
        );
    }
}
