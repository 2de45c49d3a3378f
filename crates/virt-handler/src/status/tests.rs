use crate::decide::Milestone;
use launcher_api::Refusal;
use launcher_api::rpc::{Domain, State};
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-07-01T10:00:00.75Z".parse().unwrap()
}

fn vmi(phase: &str, status: &Value) -> VirtualMachineInstance {
    let mut object = json!({
        "metadata": { "name": "a", "uid": "u", "resourceVersion": "7" },
        "spec": {
            "domain": {
                "memory": { "guest": "64Mi" },
                "devices": {
                    "interfaces": [{ "name": "default", "masquerade": {} }],
                    "disks": [
                        { "name": "root", "disk": { "bus": "virtio" } },
                        { "name": "cd", "cdrom": { "bus": "sata" } },
                        { "name": "data", "disk": { "bus": "virtio" } },
                    ],
                },
            },
            "networks": [{ "name": "default", "pod": {} }],
        },
        "status": { "phase": phase },
    });
    for (name, value) in status.as_object().into_iter().flatten() {
        object["status"][name] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn domain(state: State) -> Domain {
    Domain { sequence: 1, state: state.into(), ..Domain::default() }
}

#[test]
fn equal_facts_change_nothing() {
    let running = domain(State::Running);
    let link = Link {
        name: "default".into(),
        mac: "02:00:00:00:00:01".into(),
        addresses: vec!["10.0.0.1".into()],
        pod_link: "eth0".into(),
    };
    let links = [link];
    let facts = Facts {
        domain: Some(&running),
        links: Some(&links),
        machine: Some("pc-q35-7.2"),
        is_emulated: true,
        ..Facts::default()
    };
    let first = next(&vmi("Scheduled", &json!({})), Some(&Phase::Running), &facts, now());
    let again = next(&first, Some(&Phase::Running), &facts, now() + std::time::Duration::from_secs(60));
    assert_eq!(change(&first, &again), None);
    // Nor does a handler that was restarted and knows less.
    let less = Facts { links: None, ..facts };
    assert_eq!(change(&first, &next(&first, Some(&Phase::Running), &less, now())), None);
}

#[test]
fn the_nodes_board_counts_only_while_the_guests_own_is_unknown() {
    let model = include_str!("../../../hypervisor/tests/stored/v1-least.json");
    let board = |vmi: &VirtualMachineInstance| vmi.status.as_ref().unwrap().machine.as_ref().unwrap().type_.clone();
    let running = domain(State::Running);
    let of_node = Facts { domain: Some(&running), machine: Some("pc-i440fx-9.0"), ..Facts::default() };
    for unreadable in [None, Some(r#"{"version":1}"#), Some(r#"{"version":999}"#)] {
        let facts = Facts { model: unreadable, ..of_node.clone() };
        let first = next(&vmi("Scheduled", &json!({})), Some(&Phase::Running), &facts, now());
        assert_eq!(board(&first).as_deref(), Some("pc-i440fx-9.0"));
        let known = Facts { model: Some(model), ..of_node.clone() };
        let then = next(&first, Some(&Phase::Running), &known, now());
        assert_eq!(board(&then).as_deref(), Some("pc-i440fx-7.2"));
        // A handler that was restarted and cannot ask leaves it.
        assert_eq!(board(&next(&then, Some(&Phase::Running), &of_node, now())).as_deref(), Some("pc-i440fx-7.2"));
    }
}

#[test]
fn a_change_names_the_version_it_was_made_from_and_no_more_than_differs() {
    let old = vmi("Running", &json!({ "nodeName": "n" }));
    let new = next(&old, Some(&Phase::Failed), &Facts::default(), now());
    let patch = change(&old, &new).unwrap();
    let times = json!([{ "phase": "Failed", "phaseTransitionTimestamp": "2026-07-01T10:00:00Z" }]);
    let wanted = json!({
        "metadata": { "uid": "u", "resourceVersion": "7" },
        "status": { "phase": "Failed", "phaseTransitionTimestamps": times },
    });
    assert_eq!(patch, wanted);
}

#[test]
fn a_phase_never_goes_back() {
    for (from, to) in [("Succeeded", Phase::Running), ("Failed", Phase::Succeeded), ("Pending", Phase::Running)] {
        let old = vmi(from, &json!({}));
        let new = next(&old, Some(&to), &Facts::default(), now());
        assert_eq!(new.phase(), old.phase());
        assert_eq!(change(&old, &new), None);
    }
}

#[test]
fn disks_have_the_names_that_a_guest_gives_them() {
    let known = json!({ "volumeStatus": [{ "name": "data", "target": "", "persistentVolumeClaimInfo": { "claimName": "c" } }] });
    let running = domain(State::Running);
    let facts = Facts { domain: Some(&running), ..Facts::default() };
    let new = next(&vmi("Scheduled", &known), Some(&Phase::Running), &facts, now());
    let volumes = new.status.unwrap().volume_status.unwrap();
    let targets: Vec<_> = volumes.iter().map(|one| (one.name.as_str(), one.target.as_str())).collect();
    assert_eq!(targets, [("root", "vda"), ("cd", "sda"), ("data", "vdb")]);
    assert_eq!(volumes[2].persistent_volume_claim_info.as_ref().unwrap().claim_name.as_deref(), Some("c"));
    assert_eq!([0, 25, 26, 701, 702].map(letters), ["a", "z", "aa", "zz", "aaa"]);
}

#[test]
fn a_guest_that_a_disk_has_stopped_says_which() {
    let told = |reason: &str| {
        let failed = Domain { reason: reason.to_owned(), ..domain(State::PausedByIoError) };
        let facts = Facts { domain: Some(&failed), ..Facts::default() };
        let new = next(&vmi("Running", &json!({})), Some(&Phase::Running), &facts, now());
        io_error(&new).map(str::to_owned)
    };
    assert_eq!(told("").as_deref(), Some("VMI was paused, low-level IO error detected"));
    assert_eq!(
        told("disk data: full").as_deref(),
        Some("VMI was paused, low-level IO error detected: disk data: full")
    );
    let running = domain(State::Running);
    let facts = Facts { domain: Some(&running), ..Facts::default() };
    assert_eq!(io_error(&next(&vmi("Running", &json!({})), Some(&Phase::Running), &facts, now())), None);
}

#[test]
fn a_guest_that_starts_paused_is_not_ready() {
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "GuestNotRunning" }] });
    let paused = domain(State::PausedByUser);
    let facts = Facts { domain: Some(&paused), ..Facts::default() };
    let new = next(&vmi("Scheduled", &ready), Some(&Phase::Running), &facts, now());
    let text = json!(new.status.unwrap().conditions);
    assert_eq!(text[0]["status"], "False");
    assert_eq!(text[1]["type"], "Paused");
    assert_eq!(text[1]["reason"], "PausedByUser");
}

