//! Waiting for a VM to run, aloud: each change of its status is shown with its reason as it happens, and the wait ends at once
//! when it cannot go on.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use api::vm::{
    StateChangeRequestAction as Action, VirtualMachine, VirtualMachinePrintableStatus as Printable,
    VirtualMachineRunStrategy as Strategy,
};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::Instant;

use crate::controller_program::duration;
use crate::subresource::Refusal;
use crate::terminal::note;
use crate::trouble::{Sight, remedy};

/// What still holds after this long is not going to change by itself.
const SECOND_LOOK: Duration = Duration::from_secs(5);
/// The same of a VM that waits for the only node to become ready.
const NODE_LOOK: Duration = Duration::from_secs(60);

/// Whether to wait.
#[derive(clap::Args)]
#[group(id = "waiting")]
pub(crate) struct Arguments {
    /// Wait until the VM runs, and show its progress. Exit at once if it cannot run.
    #[arg(long, env = "ORLOP_WAIT")]
    pub(crate) wait: bool,
    /// Maximum time to wait.
    #[arg(long, default_value = "10m", value_parser = duration, env = "ORLOP_WAIT_TIMEOUT")]
    pub(crate) timeout: Duration,
}

/// What is to be expected of a VM.
#[derive(Debug, PartialEq, Eq)]
enum Outlook {
    /// It is on its way.
    Goes,
    Runs,
    /// It is stopped, and nobody wants it otherwise.
    Rests,
    /// It has run, and its guest has powered off.
    Ended,
    /// The only node does not take it now, which may change.
    Waits,
    /// It does not get there by itself.
    Stuck,
    /// There is neither a VM nor an instance of this name.
    Gone,
}

impl Outlook {
    /// How long it must last before it is believed. A machine that has just started may offer in a moment what it does not offer
    /// yet, and a VM that was just made has not been looked at.
    fn doubt(&self) -> Option<Duration> {
        match self {
            Self::Goes | Self::Runs => None,
            Self::Rests | Self::Ended | Self::Stuck | Self::Gone => Some(SECOND_LOOK),
            Self::Waits => Some(NODE_LOOK),
        }
    }
}

/// Since when a VM does not go on or is gone, and until when that is doubted.
#[derive(Default)]
struct Doubts {
    since: Option<Instant>,
    until: Option<Instant>,
    was_gone: bool,
}

impl Doubts {
    /// Whether it is not to be believed yet.
    fn holds(&mut self, outlook: &Outlook) -> bool {
        let is_gone = *outlook == Outlook::Gone;
        // Whoever replaces a VM that waits deletes it first.
        if self.was_gone != is_gone {
            *self = Self { was_gone: is_gone, ..Self::default() };
        }
        let Some(doubt) = outlook.doubt() else {
            (self.since, self.until) = (None, None);
            return false;
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        self.until = Some(since + doubt);
        since.elapsed() < doubt
    }
}

/// The nodes that could take a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nodes {
    /// There are several, or it is not known which there are.
    Several,
    /// There is one, and it takes VMs.
    Single,
    /// There is one, and it takes none at the moment.
    SingleUnready,
}

/// Which VM is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Which<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The UID of an instance that is about to go: another one is meant.
    pub(crate) instead_of: Option<&'a str>,
    /// Somebody has just asked for its start: that it rests is no answer.
    pub(crate) is_started: bool,
}

