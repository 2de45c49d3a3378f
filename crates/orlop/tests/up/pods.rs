//! Pods that are no guests: what runs beside the VMs, and speaks to the API.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::{Value, json};

use super::Test;
use super::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] =
    &[("a_pod_may_do_with_the_api_what_its_account_may", a_pod_may_do_with_the_api_what_its_account_may)];

/// A pod that runs a verb of this program, with the machine's libraries, in the name of an account.
fn client(name: &str, account: &str, verb: &[&str]) -> Result<Value> {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_orlop"));
    let folder = program.parent().context("the program is in a folder")?;
    let mounts = [("/usr", "/usr"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64")];
    let mut volumes = vec![json!({ "name": "program", "hostPath": { "path": folder } })];
    let mut mounted = vec![json!({ "name": "program", "mountPath": "/program", "readOnly": true })];
    for (number, (from, to)) in mounts.into_iter().enumerate() {
        volumes.push(json!({ "name": format!("v{number}"), "hostPath": { "path": from } }));
        mounted.push(json!({ "name": format!("v{number}"), "mountPath": to, "readOnly": true }));
    }
    let command: Vec<&str> = ["/program/orlop"].into_iter().chain(verb.iter().copied()).collect();
    Ok(json!({
        "metadata": { "name": name },
        "spec": {
            "serviceAccountName": account,
            "restartPolicy": "Never",
            "containers": [{
                "name": "c", "image": e2e::guest::image("kernel")?, "imagePullPolicy": "IfNotPresent",
                "command": command, "volumeMounts": mounted,
            }],
            "volumes": volumes,
        },
    }))
}

/// What a pod said, when it has ended.
fn said(machine: &TestHost, name: &str, phase: &str) -> Result<String> {
    let wanted = phase.to_owned();
    let ended = move |pod: Option<&Pod>| {
        pod.is_some_and(|pod| pod.status.as_ref().is_some_and(|status| status.phase.as_ref() == Some(&wanted)))
    };
    machine.wait::<Pod>(name, phase, ended)?;
    Ok(machine.runtime.block_on(machine.api::<Pod>().logs(name, &kube::api::LogParams::default()))?)
}

fn a_pod_may_do_with_the_api_what_its_account_may() -> Result<()> {
    let machine = TestHost::up()?;
    for account in ["reader", "nobody"] {
        machine.create::<ServiceAccount>(json!({ "metadata": { "name": account } }))?;
    }
    let rule = json!({
        "apiGroups": ["kubevirt.io"], "resources": ["virtualmachines", "virtualmachineinstances"],
        "verbs": ["get", "list"],
    });
    machine.create::<Role>(json!({ "metadata": { "name": "reader" }, "rules": [rule] }))?;
    machine.create::<RoleBinding>(json!({
        "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
        "subjects": [{ "kind": "ServiceAccount", "name": "reader", "namespace": "default" }],
    }))?;
    machine.create::<Pod>(client("reads", "reader", &["get"])?)?;
    machine.create::<Pod>(client("all", "reader", &["get", "-A"])?)?;
    machine.create::<Pod>(client("nothing", "nobody", &["get"])?)?;
    ensure!(said(&machine, "reads", "Succeeded")?.contains("No virtual machines"));
    for (pod, account) in [("all", "reader"), ("nothing", "nobody")] {
        let refused = said(&machine, pod, "Failed")?;
        let expected =
            format!("User \"system:serviceaccount:default:{account}\" cannot list resource \"virtualmachines\"");
        ensure!(refused.contains(&expected), "{refused}");
    }
    for pod in ["reads", "all", "nothing"] {
        machine.delete::<Pod>(pod)?;
        machine.gone::<Pod>(pod)?;
    }
    Ok(())
}
