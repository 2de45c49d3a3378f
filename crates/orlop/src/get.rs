//! `orlop get`: a table of VMs.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context as _;
use api::conditions::{self, ConditionStatus};
use api::vm::{VirtualMachine, VirtualMachinePrintableStatus as Printable};
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::cluster::clock;
use crate::target::Target;
use crate::trouble::Sight;
use crate::waiting;

/// List virtual machines.
#[derive(clap::Args)]
#[group(id = "get")]
pub(crate) struct Arguments {
    /// Name of the VM; the default is all VMs.
    name: Option<String>,
    /// List the VMs of all namespaces.
    #[arg(short = 'A', long, env = "ORLOP_ALL_NAMESPACES")]
    all_namespaces: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let (vms, vmis, warnings) = runtime.block_on(fetch(arguments))?;
    let rows = rows(&vms, &vmis, &warnings, clock()());
    if rows.is_empty() {
        return writeln!(out, "No virtual machines").context("write to standard output");
    }
    write!(out, "{}", table(&rows, arguments.all_namespaces)).context("write to standard output")
}

/// Warnings about VMs, by namespace and name.
type Warnings = BTreeMap<(String, String), Vec<Event>>;

async fn fetch(arguments: &Arguments) -> anyhow::Result<(Vec<VirtualMachine>, Vec<VirtualMachineInstance>, Warnings)> {
    let Arguments { name, all_namespaces, target } = arguments;
    let client = target.client().await?;
    let (vms, vmis): (Api<VirtualMachine>, Api<VirtualMachineInstance>) = if *all_namespaces {
        (Api::all(client.clone()), Api::all(client.clone()))
    } else {
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()))
    };
    let mut parameters = ListParams::default();
    if let Some(name) = name {
        parameters = parameters.fields(&format!("metadata.name={name}"));
    }
    let vms = vms.list(&parameters).await.context("list VMs")?.items;
    let vmis = vmis.list(&parameters).await.context("list instances")?.items;
    if let Some(name) = name.as_ref().filter(|_| vms.is_empty() && vmis.is_empty()) {
        anyhow::bail!("VM {name:?} was not found");
    }
    let mut warnings = Warnings::new();
    // How a guest ended that was removed since is told by events alone.
    for vm in vms
        .iter()
        .filter(|vm| Sight { vm: Some(vm), ..Sight::default() }.printable() == Some(&Printable::CrashLoopBackOff))
    {
        let (namespace, name) = (vm.namespace().unwrap_or_default(), vm.name_any());
        let told = waiting::warnings(&client, &namespace, &name).await;
        warnings.insert((namespace, name), told);
    }
    Ok((vms, vmis, warnings))
}

/// Namespace, name, status, ready, address, node, age, and what is wrong.
type Row = [String; 8];

/// A row for each VM, and for each instance that has none; by namespace and name.
fn rows(vms: &[VirtualMachine], vmis: &[VirtualMachineInstance], warnings: &Warnings, now: Timestamp) -> Vec<Row> {
    let key = |namespace: Option<String>, name: String| (namespace.unwrap_or_default(), name);
    let instances: BTreeMap<_, _> = vmis.iter().map(|vmi| (key(vmi.namespace(), vmi.name_any()), vmi)).collect();
    let machines: BTreeMap<_, _> = vms.iter().map(|vm| (key(vm.namespace(), vm.name_any()), vm)).collect();
    let mut all: Vec<_> = machines.keys().chain(instances.keys()).cloned().collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
        .map(|(namespace, name)| {
            let key = (namespace.clone(), name.clone());
            let (vm, vmi) = (machines.get(&key).copied(), instances.get(&key).copied());
            let sight = Sight { vm, vmi, warnings: warnings.get(&key).map(Vec::as_slice).unwrap_or_default() };
            let created = vm.and_then(kube::ResourceExt::creation_timestamp).or_else(|| vmi?.creation_timestamp());
            let of_instance = |field: fn(&VirtualMachineInstance) -> Option<String>| vmi.and_then(field);
            [
                namespace,
                name,
                sight.status(),
                if is_ready(vm, vmi) { "True" } else { "False" }.to_owned(),
                of_instance(address).unwrap_or_default(),
                of_instance(|vmi| vmi.status.as_ref()?.node_name.clone()).unwrap_or_default(),
                created.map(|time| age(time.0, now)).unwrap_or_default(),
                sight.reason().map(|reason| reason.replace('\n', " ")).unwrap_or_default(),
            ]
        })
        .collect()
}

