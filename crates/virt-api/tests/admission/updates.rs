//! Changes of instances.

use serde_json::{Value, json};
use virt_api::{Operation, Request, Requester, admit};

use crate::support::{Cluster, changed, create, fields, stored, update, vmi};

#[test]
fn the_spec_of_an_instance_is_changed_by_our_programs_only() {
    let cluster = Cluster::new();
    let old = stored(create(&cluster, &vmi()), &vmi());
    let new = changed(&old, &json!({ "spec": { "domain": { "memory": { "guest": "2Gi" } }, "hostname": "h" } }));
    for requester in [Requester::User, Requester::Admin] {
        assert_eq!(fields(update(&cluster, requester, &old, &new)), ["spec.domain.memory.guest", "spec.hostname"]);
    }
    assert_eq!(update(&cluster, Requester::Component, &old, &new).outcome, Ok(None));
}

#[test]
fn a_users_status_is_put_back() {
    let cluster = Cluster::new();
    let old = stored(create(&cluster, &vmi()), &vmi());
    let new = changed(&old, &json!({ "status": { "phase": "Running" }, "metadata": { "labels": { "a": "b" } } }));
    let kept = stored(update(&cluster, Requester::User, &old, &new), &new);
    assert_eq!(kept["status"]["phase"], "Pending");
    assert_eq!(kept["metadata"]["labels"]["a"], "b");
    assert_eq!(update(&cluster, Requester::Component, &old, &new).outcome, Ok(None));
}

#[test]
fn what_is_reserved_is_neither_added_nor_changed_nor_removed_by_users() {
    let cluster = Cluster::new();
    for (place, key) in [("labels", "kubevirt.io/nodeName"), ("annotations", "orlop.dev/guest")] {
        let with = |value: &Value| json!({ "metadata": { place: { key: value } } });
        let old = changed(&vmi(), &with(&json!("n")));
        for patch in [json!("m"), json!(null)] {
            let new = changed(&old, &with(&patch));
            let expected = [format!("metadata.{place}[{key}]")];
            assert_eq!(fields(update(&cluster, Requester::User, &old, &new)), expected);
            assert!(update(&cluster, Requester::Admin, &old, &new).outcome.is_ok());
        }
        assert_eq!(fields(update(&cluster, Requester::User, &vmi(), &old)).len(), 1);
    }
}

#[test]
fn a_user_may_force_an_end() {
    let cluster = Cluster::new();
    let old = stored(create(&cluster, &vmi()), &vmi());
    let new = changed(&old, &json!({ "metadata": { "finalizers": null } }));
    assert_eq!(update(&cluster, Requester::User, &old, &new).outcome, Ok(None));
    let request = Request {
        operation: Operation::Delete,
        group: "kubevirt.io",
        resource: "virtualmachineinstances",
        subresource: "",
        namespace: "default",
        name: "",
        requester: Requester::User,
        object: None,
        old: Some(&old),
        dry_run: false,
    };
    assert_eq!(admit(&request, &cluster).outcome, Ok(None));
}
