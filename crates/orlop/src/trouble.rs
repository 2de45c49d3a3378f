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

/// What a user can do about it.
pub(crate) fn remedy(status: &Printable, name: &str) -> Option<String> {
    match status {
        Printable::Unschedulable => Some(format!(
            "lower the VM's requests, or free resources (`orlop status` shows what is short), and it starts by itself; \
             `orlop stop {name}` gives up"
        )),
        Printable::ErrImagePull | Printable::ImagePullBackOff => Some(format!(
            "check the name of the image, and that this machine can reach its registry; then run `orlop restart {name}`"
        )),
        Printable::CrashLoopBackOff => {
            Some(format!("`orlop logs {name}` shows the guest's last output; `orlop stop {name}` ends the attempts"))
        }
        Printable::PvcNotFound => Some("create the missing claim; the VM then starts by itself".to_owned()),
        Printable::DataVolumeError => Some("look at its data volume: `kubectl describe datavolume`".to_owned()),
        _ => None,
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
        assert!(remedy(sight.printable().unwrap(), "a").unwrap().contains("orlop status"));
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
