//! Exports.

use api::export::VirtualMachineExport;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testkit::world::{seconds, until};

use super::bench::Bench;

const NAME: &str = "virt-export-e";

impl Bench {
    fn exports(&self) -> Api<VirtualMachineExport> {
        Api::default_namespaced(self.world.client.clone())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::default_namespaced(self.world.client.clone())
    }

    async fn export(&self, kind: &str, source: &str, more: &Value) -> Result<VirtualMachineExport, kube::Error> {
        let group = match kind {
            "VirtualMachine" => "kubevirt.io",
            "VirtualMachineSnapshot" => "snapshot.kubevirt.io",
            _ => "",
        };
        let mut spec = json!({ "source": { "apiGroup": group, "kind": kind, "name": source } });
        json_patch::merge(&mut spec, more);
        let export = json!({
            "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport", "metadata": { "name": "e" }, "spec": spec,
        });
        self.exports().create(&PostParams::default(), &serde_json::from_value(export).unwrap()).await
    }

    /// Waits until the export is in a phase, for a reason.
    async fn exported(&self, phase: &str, reason: &str) -> VirtualMachineExport {
        until(&format!("that the export is {phase}, {reason}"), async || {
            let found = self.exports().get_opt("e").await.unwrap();
            found.filter(|one| {
                let told = json!(one)["status"].clone();
                let ready = told["conditions"]
                    .as_array()
                    .and_then(|all| all.iter().find(|one| one["type"] == "Ready").cloned());
                told["phase"] == phase && ready.is_some_and(|ready| ready["reason"] == reason)
            })
        })
        .await
    }

    async fn exporter(&self) -> Pod {
        until("the exporter", async || self.world.pods().get_opt(NAME).await.unwrap()).await
    }

