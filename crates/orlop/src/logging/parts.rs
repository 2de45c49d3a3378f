//! The parts of the program under the names that people read in the log and type in `--log`.

/// A part: what a line of the log says it comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Short, and no other part's.
    pub(super) name: &'static str,
    /// What `orlop logs --component` knows it by; empty for what works for several: it belongs to whoever it works for.
    pub(super) component: &'static str,
    /// The Rust module whose lines these are.
    module: &'static str,
    /// The controller whose reconciles it is, as `--controllers` names it; empty for none.
    controller: &'static str,
}

const fn part(name: &'static str, component: &'static str, module: &'static str, controller: &'static str) -> Part {
    Part { name, component, module, controller }
}

/// Every part there is.
pub(super) const PARTS: &[Part] = &[
    part("apiserver", "apiserver", "apiserver", ""),
    part("virt-controller", "virt-controller", "virt_controller", ""),
    part("vm", "virt-controller", "virt_controller::vm", "vm-controller"),
    part("vmi", "virt-controller", "virt_controller::vmi", "vmi-controller"),
    part("budgets", "virt-controller", "virt_controller::disruption_budget", "disruptionbudget-controller"),
    part("evacuations", "virt-controller", "virt_controller::evacuation", "evacuation-controller"),
    part("migrations", "virt-controller", "virt_controller::migration", "migration-controller"),
    part("pools", "virt-controller", "virt_controller::pool", "pool-controller"),
    part("clones", "virt-controller", "virt_controller::clone", "clone-controller"),
    part("exports", "virt-controller", "virt_controller::export", "export-controller"),
    part("restores", "virt-controller", "virt_controller::restore", "restore-controller"),
    part("snapshots", "virt-controller", "virt_controller::snapshot", "snapshot-controller"),
    part("updates", "virt-controller", "virt_controller::workload_update", "workload-updater"),
    part("vmi-sets", "virt-controller", "virt_controller::replicaset", "vmi-replicaset-controller"),
    part("handlers", "virt-controller", "virt_controller::node", "node-controller"),
    part("data-volumes", "data-volumes", "data_volumes", ""),
    part("data-volume", "data-volumes", "data_volumes::volume", "datavolume-controller"),
    part("data-source", "data-volumes", "data_volumes::data_source", "datasource-controller"),
    part("storage-profile", "data-volumes", "data_volumes::profile", "storageprofile-controller"),
    part("cdi-config", "data-volumes", "data_volumes::config", "cdiconfig-controller"),
    part("importer", "", "importer", ""),
    part("exporter", "", "exporter", ""),
    part("kube-controllers", "kube-controllers", "kube_controllers", ""),
    part("deployment", "kube-controllers", "kube_controllers::deployment", "deployment-controller"),
    part("replicaset", "kube-controllers", "kube_controllers::replicaset", "replicaset-controller"),
    part(
        "replication-controller",
        "kube-controllers",
        "kube_controllers::replication_controller",
        "replicationcontroller-controller",
    ),
    part("disruption", "kube-controllers", "kube_controllers::disruption", "disruption-controller"),
    part("endpoints", "kube-controllers", "kube_controllers::endpoints", "endpoints-controller"),
    part("endpoint-slices", "kube-controllers", "kube_controllers::endpoint_slice", "endpointslice-controller"),
    part("garbage", "kube-controllers", "kube_controllers::garbage", "garbage-collector-controller"),
    part("namespace", "kube-controllers", "kube_controllers::namespace", "namespace-controller"),
    part("node-lifecycle", "kube-controllers", "kube_controllers::node_lifecycle", "node-lifecycle-controller"),
    part("taint-eviction", "kube-controllers", "kube_controllers::taint_eviction", "taint-eviction-controller"),
    part("pod-gc", "kube-controllers", "kube_controllers::pod_gc", "pod-garbage-collector-controller"),
    part("service-accounts", "kube-controllers", "kube_controllers::service_account", "serviceaccount-controller"),
    part(
        "tokens-of-secrets",
        "kube-controllers",
        "kube_controllers::service_account_token",
        "serviceaccount-token-controller",
    ),
    part("root-ca", "kube-controllers", "kube_controllers::root_ca", "root-ca-certificate-publisher-controller"),
    part(
        "roles",
        "kube-controllers",
        "kube_controllers::cluster_role_aggregation",
        "clusterrole-aggregation-controller",
    ),
    part("scheduler", "scheduler", "kube_controllers::scheduler", ""),
    part("node", "node", "node", "node-agent"),
    part("volumes", "node", "node::provisioner", "local-volumes"),
    part("virt-handler", "virt-handler", "virt_handler", "virt-handler"),
    part("virt-launcher", "virt-launcher", "virt_launcher", ""),
    part("qemu", "virt-launcher", "hypervisor", ""),
    part("launcher-api", "", "launcher_api", ""),
    part("certificates", "", "certificates", ""),
    part("manager", "", "manager", ""),
    part("network", "", "network", ""),
    part("storage", "", "storage", ""),
    part("device-plugin", "", "device_plugin", ""),
    part("tokens", "", "tokens", ""),
    part("structural", "", "structural", ""),
    part("virt-api", "", "virt_api", ""),
    part("virt-extension", "", "virt_extension", ""),
    part("virt-rules", "", "virt_rules", ""),
    part("virt-server", "", "virt_server", ""),
    part("orlop", "", "orlop", ""),
];

