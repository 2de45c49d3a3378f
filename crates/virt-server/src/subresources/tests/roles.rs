//! Who may do what.

use super::*;

/// What each of KubeVirt's roles lets through, route by route, both stages taken together. `evacuate/cancel` and `sev` are in the
/// roles as KubeVirt has them, and do not pass the first stage there either: it asks about `evacuate` and `sev`.
#[tokio::test]
async fn every_verb_is_let_through_for_whom_kubevirts_roles_have_it() {
    let view = "vms/expand-spec vms/objectgraph vmis/guestosinfo vmis/userlist vmis/filesystemlist vmis/objectgraph expand-vm-spec";
    let edit = "vms/portforward vms/start vms/stop vms/restart vms/addvolume vms/removevolume vms/memorydump \
        vms/removememorydump vmis/console vmis/vnc vmis/portforward vmis/usbredir vmis/pause vmis/unpause vmis/freeze \
        vmis/unfreeze vmis/reset vmis/softreboot vmis/addvolume vmis/removevolume";
    let expected = [
        ("nobody", String::new()),
        ("view", view.to_owned()),
        ("edit", format!("{view} {edit}")),
        ("admin", format!("{view} {edit} vmis/vnc/screenshot")),
        ("migrate", "vms/migrate".to_owned()),
    ];
    let bench = Bench::new().await;
    let routes = || {
        paths("v1").into_iter().filter_map(|(path, item)| {
            let place = path.strip_prefix("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/")?.to_owned();
            let method = if item.get("put").is_some() { "PUT" } else { "GET" };
            let named =
                place.replace("virtualmachineinstances/{name}", "vmis").replace("virtualmachines/{name}", "vms");
            let parts: Vec<&str> = named.split('/').filter(|part| !part.starts_with('{')).collect();
            Some((method, path.replace("{namespace}", "default").replace("{name}", "none"), parts.join("/")))
        })
    };
    let all: std::collections::BTreeSet<String> = routes().map(|(_, _, name)| name).collect();
    for (role, verbs) in expected {
        let binding = json!({
            "metadata": { "name": role }, "subjects": [{ "kind": "User", "name": role }],
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("kubevirt.io:{role}"),
            },
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        assert_eq!(bench.send(Identity::admin(), "POST", path, &binding).await.0, 201);
        let verbs: Vec<&str> = verbs.split_whitespace().collect();
        assert!(verbs.iter().all(|verb| all.contains(*verb)), "{role}: {verbs:?} are not all of {all:?}");
        for (method, path, name) in routes() {
            let path = path.replace("{port}", "22").replace("{protocol}", "tcp");
            let (code, answer) = bench.send(Identity::new(role, []), method, &path, &Value::Null).await;
            assert_eq!(code != 403, verbs.contains(&name.as_str()), "{role} {method} {path}: {code} {answer}");
        }
        let elsewhere = VMS.replace("/default/", "/elsewhere/") + "/none/start";
        assert_eq!(bench.send(Identity::new(role, []), "PUT", &elsewhere, &Value::Null).await.0, 403, "{role}");
    }
}