/// Waits until a VM runs, or rests as it should.
///
/// # Errors
/// When it cannot run as things are, with the reason and the remedy; when it is deleted; or when the time is over.
pub(crate) async fn until_running(
    client: &Client,
    which: &Which<'_>,
    patience: Duration,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let Which { name, is_started, .. } = *which;
    let begun = Instant::now();
    let mut followed = Followed::begin(client, which);
    let mut told = String::new();
    let mut stuck = Doubts::default();
    loop {
        let end = begun + patience;
        let until = stuck.until.map_or(end, |until| end.min(until));
        match tokio::time::timeout_at(until, followed.change()).await {
            Ok(changed) => changed?,
            Err(_) if Instant::now() < end => {}
            Err(_) => bail!("{name} is not running after {} s; last status: {told}", patience.as_secs()),
        }
        followed.hear().await;
        let line = followed.sight().line();
        if line != told && !line.is_empty() {
            writeln!(out, "{:6} ms  {name}: {line}", begun.elapsed().as_millis())?;
            out.flush()?;
            told = line;
        }
        let sight = followed.sight();
        let outlook = match outlook(&sight, || nodes(client)).await {
            // One of them may not have come yet.
            Outlook::Gone if !followed.is_complete() => Outlook::Goes,
            outlook => outlook,
        };
        if stuck.holds(&outlook) {
            continue;
        }
        match outlook {
            Outlook::Goes => {}
            Outlook::Runs => {
                // The instance knows before its VM does.
                if !told.starts_with("Running") {
                    writeln!(out, "{:6} ms  {name}: Running", begun.elapsed().as_millis())?;
                }
                return Ok(());
            }
            Outlook::Ended => {
                writeln!(out, "{:6} ms  {name}: the guest has powered off", begun.elapsed().as_millis())?;
                return Ok(());
            }
            Outlook::Rests if is_started => bail!("{name} was started, but somebody else stopped it"),
            Outlook::Rests => {
                writeln!(
                    out,
                    "{:6} ms  {name} is stopped; start it with `orlop start {name}`",
                    begun.elapsed().as_millis()
                )?;
                return Ok(());
            }
            Outlook::Gone => bail!("VM {name:?} was deleted"),
            Outlook::Stuck | Outlook::Waits => {
                let reason = sight.reason().unwrap_or_default();
                let hint = sight.printable().and_then(|status| remedy(status, &reason, name));
                bail!("{name} cannot run: {told}{}", hint.map(|hint| format!("\n  -> {hint}")).unwrap_or_default());
            }
        }
    }
}

/// Waits until the guest of a VM runs, for those who want to enter it: says why it does not, and says so again when that changes.
///
/// # Errors
/// When the VM is deleted, or the server cannot be reached.
pub(crate) async fn until_entered(client: &Client, name: &str, tell: fn(&str)) -> Result<(), Refusal> {
    let which = Which { namespace: client.default_namespace(), name, instead_of: None, is_started: false };
    let mut followed = Followed::begin(client, &which);
    let mut told = String::new();
    loop {
        followed.change().await.map_err(Refusal::Unreachable)?;
        followed.hear().await;
        let sight = followed.sight();
        if sight.vmi.is_some_and(|vmi| *vmi.phase() == Phase::Running) {
            return Ok(());
        }
        // Both are looked at before anything is said: one of them may not have come yet.
        if !followed.is_complete() {
            continue;
        }
        if sight.vm.is_none() && sight.vmi.is_none() {
            return Err(Refusal::Answered(anyhow!("VM {name:?} was deleted")));
        }
        let why = why_not(&sight, name);
        if why != told {
            tell(&why);
            told = why;
        }
    }
}

/// The same for as long as somebody has patience; says it beside what was asked for.
///
/// # Errors
/// The same, and when the time is over.
pub(crate) async fn entered_within(client: &Client, name: &str, patience: Duration) -> anyhow::Result<()> {
    let late = || format!("{name} did not run within {} s", patience.as_secs());
    let entered = tokio::time::timeout(patience, until_entered(client, name, note)).await.with_context(late)?;
    entered.map_err(|refusal| match refusal {
        Refusal::Answered(error) | Refusal::Unreachable(error) => error,
    })
}

/// Why a guest cannot be entered, and what to do about it.
fn why_not(sight: &Sight<'_>, name: &str) -> String {
    let reason = sight.reason().unwrap_or_default();
    let rests = sight.printable() == Some(&Printable::Stopped) && sight.vm.is_some_and(|vm| !is_wanted(vm));
    let hint = match sight.printable() {
        Some(_) if rests => Some(format!("start it with `orlop start {name}`")),
        Some(status) => remedy(status, &reason, name),
        None => None,
    };
    let why = Some(sight.line()).filter(|line| !line.is_empty()).map(|line| format!(": {line}")).unwrap_or_default();
    let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{name} is not running{why}{hint}; waiting for it")
}

