//! The KubeVirt object, instancetypes and preferences, and kinds that nobody acts on.

use serde_json::{Value, json};
use virt_api::{Operation, Request, Requester, Response, admit};

use crate::support::{Cluster, changed, create, denied, fields, refuses, update, write};

fn kubevirt() -> Value {
    json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" }, "spec": {} })
}

fn configuration(configuration: &Value) -> Value {
    json!({ "spec": { "configuration": configuration } })
}

#[test]
fn there_is_one_installation() {
    let mut cluster = Cluster::new();
    assert_eq!(create(&cluster, &kubevirt()).outcome, Ok(None));
    cluster.kubevirts = 1;
    assert_eq!(denied(create(&cluster, &kubevirt())).code, 403);
    assert_eq!(update(&cluster, Requester::User, &kubevirt(), &kubevirt()).outcome, Ok(None));
}

#[test]
fn a_configuration_that_would_break_every_guest_is_refused() {
    let network = "spec.configuration.network.defaultNetworkInterface";
    refuses(
        &Cluster::new(),
        &kubevirt(),
        &[
            (configuration(&json!({ "evictionStrategy": "Jump" })), &["spec.configuration.evictionStrategy"]),
            (configuration(&json!({ "network": { "defaultNetworkInterface": "slirp" } })), &[network]),
            (
                configuration(
                    &json!({ "network": { "permitBridgeInterfaceOnPodNetwork": false, "defaultNetworkInterface": "bridge" } }),
                ),
                &[network],
            ),
            (
                configuration(&json!({ "additionalGuestMemoryOverheadRatio": "much" })),
                &["spec.configuration.additionalGuestMemoryOverheadRatio"],
            ),
            (
                configuration(&json!({ "architectureConfiguration": { "defaultArchitecture": "vax" } })),
                &["spec.configuration.architectureConfiguration.defaultArchitecture"],
            ),
            (
                configuration(&json!({ "migrations": { "network": "fast" } })),
                &["spec.configuration.migrations.network"],
            ),
            (json!({ "spec": { "uninstallStrategy": "Burn" } }), &["spec.uninstallStrategy"]),
        ],
    );
}

#[test]
fn gates_that_do_nothing_are_warned_about() {
    let gates = json!({ "developerConfiguration": { "featureGates": ["Warp", "Passt", "HotplugVolumes", "NUMA", "HostDisk"] } });
    let response = create(&Cluster::new(), &changed(&kubevirt(), &configuration(&gates)));
    assert_eq!(response.outcome, Ok(None));
    let about = |name: &str| response.warnings.iter().filter(|warning| warning.contains(name)).count();
    assert_eq!(["Warp", "Passt", "HotplugVolumes", "NUMA", "HostDisk"].map(about), [1, 1, 1, 1, 0]);
}

#[test]
fn settings_of_migrations_that_do_nothing_are_warned_about() {
    let warned = |migrations: Value| {
        let response =
            create(&Cluster::new(), &changed(&kubevirt(), &configuration(&json!({ "migrations": migrations }))));
        assert_eq!(response.outcome, Ok(None), "an object that was KubeVirt's is taken");
        let fields =
            response.warnings.iter().filter_map(|warning| warning.split_once(": ")).map(|(field, _)| field.to_owned());
        fields.collect::<Vec<_>>()
    };
    let off = json!({ "allowPostCopy": false, "disableTLS": false, "unsafeMigrationOverride": false, "network": "" });
    assert_eq!(warned(off), [""; 0]);
    let on = json!({
        "allowPostCopy": true, "disableTLS": true, "unsafeMigrationOverride": true, "matchSELinuxLevelOnMigration": true,
        "utilityVolumesTimeout": 5, "allowAutoConverge": true,
    });
    let all = [
        "allowPostCopy",
        "disableTLS",
        "unsafeMigrationOverride",
        "matchSELinuxLevelOnMigration",
        "utilityVolumesTimeout",
    ];
    assert_eq!(warned(on), all.map(|field| format!("spec.configuration.migrations.{field}")));
}

fn delete(cluster: &Cluster, old: &Value) -> Response {
    let request = Request {
        operation: Operation::Delete,
        group: "kubevirt.io",
        resource: "kubevirts",
        subresource: "",
        namespace: "kubevirt",
        name: "",
        requester: Requester::Admin,
        object: None,
        old: Some(old),
        dry_run: false,
    };
    admit(&request, cluster)
}

#[test]
fn an_installation_with_guests_is_not_removed_by_accident() {
    let mut cluster = Cluster::new();
    let careful = changed(&kubevirt(), &json!({ "spec": { "uninstallStrategy": "BlockUninstallIfWorkloadsExist" } }));
    assert_eq!(delete(&cluster, &careful).outcome, Ok(None));
    cluster.workloads = true;
    assert!(denied(delete(&cluster, &careful)).message.contains("delete them first"));
    assert_eq!(delete(&cluster, &kubevirt()).outcome, Ok(None));
}