/// The part with this name.
pub(super) fn by_name(name: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.name == name)
}

/// The part whose lines are about the reconciles of a controller.
pub(super) fn by_controller(controller: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.controller == controller && !controller.is_empty())
}

/// The part that a module belongs to: the one that knows it best.
pub(super) fn by_module(module: &str) -> Option<&'static Part> {
    let those = PARTS.iter().filter(|part| is_within(module, part.module));
    those.max_by_key(|part| part.module.len())
}

/// Whether a module is another one, or inside it.
pub(super) fn is_within(module: &str, outer: &str) -> bool {
    module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_is_of_one_part_and_a_module_too() {
        let names: BTreeSet<_> = PARTS.iter().map(|part| part.name).collect();
        let modules: BTreeSet<_> = PARTS.iter().map(|part| part.module).collect();
        assert_eq!((names.len(), modules.len()), (PARTS.len(), PARTS.len()));
    }

    #[test]
    fn the_part_that_knows_a_module_best_has_its_lines() {
        let name = |module: &str| by_module(module).map(|part| part.name);
        assert_eq!(name("virt_controller::vm::controller"), Some("vm"));
        assert_eq!(name("virt_controller::vmi"), Some("vmi"));
        assert_eq!(name("virt_controller::configuration"), Some("virt-controller"));
        assert_eq!(name("node_of_others"), None);
    }

    /// A crate that is new and logs must be told by a name, too.
    #[test]
    fn every_crate_of_the_program_is_a_part() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        // These have no lines of their own in the program.
        let silent = ["api", "simulation", "testkit"];
        for entry in std::fs::read_dir(crates).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let module = name.replace('-', "_");
            assert!(silent.contains(&name.as_str()) || by_module(&module).is_some(), "{name}");
        }
    }

    /// The table names modules and controllers that exist.
    #[test]
    fn modules_and_controllers_of_the_table_exist() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let controllers = std::fs::read_to_string(crates.join("orlop/src/up/node.rs")).unwrap();
        for part in PARTS {
            let mut steps = part.module.split("::");
            let root = crates.join(steps.next().unwrap().replace('_', "-")).join("src");
            let file = steps.fold(root, |path, step| path.join(step)).with_extension("rs");
            let found = if part.module.contains("::") { file.exists() } else { file.with_extension("").exists() };
            assert!(found, "{}", part.module);
            if part.controller.is_empty() {
                continue;
            }
            let quoted = format!("\"{}\"", part.controller);
            let folder = file.with_extension("").join("controller.rs");
            let texts = [file, folder].map(|path| std::fs::read_to_string(path).unwrap_or_default());
            assert!(texts.iter().chain([&controllers]).any(|text| text.contains(&quoted)), "{}", part.controller);
        }
    }
}