/// A VM and its instance, as they change.
struct Followed<'a> {
    client: &'a Client,
    which: Which<'a>,
    changes: BoxStream<'a, Change>,
    vm: Option<VirtualMachine>,
    vmi: Option<VirtualMachineInstance>,
    /// Whether the first of each has come.
    seen: (bool, bool),
    warnings: Vec<Event>,
}

impl<'a> Followed<'a> {
    fn begin(client: &'a Client, which: &Which<'a>) -> Self {
        let Which { namespace, name, .. } = *which;
        let changes = changes(client, namespace, name).boxed();
        Self { client, which: *which, changes, vm: None, vmi: None, seen: (false, false), warnings: Vec::new() }
    }

    /// Waits for the next change.
    async fn change(&mut self) -> anyhow::Result<()> {
        let Which { instead_of, .. } = self.which;
        match self.changes.next().await {
            Some(Change::Vm(seen)) => {
                self.vm = seen.context("watch the VM")?.map(|vm| *vm);
                self.seen.0 = true;
            }
            Some(Change::Vmi(seen)) => {
                let seen = seen.context("watch its instance")?.map(|vmi| *vmi);
                self.vmi = seen.filter(|vmi| instead_of.is_none_or(|old| vmi.metadata.uid.as_deref() != Some(old)));
                self.seen.1 = true;
            }
            None => bail!("the watch has ended"),
        }
        Ok(())
    }

    /// Asks for the warnings about it.
    async fn hear(&mut self) {
        let Which { namespace, name, .. } = self.which;
        self.warnings = warnings(self.client, namespace, name).await;
    }

    fn is_complete(&self) -> bool {
        self.seen == (true, true)
    }

    fn sight(&self) -> Sight<'_> {
        Sight { vm: self.vm.as_ref(), vmi: self.vmi.as_ref(), warnings: &self.warnings }
    }
}

/// One thing that changed.
enum Change {
    Vm(Result<Option<Box<VirtualMachine>>, watcher::Error>),
    Vmi(Result<Option<Box<VirtualMachineInstance>>, watcher::Error>),
}

fn changes(client: &Client, namespace: &str, name: &str) -> impl Stream<Item = Change> {
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), namespace);
    let vms = watcher::watch_object(vms, name).map(|vm| Change::Vm(vm.map(|vm| vm.map(Box::new))));
    let vmis = watcher::watch_object(vmis, name).map(|vmi| Change::Vmi(vmi.map(|vmi| vmi.map(Box::new))));
    futures_util::stream::select(vms, vmis)
}

/// What is to be expected. Whether there is one node only, and it is ready, is asked for when that decides.
async fn outlook<F: Future<Output = Nodes>>(sight: &Sight<'_>, nodes: impl FnOnce() -> F) -> Outlook {
    if sight.vmi.is_some_and(|vmi| *vmi.phase() == Phase::Running) {
        return Outlook::Runs;
    }
    if sight.vm.is_none() && sight.vmi.is_none() {
        return Outlook::Gone;
    }
    match sight.printable() {
        Some(Printable::Unschedulable) => match nodes().await {
            // Another may take it in a moment.
            Nodes::Several => Outlook::Goes,
            Nodes::Single => Outlook::Stuck,
            Nodes::SingleUnready => Outlook::Waits,
        },
        Some(
            Printable::ErrImagePull
            | Printable::ImagePullBackOff
            | Printable::CrashLoopBackOff
            | Printable::PvcNotFound
            | Printable::DataVolumeError,
        ) => Outlook::Stuck,
        Some(Printable::Stopped) if sight.vm.is_some_and(|vm| !is_wanted(vm)) => {
            sight.vmi.and_then(ended).unwrap_or(Outlook::Rests)
        }
        // An instance of its own has nobody who would try again.
        None => sight.vmi.and_then(ended).unwrap_or(Outlook::Goes),
        _ => Outlook::Goes,
    }
}

/// How an instance that nobody starts again has ended.
fn ended(vmi: &VirtualMachineInstance) -> Option<Outlook> {
    match vmi.phase() {
        Phase::Succeeded => Some(Outlook::Ended),
        Phase::Failed => Some(Outlook::Stuck),
        _ => None,
    }
}

