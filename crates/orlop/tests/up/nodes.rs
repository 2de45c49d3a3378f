//! Several nodes on one machine: each is a process that can be stopped, killed and cut off by itself, and that outlives
//! `orlop up`. Guests notice none of it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use kube::Api;
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::Test;
use super::guests::{add_volume, bare, template};
use super::storing::claim;
use super::test_host::processes::{command_line, kill};
use super::test_host::{PATIENCE, TestHost, qemus};

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("nodes_of_one_machine_live_by_themselves", nodes_of_one_machine_live_by_themselves),
    ("a_node_that_is_cut_off_is_given_up_and_comes_back", a_node_that_is_cut_off_is_given_up_and_comes_back),
];

const NODES: [&str; 3] = ["here-0", "here-1", "here-2"];

/// A VM on a node, with a disk of its own.
fn pinned(machine: &TestHost, name: &str, node: &str) -> Result<VirtualMachineInstance> {
    machine.create::<PersistentVolumeClaim>(claim(name, "16Mi"))?;
    let mut vm = bare(name, "Always");
    add_volume(&mut vm, "data", "persistentVolumeClaim", json!({ "claimName": name }))?;
    template(&mut vm)["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    template(&mut vm)["domain"]["memory"]["guest"] = json!("64Mi");
    machine.create::<VirtualMachine>(vm)?;
    let vmi = machine.phase(name, Phase::Running, None)?;
    let status = vmi.status.as_ref().context("no status")?;
    ensure!(status.node_name.as_deref() == Some(node), "{name} runs on {:?}", status.node_name);
    Ok(vmi)
}

/// Waits until a node is ready, or is given up.
fn wait_for_node(machine: &TestHost, name: &str, status: &'static str) -> Result<Node> {
    let told = move |node: Option<&Node>| {
        let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == status))
    };
    let waiting = await_condition(Api::<Node>::all(machine.client()), name, told);
    let waited = machine.runtime.block_on(async { tokio::time::timeout(PATIENCE, waiting).await });
    waited.with_context(|| format!("{name} is not {status}\n{}", machine.log()))??.context("the node is gone")
}

/// The process of a node's agent.
fn agent(machine: &TestHost, node: &str) -> Option<u32> {
    let file: PathBuf = machine.data().join("nodes").join(node).join("up.pid");
    let pid = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    command_line(pid).contains("--agent").then_some(pid)
}

fn verb(machine: &TestHost, words: &[&str]) -> Result<String> {
    e2e::output(&mut machine.orlop(words))
}

/// Waits until a program with these words fails, and tells how.
fn fails(machine: &TestHost, words: &[&str]) -> String {
    let mut said = String::new();
    testkit::waiting::until("it fails", || {
        let failed = machine.orlop(words).output().ok().filter(|output| !output.status.success());
        failed.is_some_and(|output| {
            said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
            true
        })
    });
    said
}

fn nodes_of_one_machine_live_by_themselves() -> Result<()> {
    // Always the same port: agents are started anew where pods are to reach the API at another.
    let mut machine = TestHost::with(&["--nodes", "3", "--listen", "127.0.0.1:6443"])?;
    let mut memory = 0;
    for name in NODES {
        let node = wait_for_node(&machine, name, "True")?;
        let allocatable = node.status.and_then(|status| status.allocatable).context("nothing is allocatable")?;
        let amount: api::quantity::Amount = allocatable["memory"].0.parse()?;
        memory += amount.to_string().parse::<u64>().unwrap_or(0);
    }
    let total = std::fs::read_to_string("/proc/meminfo")?;
    let total: u64 = total.split_whitespace().nth(1).context("no memory")?.parse()?;
    ensure!(memory <= total * 1024, "nodes offer {memory} bytes of {total} KiB");

    let vmis = [pinned(&machine, "a", NODES[0])?, pinned(&machine, "b", NODES[1])?];
    let addresses: Vec<_> =
        vmis.iter().filter_map(|vmi| vmi.status.as_ref()?.interfaces.as_ref()?.first()?.ip_address.clone()).collect();
    ensure!(addresses.len() == 2 && addresses[0] != addresses[1], "they have {addresses:?}");
    let guests = [qemus("a"), qemus("b")];

    // An agent that is killed leaves its guest alone, and is started again.
    let killed = agent(&machine, NODES[1]).context("no agent")?;
    kill(killed)?;
    testkit::waiting::until("another agent", || agent(&machine, NODES[1]).is_some_and(|pid| pid != killed));
    // One that is stopped stays so, and that is told.
    verb(&machine, &["node", "stop", NODES[1]])?;
    ensure!(agent(&machine, NODES[1]).is_none(), "the agent still runs");
    let said = fails(&machine, &["status"]);
    ensure!(said.contains("its agent was stopped") && said.contains("orlop node start here-1"), "{said}");
    let said = fails(&machine, &["node", "stop", "there"]);
    ensure!(said.contains("unknown node \"there\"; use one of here-0, here-1, here-2"), "{said}");

    // Also across a crash of everything else, which all other agents survive.
    let before = agent(&machine, NODES[0]);
    machine.kill()?;
    ensure!(before.is_some() && agent(&machine, NODES[0]) == before, "the agent went with `orlop up`");
    machine.start()?;
    pinned(&machine, "c", NODES[2])?;
    ensure!(agent(&machine, NODES[0]) == before, "the agent was replaced by another");
    ensure!(agent(&machine, NODES[1]).is_none(), "the agent that was stopped runs");
    verb(&machine, &["node", "start", NODES[1]])?;
    ensure!([qemus("a"), qemus("b")] == guests, "guests were started again");
    machine.delete::<VirtualMachine>("b")?;
    machine.gone::<VirtualMachineInstance>("b")?;

    // Nobody would look after the pods of these nodes.
    machine.terminate()?;
    let said = fails(&machine, &["up", "--node-name", "here", "--bridge", super::test_host::BRIDGE]);
    ensure!(said.contains("of another number of nodes") && said.contains("orlop down"), "{said}");
    let said = machine.down()?;
    ensure!(said.contains("stopping the agent of here-0"), "{said}");
    Ok(())
}

fn a_node_that_is_cut_off_is_given_up_and_comes_back() -> Result<()> {
    let machine = TestHost::with(&["--nodes", "2"])?;
    pinned(&machine, "a", NODES[0])?;
    let guest = qemus("a");
    let pid = agent(&machine, NODES[0]);
    verb(&machine, &["node", "stop", NODES[0], "--partition", "api"])?;
    wait_for_node(&machine, NODES[0], "Unknown")?;
    ensure!(agent(&machine, NODES[0]) == pid && qemus("a") == guest, "more was stopped than the network");
    verb(&machine, &["node", "start", NODES[0]])?;
    wait_for_node(&machine, NODES[0], "True")?;
    ensure!(agent(&machine, NODES[0]) == pid && qemus("a") == guest, "something was started again");
    Ok(())
}
