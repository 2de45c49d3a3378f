//! What is done to a guest that runs: its node is asked.

use api::subresources::{FreezeUnfreezeTimeout, PauseOptions, UnpauseOptions};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use super::answer::{self, Problem, Subject};
use super::guests::{GuestName, Question, Reply};
use super::vms::is_dry;
use super::{Call, Inner};

const VM_NOT_RUNNING: &str = "VM is not running";
const VMI_NOT_RUNNING: &str = "VMI is not running";
const PAUSED: &str = "Paused";
const AGENT: &str = "AgentConnected";

type Answer = Result<Response<Full<Bytes>>, Problem>;

impl Inner {
    pub(super) async fn pause(&self, call: &Call) -> Answer {
        let options: PauseOptions = call.options()?;
        let dry_run = is_dry(options.dry_run.as_ref())?;
        let vmi = self.running(call, VM_NOT_RUNNING).await?;
        let probe = vmi.spec.liveness_probe.as_ref();
        if probe.is_some_and(|probe| probe.guest_agent_ping.is_none()) {
            let why = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported";
            return Err(Problem::forbidden(Subject::Instance, &call.matched.name, why));
        }
        if has(&vmi, PAUSED) {
            return Err(conflict(call, "VMI is already paused"));
        }
        self.done_unless(dry_run, &vmi, Question::Pause).await
    }

    pub(super) async fn unpause(&self, call: &Call) -> Answer {
        let options: UnpauseOptions = call.options()?;
        let dry_run = is_dry(options.dry_run.as_ref())?;
        let name = &call.matched.name;
        let vm = self.vms(call).get_opt(name).await.map_err(Problem::internal)?;
        if vm.and_then(|vm| vm.status?.snapshot_in_progress).is_some() && !call.is_of_controller() {
            return Err(Problem::conflict(Subject::Vm, name, "VM snapshot is in progress"));
        }
        let vmi = self.running(call, VMI_NOT_RUNNING).await?;
        if !has(&vmi, PAUSED) {
            return Err(conflict(call, "VMI is not paused"));
        }
        self.done_unless(dry_run, &vmi, Question::Unpause).await
    }

    pub(super) async fn freeze(&self, call: &Call) -> Answer {
        let options: Option<FreezeUnfreezeTimeout> = call.options()?;
        let thaw_after = match options.map(|options| options.unfreeze_timeout) {
            None => None,
            Some(limit) => {
                let negative = || Problem::bad_request(format!("unfreezeTimeout {limit} is negative"));
                // KubeVirt: a timeout of zero is none.
                Some(limit.to_std().ok_or_else(negative)?).filter(|limit| !limit.is_zero())
            }
        };
        let vmi = self.running(call, VM_NOT_RUNNING).await?;
        self.done_unless(false, &vmi, Question::Freeze { thaw_after }).await
    }

    pub(super) async fn unfreeze(&self, call: &Call) -> Answer {
        let vmi = self.running(call, VMI_NOT_RUNNING).await?;
        self.done_unless(false, &vmi, Question::Unfreeze).await
    }

    pub(super) async fn reset(&self, call: &Call) -> Answer {
        let vmi = self.instance(call).await?;
        let phase = vmi.phase();
        if !matches!(phase, Phase::Running | Phase::Scheduled) {
            let why = unreachable_in(phase);
            return Err(Problem::bad_request(format!("Failed to reset non-running VMI with phase {phase}: {why}")));
        }
        let asked = self.done_unless(false, &vmi, Question::Reset).await;
        match phase {
            Phase::Running => asked,
            phase => asked.map_err(|_| {
                Problem::internal(format!("Failed to reset non-running VMI with phase {phase}: it starts"))
            }),
        }
    }

    pub(super) async fn soft_reboot(&self, call: &Call) -> Answer {
        let vmi = self.running(call, VM_NOT_RUNNING).await?;
        if has(&vmi, PAUSED) {
            return Err(conflict(call, "VMI is paused"));
        }
        let features = vmi.spec.domain.features.as_ref();
        let has_acpi =
            features.and_then(|features| features.acpi.as_ref()).and_then(|acpi| acpi.enabled).unwrap_or(true);
        if !has(&vmi, AGENT) && !has_acpi {
            return Err(conflict(call, "VMI neither have the agent connected nor the ACPI feature enabled"));
        }
        self.done_unless(false, &vmi, Question::SoftReboot).await
    }

