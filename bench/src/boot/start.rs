//! From a VM that is accepted to one that runs, by `orlop up`.

use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cost::of_pod;
use super::foreground::{arguments, bare};
use super::guests::{Instances, linux};
use super::machine::Machine;
use super::{PATIENCE, USERLAND, median, ratio, watch};

/// Figures of VMs that are started one after the other: medians.
///
/// # Errors
/// When a guest does not come up.
pub async fn measure(machine: &Machine, runs: usize, tell: &mut dyn FnMut(Value)) -> Result<()> {
    let mut instances = Instances::watch(machine.client());
    let (mut started, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    // The first fills the image cache and is not counted; QEMU alone has its arguments, which are those of all.
    let first = one(machine, &mut instances, "start0").await?;
    bare(&first.arguments)?;
    for number in 1..=runs {
        // Who begins changes from run to run.
        if number % 2 == 0 {
            without.push(bare(&first.arguments)?);
        }
        let one = one(machine, &mut instances, &format!("start{number}")).await?;
        started.push(one.started);
        with.push(one.userland);
        if number % 2 == 1 {
            without.push(bare(&first.arguments)?);
        }
    }
    let beside = ratio(&with, &without);
    let (started, with, without) = (median(started), median(with), median(without));
    tell(json!({ "figure": "VM accepted to QEMU running", "ms": started.as_millis(), "budget": 400 }));
    tell(json!({ "figure": "VM accepted to guest userland", "ms": with.as_millis() }));
    tell(json!({ "figure": "bare QEMU to guest userland, as a VM's", "ms": without.as_millis() }));
    tell(json!({ "figure": "orlop up beside bare QEMU", "ratio": beside }));
    Ok(())
}

struct One {
    started: Duration,
    userland: Duration,
    /// QEMU's own arguments, for the comparison.
    arguments: Vec<String>,
}

async fn one(machine: &Machine, instances: &mut Instances, name: &str) -> Result<One> {
    let accepted = instances.create(&linux(name)?).await?;
    let running = instances.running(name).await?;
    let userland = userland(machine, name)?;
    let processes = of_pod(machine, name)?;
    let arguments = arguments(processes.guest)?;
    instances.delete(name).await?;
    Ok(One { started: running - accepted, userland: userland - accepted, arguments })
}

/// When the guest's own code was first heard of: the guest takes longer to it than the console to be opened.
fn userland(machine: &Machine, name: &str) -> Result<Instant> {
    let mut console = machine.orlop(&["console", name])?;
    let console = console.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut console = Console(console.spawn().context("open the console")?);
    let heard = watch(console.0.stdout.take().context("no standard output")?, USERLAND);
    heard.recv_timeout(PATIENCE).with_context(|| format!("{name} did not come up"))
}

/// Closed when dropped.
struct Console(Child);

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
