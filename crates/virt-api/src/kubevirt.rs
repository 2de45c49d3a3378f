//! The KubeVirt object: one of it, and nothing in it that would break every guest.

use api::configuration::KubeVirtConfiguration;
use api::kubevirt::{KubeVirt, KubeVirtUninstallStrategy};
use api::vmi::EvictionStrategy;
use virt_rules::config::{ClusterConfig, DefaultInterface, Gate, Stage};

use crate::denial::{Denial, Problems, Reason};
use crate::migration;
use crate::object;
use crate::request::{Known, Operation, Request, Response};

const GATES: &str = "spec.configuration.developerConfiguration";
const MIGRATIONS: &str = "spec.configuration.migrations";

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    match request.operation {
        Operation::Create if known.kubevirts() > 0 => Response::denied(Denial::forbidden(
            "kind: a KubeVirt object already exists, and a cluster can only have one; change that one",
        )),
        Operation::Create | Operation::Update if request.is_about_status() => Response::allowed(),
        Operation::Create | Operation::Update => write(request),
        Operation::Delete => delete(request, known),
    }
}

fn write(request: &Request<'_>) -> Response {
    let sent: KubeVirt = match object::read(request.object) {
        Ok(kubevirt) => kubevirt,
        Err(denial) => return Response::denied(denial),
    };
    if sent.metadata.deletion_timestamp.is_some() {
        return Response::allowed();
    }
    let config = ClusterConfig::new(Some(&sent));
    let mut problems = Problems::default();
    let mut warnings = Vec::new();
    for problem in config.problems() {
        match problem.split_once(": ") {
            // A gate of another release may well stand in a CR that is shared with it.
            Some((GATES, _)) | None => warnings.push(problem.clone()),
            Some((field, _)) => problems.told(Reason::Invalid, field, problem),
        }
    }
    check(&sent, &config, &mut problems);
    warnings.extend(deprecations(config.raw()));
    warnings.extend(without_effect(config.raw()));
    object::decided(request.object, &sent, &sent, problems).with_warnings(warnings)
}

fn check(kubevirt: &KubeVirt, config: &ClusterConfig, problems: &mut Problems) {
    if let Some(KubeVirtUninstallStrategy::Other(other)) = &kubevirt.spec.uninstall_strategy {
        let known = KubeVirtUninstallStrategy::KNOWN.join(", ");
        problems.unsupported("spec.uninstallStrategy", format!("{other:?} is unknown; use one of {known}"));
    }
    let raw = config.raw();
    if let Some(EvictionStrategy::Other(other)) = &raw.eviction_strategy {
        let known = EvictionStrategy::KNOWN.join(", ");
        problems
            .unsupported("spec.configuration.evictionStrategy", format!("{other:?} is unknown; use one of {known}"));
    }
    let network = raw.network.as_ref();
    let field = "spec.configuration.network.defaultNetworkInterface";
    let interface = network.and_then(|network| network.default_network_interface.as_deref()).unwrap_or_default();
    if !matches!(interface, "" | "bridge" | "masquerade") {
        problems.unsupported(field, format!("{interface:?} is unknown; use one of bridge, masquerade"));
    } else if config.default_interface() == DefaultInterface::Bridge && !config.permit_bridge_on_pod_network() {
        problems
            .invalid(field, "bridge on the pod network is not permitted, so it cannot be the default; use masquerade");
    }
    let migrations = raw.migrations.as_ref();
    if migrations.and_then(|migrations| migrations.network.as_deref()).is_some_and(|network| !network.is_empty()) {
        let message = "a network of their own for migrations is not supported; remove it, and they go between the addresses of the nodes";
        problems.unsupported(format!("{MIGRATIONS}.network"), message);
    }
    if let Some(other) = config.default_architecture().filter(|name| !["amd64", "arm64", "s390x"].contains(name)) {
        let field = "spec.configuration.architectureConfiguration.defaultArchitecture";
        problems.unsupported(field, format!("{other:?} is unknown; use one of amd64, arm64, s390x"));
    }
}

fn deprecations(raw: &KubeVirtConfiguration) -> Vec<String> {
    let developer = raw.developer_configuration.as_ref();
    let gates = developer.and_then(|developer| developer.feature_gates.as_deref()).unwrap_or_default();
    let mut warnings = Vec::new();
    for gate in Gate::ALL.iter().filter(|gate| gates.iter().any(|name| name == gate.name())) {
        let name = gate.name();
        let text = match gate.stage() {
            Stage::Deprecated => "is deprecated; remove it",
            Stage::Discontinued => "is discontinued and stays off; remove it",
            Stage::GeneralAvailability => "is always on; remove it",
            Stage::Alpha | Stage::Beta => continue,
        };
        warnings.push(format!("{GATES}.featureGates: {name} {text}"));
    }
    let architecture = "architectureConfiguration";
    for (field, set, instead) in [
        ("machineType", raw.machine_type.is_some(), architecture),
        ("emulatedMachines", raw.emulated_machines.is_some(), architecture),
        ("ovmfPath", raw.ovmf_path.is_some(), architecture),
    ] {
        if set {
            warnings.push(format!("spec.configuration.{field}: is deprecated; use spec.configuration.{instead}"));
        }
    }
    warnings
}

/// What of KubeVirt's settings changes nothing here. They may well stand in an object that was KubeVirt's.
fn without_effect(raw: &KubeVirtConfiguration) -> Vec<String> {
    let Some(migrations) = &raw.migrations else { return Vec::new() };
    let set = [
        ("allowPostCopy", migrations.allow_post_copy == Some(true), migration::NO_POST_COPY),
        ("disableTLS", migrations.disable_tls == Some(true), "has no effect; migrations always go over TLS"),
        (
            "unsafeMigrationOverride",
            migrations.unsafe_migration_override == Some(true),
            "has no effect; no migration needs it",
        ),
        (
            "matchSELinuxLevelOnMigration",
            migrations.match_se_linux_level_on_migration.is_some(),
            "has no effect; launchers have no SELinux level of their own",
        ),
        (
            "utilityVolumesTimeout",
            migrations.utility_volumes_timeout.is_some(),
            "has no effect; utility volumes are not supported",
        ),
    ];
    set.into_iter()
        .filter(|(_, is_set, _)| *is_set)
        .map(|(field, _, why)| format!("{MIGRATIONS}.{field}: {why}"))
        .collect()
}

fn delete(request: &Request<'_>, known: &dyn Known) -> Response {
    let strategy = object::read::<KubeVirt>(request.old).ok().and_then(|kubevirt| kubevirt.spec.uninstall_strategy);
    if strategy == Some(KubeVirtUninstallStrategy::BlockIfWorkloadsExist) && known.has_workloads() {
        return Response::denied(Denial::forbidden(
            "spec.uninstallStrategy: VMs or instances exist, and the strategy is BlockUninstallIfWorkloadsExist; \
             delete them first, or set it to RemoveWorkloads",
        ));
    }
    Response::allowed()
}