#[test]
fn a_guest_with_a_probe_is_ready_when_that_says_so() {
    let waits = json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "GuestNotRunning" }] });
    let running = domain(State::Running);
    let facts = Facts { domain: Some(&running), ..Facts::default() };
    let ready = |vmi: &VirtualMachineInstance| {
        let new = next(vmi, Some(&Phase::Running), &facts, now());
        json!(new.status.unwrap().conditions)[0]["status"].clone()
    };
    let mut scheduled = vmi("Scheduled", &waits);
    assert_eq!(ready(&scheduled), "True");
    scheduled.spec.readiness_probe = Some(api::vmi::Probe::default());
    assert_eq!(ready(&scheduled), "False");
}

#[test]
fn a_claim_that_only_one_node_may_write_keeps_its_guest_there() {
    let claim = |mode: &str| json!({ "volumeStatus": [{ "name": "data", "target": "", "persistentVolumeClaimInfo": { "accessModes": [mode] } }] });
    let reason = |mode: &str, isolates_claims: bool| {
        let mut vmi = vmi("Running", &claim(mode));
        let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }]);
        vmi.spec.volumes = serde_json::from_value(volumes).unwrap();
        let annotations = vmi.metadata.annotations.get_or_insert_default();
        annotations.insert(api::names::annotation::GUEST.to_owned(), "{}".to_owned());
        migration::why_not(&vmi, &Facts { lets_guests_go: true, isolates_claims, ..Facts::default() })
            .map(|(reason, _)| reason)
    };
    assert_eq!(reason("ReadWriteOnce", false), Some("DisksNotLiveMigratable"));
    assert_eq!(reason("ReadWriteMany", false), None);
    assert_eq!(reason("ReadWriteMany", true), Some("DisksNotLiveMigratable"), "only one launcher can use it");
    let old = vmi("Running", &json!({}));
    assert_eq!(
        migration::why_not(&old, &Facts { lets_guests_go: true, ..Facts::default() }).map(|(reason, _)| reason),
        Some("MigrationNotSupported"),
        "it has no model"
    );
}

