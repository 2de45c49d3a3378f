//! Deployments, and what becomes of their replica sets and pods.

use super::{Script, Step, step};

pub(in crate::controllers) const DEPLOYMENTS: Script = Script {
    name: "deployments",
    kinds: "deployments,replicasets,pods,events",
    collections: &[
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/replicasets",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/events",
    ],
    steps: STEPS,
};

const UNSCHEDULABLE: &str = "patch deployment stuck --patch \
    {\"spec\":{\"progressDeadlineSeconds\":2,\"template\":{\"spec\":{\"nodeSelector\":{\"nowhere\":\"yes\"}}}}}";
/// Or a busy machine would call the way back stuck as well.
const PATIENT: &str = "patch deployment stuck --patch {\"spec\":{\"progressDeadlineSeconds\":600}}";
const STUCK: &str = "wait --for=jsonpath={.status.conditions[?(@.type==\"Progressing\")].reason}=ProgressDeadlineExceeded \
    deployment/stuck --timeout=300s";
const RECREATE: &str =
    "patch deployment anew --patch {\"spec\":{\"strategy\":{\"type\":\"Recreate\",\"rollingUpdate\":null}}}";

/// No deployment has ten events of different texts: from there on Kubernetes combines them by chance.
const STEPS: &[Step] = &[
    step("create", &["create deployment web --image=i:1 --replicas=3", "rollout status deployment/web --timeout=300s"]),
    step("set image", &["set image deployment/web i=i:2", "rollout status deployment/web --timeout=300s"]),
    step("scale up", &["scale deployment/web --replicas=5", "rollout status deployment/web --timeout=300s"]),
    step("scale down", &["scale deployment/web --replicas=1", "rollout status deployment/web --timeout=300s"]),
    step(
        "undo",
        &[
            "create deployment back --image=i:1 --replicas=2",
            "rollout status deployment/back --timeout=300s",
            "set image deployment/back i=i:2",
            "rollout status deployment/back --timeout=300s",
            "rollout undo deployment/back",
            "rollout status deployment/back --timeout=300s",
        ],
    ),
    step(
        "pause",
        &[
            "create deployment held --image=i:1",
            "rollout status deployment/held --timeout=300s",
            "rollout pause deployment/held",
        ],
    ),
    step("change while paused", &["set image deployment/held i=i:2"]),
    step("scale while paused", &["scale deployment/held --replicas=2"]),
    step("resume", &["rollout resume deployment/held", "rollout status deployment/held --timeout=300s"]),
    step("annotate", &["annotate deployment/held kubernetes.io/change-cause=because note=yes"]),
    step(
        "restart",
        &[
            "create deployment again --image=i:1",
            "rollout status deployment/again --timeout=300s",
            "rollout restart deployment/again",
            "rollout status deployment/again --timeout=300s",
        ],
    ),
    step(
        "keep one old set",
        &[
            "patch deployment again --patch {\"spec\":{\"revisionHistoryLimit\":1}}",
            "set image deployment/again i=i:2",
            "rollout status deployment/again --timeout=300s",
        ],
    ),
    step(
        "replace at once",
        &[
            "create deployment anew --image=i:1 --replicas=2",
            RECREATE,
            "rollout status deployment/anew --timeout=300s",
            "set image deployment/anew i=i:2",
            "rollout status deployment/anew --timeout=300s",
        ],
    ),
    step(
        "get stuck",
        &[
            "create deployment stuck --image=i:1 --replicas=2",
            "rollout status deployment/stuck --timeout=300s",
            UNSCHEDULABLE,
            STUCK,
        ],
    ),
    step("scale while stuck", &["scale deployment/stuck --replicas=4"]),
    step(
        "undo while stuck",
        &[PATIENT, "rollout undo deployment/stuck", "rollout status deployment/stuck --timeout=300s"],
    ),
    step(
        "delete in the background",
        &["delete deployment web --cascade=background", "wait --for=delete rs,pods -l app=web --timeout=300s"],
    ),
    step("delete in the foreground", &["delete deployment anew --cascade=foreground --wait --timeout=300s"]),
    step("delete and leave orphans", &["delete deployment stuck --cascade=orphan --wait --timeout=300s"]),
];