/// Whether a VM that is stopped will be started, by its strategy or because somebody has asked for it.
fn is_wanted(vm: &VirtualMachine) -> bool {
    let requests = vm.status.iter().flat_map(|status| status.state_change_requests.iter().flatten());
    let is_asked_for = requests.into_iter().any(|request| request.action == Action::Start);
    let always = vm.spec.run_strategy == Some(Strategy::Always) || vm.spec.running == Some(true);
    is_asked_for || always
}

/// The nodes; who may not ask does not know.
async fn nodes(client: &Client) -> Nodes {
    let nodes: Api<Node> = Api::all(client.clone());
    let Ok(nodes) = nodes.list(&ListParams::default()).await else { return Nodes::Several };
    match &nodes.items[..] {
        [node] if takes_vms(node) => Nodes::Single,
        [_] => Nodes::SingleUnready,
        _ => Nodes::Several,
    }
}

fn takes_vms(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
    is_ready && node.labels().get(api::names::label::SCHEDULABLE).is_some_and(|value| value == "true")
}

/// Warnings about a VM, the newest last; none if they cannot be had.
pub(crate) async fn warnings(client: &Client, namespace: &str, name: &str) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let parameters = ListParams::default().fields(&format!("involvedObject.name={name},type=Warning"));
    let mut found = events.list(&parameters).await.map(|events| events.items).unwrap_or_default();
    found.retain(|event| event.involved_object.kind.as_deref().is_some_and(|kind| kind.starts_with("VirtualMachine")));
    found.sort_by_key(|event| event.last_timestamp.clone().or_else(|| event.creation_timestamp()));
    found
}

#[cfg(test)]
mod tests {
    use api::vm::VirtualMachineStateChangeRequest;
    use apiserver::{ApiServer, Identity, Place};
    use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
    use manager::context::Chance;
    use serde_json::json;
    use tokio::time::sleep;

    use super::*;

