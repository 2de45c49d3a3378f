//! Pods whose names and paths lead to where they have no business.

use serde_json::{Value, json};

use crate::scene::Scene;
use crate::support::Answer;

const HOSTILE_PODS: &str = "/api/v1/namespaces/hostile/pods";
const BACKSTEPS: &str = "must not contain '..'";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

fn pod(changes: &Value) -> Value {
    let container = json!({ "name": "c", "image": "i", "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let mut pod = json!({
        "metadata": { "name": "p" },
        "spec": { "containers": [container], "volumes": [{ "name": "v", "emptyDir": {} }] },
    });
    for (pointer, value) in changes.as_object().unwrap() {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[last] = value.clone();
    }
    pod
}

fn causes(answer: Answer) -> Vec<(String, String)> {
    let refused = answer.expect(422);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let causes = refused["details"]["causes"].as_array().unwrap().iter();
    causes.map(|cause| (text(&cause["field"]), text(&cause["message"]))).collect()
}

type Case = (Value, String, String);

/// Each pod is refused, by this field and with these words; one without any of that is not.
async fn are_refused(cases: impl IntoIterator<Item = Case>) {
    let scene = Scene::begin().await;
    for (changes, field, message) in cases {
        let found = causes(scene.server.post(HOSTILE_PODS, &pod(&changes)).await);
        assert!(found.contains(&(field.clone(), message.clone())), "{changes}: {found:?}, not {field}: {message}");
    }
    scene.server.post(HOSTILE_PODS, &pod(&json!({}))).await.expect(201);
    scene.end(&[HOSTILE_PODS]).await;
}

