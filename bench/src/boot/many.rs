//! Many VMs at once: real ones on one machine, and ones that only the API knows.

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cost::{Memory, QUIET};
use super::guests::{Instances, empty};
use super::machine::Machine;
use super::percentile;
use crate::controllers::process::Usage;

/// So many VMs without a disk, created at once: when the last runs, and what they took of `orlop up`'s CPU.
///
/// # Errors
/// When one does not run.
pub async fn at_once(machine: &Machine, count: usize, tell: &mut dyn FnMut(Value)) -> Result<()> {
    let mut instances = Instances::watch(machine.client());
    let names: Vec<String> = (0..count).map(|number| format!("many{number}")).collect();
    let before = Usage::of(machine.pid());
    let (waits, last) = instances.start_all(names.iter().map(|name| empty(name, "64Mi")).collect()).await?;
    let taken = Usage::of(machine.pid()) - before;
    tell(json!({ "figure": format!("{count} VMs at once, the last runs"), "ms": last.as_millis() }));
    tell(waits_figure(&format!("{count} VMs at once, accepted to running"), &waits));
    tell(cpu_figure(&format!("{count} VMs at once, CPU of orlop up per VM"), taken, count));
    for name in &names {
        instances.delete(name).await?;
    }
    Ok(())
}

/// So many VMs on nodes that only pretend.
///
/// # Errors
/// When `orlop up` does not start, or a VM does not run.
pub async fn hollow(count: usize, nodes: usize, tell: &mut dyn FnMut(Value)) -> Result<()> {
    let machine = Machine::up(&["--hollow-nodes", &nodes.to_string()]).await?;
    let mut instances = Instances::watch(machine.client());
    instances.create(&empty("canary", "64Mi")).await?;
    instances.running("canary").await?;
    let before = Usage::of(machine.pid());
    let vms = (0..count).map(|number| empty(&format!("hollow{number}"), "64Mi")).collect();
    let (waits, last) = instances.start_all(vms).await?;
    let taken = Usage::of(machine.pid()) - before;
    sleep(QUIET).await;
    let memory = Memory::of(machine.pid());
    tell(json!({ "figure": format!("{count} hollow VMs at once, the last runs"), "ms": last.as_millis() }));
    tell(waits_figure(&format!("{count} hollow VMs at once, accepted to running"), &waits));
    tell(cpu_figure(&format!("{count} hollow VMs at once, CPU of orlop up per VM"), taken, count));
    tell(json!({
        "figure": format!("resident memory of orlop up, {count} hollow VMs"),
        "kib": memory.resident, "anonymous": memory.anonymous, "of files": memory.of_files,
    }));
    Ok(())
}

fn waits_figure(name: &str, waits: &[std::time::Duration]) -> Value {
    let [middle, slow] = [50, 95].map(|share| percentile(waits, share).as_millis());
    json!({ "figure": name, "p50_ms": middle, "p95_ms": slow })
}

fn cpu_figure(name: &str, taken: Usage, count: usize) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let each = taken.cpu_seconds * 1000.0 / count.max(1) as f64;
    json!({ "figure": name, "ms": (each * 10.0).round() / 10.0 })
}
