//! Clones.

use api::clone::VirtualMachineClone;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testkit::world::until;

use super::bench::{Bench, told};

impl Bench {
    fn clones(&self) -> Api<VirtualMachineClone> {
        Api::default_namespaced(self.world.client.clone())
    }

    async fn clone_of(
        &self,
        name: &str,
        kind: &str,
        source: &str,
        more: &Value,
    ) -> Result<VirtualMachineClone, kube::Error> {
        let group = if kind == "VirtualMachine" { "kubevirt.io" } else { "snapshot.kubevirt.io" };
        let mut spec = json!({
            "source": { "apiGroup": group, "kind": kind, "name": source },
            "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "twin" },
        });
        json_patch::merge(&mut spec, more);
        let clone = json!({
            "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "metadata": { "name": name }, "spec": spec,
        });
        self.clones().create(&PostParams::default(), &serde_json::from_value(clone).unwrap()).await
    }

    /// Plays the storage until the clone has come to this phase, and has cleaned up.
    async fn cloned(&self, name: &str) -> VirtualMachineClone {
        until(&format!("the end of the clone {name}"), async || {
            self.copy(true).await;
            self.bind_all().await;
            let found = self.clones().get_opt(name).await.unwrap();
            found.filter(|one| {
                let Some(status) = &one.status else { return false };
                phase(one) == "Succeeded" && status.restore_name.as_ref().is_none()
            })
        })
        .await
    }
}

fn phase(clone: &VirtualMachineClone) -> &str {
    clone.status.as_ref().and_then(|status| status.phase.as_ref()).map_or("", |phase| phase.as_str())
}

#[tokio::test(start_paused = true)]
async fn a_vm_has_a_twin_with_names_and_numbers_of_its_own() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    let interface = json!({ "name": "a", "masquerade": {}, "macAddress": "02:00:00:00:00:01" });
    let domain = json!({ "firmware": { "serial": "old" }, "devices": { "interfaces": [interface] } });
    let networks = json!([{ "name": "a", "pod": {} }]);
    let change = json!({
        "metadata": { "labels": { "keep/it": "1", "drop/it": "2" } },
        "spec": { "template": { "spec": { "domain": domain, "networks": networks } } },
    });
    bench.world.patch_vm("v", &change).await;
    let more = json!({
        "labelFilters": ["*", "!drop/*"], "newMacAddresses": { "a": "02:00:00:00:00:0a" }, "newSMBiosSerial": "new",
        "patches": [r#"{"op":"add","path":"/spec/template/spec/hostname","value":"twin"}"#],
    });
    bench.clone_of("c", "VirtualMachine", "v", &more).await.unwrap();
    let done = bench.cloned("c").await;
    assert_eq!(done.status.as_ref().unwrap().target_name.as_ref().map(String::as_str), Some("twin"));
    assert_eq!(told(done.status.as_ref().unwrap().conditions.as_ref(), "Ready"), (true, "Ready".to_owned()));
    let twin = bench.world.vms().get("twin").await.unwrap();
    assert!(twin.labels().contains_key("keep/it") && !twin.labels().contains_key("drop/it"));
    let spec = twin.spec.template.spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("twin"));
    let firmware = spec.domain.firmware.as_ref().unwrap();
    assert_eq!(firmware.serial.as_deref(), Some("new"));
    let old = bench.world.vms().get("v").await.unwrap();
    let old = old.spec.template.spec.unwrap().domain.firmware.unwrap();
    assert!(firmware.uuid.is_none() || firmware.uuid != old.uuid);
    let interfaces = spec.domain.devices.interfaces.as_ref().unwrap();
    assert_eq!(interfaces[0].mac_address.as_deref(), Some("02:00:00:00:00:0a"));
    until("the snapshot and the restore to go", async || {
        let snapshots = bench.snapshots().list(&Default::default()).await.unwrap().items;
        let restores = bench.restores().list(&Default::default()).await.unwrap().items;
        (snapshots.is_empty() && restores.is_empty()).then_some(())
    })
    .await;
    bench.world.vms().delete("twin", &DeleteParams::default()).await.unwrap();
    until("the clone to go with its VM", async || bench.clones().get_opt("c").await.unwrap().is_none().then_some(()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_cloned_stays() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.finished("s", "v", 1).await;
    bench
        .clone_of("c", "VirtualMachineSnapshot", "s", &json!({ "volumeNamePolicy": "PrefixTargetName" }))
        .await
        .unwrap();
    bench.cloned("c").await;
    assert!(bench.claims().get_opt("twin-one").await.unwrap().is_some());
    assert!(bench.snapshots().get_opt("s").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_clone_waits_for_its_source_and_tells_what_it_cannot_copy() {
    let bench = Bench::start().await;
    bench.clone_of("c", "VirtualMachine", "v", &json!({})).await.unwrap();
    let says = async |reason: &str| {
        until(&format!("the clone to say {reason}"), async || {
            let found = bench.clones().get("c").await.unwrap();
            let ready = told(found.status.as_ref().and_then(|status| status.conditions.as_ref()), "Ready").1;
            (ready == reason).then_some(())
        })
        .await;
    };
    says("Source doesnt exist: VirtualMachine default/v").await;
    bench.claim("slow", "slow").await;
    let volumes = json!([{ "name": "disk", "persistentVolumeClaim": { "claimName": "slow" } }]);
    let spec = json!({ "runStrategy": "Halted", "template": { "spec": {
        "domain": { "devices": {}, "memory": { "guest": "64Mi" } }, "volumes": volumes,
    } } });
    bench.world.create_vm_with("v", &spec).await;
    says("Virtual Machine volume disk does not support snapshots").await;
    bench.world.patch_vm("v", &json!({ "spec": { "template": { "spec": { "volumes": [] } } } })).await;
    bench.cloned("c").await;
}

#[tokio::test(start_paused = true)]
async fn bad_clones_and_snapshots_are_refused() {
    let bench = Bench::start().await;
    let table = [
        (json!({ "target": { "name": "v" } }), "Target name cannot be equal to source name"),
        (json!({ "source": { "kind": "Pod" } }), "Source kind is not supported"),
        (json!({ "newMacAddresses": { "a": "xyz" } }), "interface a has malformed MAC address (xyz)."),
        (json!({ "labelFilters": ["a*b"] }), "may only have * at its end"),
        (json!({ "patches": ["nonsense"] }), "patch is not valid JSON (nonsense)"),
    ];
    for (more, message) in table {
        let refused = bench.clone_of("c", "VirtualMachine", "v", &more).await.unwrap_err().to_string();
        assert!(refused.contains(message), "{more}: {refused}");
    }
    let named = bench.clone_of("c", "VirtualMachine", "v", &json!({ "target": null })).await.unwrap();
    assert!(named.spec.target.unwrap().name.starts_with("clone-v-"));
}