    /// Plays the node: the exporter runs, and is ready.
    async fn serve_export(&self) {
        let pod = self.exporter().await;
        self.world.run_pod(&pod).await;
        let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        self.world.patch_pod(NAME, &ready).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_served_until_somebody_takes_it_and_again_afterwards() {
    let bench = Bench::start().await;
    bench.claim("data", "local").await;
    bench.export("PersistentVolumeClaim", "data", &json!({})).await.unwrap();
    bench.exported("Pending", "PodPending").await;
    let pod = bench.exporter().await;
    assert_eq!(pod.spec.as_ref().unwrap().containers[0].image.as_deref(), Some("launcher:v1"));
    let services: Api<Service> = Api::default_namespaced(bench.world.client.clone());
    let service = services.get(NAME).await.unwrap();
    assert_eq!(service.spec.unwrap().selector.unwrap()["kubevirt.io.virt-export-service"], NAME);
    bench.serve_export().await;
    let status = bench.exported("Ready", "PodReady").await.status.unwrap();
    let inside = status.links.unwrap().internal.unwrap();
    assert_eq!(inside.cert, pod.annotations()["orlop.dev/export-authority"].trim());
    assert_eq!(inside.volumes.unwrap()[0].name, "data");

    // A certificate and a token, each in a secret of its own.
    let secrets = bench.secrets().list(&ListParams::default()).await.unwrap().items;
    let token = bench.secrets().get(&status.token_secret_ref.unwrap()).await.unwrap();
    let token = token.data.unwrap()["token"].0.clone();
    assert!(token.len() == 20 && token.iter().all(u8::is_ascii_alphanumeric));
    let certificates = secrets.iter().filter(|one| one.data.as_ref().is_some_and(|data| data.contains_key("tls.crt")));
    assert_eq!((secrets.len(), certificates.count()), (2, 1));
    bench.world.writes();
    seconds(600).await;
    assert_eq!(bench.world.writes(), Vec::<String>::new(), "nothing is written at rest");

    let user = json!({ "metadata": { "name": "user" }, "spec": {
        "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }],
    } });
    bench.world.pods().create(&PostParams::default(), &serde_json::from_value(user).unwrap()).await.unwrap();
    bench.exported("Pending", "InUse").await;
    bench.world.end_pod(&pod).await;
    seconds(60).await;
    assert!(bench.world.pods().get_opt(NAME).await.unwrap().is_none(), "the claim is somebody else's");
    bench.world.pods().delete("user", &DeleteParams::default().grace_period(0)).await.unwrap();
    bench.serve_export().await;
    bench.exported("Ready", "PodReady").await;
    assert_ne!(bench.exporter().await.uid(), pod.uid());
}

#[tokio::test(start_paused = true)]
async fn a_vm_is_exported_with_all_of_its_disks_while_it_is_stopped() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one", "two"]).await;
    bench.export("VirtualMachine", "v", &json!({})).await.unwrap();
    bench.serve_export().await;
    let status = bench.exported("Ready", "PodReady").await.status.unwrap();
    let inside = status.links.unwrap().internal.unwrap();
    let names: Vec<String> = inside.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
    assert_eq!((names, status.virtual_machine_name.as_deref()), (vec!["one".to_owned(), "two".to_owned()], Some("v")));
    assert_eq!(inside.manifests.unwrap().len(), 2);
    let arguments = bench.exporter().await.spec.unwrap().containers.remove(0).args.unwrap();
    assert!(arguments.contains(&"--manifests=/cert/manifests.json".to_owned()), "{arguments:?}");

    bench.world.patch_vm("v", &json!({ "spec": { "runStrategy": "Always" } })).await;
    bench.exported("Pending", "InUse").await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_exported_from_claims_of_its_copies() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.finished("s", "v", 1).await;
    bench.export("VirtualMachineSnapshot", "s", &json!({})).await.unwrap();
    let claim = until("the claim", async || bench.claims().get_opt("e-one").await.unwrap()).await;
    let source = claim.spec.unwrap().data_source_ref.unwrap();
    assert_eq!(source.kind, "VolumeSnapshot");
    bench.bind("e-one").await;
    bench.serve_export().await;
    let status = bench.exported("Ready", "PodReady").await.status.unwrap();
    let volumes = status.links.unwrap().internal.unwrap().volumes.unwrap();
    assert_eq!(volumes[0].name, "one");
    // The VM may run meanwhile.
    bench.world.patch_vm("v", &json!({ "spec": { "runStrategy": "Always" } })).await;
    seconds(60).await;
    bench.exported("Ready", "PodReady").await;
}

#[tokio::test(start_paused = true)]
async fn an_export_ends_with_its_time() {
    let bench = Bench::start().await;
    bench.claim("data", "local").await;
    bench.export("PersistentVolumeClaim", "data", &json!({ "ttlDuration": "10m" })).await.unwrap();
    bench.exported("Pending", "PodPending").await;
    seconds(500).await;
    assert!(bench.exports().get_opt("e").await.unwrap().is_some());
    until("the end of the export", async || bench.exports().get_opt("e").await.unwrap().is_none().then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn admission_knows_what_can_be_exported() {
    let bench = Bench::start().await;
    let refused = async |kind: &str, more: Value| bench.export(kind, "x", &more).await.unwrap_err().to_string();
    let words = refused("VirtualMachineBackup", json!({})).await;
    assert!(words.contains("spec.source.kind") && words.contains("invalid kind"), "{words}");
    for (kind, group, expected) in [
        ("PersistentVolumeClaim", "v1", "PVC API group must be missing or blank"),
        ("VirtualMachine", "", "VM API group must be kubevirt.io"),
        ("VirtualMachineSnapshot", "kubevirt.io", "VMSnapshot API group must be snapshot.kubevirt.io"),
    ] {
        let words = refused(kind, json!({ "source": { "apiGroup": group } })).await;
        assert!(words.contains("spec.source.apiGroup") && words.contains(expected), "{words}");
        let words = refused(kind, json!({ "source": { "name": "" } })).await;
        assert!(words.contains("name must not be empty"), "{words}");
    }
    assert!(refused("PersistentVolumeClaim", json!({ "ttlDuration": "0s" })).await.contains("spec.ttlDuration"));
    bench.export("PersistentVolumeClaim", "x", &json!({})).await.unwrap();
    let mut changed = bench.exports().get("e").await.unwrap();
    changed.spec.ttl_duration = Some("5m".parse().unwrap());
    let words = bench.exports().replace("e", &PostParams::default(), &changed).await.unwrap_err().to_string();
    assert!(words.contains("spec in immutable after creation"), "{words}");
}
