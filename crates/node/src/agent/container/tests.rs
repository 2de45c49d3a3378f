//! Containers as the runtime gets them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use storage::images::Account;

use super::environment::{Sources, environment};
use super::fields::Facts;
use super::*;

fn held(root: &std::path::Path, config: Config) -> Held {
    let digest = "sha256:1".to_owned();
    let account = |user: &str| {
        let uid = if user.is_empty() { Some(0) } else { user.parse().ok() };
        uid.map(|uid| Account { uid, ..Account::default() }).ok_or_else(|| Failure("no such user".to_owned()))
    };
    Held { id: digest.clone(), digest, root: root.to_owned(), config, account: Arc::new(account) }
}

fn pod(container: &Value, more: &Value) -> Pod {
    let mut spec = json!({ "containers": [container] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pod = json!({
        "metadata": { "name": "p", "namespace": "n", "uid": "u", "labels": { "a": "1" } },
        "spec": spec,
        "status": { "qosClass": "Burstable" },
    });
    serde_json::from_value(pod).unwrap()
}

fn made(pod: &Pod, source: Source<'_>) -> Result<spec::Container, MakeError> {
    let spec = pod.spec.as_ref().unwrap();
    let facts = Facts { pod, addresses: &[], node_addresses: &[], allocatable: &BTreeMap::new(), api_server: None };
    let env = environment(&spec.containers[0], &Sources::default(), &facts)?;
    make(Making {
        pod,
        spec,
        container: &spec.containers[0],
        attempt: 0,
        source,
        env,
        hostname: "p".to_owned(),
        mounts: Vec::new(),
        devices: Vec::new(),
        memory: 1 << 34,
        termination: PathBuf::from("/t"),
    })
}

#[test]
fn command_and_arguments_stand_in_for_the_images() {
    let root = tempfile::tempdir().unwrap();
    let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let held = held(root.path(), Config { entrypoint: list("e 1"), cmd: list("c"), ..Config::default() });
    for (container, expected) in [
        (json!({ "name": "c" }), "e 1 c"),
        (json!({ "name": "c", "args": ["x"] }), "e 1 x"),
        (json!({ "name": "c", "command": ["y"] }), "y"),
        (json!({ "name": "c", "command": ["y"], "args": ["$(A)"], "env": [{ "name": "A", "value": "z" }] }), "y z"),
    ] {
        let made = made(&pod(&container, &json!({})), Source::Image(&held)).unwrap();
        assert_eq!(made.args, list(expected));
    }
}

#[test]
fn a_pod_is_told_where_the_api_is_unless_it_knows_better() {
    let pod = pod(&json!({ "name": "c", "env": [{ "name": "KUBERNETES_SERVICE_PORT", "value": "1" }] }), &json!({}));
    let api_server = Some("[fd00::1]:6443".parse().unwrap());
    let facts = Facts { pod: &pod, addresses: &[], node_addresses: &[], allocatable: &BTreeMap::new(), api_server };
    let env = environment(&pod.spec.as_ref().unwrap().containers[0], &Sources::default(), &facts).unwrap();
    let expected = [("HOST", "fd00::1"), ("PORT", "1"), ("PORT_HTTPS", "6443")];
    assert_eq!(env, expected.map(|(what, value)| (format!("KUBERNETES_SERVICE_{what}"), value.to_owned())));
}

#[test]
fn variables_come_from_the_image_the_pod_and_its_fields() {
    let root = tempfile::tempdir().unwrap();
    let config =
        Config { cmd: vec!["x".to_owned()], env: vec![("A".to_owned(), "image".to_owned())], ..Config::default() };
    let container = json!({ "name": "c", "resources": { "limits": { "memory": "1Mi", "cpu": "1500m" } }, "env": [
        { "name": "A", "value": "own" },
        { "name": "B", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['a']" } } },
        { "name": "C", "value": "$(B)$(A)" },
        { "name": "M", "valueFrom": { "resourceFieldRef": { "resource": "limits.memory" } } },
        { "name": "P", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } },
        { "name": "K", "valueFrom": { "configMapKeyRef": { "name": "m", "key": "k", "optional": true } } },
    ] });
    let made = made(&pod(&container, &json!({})), Source::Image(&held(root.path(), config))).unwrap();
    let of = |name: &str| made.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!((of("A"), of("B"), of("C"), of("K")), (Some("own"), Some("1"), Some("1own"), None));
    assert_eq!((of("M"), of("P"), of("HOSTNAME")), (Some("1048576"), Some("2"), Some("p")));
}

#[test]
fn sources_that_are_missing_are_named() {
    let root = tempfile::tempdir().unwrap();
    let held = held(root.path(), Config::default());
    let container = json!({ "name": "c", "command": ["x"], "envFrom": [{ "secretRef": { "name": "s" } }] });
    let error = made(&pod(&container, &json!({})), Source::Image(&held)).unwrap_err();
    assert_eq!(error.to_string(), "secret \"s\" not found");
}

#[test]
fn resources_become_what_the_kernel_knows() {
    let root = tempfile::tempdir().unwrap();
    let held = held(root.path(), Config { cmd: vec!["x".to_owned()], ..Config::default() });
    let resources =
        json!({ "requests": { "cpu": "250m", "memory": "8Gi" }, "limits": { "cpu": "1", "memory": "9Gi" } });
    let pod = pod(&json!({ "name": "c", "resources": resources }), &json!({}));
    let made = made(&pod, Source::Image(&held)).unwrap();
    assert_eq!(made.resources.cpu_shares, Some(256));
    assert_eq!((made.resources.cpu_quota_us, made.resources.cpu_period_us), (Some(100_000), Some(100_000)));
    assert_eq!(made.resources.memory, Some(9 << 30));
    assert_eq!(made.oom_score, Some(500));
    assert_eq!(resources::of_pod(pod.spec.as_ref().unwrap()), made.resources);
}

#[test]
fn whoever_must_not_be_root_is_not() {
    let root = tempfile::tempdir().unwrap();
    let held = held(root.path(), Config { cmd: vec!["x".to_owned()], ..Config::default() });
    let rule = json!({ "securityContext": { "runAsNonRoot": true } });
    let refused = made(&pod(&json!({ "name": "c" }), &rule), Source::Image(&held));
    assert!(matches!(refused, Err(MakeError::Root { .. })));
    let own = json!({ "name": "c", "securityContext": { "runAsUser": 7, "runAsGroup": 8 } });
    let more = json!({ "securityContext": { "runAsNonRoot": true, "fsGroup": 9, "supplementalGroups": [10] } });
    let made = made(&pod(&own, &more), Source::Image(&held)).unwrap();
    assert_eq!(made.user, spec::User { uid: 7, gid: 8, groups: vec![9, 10] });
    assert_eq!(made.capabilities, Vec::<String>::new());
}

#[test]
fn the_machines_programs_run_as_a_user_of_their_own_without_capabilities() {
    let files = [(PathBuf::from("/here"), PathBuf::from("/usr/bin/orlop"))];
    let container = json!({ "name": "c", "command": ["/usr/bin/orlop"], "securityContext": {
        "runAsUser": 107, "capabilities": { "add": ["NET_BIND_SERVICE"] } } });
    let machine = Source::Machine { files: &files, user: 900_001 };
    let made = made(&pod(&container, &json!({ "securityContext": { "fsGroup": 107 } })), machine).unwrap();
    assert_eq!(made.user, spec::User { uid: 900_001, gid: 900_001, groups: vec![107] });
    assert_eq!((made.capabilities.len(), made.no_new_privileges), (0, true));
    let privileged = json!({ "name": "c", "command": ["x"], "securityContext": { "privileged": true } });
    assert_eq!(super::tests::made(&pod(&privileged, &json!({})), machine), Err(MakeError::Privileged));
}

#[test]
fn what_nobody_here_acts_on_is_refused_by_its_path() {
    let root = tempfile::tempdir().unwrap();
    let held = held(root.path(), Config { cmd: vec!["x".to_owned()], ..Config::default() });
    let made = |own: Value, more: Value| {
        let container = json!({ "name": "c", "securityContext": own });
        made(&pod(&container, &more), Source::Image(&held))
    };
    let refused = |own: Value, more: Value| made(own, more).unwrap_err().to_string();
    for (field, value) in [("hostPID", true), ("hostIPC", true), ("hostUsers", false), ("shareProcessNamespace", true)]
    {
        let said = refused(json!({}), json!({ field: value }));
        assert!(
            said.starts_with(&format!("spec.{field}")) && said.ends_with("is not supported on this node"),
            "{said}"
        );
        assert!(made(json!({}), json!({ field: !value })).is_ok(), "{field}");
    }
    let localhost = json!({ "type": "Localhost", "localhostProfile": "p.json" });
    for (own, path) in [
        (json!({ "seccompProfile": localhost }), "seccompProfile.type: Localhost"),
        (json!({ "appArmorProfile": { "type": "RuntimeDefault" } }), "appArmorProfile"),
        (json!({ "procMount": "Unmasked" }), "procMount"),
    ] {
        assert_eq!(
            refused(own, json!({})),
            format!("securityContext.{path} of container \"c\" is not supported on this node")
        );
    }
    let said = refused(json!({}), json!({ "securityContext": { "sysctls": [{ "name": "net.a", "value": "1" }] } }));
    assert_eq!(said, "spec.securityContext.sysctls is not supported on this node");
    let said = refused(json!({}), json!({ "securityContext": { "seccompProfile": localhost } }));
    assert_eq!(said, "spec.securityContext.seccompProfile.type: Localhost is not supported on this node");
    let usual = json!({ "procMount": "Default", "appArmorProfile": { "type": "Unconfined" } });
    assert!(made(usual, json!({ "securityContext": { "sysctls": [] } })).is_ok());
}

#[test]
fn the_runtimes_own_profile_filters_system_calls() {
    let root = tempfile::tempdir().unwrap();
    let held = held(root.path(), Config { cmd: vec!["x".to_owned()], ..Config::default() });
    let profile = |kind: &str| json!({ "seccompProfile": { "type": kind } });
    let filtered = |own: Value, of_pod: Value| {
        let pod = pod(&json!({ "name": "c", "securityContext": own }), &json!({ "securityContext": of_pod }));
        made(&pod, Source::Image(&held)).unwrap().filtered
    };
    assert!(!filtered(json!({}), json!({})));
    assert!(filtered(profile("RuntimeDefault"), json!({})));
    assert!(filtered(json!({}), profile("RuntimeDefault")));
    assert!(!filtered(profile("Unconfined"), profile("RuntimeDefault")));
    let mut all = profile("RuntimeDefault");
    all["privileged"] = true.into();
    assert!(!filtered(all, json!({})));
}

#[test]
fn images_name_the_signal_that_ends_them() {
    let of = |text: &str| stop_signal(&Config { stop_signal: Some(text.to_owned()), ..Config::default() });
    assert_eq!([of(""), of("SIGQUIT"), of("INT"), of("28"), of("nonsense")], [15, 3, 2, 28, 15]);
}
