//! The reason why a VM does not run, and what to do about it.

use api::conditions::{self, ConditionStatus};
use api::vm::{VirtualMachine, VirtualMachinePrintableStatus as Printable};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::Event;

/// Conditions whose being false is a trouble; the first that is false is told.
const TELLING: [&str; 4] = ["Synchronized", "PodScheduled", "DataVolumesReady", "StorageReady"];

/// A VM as somebody sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight<'a> {
    pub(crate) vm: Option<&'a VirtualMachine>,
    pub(crate) vmi: Option<&'a VirtualMachineInstance>,
    /// Warnings about either, the newest last.
    pub(crate) warnings: &'a [Event],
}

impl Sight<'_> {
    /// Its state, as lists show it.
    pub(crate) fn status(&self) -> String {
        let printable = self.printable().map(ToString::to_string);
        printable.or_else(|| self.vmi.map(|vmi| vmi.phase().to_string())).unwrap_or_default()
    }

    /// Its state and, if something is wrong, why.
    pub(crate) fn line(&self) -> String {
        let line = [Some(self.status()).filter(|status| !status.is_empty()), self.reason()];
        line.into_iter().flatten().collect::<Vec<_>>().join(": ").replace('\n', " ")
    }

    /// Why it does not run as it should; none if it does, or nobody knows yet.
    pub(crate) fn reason(&self) -> Option<String> {
        let filling = self.condition("Provisioning", &ConditionStatus::True);
        let condition = TELLING.into_iter().find_map(|kind| self.condition(kind, &ConditionStatus::False));
        let paused = || self.condition("Paused", &ConditionStatus::True);
        let failure = || self.condition("Failure", &ConditionStatus::True);
        filling.or(condition).or_else(paused).or_else(failure).or_else(|| self.crash())
    }

    /// The last warning tells more than the count of failures, which is all that the VM itself keeps.
    fn crash(&self) -> Option<String> {
        let is_down = self.printable() == Some(&Printable::CrashLoopBackOff)
            || self.vmi.is_some_and(|vmi| *vmi.phase() == Phase::Failed);
        let told = || self.warnings.last().and_then(|event| event.message.clone());
        if is_down { told().or_else(|| Some("the guest stopped unexpectedly".to_owned())) } else { None }
    }

    pub(crate) fn printable(&self) -> Option<&Printable> {
        self.vm.and_then(|vm| vm.status.as_ref()?.printable_status.as_ref())
    }

    /// The words of a condition that is so; the instance knows first.
    fn condition(&self, kind: &str, status: &ConditionStatus) -> Option<String> {
        let of_instance = self.vmi.and_then(|vmi| vmi.status.as_ref()?.conditions.as_deref());
        if let Some(found) = conditions::find(of_instance, kind) {
            return if found.status == *status { words(&found.message, &found.reason) } else { None };
        }
        let of_vm = self.vm.and_then(|vm| vm.status.as_ref()?.conditions.as_deref());
        let found = conditions::find(of_vm, kind).filter(|found| found.status == *status)?;
        words(&found.message, &found.reason)
    }
}

/// What a user can do about it, by its state and the reason for that.
pub(crate) fn remedy(status: &Printable, reason: &str, name: &str) -> Option<String> {
    match status {
        Printable::Unschedulable => {
            Some(format!("{}; the VM then starts automatically. To stop trying: `orlop stop {name}`", room(reason)))
        }
        Printable::ErrImagePull | Printable::ImagePullBackOff => Some(format!(
            "check the name of the image, and that this machine can reach its registry; then run `orlop restart {name}`"
        )),
        Printable::CrashLoopBackOff => Some(format!(
            "`orlop logs {name}` shows the guest's last output; to stop restarting it, run `orlop stop {name}`"
        )),
        Printable::PvcNotFound => Some("create the missing claim; the VM then starts automatically".to_owned()),
        Printable::DataVolumeError => Some("look at its data volume: `kubectl describe datavolume`".to_owned()),
        _ => None,
    }
}

