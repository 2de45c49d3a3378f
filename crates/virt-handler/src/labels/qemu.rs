//! QEMU, asked once what it offers: a process without a machine, that ends after its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hypervisor::accelerator::Accelerator;
use hypervisor::process;
use hypervisor::qmp::{self, Command, QmpError, commands};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

/// A machine that needs longer than this to start QEMU is not going to run guests.
const LIMIT: Duration = Duration::from_secs(30);

/// What QEMU offers on this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Offer {
    pub(crate) models: Vec<Model>,
    pub(crate) machines: Vec<MachineType>,
    /// Features of the CPU that a guest can be given, by all the names that QEMU has for them.
    pub(crate) features: BTreeSet<String>,
    /// Hyper-V enlightenments, by QEMU's names.
    pub(crate) enlightenments: BTreeSet<String>,
    /// Guests are emulated.
    pub(crate) is_emulated: bool,
}

impl Offer {
    /// The machine type that a name stands for.
    pub(crate) fn machine(&self, name: &str) -> Option<&str> {
        let found = self.machines.iter().find(|one| one.name == name || one.alias.as_deref() == Some(name));
        found.map(|one| one.name.as_str())
    }
}

/// A model of a CPU.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Model {
    pub(crate) name: String,
    /// What keeps it from being used here.
    #[serde(default)]
    pub(crate) unavailable_features: Vec<String>,
}

/// A type of machine.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct MachineType {
    pub(crate) name: String,
    pub(crate) alias: Option<String>,
}

/// What a model of a CPU comes down to.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Expansion {
    pub(crate) model: ExpandedModel,
}

/// A model with all its properties.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ExpandedModel {
    pub(crate) props: BTreeMap<String, Value>,
}

impl Expansion {
    /// Names of what is on.
    pub(crate) fn on(self) -> BTreeSet<String> {
        self.model.props.into_iter().filter(|(_, value)| value == &Value::Bool(true)).map(|(name, _)| name).collect()
    }
}

/// Why QEMU did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("start QEMU")]
    Start(#[source] io::Error),
    #[error("ask QEMU")]
    Ask(#[from] QmpError),
    #[error("QEMU did not answer within {LIMIT:?}")]
    Late,
}

#[derive(Serialize)]
struct QueryModels {}

impl Command for QueryModels {
    const NAME: &'static str = "query-cpu-definitions";
    type Answer = Vec<Model>;
}

#[derive(Serialize)]
struct QueryMachines {}

impl Command for QueryMachines {
    const NAME: &'static str = "query-machines";
    type Answer = Vec<MachineType>;
}

#[derive(Serialize)]
struct Expand {
    #[serde(rename = "type")]
    kind: &'static str,
    model: ModelToExpand,
}

#[derive(Serialize)]
struct ModelToExpand {
    name: &'static str,
    props: BTreeMap<&'static str, bool>,
}

impl Command for Expand {
    const NAME: &'static str = "query-cpu-model-expansion";
    type Answer = Expansion;
}

/// Asks QEMU what it offers with an accelerator; with `this` it ends with the caller.
pub(crate) async fn ask(this: Option<&Path>, program: &Path, accelerator: Accelerator) -> Result<Offer, AskError> {
    let (machine, whole) = match accelerator {
        Accelerator::Kvm => ("none,accel=kvm", "host"),
        Accelerator::Tcg => ("none,accel=tcg", "max"),
    };
    let mut child = tokio::process::Command::from(process::guard(this, program))
        .args(["-machine", machine, "-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(AskError::Start)?;
    let pipes = child.stdout.take().zip(child.stdin.take());
    let (output, input) = pipes.ok_or_else(|| AskError::Start(io::ErrorKind::BrokenPipe.into()))?;
    let conversation = async {
        let (qmp, _events) = qmp::connect(tokio::io::join(output, input)).await?;
        let models = qmp.execute(QueryModels {}).await?;
        let machines = qmp.execute(QueryMachines {}).await?;
        let expand = |props| Expand { kind: "full", model: ModelToExpand { name: whole, props } };
        // Not every architecture can tell.
        let features = qmp.execute(expand(BTreeMap::new())).await.map(Expansion::on).unwrap_or_default();
        let is_emulated = accelerator == Accelerator::Tcg;
        let with_hyperv = expand(BTreeMap::from([("hv-passthrough", true)]));
        let enlightenments = match is_emulated {
            true => BTreeSet::new(),
            false => qmp.execute(with_hyperv).await.map(Expansion::on).unwrap_or_default(),
        };
        // It is killed in any case.
        let _ = qmp.execute(commands::Quit {}).await;
        Ok(Offer { models, machines, features, enlightenments, is_emulated })
    };
    timeout(LIMIT, conversation).await.map_err(|_| AskError::Late)?
}