    /// What the guest's agent tells.
    pub(super) async fn guest(&self, call: &Call, question: Question) -> Answer {
        let asked = async {
            let vmi = self.running(call, VMI_NOT_RUNNING).await?;
            if !has(&vmi, AGENT) {
                return Err(conflict(call, "VMI does not have guest agent connected"));
            }
            match self.read(&vmi, question).await? {
                Reply::Object(object) => Ok(answer::json(&object)),
                _ => Err(Problem::internal("the guest's node answered something else")),
            }
        };
        asked.await.map_err(Problem::in_plain_words)
    }

    pub(super) async fn screenshot(&self, call: &Call) -> Answer {
        let asked = async {
            let vmi = self.instance(call).await?;
            has_display(&vmi)?;
            let question = match call.is_set("moveCursor") {
                true => Question::MovedScreenshot,
                false => Question::Screenshot,
            };
            match self.read(&vmi, question).await? {
                Reply::Picture(bytes) => Ok(answer::png(bytes)),
                _ => Err(Problem::internal("the guest's node answered something else")),
            }
        };
        asked.await.map_err(Problem::in_plain_words)
    }

    /// Asks a guest for something, and hands on its own words if it refuses.
    async fn read(&self, vmi: &VirtualMachineInstance, question: Question) -> Result<Reply, Problem> {
        let asked = self.guests.ask(guest_name(vmi), question).await;
        asked.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", error.to_string()))
    }

    async fn running(&self, call: &Call, or: &str) -> Result<VirtualMachineInstance, Problem> {
        let vmi = self.instance(call).await?;
        if vmi.is_running() { Ok(vmi) } else { Err(conflict(call, or)) }
    }

    async fn done_unless(&self, dry_run: bool, vmi: &VirtualMachineInstance, question: Question) -> Answer {
        if !dry_run {
            self.ask(vmi, question).await?;
        }
        Ok(answer::empty(StatusCode::OK))
    }

    async fn ask(&self, vmi: &VirtualMachineInstance, question: Question) -> Result<Reply, Problem> {
        self.guests.ask(guest_name(vmi), question).await.map_err(Problem::internal)
    }
}

pub(super) fn guest_name(vmi: &VirtualMachineInstance) -> GuestName {
    let node = vmi.status.as_ref().and_then(|status| status.node_name.clone());
    GuestName {
        namespace: vmi.metadata.namespace.clone().unwrap_or_default(),
        name: vmi.metadata.name.clone().unwrap_or_default(),
        uid: vmi.metadata.uid.clone().unwrap_or_default(),
        node: node.unwrap_or_default(),
    }
}

/// Why nobody can be asked about a guest.
fn unreachable_in(phase: &Phase) -> String {
    format!("Unable to connect to VirtualMachineInstance because phase is {phase} instead of Running or Scheduled")
}

/// Whether there is a screen to look at.
pub(super) fn has_display(vmi: &VirtualMachineInstance) -> Result<(), Problem> {
    if vmi.spec.domain.devices.autoattach_graphics_device == Some(false) {
        return Err(Problem::bad_request("No graphics devices are present."));
    }
    if vmi.is_running() { Ok(()) } else { Err(Problem::bad_request(VMI_NOT_RUNNING)) }
}

/// Whether there is a serial port to listen to.
pub(super) fn has_console(vmi: &VirtualMachineInstance, name: &str) -> Result<(), Problem> {
    if vmi.spec.domain.devices.autoattach_serial_console == Some(false) {
        return Err(Problem::bad_request("No serial consoles are present."));
    }
    match vmi.phase() {
        Phase::Failed => Err(Problem::conflict(Subject::Instance, name, "VMI is in failed status")),
        Phase::Running => Ok(()),
        _ => Err(Problem::bad_request(VMI_NOT_RUNNING)),
    }
}

/// Whether it would answer a connection at all.
pub(super) fn is_awake(vmi: &VirtualMachineInstance, name: &str) -> Result<(), Problem> {
    if has(vmi, PAUSED) { Err(Problem::conflict(Subject::Instance, name, "VMI is paused")) } else { Ok(()) }
}

fn has(vmi: &VirtualMachineInstance, condition: &str) -> bool {
    let conditions = vmi.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == condition && one.status.to_string() == "True")
}

fn conflict(call: &Call, why: &str) -> Problem {
    Problem::conflict(Subject::Instance, &call.matched.name, why)
}
