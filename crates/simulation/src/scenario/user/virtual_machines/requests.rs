//! Start, stop and restart, as virt-api notes them for strategies that are not the VM's own business.

use api::vm::{
    StateChangeRequestAction as Action, VirtualMachine, VirtualMachineRunStrategy as Strategy,
    VirtualMachineStateChangeRequest as Request,
};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use kube::ResourceExt as _;
use kube::api::PostParams;

use super::super::{told, tolerate};
use super::User;

impl User {
    /// Asks a VM to start, stop or restart, whatever makes sense.
    pub(super) async fn ask(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let Some(mut vm) = self.vms(namespace).get_opt(name).await? else {
            return Ok(format!("ask nothing of {namespace}/{name}"));
        };
        let vmi = self.vmis(namespace).get_opt(name).await?;
        let asked = match vmi.as_ref().filter(|vmi| !vmi.is_final()) {
            Some(live) => stop_or_restart(&vm, live, self.chance.permille(500)),
            None => start(&vm, vmi.as_ref(), self.chance.permille(150)),
        };
        let status = vm.status.get_or_insert_default();
        let open = status.state_change_requests.get_or_insert_default();
        // One thing at a time.
        if asked.is_empty() || !open.is_empty() {
            return Ok(format!("{namespace}/{name} cannot be asked"));
        }
        let what = asked.iter().fold(String::new(), |text, one| format!("{text} {:?}", one.action));
        open.extend(asked);
        let done = tolerate(self.vms(namespace).replace_status(name, &PostParams::default(), &vm).await)?;
        Ok(format!("ask {namespace}/{name} to{what}: {}", told(&done)))
    }
}

fn strategy(vm: &VirtualMachine) -> Strategy {
    match (&vm.spec.run_strategy, vm.spec.running) {
        (Some(strategy), _) => strategy.clone(),
        (None, Some(true)) => Strategy::Always,
        (None, _) => Strategy::Halted,
    }
}

fn stop(vmi: &VirtualMachineInstance) -> Request {
    Request { action: Action::Stop, uid: vmi.uid(), ..Request::default() }
}

fn start(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>, paused: bool) -> Vec<Request> {
    let data = paused.then(|| [("paused".to_owned(), "true".to_owned())].into());
    let start = Request { action: Action::Start, data, ..Request::default() };
    match (strategy(vm), vmi) {
        (Strategy::Manual | Strategy::RerunOnFailure | Strategy::Halted, None) => vec![start],
        // What has ended is cleared away first.
        (Strategy::Manual, Some(vmi)) if vmi.is_final() => vec![stop(vmi), start],
        (Strategy::RerunOnFailure, Some(vmi)) if *vmi.phase() == Phase::Succeeded => vec![stop(vmi), start],
        _ => Vec::new(),
    }
}

fn stop_or_restart(vm: &VirtualMachine, live: &VirtualMachineInstance, restart: bool) -> Vec<Request> {
    let start = Request { action: Action::Start, ..Request::default() };
    match strategy(vm) {
        Strategy::Always => vec![stop(live), start],
        Strategy::Manual | Strategy::RerunOnFailure if restart => vec![stop(live), start],
        Strategy::Manual | Strategy::RerunOnFailure => vec![stop(live)],
        _ => Vec::new(),
    }
}
