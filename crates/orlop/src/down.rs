//! `orlop down`: stops everything of `orlop up`, VMs included, and leaves the machine as it was. Objects, images and
//! volumes stay: the next `orlop up` starts again what is to run.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use network::cni::Cni;
use node::runtime::spec::{PodState, Sandbox};
use node::runtime::{Runtime, Shim};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, timeout};

use crate::controller_program::duration;
use crate::target::Data;
use crate::up::{self, lock, paths, service, storage};

/// Stop all VMs and pods on this machine, then Orlop itself.
#[derive(clap::Args)]
#[group(id = "down")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: Data,
    /// How long to wait for pods to end before they are killed. A VM's own grace period may kill it earlier. For safety,
    /// neither this flag nor --purge can be set by an environment variable.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
    /// Delete the data as well: objects, images and volumes.
    #[arg(long)]
    purge: bool,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let data = arguments.data.folder()?;
    if !data.exists() {
        return writeln!(out, "nothing to stop: {} does not exist", data.display()).context("write to standard output");
    }
    if let Some(pid) = lock::holder(&data)? {
        match service::of(pid).filter(|unit| !service::is_ours(unit)) {
            Some(unit) => {
                writeln!(out, "stopping {unit}; if it is enabled, it starts again with the machine")?;
                service::stop(&unit)?;
            }
            None => {
                writeln!(out, "stopping `orlop up`, pid {pid}")?;
                terminate(pid)?;
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let _lock = runtime.block_on(lock::wait(&data, out))?;
    runtime.block_on(stop(arguments, &data, out))?;
    storage::close(&data, arguments.purge)?;
    if arguments.purge {
        std::fs::remove_dir_all(&data).with_context(|| format!("remove {}", data.display()))?;
    }
    writeln!(out, "orlop is down").context("write to standard output")
}

fn terminate(pid: u32) -> anyhow::Result<()> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).context("read the pid of `orlop up`")?;
    match kill_process(process, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("stop pid {pid}")),
    }
}

/// Ends the agent of one of several nodes; none can be started while this is held.
async fn end_agent(root: &Path, out: &mut impl Write) -> anyhow::Result<lock::Lock> {
    if let Some(pid) = lock::holder(root)? {
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        writeln!(out, "stopping the agent of {name}, pid {pid}")?;
        terminate(pid)?;
    }
    lock::wait(root, out).await
}

async fn stop(arguments: &Arguments, data: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    for root in paths::homes(data) {
        // The agents of several nodes are processes of their own. The machine's only node has ended by now.
        let _agent = if root == data { None } else { Some(end_agent(&root, out).await?) };
        let shims = paths::shims(&root);
        if shims.exists() {
            let runtime = up::runtime(data, &root).await?;
            stop_pods(&runtime, arguments.timeout, out).await?;
        }
        // What else is mounted in the directory of `orlop up` is its owner's.
        for folder in [paths::kubelet(&root), shims, paths::handler(&root)] {
            node::agent::unmount_below(&folder).context("unmount what pods had mounted")?;
        }
    }
    let network = Cni::on_record(paths::network(data), up::preflight::plugins()).context("find the pods' network")?;
    if let Some(network) = network {
        network.remove_all().await.context("remove the pods' network")?;
    }
    Ok(())
}

async fn stop_pods(runtime: &Runtime, patience: Duration, out: &mut impl Write) -> anyhow::Result<()> {
    let pods = runtime.existing().await.context("find the pods")?;
    if !pods.is_empty() {
        writeln!(out, "stopping the pods ({}), for at most {} s", pods.len(), patience.as_secs())?;
        out.flush()?;
    }
    let mut ending: FuturesUnordered<_> = pods.iter().map(|(sandbox, shim)| end(sandbox, shim, patience)).collect();
    let mut failed = Vec::new();
    while let Some(ended) = ending.next().await {
        match ended {
            Ok(line) => writeln!(out, "{line}")?,
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("; ")) }
}

/// Asks the containers of a pod to end, waits, and removes what is left.
async fn end(sandbox: &Sandbox, shim: &Shim, patience: Duration) -> anyhow::Result<String> {
    let name = format!("{}/{}", sandbox.namespace, sandbox.name);
    let begun = Instant::now();
    let mut states = shim.states();
    let running: Vec<String> = {
        let state = states.borrow();
        state.containers.iter().filter(|(_, state)| !state.is_over()).map(|(name, _)| name.clone()).collect()
    };
    for container in &running {
        shim.signal(container, Signal::TERM.as_raw()).await.with_context(|| format!("stop {name}"))?;
    }
    let over =
        |state: &PodState| state.lost || state.containers.values().all(node::runtime::spec::ContainerState::is_over);
    let in_time = timeout(patience, states.wait_for(over)).await.is_ok();
    shim.end().await.with_context(|| format!("remove {name}"))?;
    let how = if in_time { "stopped" } else { "killed" };
    Ok(format!("{how} {name} after {:.1} s", begun.elapsed().as_secs_f64()))
}