    fn vm(status: &str) -> VirtualMachine {
        api::decode::object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "a" },
            "spec": { "template": { "spec": { "domain": { "devices": {}, "memory": { "guest": "64Mi" } } } } },
            "status": { "printableStatus": status },
        }))
        .unwrap()
        .object
    }

    fn vmi(phase: &str) -> VirtualMachineInstance {
        api::decode::object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" },
            "spec": { "domain": { "devices": {} } }, "status": { "phase": phase },
        }))
        .unwrap()
        .object
    }

    #[tokio::test]
    async fn the_wait_ends_when_it_runs_and_when_it_cannot() {
        use Nodes::{Several, Single, SingleUnready};
        let look = async |status: Option<&str>, phase: Option<&str>, nodes: Nodes| {
            let (vm, vmi) = (status.map(vm), phase.map(vmi));
            let sight = Sight { vm: vm.as_ref(), vmi: vmi.as_ref(), warnings: &[] };
            outlook(&sight, || async { nodes }).await
        };
        assert_eq!(look(Some("Running"), Some("Running"), Single).await, Outlook::Runs);
        assert_eq!(look(Some("Starting"), Some("Scheduling"), Single).await, Outlook::Goes);
        assert_eq!(look(Some("ErrorUnschedulable"), Some("Scheduling"), Single).await, Outlook::Stuck);
        assert_eq!(look(Some("ErrorUnschedulable"), Some("Scheduling"), Several).await, Outlook::Goes);
        let waits = look(Some("ErrorUnschedulable"), Some("Scheduling"), SingleUnready).await;
        assert_eq!(waits, Outlook::Waits);
        assert!(waits.doubt() > Outlook::Stuck.doubt(), "a node that starts has its time");
        for status in ["ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff", "ErrorPvcNotFound", "DataVolumeError"] {
            assert_eq!(look(Some(status), None, Several).await, Outlook::Stuck, "{status}");
        }
        assert_eq!(look(Some("Stopped"), None, Single).await, Outlook::Rests);
        // A guest that nobody starts again has failed, or has done what it was there for.
        for status in [None, Some("Stopped")] {
            assert_eq!(look(status, Some("Failed"), Single).await, Outlook::Stuck);
            assert_eq!(look(status, Some("Succeeded"), Single).await, Outlook::Ended);
        }
        // An instance that goes, and whose successor is waited for, is not seen; its VM is.
        assert_eq!(look(Some(""), None, Single).await, Outlook::Goes);
        assert_eq!(look(None, Some("Pending"), Single).await, Outlook::Goes);
        assert_eq!(look(None, None, Single).await, Outlook::Gone);
    }

    // The store has a thread of its own, which a paused clock would not wait for.
    #[tokio::test]
    async fn the_wait_for_a_vm_ends_when_somebody_deletes_it() {
        let settings = virt_server::Settings::new(Chance::seeded(1)).unwrap();
        let server = virt_server::start(ApiServer::builder(Place::Memory), settings).await.unwrap();
        let client = Client::new(server.for_identity(Identity::admin()), "default");
        let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), "default");
        let mut vm = VirtualMachine { status: None, ..vm("") };
        vm.spec.run_strategy = Some(Strategy::Always);
        vms.create(&PostParams::default(), &vm).await.unwrap();
        let which = Which { namespace: "default", name: "a", instead_of: None, is_started: true };
        let (begun, mut out) = (Instant::now(), Vec::new());
        let deleted = async {
            sleep(Duration::from_millis(100)).await;
            vms.delete("a", &DeleteParams::default()).await.unwrap();
            // As its controller does once nothing of it is left.
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            vms.patch("a", &PatchParams::default(), &patch).await.unwrap();
            assert_eq!(vms.get_opt("a").await.unwrap(), None);
        };
        let patience = Duration::from_secs(600);
        let (waited, ()) = tokio::join!(until_running(&client, &which, patience, &mut out), deleted);
        assert_eq!(waited.unwrap_err().to_string(), "VM \"a\" was deleted");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_stopped_vm_is_waited_for_if_it_is_to_start() {
        let stopped = |strategy: Strategy, asked: bool| {
            let mut vm = vm("Stopped");
            vm.spec.run_strategy = Some(strategy);
            let request = VirtualMachineStateChangeRequest { action: Action::Start, ..Default::default() };
            vm.status.as_mut().unwrap().state_change_requests = asked.then(|| vec![request]);
            vm
        };
        assert!(is_wanted(&stopped(Strategy::Always, false)));
        for strategy in [Strategy::Halted, Strategy::Manual, Strategy::Once, Strategy::RerunOnFailure] {
            assert!(!is_wanted(&stopped(strategy.clone(), false)), "{strategy:?}");
            assert!(is_wanted(&stopped(strategy.clone(), true)), "{strategy:?}");
        }
        let mut old = vm("Stopped");
        old.spec.running = Some(true);
        assert!(is_wanted(&old));
    }

    #[test]
    fn whoever_wants_to_enter_is_told_why_they_wait_and_what_to_do() {
        let told = |vm: Option<&VirtualMachine>, vmi: Option<&VirtualMachineInstance>| {
            why_not(&Sight { vm, vmi, warnings: &[] }, "a")
        };
        let mut stopped = vm("Stopped");
        assert_eq!(
            told(Some(&stopped), None),
            "a is not running: Stopped; start it with `orlop start a`; waiting for it"
        );
        stopped.spec.run_strategy = Some(Strategy::Always);
        assert_eq!(told(Some(&stopped), None), "a is not running: Stopped; waiting for it", "it is on its way");
        let pulls = told(Some(&vm("ErrImagePull")), Some(&vmi("Scheduling")));
        assert!(pulls.starts_with("a is not running: ErrImagePull; check the name of the image"), "{pulls}");
        assert_eq!(told(None, Some(&vmi("Scheduled"))), "a is not running: Scheduled; waiting for it");
        assert_eq!(told(Some(&vm("")), None), "a is not running; waiting for it", "nobody has looked at it yet");
    }

    #[test]
    fn a_node_that_is_not_ready_may_take_it_in_a_moment() {
        let node = |ready: &str, label: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": { "name": "n", "labels": { "kubevirt.io/schedulable": label } },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] },
            }))
            .unwrap()
        };
        assert!(takes_vms(&node("True", "true")));
        assert!(!takes_vms(&node("False", "true")) && !takes_vms(&node("True", "false")));
    }
}
