//! What is decided about exports.

use proptest::prelude::*;
use serde_json::json;

mod objects;

use super::*;
use objects::{claim, export, instance, owned, pod, read, service, vm};

const HOUR: i64 = 3600;

fn nothing<'a>(export: &'a Export, source: Source<'a>) -> Observed<'a> {
    Observed {
        export,
        source,
        claims: BTreeMap::new(),
        data_volumes: None,
        copies: BTreeMap::new(),
        used: BTreeSet::new(),
        disks: BTreeSet::new(),
        service: None,
        pod: None,
        external: None,
        failure: None,
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Phase, and the reason of a condition.
fn told(seen: &Observed<'_>, kind: &str) -> (String, String) {
    let status = status_after(seen);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == kind).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&status["phase"]), text(&found["reason"]))
}

/// The status as it will be.
fn status_after(seen: &Observed<'_>) -> Value {
    let mut status = json!(seen.export.status);
    let plan = decide(seen, at(10));
    json_patch::merge(&mut status, &plan.status.map(|patch| patch["status"].clone()).unwrap_or(json!({})));
    status
}

#[test]
fn the_source_and_the_pod_decide_about_phase_and_reason() {
    let export = export("PersistentVolumeClaim", &json!({}));
    let (bound, mine) = (claim("s", "Bound"), service("u"));
    let base = || Observed { service: Some(&mine), ..nothing(&export, Source::Claim) };
    let with = || Observed { claims: [("s", &bound)].into(), ..base() };
    let (new, runs, done) = (pod("u", "Pending", false), pod("u", "Running", true), pod("u", "Succeeded", false));
    let (starting, strange) = (pod("u", "Running", false), pod("other", "Running", true));
    let rows: Vec<(Observed<'_>, &str, &str, bool, bool)> = vec![
        // What is seen, phase, reason, whether a pod is made, whether the pod goes.
        (base(), "Pending", "Initializing", false, false),
        (Observed { pod: Some(&runs), ..base() }, "Pending", "Initializing", false, true),
        (with(), "Pending", "PodPending", true, false),
        (Observed { used: ["s"].into(), ..with() }, "Pending", "InUse", false, false),
        (Observed { used: ["s"].into(), pod: Some(&runs), ..with() }, "Pending", "InUse", false, true),
        (Observed { pod: Some(&new), ..with() }, "Pending", "PodPending", false, false),
        (Observed { pod: Some(&starting), ..with() }, "Pending", "Unknown", false, false),
        (Observed { pod: Some(&runs), ..with() }, "Ready", "PodReady", false, false),
        (Observed { pod: Some(&done), ..with() }, "Terminated", "PodCompleted", false, true),
        (Observed { pod: Some(&strange), ..with() }, "Pending", "Initializing", false, false),
    ];
    for (index, (seen, phase, reason, makes, deletes)) in rows.into_iter().enumerate() {
        assert_eq!(told(&seen, "Ready"), (phase.to_owned(), reason.to_owned()), "row {index}");
        let plan = decide(&seen, at(10));
        assert_eq!((plan.exporter.is_some(), plan.delete_pod.is_some()), (makes, deletes), "row {index}");
        let links = &status_after(&seen)["links"];
        assert_eq!(links.is_object(), phase == "Ready", "row {index}: {links}");
    }
}

#[test]
fn a_machine_is_exported_while_it_is_stopped() {
    let export = export("VirtualMachine", &json!({}));
    let (bound, mine, empty, one, two) = (claim("s", "Bound"), service("u"), vm(&[]), vm(&["s"]), vm(&["s", "t"]));
    let (running, ended) = (instance("Running"), instance("Succeeded"));
    let seen = |vm, instance| Observed {
        claims: [("s", &bound)].into(),
        service: Some(&mine),
        ..nothing(&export, Source::Machine { vm, instance })
    };
    for (seen, phase, reason) in [
        (seen(None, None), "Pending", "Initializing"),
        (seen(Some(&empty), None), "Skipped", "VMNoVolumes"),
        (seen(Some(&one), None), "Pending", "PodPending"),
        (seen(Some(&one), Some(&ended)), "Pending", "PodPending"),
        (seen(Some(&one), Some(&running)), "Pending", "InUse"),
        // A disk that is not there is not left out.
        (seen(Some(&two), None), "Pending", "Initializing"),
    ] {
        assert_eq!(told(&seen, "Ready"), (phase.to_owned(), reason.to_owned()));
        assert_eq!(status_after(&seen)["virtualMachineName"], "s");
    }
}