#[test]
fn a_guest_whose_model_is_known_can_move_from_the_first_write_on_if_its_node_lets_it_go() {
    let running = domain(State::Running);
    let can_move = |lets_guests_go: bool, model: Option<&str>| {
        let facts = Facts { domain: Some(&running), model, lets_guests_go, ..Facts::default() };
        let new = next(&vmi("Scheduled", &json!({})), Some(&Phase::Running), &facts, now());
        let conditions = new.status.unwrap().conditions.unwrap();
        let condition = conditions.into_iter().find(|one| one.type_ == "LiveMigratable").unwrap();
        (json!(condition.status), condition.reason.unwrap_or_default())
    };
    assert_eq!(can_move(true, Some("{}")).0, "True");
    assert_eq!(can_move(true, None), (json!("False"), "MigrationNotSupported".to_owned()));
    assert_eq!(can_move(false, Some("{}")), (json!("False"), "MigrationNotSupported".to_owned()));
}

/// It is written by whoever has taken the launcher over.
#[test]
fn a_launcher_that_tells_too_much_is_cut_short() {
    let long = "\u{e9}".repeat(1_000_000);
    let domain = Domain { reason: long.clone(), ..domain(State::PausedByIoError) };
    let refusal = Refusal { path: long.clone(), problem: long.clone() };
    let size = |vmi: &VirtualMachineInstance| json!(vmi).to_string().len();
    for outcome in [
        Outcome::retry(&long),
        Outcome::Never(vec![refusal; 100]),
        Outcome::NeedsMigration(vec![long.clone(); 100]),
        Outcome::NeedsRestart(vec![long.clone(); 100]),
    ] {
        let facts = Facts { domain: Some(&domain), outcome: Some(&outcome), model: Some(&long), ..Facts::default() };
        let told = next(&vmi("Running", &json!({})), Some(&Phase::Running), &facts, now());
        assert!(size(&told) < 16 << 10, "{}", size(&told));
        assert!(io_error(&told).unwrap().ends_with("\u{e9}..."));
        // The same once more is no news.
        assert_eq!(change(&told, &next(&told, Some(&Phase::Running), &facts, now())), None);
        let ended = next(&told, Some(&Phase::Failed), &facts, now());
        assert!(size(&ended) < 16 << 10, "{}", size(&ended));
    }
    let mut moved = vmi("Running", &json!({ "migrationState": {} }));
    migration::reached(&mut moved, &Milestone::Failed { why: long, is_aborted: false }, None, now());
    assert!(size(&moved) < 16 << 10, "{}", size(&moved));
}

#[test]
fn how_a_guest_moves_follows_from_its_disks() {
    let running = domain(State::Running);
    let told = |volumes: serde_json::Value, disks: serde_json::Value| {
        let mut vmi = vmi(
            "Running",
            &json!({ "volumeStatus": [
            { "name": "shared", "target": "", "persistentVolumeClaimInfo": { "accessModes": ["ReadWriteMany"] } },
        ] }),
        );
        vmi.spec.volumes = serde_json::from_value(volumes).unwrap();
        vmi.spec.domain.devices.disks = serde_json::from_value(disks).unwrap();
        let facts = Facts { domain: Some(&running), ..Facts::default() };
        next(&vmi, Some(&Phase::Running), &facts, now()).status.unwrap()
    };
    let shared = json!({ "name": "shared", "persistentVolumeClaim": { "claimName": "c" } });
    let own = json!({ "name": "own", "persistentVolumeClaim": { "claimName": "d" } });
    let image = json!({ "name": "image", "containerDisk": { "image": "i" } });
    let method = |volumes: serde_json::Value, disks: serde_json::Value| json!(told(volumes, disks).migration_method);
    assert_eq!(method(json!([]), json!([])), "LiveMigration");
    assert_eq!(method(json!([shared]), json!([{ "name": "shared", "disk": {} }])), "LiveMigration");
    assert_eq!(method(json!([own]), json!([{ "name": "own", "disk": {} }])), "BlockMigration");
    assert_eq!(method(json!([shared, image]), json!([{ "name": "image", "disk": {} }])), "BlockMigration");
    assert_eq!(method(json!([image]), json!([{ "name": "image", "cdrom": {} }])), "LiveMigration");
    assert_eq!(method(json!([image]), json!([{ "name": "image", "cdrom": { "readonly": false } }])), "BlockMigration");
    let conditions = told(json!([]), json!([])).conditions.unwrap();
    let storage = conditions.iter().find(|one| one.type_ == "StorageLiveMigratable").unwrap();
    assert_eq!((json!(storage.status), storage.reason.as_deref()), (json!("False"), Some("NotMigratable")));
}