fn is_ready(vm: Option<&VirtualMachine>, vmi: Option<&VirtualMachineInstance>) -> bool {
    let told = vm.and_then(|vm| vm.status.as_ref()?.ready);
    told.unwrap_or_else(|| {
        let conditions = vmi.and_then(|vmi| vmi.status.as_ref()?.conditions.as_deref());
        conditions::has(conditions, "Ready", &ConditionStatus::True)
    })
}

fn address(vmi: &VirtualMachineInstance) -> Option<String> {
    let interfaces = vmi.status.as_ref()?.interfaces.as_ref()?;
    interfaces.iter().find_map(|interface| interface.ip_address.clone().filter(|address| !address.is_empty()))
}

/// As kubectl tells ages: the largest unit alone.
fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn table(rows: &[Row], with_namespace: bool) -> String {
    const TITLES: [&str; 8] = ["NAMESPACE", "NAME", "STATUS", "READY", "IP", "NODE", "AGE", "REASON"];
    // As long as nothing is wrong, there is no reason to tell.
    let shown = if rows.iter().all(|row| row[7].is_empty()) { 7 } else { 8 };
    let first = usize::from(!with_namespace);
    let widths: Vec<usize> = (0..TITLES.len())
        .map(|column| rows.iter().map(|row| row[column].len()).chain([TITLES[column].len()]).max().unwrap_or_default())
        .collect();
    let line = |cells: &[&str]| {
        let padded = cells.iter().zip(&widths).take(shown).skip(first).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned() + "\n"
    };
    let body = rows.iter().map(|row| line(&row.each_ref().map(String::as_str)));
    std::iter::once(line(&TITLES)).chain(body).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_vm_and_its_instance_are_one_row() {
        let vm: VirtualMachine = api::decode::object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": { "name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "template": { "spec": { "domain": { "devices": {} } } } },
            "status": { "printableStatus": "Running", "ready": true },
        }))
        .unwrap()
        .object;
        let vmi = |name: &str| -> VirtualMachineInstance {
            api::decode::object(json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "metadata": { "name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "domain": { "devices": {} } },
                "status": { "phase": "Scheduled", "nodeName": "here", "interfaces": [{ "ipAddress": "10.0.0.1" }] },
            }))
            .unwrap()
            .object
        };
        let rows = rows(&[vm], &[vmi("a"), vmi("b")], &Warnings::new(), "2026-01-01T00:03:00Z".parse().unwrap());
        assert_eq!(
            table(&rows, false),
            "NAME   STATUS      READY   IP         NODE   AGE\n\
             a      Running     True    10.0.0.1   here   3m\n\
             b      Scheduled   False   10.0.0.1   here   3m\n"
        );
        assert!(table(&rows, true).starts_with("NAMESPACE   NAME"));
        let mut rows = rows;
        rows[1][7] = "0/1 nodes are available".to_owned();
        assert_eq!(
            table(&rows, false),
            "NAME   STATUS      READY   IP         NODE   AGE   REASON\n\
             a      Running     True    10.0.0.1   here   3m\n\
             b      Scheduled   False   10.0.0.1   here   3m    0/1 nodes are available\n"
        );
    }

    #[test]
    fn an_age_has_one_unit() {
        let then = Timestamp::UNIX_EPOCH;
        let after = |seconds| age(then, Timestamp::from_second(seconds).unwrap());
        assert_eq!([after(119), after(120), after(7200), after(172_800)], ["119s", "2m", "2h", "2d"]);
    }
}