#[test]
fn the_copies_of_a_snapshot_become_claims_first() {
    let export = export("VirtualMachineSnapshot", &json!({}));
    let snapshot: Snapshot = read(json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot", "metadata": { "name": "s" },
        "spec": { "source": { "kind": "VirtualMachine", "name": "v" } }, "status": { "readyToUse": true },
    }));
    let content: Content = read(json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshotContent",
        "spec": {
            "source": { "virtualMachine": { "metadata": { "name": "v" }, "spec": vm(&["disk"]).spec } },
            "volumeBackups": [{
                "volumeName": "disk", "volumeSnapshotName": "copy",
                "persistentVolumeClaim": { "metadata": { "name": "disk" }, "spec": {
                    "storageClassName": "local", "resources": { "requests": { "storage": "1Gi" } },
                } },
            }],
        },
    }));
    let copy: VolumeSnapshot = read(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": { "name": "copy" },
        "spec": { "source": {} }, "status": { "restoreSize": "2Gi" },
    }));
    let mine = service("u");
    let source = Source::Snapshot { snapshot: Some(&snapshot), content: Some(&content) };
    let seen = Observed { copies: [("copy", &copy)].into(), service: Some(&mine), ..nothing(&export, source) };
    let plan = decide(&seen, at(10));
    let made = json!(plan.claims);
    assert_eq!(made[0]["metadata"]["name"], "e-disk");
    assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], "u");
    assert_eq!(made[0]["spec"]["dataSourceRef"]["name"], "copy");
    assert_eq!(made[0]["spec"]["resources"]["requests"]["storage"], "2Gi");
    assert!(plan.exporter.is_none());
    assert_eq!(told(&seen, "VolumesCreated").1, "NotAllPVCsCreated");

    let own: PersistentVolumeClaim = read(json!({
        "metadata": { "name": "e-disk", "ownerReferences": owned("u") }, "spec": {}, "status": { "phase": "Bound" },
    }));
    let there = Observed { claims: [("e-disk", &own)].into(), ..seen.clone() };
    let plan = decide(&there, at(10));
    let exporter = plan.exporter.unwrap();
    assert!(plan.claims.is_empty());
    assert_eq!(told(&there, "VolumesCreated").1, "AllPVCsReady");
    let arguments = exporter.pod.spec.unwrap().containers.remove(0).args.unwrap();
    assert!(arguments.contains(&"--disk=disk=/export-volumes/0".to_owned()), "{arguments:?}");

    // A claim of that name that somebody else made is not exported.
    let other = claim("e-disk", "Bound");
    let taken = Observed { claims: [("e-disk", &other)].into(), ..seen };
    let plan = decide(&taken, at(10));
    assert!(plan.claims.is_empty() && plan.exporter.is_none());
}

#[test]
fn links_lead_inside_and_outside() {
    let export = export("VirtualMachine", &json!({}));
    let (vm, bound, mine, runs) = (vm(&["s"]), claim("s", "Bound"), service("u"), pod("u", "Running", true));
    let external = External { host: "host:6443".to_owned(), authority: "CA".to_owned() };
    let seen = Observed {
        claims: [("s", &bound)].into(),
        service: Some(&mine),
        pod: Some(&runs),
        external: Some(&external),
        ..nothing(&export, Source::Machine { vm: Some(&vm), instance: None })
    };
    let links = status_after(&seen)["links"].clone();
    let base = "https://host:6443/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/e";
    let (inside, outside) = (&links["internal"], &links["external"]);
    assert_eq!((&inside["cert"], &outside["cert"]), (&json!("PEM"), &json!("CA")));
    assert_eq!(
        inside["volumes"][0]["formats"],
        json!([
            { "format": "raw", "url": "https://virt-export-e.n.svc/volumes/s/disk.img" },
            { "format": "gzip", "url": "https://virt-export-e.n.svc/volumes/s/disk.img.gz" },
        ])
    );
    assert_eq!(outside["volumes"][0]["formats"][1]["url"], format!("{base}/volumes/s/disk.img.gz"));
    assert_eq!(outside["manifests"][0], json!({ "type": "all", "url": format!("{base}/external/manifests/all") }));
    assert_eq!(
        inside["manifests"][1],
        json!({ "type": "auth-header-secret", "url": "https://virt-export-e.n.svc/internal/manifests/secret" })
    );
    let nobody = Observed { external: None, ..seen };
    assert!(status_after(&nobody)["links"]["external"].is_null());
}

