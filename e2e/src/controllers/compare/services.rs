//! Replication controllers, services with their endpoints and slices, and disruption budgets.
//!
//! What has a made-up name has one by which it is known: pods of replication controllers begin with `rc`, slices with `svc`.

use super::{Script, Step, step};

pub(in crate::controllers) const SERVICES: Script = Script {
    name: "services",
    kinds: "replicationcontrollers,services,endpoints,endpointslices,poddisruptionbudgets,pods,events",
    collections: &[
        "/api/v1/namespaces/default/replicationcontrollers",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/endpoints",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/events",
    ],
    steps: STEPS,
};

const CONTROLLER: &str = "
apiVersion: v1
kind: ReplicationController
metadata: {name: rcweb}
spec:
  replicas: 3
  selector: {app: rcweb}
  template:
    metadata: {labels: {app: rcweb}}
    spec: {containers: [{name: c, image: 'i:1', ports: [{name: http, containerPort: 8080}]}]}
";

const ONE: &str = "
apiVersion: v1
kind: ReplicationController
metadata: {name: rcone}
spec:
  replicas: 1
  template:
    metadata: {labels: {app: rcone}}
    spec: {containers: [{name: c, image: 'i:1'}]}
";

const ALL_SERVICES: &str = "
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: svcweb, labels: {tier: front}}
  spec: {selector: {app: rcweb}, ports: [{name: web, port: 80, targetPort: http}, {name: raw, port: 81, targetPort: 9000}]}
- apiVersion: v1
  kind: Service
  metadata: {name: svchead}
  spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: rcweb}, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: svcnone}
  spec: {selector: {app: nobody}, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: svcbare}
  spec: {ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: svcname}
  spec: {selector: {app: rcweb}, ports: [{port: 80, targetPort: unknown}]}
";

const BUDGETS: &str = "
apiVersion: v1
kind: List
items:
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: half}
  spec: {minAvailable: 50%, selector: {matchLabels: {app: rcweb}}}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: one}
  spec: {maxUnavailable: 1, selector: {matchLabels: {app: rcweb}}}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: many}
  spec: {minAvailable: 10, selector: {matchLabels: {app: rcweb}}}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: nobody}
  spec: {minAvailable: 1, selector: {matchLabels: {app: nobody}}}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: everybody}
  spec: {maxUnavailable: 0, selector: {}}
";

const fn applied(name: &'static str, manifest: &'static str, commands: &'static [&'static str]) -> Step {
    Step { name, manifest, commands }
}

const STEPS: &[Step] = &[
    applied(
        "create a replication controller",
        CONTROLLER,
        &["wait --for=jsonpath={.status.readyReplicas}=3 rc/rcweb --timeout=300s"],
    ),
    step(
        "scale up",
        &["scale rc/rcweb --replicas=5", "wait --for=jsonpath={.status.readyReplicas}=5 rc/rcweb --timeout=300s"],
    ),
    step(
        "scale down",
        &["scale rc/rcweb --replicas=2", "wait --for=jsonpath={.status.readyReplicas}=2 rc/rcweb --timeout=300s"],
    ),
    applied("create services", ALL_SERVICES, &["wait --for=create endpoints/svcweb --timeout=300s"]),
    step(
        "scale under services",
        &["scale rc/rcweb --replicas=4", "wait --for=jsonpath={.status.readyReplicas}=4 rc/rcweb --timeout=300s"],
    ),
    step("select nobody", &["patch service svcweb --patch {\"spec\":{\"selector\":{\"app\":\"nobody\"}}}"]),
    step("select again", &["patch service svcweb --patch {\"spec\":{\"selector\":{\"app\":\"rcweb\"}}}"]),
    step("label a service", &["label service svcweb tier=back --overwrite"]),
    applied(
        "create budgets",
        BUDGETS,
        &["wait --for=jsonpath={.status.observedGeneration}=1 pdb --all --timeout=300s"],
    ),
    step(
        "scale under budgets",
        &["scale rc/rcweb --replicas=2", "wait --for=jsonpath={.status.readyReplicas}=2 rc/rcweb --timeout=300s"],
    ),
    step("change a budget", &["patch pdb half --patch {\"spec\":{\"minAvailable\":1}}"]),
    applied("create one more", ONE, &["wait --for=jsonpath={.status.readyReplicas}=1 rc/rcone --timeout=300s"]),
    step(
        "let its pod go",
        &[
            "label pods -l app=rcone app=gone --overwrite",
            "wait --for=create pods -l app=rcone --timeout=300s",
            "wait --for=condition=Ready pods -l app=rcone --timeout=300s",
        ],
    ),
    step("take it back", &["label pods -l app=gone app=rcone --overwrite"]),
    step("leave orphans", &["delete rc rcone --cascade=orphan --wait --timeout=300s"]),
    applied("adopt them", ONE, &["wait --for=jsonpath={.status.readyReplicas}=1 rc/rcone --timeout=300s"]),
    step(
        "delete pods",
        &[
            "delete pods -l app=rcweb --timeout=300s",
            "wait --for=jsonpath={.status.readyReplicas}=2 rc/rcweb --timeout=300s",
        ],
    ),
    step("delete services", &["delete services svcweb svchead svcnone svcbare svcname"]),
    step("delete budgets", &["delete pdb half one many nobody everybody"]),
    step(
        "delete a replication controller",
        &["delete rc rcweb --cascade=background", "wait --for=delete pods -l app=rcweb --timeout=300s"],
    ),
];
