//! Each controller is missed, and by which rule.

use kube_controllers::table as kubernetes;
use simulation::Options;

use super::{NONE, deployments, must_catch, virtual_machines, without};

#[test]
fn without_accounts_every_namespace_lacks_one() {
    must_catch(&["has no account in the end"], deployments("serviceaccount-controller", None));
}

#[test]
fn without_a_publisher_namespaces_trust_nobody() {
    must_catch(&["trusts \"\" in the end"], deployments("root-ca-certificate-publisher-controller", None));
}

#[test]
fn without_a_token_controller_secrets_lack_tokens() {
    must_catch(&["has no token in the end"], deployments("serviceaccount-token-controller", None));
}

#[test]
fn without_a_collector_garbage_is_found_and_what_waits_for_it() {
    let rules = ["is garbage in the end", "was deleted and is still there in the end"];
    must_catch(&rules, deployments("garbage-collector-controller", None));
}

#[test]
fn without_replica_sets_pods_are_missed() {
    let rules = ["and has [", "and tells 0 in the end", "nothing ever ran"];
    must_catch(&rules, deployments("replicaset-controller", None));
}

#[test]
fn without_deployments_a_change_is_not_told_of() {
    must_catch(&["does not tell of its last change"], deployments("deployment-controller", None));
}

#[test]
fn without_their_controller_vms_are_not_what_they_say() {
    let (wrong, told) =
        (["has an instance in phase None", "of an instance in phase"], ["and tells None", "has generation"]);
    let rules = [wrong[0], wrong[1], told[0], told[1], "has a request left"];
    must_catch(&rules, virtual_machines("vm-controller", None));
}

#[test]
fn without_their_controller_instances_are_neither_running_nor_ended() {
    must_catch(&["is Pending in the end"], virtual_machines("vmi-controller", None));
}

#[test]
fn without_their_controller_sets_have_nothing_and_say_nothing() {
    let rules = ["instances and has []", "and shows (None, None, 0)"];
    must_catch(&rules, virtual_machines("vmi-replicaset-controller", None));
}

#[test]
fn without_their_controller_budgets_of_instances_stay() {
    must_catch(&["of an instance is there in the end"], virtual_machines("disruptionbudget-controller", None));
}

#[test]
fn without_a_collector_a_pod_outlives_its_instance() {
    let controllers = without(kubernetes::DESCRIPTORS, "garbage-collector-controller", None);
    let options = virtual_machines(NONE, None);
    must_catch(&["is still there in the end"], |seed| Options { controllers, ..options(seed) });
}