#[test]
fn a_claim_is_a_disk_or_files() {
    let export = export("PersistentVolumeClaim", &json!({}));
    let (plain, mine) = (claim("s", "Bound"), service("u"));
    let annotated = |content: &str| {
        let mut claim = plain.clone();
        claim.metadata.annotations =
            Some([("cdi.kubevirt.io/storage.contentType".to_owned(), content.to_owned())].into());
        claim
    };
    let mut block = plain.clone();
    block.spec.as_mut().unwrap().volume_mode = Some("Block".to_owned());
    let (disk, archive) = (annotated("kubevirt"), annotated("archive"));
    for (claim, of_vm, flag) in [
        (&plain, false, "--files=s=/export-volumes/0"),
        (&plain, true, "--disk=s=/export-volumes/0"),
        (&disk, false, "--disk=s=/export-volumes/0"),
        (&archive, true, "--files=s=/export-volumes/0"),
        (&block, false, "--disk=s=/export-volumes/0"),
    ] {
        let disks: BTreeSet<&str> = ["s"].into_iter().filter(|_| of_vm).collect();
        let seen =
            Observed { claims: [("s", claim)].into(), disks, service: Some(&mine), ..nothing(&export, Source::Claim) };
        let spec = decide(&seen, at(10)).exporter.unwrap().pod.spec.unwrap();
        assert!(spec.containers[0].args.iter().flatten().any(|word| word == flag), "{flag}");
        let is_device = spec.containers[0].volume_devices.iter().flatten().count() == 1;
        assert_eq!(is_device, std::ptr::eq(claim, &block));
    }
}

#[test]
fn a_token_is_made_once_and_only_if_the_user_has_none() {
    let (bound, mine) = (claim("s", "Bound"), service("u"));
    let new = export("PersistentVolumeClaim", &json!({}));
    let seen =
        |export| Observed { claims: [("s", &bound)].into(), service: Some(&mine), ..nothing(export, Source::Claim) };
    let plan = decide(&seen(&new), at(10));
    let name = plan.token.unwrap();
    assert!(name.starts_with("export-token-e-"), "{name}");
    assert_eq!(status_after(&seen(&new))["tokenSecretRef"], json!(name));
    let old = export("PersistentVolumeClaim", &json!({ "tokenSecretRef": name }));
    assert_eq!(decide(&seen(&old), at(10)).token, None);
    let mut own = new.clone();
    own.spec.token_secret_ref = Some("mine".to_owned());
    assert_eq!(decide(&seen(&own), at(10)).token, None);
    assert_eq!(status_after(&seen(&own))["tokenSecretRef"], "mine");
}

#[test]
fn an_export_goes_when_its_time_is_over() {
    let mut export = export("PersistentVolumeClaim", &json!({}));
    let gone = |export: &Export, second| decide(&nothing(export, Source::Claim), at(second)).delete.is_some();
    assert!(!gone(&export, 2 * HOUR - 1) && gone(&export, 2 * HOUR));
    export.spec.ttl_duration = Some("5m".parse().unwrap());
    assert!(!gone(&export, 299) && gone(&export, 300));
    let left = decide(&nothing(&export, Source::Claim), at(100)).recheck_after;
    assert_eq!(left, Some(Duration::from_secs(200)));
}

#[test]
fn names_are_labels_however_long_that_of_the_export_is() {
    assert_eq!(exporter_name("e"), "virt-export-e");
    for name in ["a.b".to_owned(), "x".repeat(253), format!("{}.{}", "x".repeat(60), "y".repeat(60))] {
        let made = exporter_name(&name);
        assert!(made.len() <= 63 && !made.contains('.') && made.starts_with("virt-export-"), "{made}");
    }
    assert_ne!(exporter_name("a.b"), exporter_name("a-b"));
}

#[test]
fn an_exporter_has_no_right_and_writes_nothing() {
    let export = export("PersistentVolumeClaim", &json!({}));
    let (bound, mine) = (claim("s", "Bound"), service("u"));
    let seen = Observed { claims: [("s", &bound)].into(), service: Some(&mine), ..nothing(&export, Source::Claim) };
    let pod = decide(&seen, at(10)).exporter.unwrap().pod;
    assert!(is_exporter(&pod));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.automount_service_account_token, Some(false));
    let container = &spec.containers[0];
    assert!(container.volume_mounts.iter().flatten().all(|mount| mount.read_only == Some(true)));
    let security = container.security_context.as_ref().unwrap();
    assert_eq!(security.allow_privilege_escalation, Some(false));
    assert_eq!(security.capabilities.as_ref().unwrap().drop, Some(vec!["ALL".to_owned()]));
}

