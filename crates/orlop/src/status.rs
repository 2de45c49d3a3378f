//! `orlop status`: how every part of `orlop up` is.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::cluster::from_file;
use crate::target::{Data, kubeconfig};
use crate::up::report::{Less, Report};
use crate::up::{control, lock, places};

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
    let (report, nodes) = runtime.block_on(async {
        let report = control::ask(&data).await.context("ask `orlop up`; it may be starting")?;
        anyhow::Ok((report, nodes(&data).await?))
    })?;
    write!(out, "{}", tell(&report, &nodes)).context("write to standard output")?;
    let ill = report.parts.values().filter(|trouble| trouble.is_some()).count();
    anyhow::ensure!(ill == 0, "{ill} of {} parts are not well", report.parts.len());
    let ill = nodes.iter().filter(|node| trouble(node).is_some()).count();
    anyhow::ensure!(ill == 0, "{ill} of {} nodes take no further VMs", nodes.len());
    Ok(())
}

async fn nodes(data: &Path) -> anyhow::Result<Vec<Node>> {
    let client = Client::try_from(from_file(&kubeconfig(data)).await?).context("make a client")?;
    Ok(Api::all(client).list(&ListParams::default()).await.context("list the nodes")?.items)
}

/// Why a node takes no further pods; none if it does.
fn trouble(node: &Node) -> Option<String> {
    let conditions: Vec<_> = node.status.iter().flat_map(|status| status.conditions.iter().flatten()).collect();
    let told = |of: &NodeCondition| {
        let message = of.message.as_deref().filter(|message| !message.is_empty());
        message.map_or_else(|| of.type_.clone(), |message| format!("{}: {message}", of.type_))
    };
    let mut troubles = Vec::new();
    match conditions.iter().find(|one| one.type_ == "Ready") {
        Some(ready) if ready.status == "True" => {}
        Some(ready) => troubles.push(format!("not {}", told(ready))),
        None => troubles.push("not Ready yet".to_owned()),
    }
    let pressing = conditions.iter().filter(|one| one.type_.ends_with("Pressure") && one.status == "True");
    troubles.extend(pressing.map(|one| told(one)));
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        troubles.push("cordoned".to_owned());
    }
    (!troubles.is_empty()).then(|| troubles.join("; "))
}

/// What to do about it.
fn remedies(node: &Node) -> Vec<String> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let pressing = conditions.filter(|one| one.status == "True").filter_map(|one| match one.type_.as_str() {
        "DiskPressure" => {
            Some("free some space: VMs start again by themselves, once a tenth or 5 GiB of the disk are free")
        }
        "MemoryPressure" => Some("stop a VM or another program: new ones start when there is memory again"),
        "PIDPressure" => Some("stop some programs: the machine runs out of process numbers"),
        _ => None,
    });
    let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let uncordon = cordoned.then(|| format!("`kubectl uncordon {}` lets it take VMs again", node.name_any()));
    pressing.map(str::to_owned).chain(uncordon).collect()
}

/// Pods outlive the process that started them.
fn left_running(data: &Path) -> String {
    let pods = std::fs::read_dir(places::shims(data)).map_or(0, Iterator::count);
    if pods == 0 { String::new() } else { format!(", but {pods} of its pods may still run") }
}

fn tell(report: &Report, nodes: &[Node]) -> String {
    let Report { pid, server, parts, less, facts } = report;
    let mut lines = vec![format!("orlop {} is up, pid {pid}", env!("CARGO_PKG_VERSION"))];
    lines.push(format!("  {:18}{server}", "server"));
    lines.extend(facts.iter().map(|(name, value)| format!("  {name:18}{value}")));
    if !less.is_empty() {
        lines.push("works with less".to_owned());
    }
    for Less { what, why, remedy } in less {
        lines.push(format!("  {what:18}{why}"));
        lines.push(format!("  {:18}-> {remedy}", ""));
    }
    lines.push("parts".to_owned());
    lines.extend(parts.iter().map(|(name, trouble)| format!("  {name:18}{}", trouble.as_deref().unwrap_or("well"))));
    if !nodes.is_empty() {
        lines.push("nodes".to_owned());
    }
    for node in nodes {
        lines.push(format!("  {:18}{}", node.name_any(), trouble(node).as_deref().unwrap_or("ready")));
        lines.extend(remedies(node).into_iter().map(|remedy| format!("  {:18}-> {remedy}", "")));
    }
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
        let less = vec![Less { what: "no KVM".to_owned(), why: "slow".to_owned(), remedy: "mend it".to_owned() }];
        let report = Report { pid: 7, server: "https://s".to_owned(), parts, less, facts };
        let node = |name: &str, unschedulable: bool, conditions: serde_json::Value| {
            let node = serde_json::json!({
                "metadata": { "name": name }, "spec": { "unschedulable": unschedulable },
                "status": { "conditions": conditions },
            });
            serde_json::from_value::<Node>(node).unwrap()
        };
        let condition = |kind: &str, status: &str, message: &str| serde_json::json!({ "type": kind, "status": status, "message": message });
        let nodes = [
            node(
                "a",
                false,
                serde_json::json!([condition("Ready", "True", ""), condition("DiskPressure", "False", "no")]),
            ),
            node(
                "b",
                true,
                serde_json::json!([condition("Ready", "True", ""), condition("DiskPressure", "True", "full")]),
            ),
            node("c", false, serde_json::json!([condition("Ready", "Unknown", "")])),
            node("d", false, serde_json::json!([])),
        ];
        assert_eq!(
            tell(&report, &nodes),
            format!(
                "orlop {} is up, pid 7\n\
                 \x20 server            https://s\n\
                 \x20 runtime           runc 1\n\
                 works with less\n\
                 \x20 no KVM            slow\n\
                 \x20                   -> mend it\n\
                 parts\n\
                 \x20 node              well\n\
                 \x20 scheduler         sync: late\n\
                 nodes\n\
                 \x20 a                 ready\n\
                 \x20 b                 DiskPressure: full; cordoned\n\
                 \x20                   -> free some space: VMs start again by themselves, once a tenth or 5 GiB of the disk are free\n\
                 \x20                   -> `kubectl uncordon b` lets it take VMs again\n\
                 \x20 c                 not Ready\n\
                 \x20 d                 not Ready yet\n",
                env!("CARGO_PKG_VERSION")
            )
        );
    }
}
