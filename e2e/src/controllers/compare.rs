//! The same commands to our controllers and to Kubernetes' own, each on a real API server; and what is there afterwards.
//!
//! After each step both clusters come to rest; then every object of the script's kinds, and every event, is compared. Until then
//! they may differ, as one is faster than the other: what counts is that they end up the same.

mod deployments;
mod services;

pub(super) use deployments::DEPLOYMENTS;
pub(super) use services::SERVICES;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::rest::{Moment, Verdict, judge};
use super::snapshot::Names;
use super::{Cluster, Server};
use crate::control_plane::ControlPlane;
use crate::differential::compare::{Difference, differences};
use crate::differential::deviations::Deviations;
use crate::{peer, root};

/// How long both are looked at until they are the same: longer than either may wait before it tries something again.
const PATIENCE: Duration = Duration::from_secs(120);
/// The controllers that we have, so that no other of Kubernetes' takes part.
const CONTROLLERS: &str = "--controllers=clusterrole-aggregation-controller,deployment-controller,disruption-controller,\
    endpoints-controller,endpointslice-controller,garbage-collector-controller,namespace-controller,node-lifecycle-controller,\
    pod-garbage-collector-controller,replicaset-controller,replicationcontroller-controller,root-ca-certificate-publisher-controller,\
    serviceaccount-controller,serviceaccount-token-controller,\
    taint-eviction-controller";
/// What both clusters are asked to do, and what is compared after each step.
pub(super) struct Script {
    /// As the deviations know it.
    pub(super) name: &'static str,
    /// The kinds that are compared, as kubectl takes them.
    kinds: &'static str,
    /// Where these are.
    collections: &'static [&'static str],
    steps: &'static [Step],
}

struct Step {
    name: &'static str,
    /// What is applied first; nothing, if it is empty.
    manifest: &'static str,
    /// Commands of kubectl, words apart by spaces.
    commands: &'static [&'static str],
}

const fn step(name: &'static str, commands: &'static [&'static str]) -> Step {
    Step { name, manifest: "", commands }
}

/// One of the two clusters, and the names that were seen there.
struct Side {
    cluster: Cluster,
    names: Names,
}

/// Runs every step on both.
///
/// # Errors
/// With every difference that no deviation explains, and every deviation that explains nothing.
pub(super) fn run(orlop: &Path, script: &Script) -> Result<()> {
    let (mut ours, mut theirs) = start(orlop)?;
    let deviations = Deviations::read(&root().join("e2e/controllers/deviations.yaml"))?;
    let mut report = String::new();
    for step in script.steps {
        on_both(|| ours.carry_out(step), || theirs.carry_out(step)).with_context(|| step.name)?;
        let found = compare(&mut ours, &mut theirs, script, step, &deviations)?;
        if !found.is_empty() {
            writeln!(report, "{}", step.name)?;
        }
        for Difference { path, ours, theirs } in found {
            writeln!(report, "    {path}\n        ours:   {ours}\n        theirs: {theirs}")?;
        }
    }
    for unused in deviations.unused(|known| known == script.name) {
        writeln!(report, "deviations.yaml: no longer needed: {unused}")?;
    }
    ensure!(report.is_empty(), "the controllers differ\n{report}");
    Ok(())
}

fn start(orlop: &Path) -> Result<(Side, Side)> {
    let side = |plane: ControlPlane| -> Result<Side> {
        let cluster = Cluster::beside(Server::Real(plane), orlop)?;
        Ok(Side { cluster, names: Names::default() })
    };
    let (ours, theirs) = (ControlPlane::start()?, ControlPlane::start()?);
    let (mut ours, mut theirs) = (side(ours)?, side(theirs)?);
    ours.cluster.ours(&[], 3)?;
    let alone = ["--leader-elect=false", "--secure-port=0"];
    let controllers = [&alone[..], &[CONTROLLERS]].concat();
    theirs.cluster.start_program("kube-controller-manager", &peer("kube-controller-manager")?, &controllers)?;
    theirs.cluster.start_program("kube-scheduler", &peer("kube-scheduler")?, &alone)?;
    theirs.cluster.hollow_nodes(3)?;
    for side in [&ours, &theirs] {
        // Without it no pod is taken.
        side.cluster.kubectl.ok(&["wait", "--for=create", "serviceaccount/default", "--timeout=300s"])?;
    }
    Ok((ours, theirs))
}

impl Side {
    fn carry_out(&self, step: &Step) -> Result<()> {
        if !step.manifest.is_empty() {
            self.cluster.kubectl.given(&["apply", "-f", "-"], step.manifest)?;
        }
        for command in step.commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            self.cluster.kubectl.ok(&words).with_context(|| self.cluster.logs())?;
        }
        Ok(())
    }

    /// What is there, and a moment before.
    fn look(&mut self, script: &Script) -> Result<(Moment, Value)> {
        let before = Moment::now(&self.cluster.kubectl, script.collections)?;
        Ok((before, self.names.snapshot(&self.cluster.kubectl, script.kinds)?))
    }
}

/// Looks at both until they are the same and at rest; then, or when they are not in time, tells what differs.
#[expect(clippy::disallowed_methods, reason = "other programs work in real time")]
fn compare(
    ours: &mut Side,
    theirs: &mut Side,
    script: &Script,
    step: &Step,
    known: &Deviations,
) -> Result<Vec<Difference>> {
    let since = Instant::now();
    loop {
        let ((before, left), (earlier, right)) = on_both(|| ours.look(script), || theirs.look(script))?;
        let mut found = differences(left, right);
        // Only the last look counts as a use of a deviation.
        let trial = known.clone();
        let is_same = found.iter().all(|difference| trial.explains(script.name, step.name, difference));
        let is_late = since.elapsed() > PATIENCE;
        // Whoever still works may go on to something else: that they are alike for a moment is not enough.
        let writes = if is_same {
            let both = on_both(
                || before.writes_since(&ours.cluster.kubectl),
                || earlier.writes_since(&theirs.cluster.kubectl),
            )?;
            [both.0, both.1].concat()
        } else {
            Vec::new()
        };
        match judge(is_same, writes.is_empty(), is_late) {
            Verdict::LookAgain => {}
            Verdict::Restless => bail!("{}: it never comes to rest: {}", step.name, writes.join(", ")),
            Verdict::Final => {
                found.retain(|difference| !known.explains(script.name, step.name, difference));
                return Ok(found);
            }
        }
    }
}

/// Does something on both sides at the same time.
fn on_both<T: Send>(
    ours: impl FnOnce() -> Result<T> + Send,
    theirs: impl FnOnce() -> Result<T> + Send,
) -> Result<(T, T)> {
    let (left, right) = std::thread::scope(|scope| {
        let other = scope.spawn(theirs);
        (ours(), other.join())
    });
    Ok((left.context("ours")?, right.map_err(|_| anyhow::anyhow!("it panicked"))?.context("theirs")?))
}