fn invalid(value: &str, problem: &str) -> String {
    format!("Invalid value: \"{value}\": {problem}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_lead_to_no_other_place() {
    let volume = |source: Value| json!({ "/spec/volumes": [{ "name": "v" }, source], });
    let file =
        |path: &str| json!({ "name": "w", "configMap": { "name": "m", "items": [{ "key": "k", "path": path }] } });
    let token =
        |path: &str| json!({ "name": "w", "projected": { "sources": [{ "serviceAccountToken": { "path": path } }] } });
    let second = "spec.volumes[1]";
    are_refused([
        (
            volume(json!({ "name": "/any/host/folder", "configMap": { "name": "m" } })),
            format!("{second}.name"),
            invalid("/any/host/folder", LABEL),
        ),
        (volume(json!({ "name": "../..", "emptyDir": {} })), format!("{second}.name"), invalid("../..", LABEL)),
        (volume(json!({ "name": "", "emptyDir": {} })), format!("{second}.name"), "Required value".to_owned()),
        (volume(json!({ "name": "v", "emptyDir": {} })), format!("{second}.name"), "Duplicate value: \"v\"".to_owned()),
        (
            volume(json!({ "name": "w", "hostPath": { "path": "/a/../b" } })),
            format!("{second}.hostPath.path"),
            invalid("/a/../b", BACKSTEPS),
        ),
        (
            volume(json!({ "name": "w", "hostPath": { "path": "" } })),
            format!("{second}.hostPath.path"),
            "Required value".to_owned(),
        ),
        (
            volume(file("../../etc/passwd")),
            format!("{second}.configMap.items[0].path"),
            invalid("../../etc/passwd", BACKSTEPS),
        ),
        (
            volume(file("/etc/passwd")),
            format!("{second}.configMap.items[0].path"),
            invalid("/etc/passwd", "must be a relative path"),
        ),
        (
            volume(file("..data")),
            format!("{second}.configMap.items[0].path"),
            invalid("..data", "must not start with '..'"),
        ),
        (
            volume(token("a/../../b")),
            format!("{second}.projected.sources[0].serviceAccountToken.path"),
            invalid("a/../../b", BACKSTEPS),
        ),
        (
            volume(json!({ "name": "w", "emptyDir": {}, "hostPath": { "path": "/" } })),
            format!("{second}.hostPath"),
            "Forbidden: may not specify more than 1 volume type".to_owned(),
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_a_path_or_an_argument_of_a_container_is_checked() {
    let mount = |more: &Value| {
        let mut mount = json!({ "name": "v", "mountPath": "/v" });
        mount.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "/spec/containers/0/volumeMounts": [mount] })
    };
    let first = "spec.containers[0]";
    are_refused([
        (json!({ "/spec/containers/0/name": "../c" }), format!("{first}.name"), invalid("../c", LABEL)),
        (
            json!({ "/spec/initContainers": [{ "name": "a/b", "image": "i" }] }),
            "spec.initContainers[0].name".to_owned(),
            invalid("a/b", LABEL),
        ),
        (
            json!({ "/spec/initContainers": [{ "name": "c", "image": "i" }] }),
            "spec.initContainers[0].name".to_owned(),
            "Duplicate value: \"c\"".to_owned(),
        ),
        (
            json!({ "/spec/containers/0/image": " i" }),
            format!("{first}.image"),
            invalid(" i", "must not have leading or trailing whitespace"),
        ),
        (mount(&json!({ "name": "x" })), format!("{first}.volumeMounts[0].name"), "Not found: \"x\"".to_owned()),
        (mount(&json!({ "mountPath": "" })), format!("{first}.volumeMounts[0].mountPath"), "Required value".to_owned()),
        (mount(&json!({ "subPath": "../x" })), format!("{first}.volumeMounts[0].subPath"), invalid("../x", BACKSTEPS)),
        (
            mount(&json!({ "subPathExpr": "/$(X)" })),
            format!("{first}.volumeMounts[0].subPathExpr"),
            invalid("/$(X)", "must be a relative path"),
        ),
        (
            json!({ "/spec/containers/0/ports": [{ "containerPort": 70000 }] }),
            format!("{first}.ports[0].containerPort"),
            "Invalid value: 70000: must be between 1 and 65535, inclusive".to_owned(),
        ),
        (
            json!({ "/spec/containers/0/ports": [{ "containerPort": 1, "protocol": "tcp; drop" }] }),
            format!("{first}.ports[0].protocol"),
            "Unsupported value: \"tcp; drop\": supported values: \"SCTP\", \"TCP\", \"UDP\"".to_owned(),
        ),
        (
            json!({ "/spec/containers/0/securityContext": { "runAsUser": -1 } }),
            format!("{first}.securityContext.runAsUser"),
            "Invalid value: -1: must be between 0 and 2147483647, inclusive".to_owned(),
        ),
        (
            json!({ "/spec/hostAliases": [{ "ip": "1.2.3.4\n::1", "hostnames": ["a"] }] }),
            "spec.hostAliases[0].ip".to_owned(),
            "Invalid value: \"1.2.3.4\\n::1\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
                .to_owned(),
        ),
    ])
    .await;
}

/// There may be no more of them than are told, whatever is wrong with each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_many_problems_is_told_some() {
    let scene = Scene::begin().await;
    let volumes: Value = (0..20_000).map(|_| json!({ "name": "/", "hostPath": { "path": ".." } })).collect();
    let found = causes(scene.post(HOSTILE_PODS, &pod(&json!({ "/spec/volumes": volumes }))).await);
    assert!(found.len() <= 100);
    scene.end(&[HOSTILE_PODS]).await;
}

/// By the way that adds containers to a pod, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ephemeral_containers_have_names_and_mounts_like_others() {
    let scene = Scene::begin().await;
    scene.server.post(HOSTILE_PODS, &pod(&json!({}))).await.expect(201);
    let path = format!("{HOSTILE_PODS}/p/ephemeralcontainers");
    for container in [
        json!({ "name": "../e", "image": "i" }),
        json!({ "name": "c", "image": "i" }),
        json!({ "name": "e", "image": "i", "volumeMounts": [{ "name": "none", "mountPath": "/x" }] }),
        json!({ "name": "e", "image": "i", "targetContainerName": "none" }),
    ] {
        let patch = json!({ "spec": { "ephemeralContainers": [container] } });
        scene.patch("strategic-merge", &path, &patch).await.expect(422);
    }
    scene.end(&[HOSTILE_PODS]).await;
}