/// What has a node take a VM, by the scheduler's words.
fn room(reason: &str) -> &'static str {
    if reason.contains("Insufficient") {
        "lower the VM's requests, or stop other VMs"
    } else if reason.contains("were unschedulable") {
        "allow new VMs on the node again with `kubectl uncordon`"
    } else if reason.contains("untolerated taint") {
        "wait until the node is ready; `sudo orlop status` shows what keeps it from that"
    } else if reason.contains("affinity") || reason.contains("selector") {
        "change the VM's node selector or affinity, or label a node to match"
    } else {
        "free what the VM needs; `sudo orlop status` shows the state of the node"
    }
}

fn words(message: &Option<String>, reason: &Option<String>) -> Option<String> {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    filled(message).or_else(|| filled(reason))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vm(status: &str, conditions: &Value) -> VirtualMachine {
        api::decode::object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "a" },
            "spec": { "template": { "spec": { "domain": { "devices": {} } } } },
            "status": { "printableStatus": status, "conditions": conditions },
        }))
        .unwrap()
        .object
    }

    #[test]
    fn a_vm_that_cannot_be_scheduled_says_what_is_missing() {
        let unscheduled = json!([
            { "type": "Ready", "status": "False", "reason": "GuestNotRunning", "message": "Guest VM is not running" },
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient memory" },
        ]);
        let vm = vm("ErrorUnschedulable", &unscheduled);
        let sight = Sight { vm: Some(&vm), ..Sight::default() };
        assert_eq!(sight.reason().as_deref(), Some("0/1 nodes: Insufficient memory"));
    }

    #[test]
    fn the_remedy_fits_what_keeps_a_vm_from_its_node() {
        for (reason, told) in [
            ("0/1 nodes are available: 1 Insufficient memory.", "lower the VM's requests"),
            ("0/1 nodes are available: 1 node(s) were unschedulable.", "kubectl uncordon"),
            (
                "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.",
                "orlop status",
            ),
            ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", "node selector"),
            ("", "orlop status"),
        ] {
            let remedy = remedy(&Printable::Unschedulable, reason, "a").unwrap();
            assert!(remedy.starts_with(room(reason)) && remedy.contains(told), "{remedy}");
            assert!(remedy.ends_with("To stop trying: `orlop stop a`"), "{remedy}");
        }
    }

    #[test]
    fn a_vm_whose_disk_is_imported_says_how_far_it_is() {
        let message = "the DataVolume d is being imported: 42%";
        let filling = json!([
            { "type": "DataVolumesReady", "status": "False", "message": "Not all of the VMI's DVs are ready" },
            { "type": "Provisioning", "status": "True", "reason": "VolumesNotReady", "message": message },
        ]);
        let vm = vm("Provisioning", &filling);
        assert_eq!(Sight { vm: Some(&vm), ..Sight::default() }.reason().as_deref(), Some(message));
    }

    #[test]
    fn a_vm_that_crashes_tells_how_its_guest_ended() {
        let vm = vm("CrashLoopBackOff", &json!([]));
        let warning: Event =
            serde_json::from_value(json!({ "metadata": {}, "involvedObject": {}, "message": "it crashed: panic" }))
                .unwrap();
        let sight = |warnings| Sight { vm: Some(&vm), vmi: None, warnings };
        assert_eq!(sight(&[]).reason().as_deref(), Some("the guest stopped unexpectedly"));
        assert_eq!(sight(&[warning]).reason().as_deref(), Some("it crashed: panic"));
    }

    #[test]
    fn a_vm_that_runs_has_no_trouble() {
        let well = json!([{ "type": "Ready", "status": "True" }, { "type": "LiveMigratable", "status": "False", "message": "no" }]);
        let vm = vm("Running", &well);
        assert_eq!(Sight { vm: Some(&vm), ..Sight::default() }.reason(), None);
        let paused = json!([{ "type": "Paused", "status": "True", "reason": "PausedByUser", "message": "VMI was paused by user" }]);
        let vm = self::vm("Paused", &paused);
        assert_eq!(Sight { vm: Some(&vm), ..Sight::default() }.reason().as_deref(), Some("VMI was paused by user"));
    }
}
