//! Who our programs are: each has a name of its own, and nobody is in `system:masters`.

use apiserver::Identity;

/// Where Kubernetes' own programs have their accounts.
const KUBE_SYSTEM: &str = "kube-system";
/// Where KubeVirt's programs have theirs.
const KUBEVIRT: &str = "kubevirt";
const CONTROLLER: &str = "kubevirt-controller";
const HANDLER: &str = "kubevirt-handler";
const APISERVER: &str = "kubevirt-apiserver";
const DATA_VOLUMES: &str = "data-volumes";
/// The account of what makes volumes on a node.
pub const LOCAL_VOLUMES: &str = "local-volumes";
/// All nodes, as Kubernetes has it.
pub(crate) const NODES: &str = "system:nodes";
/// Handlers that also do what a guest, a kubelet and a device plugin would do.
pub(crate) const HOLLOW: &str = "orlop.dev:hollow";
/// Those who have no counterpart on Kubernetes, where each program has caches of its own.
pub(crate) const CACHES: &str = "orlop.dev:caches";
pub(crate) const SETUP: &str = "orlop.dev:setup";
pub(crate) const STATUS: &str = "orlop.dev:status";

/// A program of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component {
    /// Kubernetes' controllers; each of them has an account.
    ControllerManager,
    Scheduler,
    /// The controllers of virtual machines.
    VirtController,
    /// What fills claims, where nobody else does.
    DataVolumes,
    /// What users do to virtual machines that run.
    VirtApi,
    /// The handler of a node's virtual machines.
    VirtHandler,
    /// Handlers of nodes that only pretend.
    HollowHandlers,
    /// The agent of the node of this name.
    Node(String),
    /// What is watched once for all programs of a process.
    Caches,
    /// What makes the objects that a machine begins with.
    Setup,
    /// What tells people how nodes and pods are.
    Status,
}

impl Component {
    /// Who the program is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let user = |name: &str| Identity::new(name, []);
        match self {
            Self::ControllerManager => user("system:kube-controller-manager"),
            Self::Scheduler => user("system:kube-scheduler"),
            Self::VirtController => Identity::account(KUBEVIRT, CONTROLLER),
            Self::DataVolumes => Identity::account(KUBEVIRT, DATA_VOLUMES),
            Self::VirtApi => Identity::account(KUBEVIRT, APISERVER),
            Self::VirtHandler => Identity::account(KUBEVIRT, HANDLER),
            Self::HollowHandlers => {
                let mut handler = Identity::account(KUBEVIRT, HANDLER);
                handler.groups.push(HOLLOW.to_owned());
                handler
            }
            Self::Node(name) => Identity::new(format!("system:node:{name}"), [NODES.to_owned()]),
            Self::Caches => user(CACHES),
            Self::Setup => user(SETUP),
            Self::Status => user(STATUS),
        }
    }

    /// Who a controller in the program is that has this account; the program itself, where its controllers have none.
    #[must_use]
    pub fn controller(&self, account: &str) -> Identity {
        match self {
            Self::ControllerManager => Identity::account(KUBE_SYSTEM, account),
            Self::Node(_) if account == LOCAL_VOLUMES => Identity::account(KUBE_SYSTEM, LOCAL_VOLUMES),
            _ => self.identity(),
        }
    }
}

/// Whether a user is one of the programs that keep virtual machines, whom admission lets write what users may not.
pub(crate) fn keeps_virtual_machines(user: &str) -> bool {
    [Component::VirtController, Component::VirtApi, Component::VirtHandler]
        .iter()
        .any(|one| one.identity().user == user)
}

#[cfg(test)]
mod tests {
    use apiserver::MASTERS;

    use super::*;

    #[test]
    fn no_program_may_do_everything() {
        let all = [
            Component::ControllerManager,
            Component::Scheduler,
            Component::VirtController,
            Component::DataVolumes,
            Component::VirtApi,
            Component::VirtHandler,
            Component::HollowHandlers,
            Component::Node("one".to_owned()),
            Component::Caches,
            Component::Setup,
            Component::Status,
        ];
        for component in all {
            for identity in [component.identity(), component.controller(LOCAL_VOLUMES)] {
                assert!(!identity.groups.iter().any(|group| group == MASTERS), "{component:?}");
                assert!(!identity.is_anonymous(), "{component:?}");
            }
        }
    }

    #[test]
    fn only_the_keepers_of_virtual_machines_write_what_users_may_not() {
        assert!(keeps_virtual_machines("system:serviceaccount:kubevirt:kubevirt-controller"));
        assert!(keeps_virtual_machines("system:serviceaccount:kubevirt:kubevirt-apiserver"));
        assert!(keeps_virtual_machines(&Component::HollowHandlers.identity().user));
        assert!(!keeps_virtual_machines(&Component::Node("one".to_owned()).identity().user));
        assert!(!keeps_virtual_machines("system:serviceaccount:default:kubevirt-controller"));
    }
}