#[test]
fn instancetypes_have_a_size() {
    let base = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype",
        "metadata": { "name": "i" }, "spec": { "cpu": { "guest": 1 }, "memory": { "guest": "1Gi" } },
    });
    let spec = |spec: Value| json!({ "spec": spec });
    refuses(
        &Cluster::new(),
        &base,
        &[
            (spec(json!({ "cpu": { "guest": 0 } })), &["spec.cpu.guest"]),
            (spec(json!({ "cpu": { "isolateEmulatorThread": true } })), &["spec.cpu.isolateEmulatorThread"]),
            (spec(json!({ "memory": { "guest": "0" } })), &["spec.memory.guest"]),
            (spec(json!({ "memory": { "overcommitPercent": 101 } })), &["spec.memory.overcommitPercent"]),
            (spec(json!({ "memory": { "maxGuest": "1Mi" } })), &["spec.memory.maxGuest"]),
            (
                spec(json!({ "memory": { "overcommitPercent": 1, "hugepages": { "pageSize": "2Mi" } } })),
                &["spec.memory.overcommitPercent"],
            ),
            (spec(json!({ "memory": { "hugepages": { "pageSize": "3Mi" } } })), &["spec.memory.guest"]),
            (spec(json!({ "memory": { "hugepages": {} } })), &["spec.memory.hugepages.pageSize"]),
        ],
    );
    let cluster_wide =
        changed(&base, &json!({ "kind": "VirtualMachineClusterInstancetype", "spec": { "cpu": { "guest": 0 } } }));
    assert_eq!(fields(create(&Cluster::new(), &cluster_wide)), ["spec.cpu.guest"]);
}

#[test]
fn preferences_use_known_words() {
    let base = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachinePreference",
        "metadata": { "name": "p" }, "spec": {},
    });
    let cpu = |cpu: Value| json!({ "spec": { "cpu": cpu } });
    let across = json!({ "preferredCPUTopology": "spread", "spreadOptions": { "across": "CoresThreads", "ratio": 4 } });
    refuses(
        &Cluster::new(),
        &base,
        &[
            (cpu(json!({ "preferredCPUTopology": "dies" })), &["spec.cpu.preferredCPUTopology"]),
            (cpu(json!({ "spreadOptions": { "across": "Nodes" } })), &["spec.cpu.spreadOptions.across"]),
            (cpu(json!({ "spreadOptions": { "ratio": 0 } })), &["spec.cpu.spreadOptions.ratio"]),
            (cpu(across), &["spec.cpu.spreadOptions.ratio"]),
            (
                json!({ "spec": { "firmware": { "preferredUseBios": true, "preferredEfi": {} } } }),
                &["spec.firmware.preferredUseBios"],
            ),
        ],
    );
    let old = changed(&base, &cpu(json!({ "preferredCPUTopology": "preferCores" })));
    let warnings = create(&Cluster::new(), &old).warnings;
    assert_eq!(warnings, ["spec.cpu.preferredCPUTopology: preferCores is deprecated; use cores"]);
}

#[test]
fn kinds_without_a_controller_are_refused_with_what_to_do() {
    let cluster = Cluster::new();
    for crd in api::crd::all().unwrap() {
        let kind = crd.spec.names.kind;
        let built = matches!(
            kind.as_str(),
            "VirtualMachine"
                | "VirtualMachineInstance"
                | "VirtualMachineInstanceReplicaSet"
                | "VirtualMachineInstanceMigration"
                | "MigrationPolicy"
                | "VirtualMachineInstancePreset"
                | "VirtualMachinePool"
                | "KubeVirt"
                | "VirtualMachineSnapshot"
                | "VirtualMachineSnapshotContent"
                | "VirtualMachineRestore"
                | "VirtualMachineClone"
                | "VirtualMachineExport"
        ) || crd.spec.group == "instancetype.kubevirt.io";
        if built {
            continue;
        }
        let object =
            json!({ "apiVersion": format!("{}/v1", crd.spec.group), "kind": kind, "metadata": { "name": "x" } });
        let denial = denied(create(&cluster, &object));
        assert!(denial.message.starts_with(&format!("kind: {kind} is not supported yet; ")), "{denial}");
        assert_eq!(update(&cluster, Requester::User, &object, &object).outcome, Ok(None), "{kind}");
        assert_eq!(write(&cluster, Requester::Component, "", None, &object).outcome, Ok(None), "{kind}");
    }
}

#[test]
fn what_is_not_ours_passes() {
    let pod = json!({ "apiVersion": "/v1", "kind": "Pod", "metadata": { "name": "p" } });
    assert_eq!(create(&Cluster::new(), &pod), Response { outcome: Ok(None), warnings: Vec::new(), mark: None });
}
