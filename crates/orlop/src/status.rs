//! `orlop status`: the health of every component of `orlop up`.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::target::Data;
use crate::up::report::{Less, Report};
use crate::up::{control, lock, paths};

/// Show the health of every component of `orlop up` on this machine.
#[derive(clap::Args)]
#[group(id = "status")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: Data,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let data = arguments.data.folder()?;
    if lock::holder(&data)?.is_none() {
        bail!("orlop is not running{}; start it with `orlop up`", left_running(&data));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let mut report = runtime.block_on(control::ask(&data)).context("ask `orlop up`, which may be starting or hang")?;
    for home in paths::homes(&data).into_iter().skip(1) {
        // One that does not answer is told of by `orlop up`, which started it.
        let Ok(agent) = runtime.block_on(control::ask(&home)) else { continue };
        let node = home.file_name().unwrap_or_default().to_string_lossy();
        let troubles = agent.components.into_iter().filter(|(_, trouble)| trouble.is_some());
        report.components.extend(troubles.map(|(part, trouble)| (format!("{node}/{part}"), trouble)));
    }
    write!(out, "{}", tell(&report)).context("write to standard output")?;
    let ill = report.components.values().filter(|trouble| trouble.is_some()).count();
    anyhow::ensure!(ill == 0, "{ill} of {} components are unhealthy", report.components.len());
    let ill: Vec<&str> =
        report.nodes.iter().filter(|(_, trouble)| trouble.is_some()).map(|(name, _)| name.as_str()).collect();
    anyhow::ensure!(ill.is_empty(), "no more VMs can start on {}", ill.join(" and "));
    Ok(())
}

/// Pods outlive the process that started them.
fn left_running(data: &Path) -> String {
    let pods_of = |home: &Path| std::fs::read_dir(paths::shims(home)).map_or(0, Iterator::count);
    let pods: usize = paths::homes(data).iter().map(|home| pods_of(home)).sum();
    if pods == 0 { String::new() } else { format!(", but {pods} of its pods may still run") }
}

fn tell(report: &Report) -> String {
    let Report { pid, server, components, less, facts, storage, nodes } = report;
    let mut lines = vec![format!("orlop {} is up, pid {pid}", env!("CARGO_PKG_VERSION"))];
    lines.push(format!("  {:18}{server}", "server"));
    lines.extend(facts.iter().map(|(name, value)| format!("  {name:18}{value}")));
    if let Some(storage) = storage {
        lines.push(format!("  {:18}{}", "volumes", storage.volumes));
        lines.push(format!("  {:18}{}", "clones", storage.clones));
        lines.extend(storage.remedy.iter().map(|remedy| format!("  {:18}-> {remedy}", "")));
    }
    if !less.is_empty() {
        lines.push("degraded".to_owned());
    }
    for Less { what, why, remedy } in less {
        lines.push(format!("  {what:18}{why}"));
        lines.push(format!("  {:18}-> {remedy}", ""));
    }
    lines.push("components".to_owned());
    for (name, trouble) in components {
        lines.push(format!("  {name:18}{}", trouble.as_deref().unwrap_or("healthy")));
        if trouble.is_some() {
            lines.push(format!(
                "  {:18}-> Orlop retries automatically; for details, run `sudo orlop logs --component {}`",
                "",
                log_flags(name)
            ));
        }
    }
    if !nodes.is_empty() {
        lines.push("nodes".to_owned());
    }
    for (name, trouble) in nodes {
        lines.push(format!("  {name:18}{}", trouble.as_ref().map_or("ready", |trouble| &trouble.why)));
        let remedies = trouble.iter().flat_map(|trouble| &trouble.remedies);
        lines.extend(remedies.map(|remedy| format!("  {:18}-> {remedy}", "")));
    }
    lines.join("\n") + "\n"
}

/// What `orlop logs --component` takes for a component, which a node may have for itself.
fn log_flags(name: &str) -> String {
    name.split_once('/').map_or_else(|| name.to_owned(), |(node, component)| format!("{component} --node {node}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::up::nodes::Trouble;
    use crate::up::storage::StorageReport;

    #[test]
    fn the_log_of_a_component_is_found_on_its_node() {
        assert_eq!(log_flags("scheduler"), "scheduler");
        assert_eq!(log_flags("here-0/virt-handler"), "virt-handler --node here-0");
    }

    #[test]
    fn each_part_has_a_line() {
        let components =
            BTreeMap::from([("node".to_owned(), None), ("scheduler".to_owned(), Some("sync: late".to_owned()))]);
        let facts = BTreeMap::from([("runtime".to_owned(), "runc 1".to_owned())]);
        let less = vec![Less { what: "no KVM".to_owned(), why: "slow".to_owned(), remedy: "fix it".to_owned() }];
        let full = Trouble { why: "DiskPressure: full".to_owned(), remedies: vec!["free some space".to_owned()] };
        let nodes = BTreeMap::from([("a".to_owned(), None), ("b".to_owned(), Some(full))]);
        let storage = Some(StorageReport {
            volumes: "/v on ext4, 1Gi of 2Gi free".to_owned(),
            clones: "plain copies".to_owned(),
            remedy: Some("use XFS".to_owned()),
        });
        let report = Report { pid: 7, server: "https://s".to_owned(), components, less, facts, storage, nodes };
        assert_eq!(
            tell(&report),
            format!(
                "orlop {} is up, pid 7\n\
                 \x20 server            https://s\n\
                 \x20 runtime           runc 1\n\
                 \x20 volumes           /v on ext4, 1Gi of 2Gi free\n\
                 \x20 clones            plain copies\n\
                 \x20                   -> use XFS\n\
                 degraded\n\
                 \x20 no KVM            slow\n\
                 \x20                   -> fix it\n\
                 components\n\
                 \x20 node              healthy\n\
                 \x20 scheduler         sync: late\n\
                 \x20                   -> Orlop retries automatically; for details, run `sudo orlop logs --component scheduler`\n\
                 nodes\n\
                 \x20 a                 ready\n\
                 \x20 b                 DiskPressure: full\n\
                 \x20                   -> free some space\n",
                env!("CARGO_PKG_VERSION")
            )
        );
    }
}