#[test]
fn manifests_download_each_disk_and_leave_out_what_only_holds_here() {
    let export = export("VirtualMachine", &json!({}));
    let (mut vm, disk, own, mine) = (vm(&["s", "t"]), claim("s", "Bound"), claim("t", "Bound"), service("u"));
    vm.spec.data_volume_templates = Some(vec![read(json!({
        "metadata": { "name": "s" }, "spec": { "sourceRef": { "kind": "DataSource", "name": "d" }, "storage": {} },
    }))]);
    let external = External { host: "host".to_owned(), authority: "CA\n".to_owned() };
    let seen = Observed {
        claims: [("s", &disk), ("t", &own)].into(),
        service: Some(&mine),
        external: Some(&external),
        ..nothing(&export, Source::Machine { vm: Some(&vm), instance: None })
    };
    let file = decide(&seen, at(10)).exporter.unwrap().machine.unwrap().file("PEM");
    let [map, machine, volume] = file["internal"].as_array().unwrap().as_slice() else { panic!("{file}") };
    assert_eq!((&map["kind"], &map["data"]["ca.pem"]), (&json!("ConfigMap"), &json!("PEM")));
    assert_eq!(machine["metadata"]["annotations"], json!({ "own": "y" }));
    assert!(machine["metadata"]["uid"].is_null() && machine["status"].is_null());
    let template = &machine["spec"]["dataVolumeTemplates"][0]["spec"];
    assert!(template["sourceRef"].is_null());
    assert_eq!(template["source"]["http"]["url"], "https://virt-export-e.n.svc/volumes/s/disk.img.gz");
    assert_eq!(template["source"]["http"]["secretExtraHeaders"], json!(["header-secret-e"]));
    assert_eq!((&volume["kind"], &volume["metadata"]["name"]), (&json!("DataVolume"), &json!("t")));
    let outside = &file["external"][2]["spec"]["source"]["http"];
    assert_eq!(
        outside["url"],
        "https://host/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/e/volumes/t/disk.img.gz"
    );
    assert_eq!(outside["certConfigMap"], map["metadata"]["name"]);
}

proptest! {
    #[test]
    fn whatever_is_seen_the_guarantees_hold(
        kind in prop::sample::select(vec!["PersistentVolumeClaim", "VirtualMachine", "VirtualMachineSnapshot", "Other"]),
        second in 0_i64..3 * HOUR,
        claim_phase in prop::option::of(prop::sample::select(vec!["Bound", "Pending", "Lost"])),
        pod_phase in prop::option::of(prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed"])),
        pod_owner in prop::sample::select(vec!["u", "other"]),
        service_owner in prop::option::of(prop::sample::select(vec!["u", "other"])),
        instance_phase in prop::option::of(prop::sample::select(vec!["Scheduling", "Running", "Succeeded"])),
        ready: bool, used: bool, has_vm: bool, deleted: bool, told: bool,
    ) {
        let status = if told { json!({ "phase": "Ready", "tokenSecretRef": "t" }) } else { json!({}) };
        let mut export = export(kind, &status);
        export.metadata.deletion_timestamp = deleted.then(|| manager::writing::whole_second(at(0)));
        let claim = claim_phase.map(|phase| claim("s", phase));
        let pod = pod_phase.map(|phase| pod(pod_owner, phase, ready));
        let (service, vm) = (service_owner.map(service), vm(&["s"]));
        let instance = instance_phase.map(instance);
        let source = match kind {
            "PersistentVolumeClaim" => Source::Claim,
            "VirtualMachine" => Source::Machine { vm: has_vm.then_some(&vm), instance: instance.as_ref() },
            "VirtualMachineSnapshot" => Source::Snapshot { snapshot: None, content: None },
            _ => Source::Unknown,
        };
        let seen = Observed {
            claims: claim.iter().map(|claim| ("s", claim)).collect(),
            used: ["s"].into_iter().filter(|_| used).collect(),
            service: service.as_ref(),
            pod: pod.as_ref(),
            ..nothing(&export, source)
        };
        let plan = decide(&seen, at(second));
        prop_assert_eq!(&plan, &decide(&seen, at(second)));
        let over = second >= 2 * HOUR;
        prop_assert_eq!(plan.delete.is_some(), over && !deleted);
        if deleted || over {
            prop_assert!(plan.exporter.is_none() && plan.service.is_none() && plan.token.is_none());
        }
        if plan.exporter.is_some() {
            prop_assert!(pod.is_none() && claim.is_some() && !used && service_owner != Some("other"));
            prop_assert!(kind != "VirtualMachine" || instance_phase.is_none_or(|phase| phase == "Succeeded"));
        }
        if plan.delete_pod.is_some() {
            prop_assert_eq!(pod_owner, "u");
        }
        // Whoever is used by another keeps no exporter.
        if !deleted && !over && used && pod.is_some() && pod_owner == "u" {
            prop_assert!(plan.delete_pod.is_some());
        }
        let patch = plan.status.as_ref().map(|patch| &patch["status"]);
        if patch.is_some_and(|status| status["links"].is_object()) {
            prop_assert!(ready && pod_owner == "u" && !used);
        }
        // What was told is not told again.
        if let Some(patch) = patch {
            let mut after = json!(export);
            json_patch::merge(&mut after["status"], patch);
            let after: Export = read(after);
            let again = decide(&Observed { export: &after, ..seen.clone() }, at(second));
            prop_assert_eq!(again.status, None);
        }
    }
}
