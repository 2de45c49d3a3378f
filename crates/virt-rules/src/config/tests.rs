use serde_json::json;

use super::*;

fn config(configuration: &serde_json::Value) -> ClusterConfig {
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" },
        "spec": { "imagePullSecrets": [{ "name": "registry" }], "configuration": configuration },
    });
    ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap()))
}

#[test]
fn without_a_kubevirt_everything_has_its_default() {
    let config = ClusterConfig::new(None);
    assert_eq!((config.cpu_allocation_ratio(), config.memory_overcommit()), (10, 100));
    assert_eq!((config.cpu_model(), config.cpu_request(), config.overhead_ratio()), (None, None, None));
    assert!(config.emulation().is_none() && config.logs_serial_console() && config.permit_bridge_on_pod_network());
    assert_eq!(config.default_interface(), DefaultInterface::Masquerade);
    assert_eq!(config.eviction_strategy(), EvictionStrategy::None);
    assert_eq!(config.rollout_strategy(), VMRolloutStrategy::LiveUpdate);
    assert_eq!(config.instancetype_reference_policy(), InstancetypeReferencePolicy::Reference);
    assert_eq!(config.controller_rate(), None);
    assert_eq!(config.hotplug().ratio, 4);
    assert!(config.problems().is_empty() && config.obsolete_cpu_models().contains("qemu64"));
}

#[test]
fn an_empty_kubevirt_is_as_none_but_for_its_secrets() {
    let config = config(&json!({}));
    assert_eq!(config.image_pull_secrets(), ["registry"]);
    assert_eq!(ClusterConfig { pull_secrets: vec![], ..config }, ClusterConfig::new(None));
}

#[test]
fn what_the_cr_says_holds() {
    let config = config(&json!({
        "cpuModel": "Nehalem", "cpuRequest": "250m", "evictionStrategy": "LiveMigrate",
        "developerConfiguration": { "cpuAllocationRatio": 2, "memoryOvercommit": 150, "useEmulation": true },
        "network": { "defaultNetworkInterface": "bridge" },
        "virtualMachineOptions": { "disableSerialConsoleLog": {} },
        "obsoleteCPUModels": { "Nehalem": true, "Penryn": false },
        "seccompConfiguration": { "virtualMachineInstanceProfile": { "customProfile": { "localhostProfile": "a.json" } } },
        "autoCPULimitNamespaceLabelSelector": { "matchLabels": { "limited": "yes" } },
        "controllerConfiguration": { "restClient": { "rateLimiter": { "tokenBucketRateLimiter": { "qps": 5.0, "burst": 7 } } } },
        "permittedHostDevices": { "usb": [{ "resourceName": "kubevirt.io/stick" }] },
        "instancetype": { "referencePolicy": "expand" },
    }));
    assert_eq!((config.cpu_model(), config.cpu_request()), (Some("Nehalem"), Some(Amount::milli(250))));
    assert_eq!((config.cpu_allocation_ratio(), config.memory_overcommit()), (2, 150));
    assert!(config.emulation() == Some(true) && !config.logs_serial_console());
    assert_eq!(config.default_interface(), DefaultInterface::Bridge);
    assert_eq!(config.obsolete_cpu_models(), BTreeSet::from(["Nehalem"]));
    assert_eq!(config.seccomp().unwrap().localhost_profile.as_deref(), Some("a.json"));
    assert!(config.limits_cpu(&BTreeMap::from([("limited".into(), "yes".into())])));
    assert!(!config.limits_cpu(&BTreeMap::new()));
    assert_eq!(config.controller_rate(), Some(TokenBucketRateLimiter { qps: 5.0, burst: 7 }));
    assert!(config.permits_host_device("kubevirt.io/stick") && !config.permits_host_device("kubevirt.io/other"));
    assert_eq!(config.instancetype_reference_policy(), InstancetypeReferencePolicy::Expand);
}

#[test]
fn zeros_that_would_divide_or_silence_are_as_if_unset() {
    let config = config(&json!({
        "developerConfiguration": { "cpuAllocationRatio": 0, "memoryOvercommit": 0 },
        "controllerConfiguration": { "restClient": { "rateLimiter": { "tokenBucketRateLimiter": { "qps": 0.0, "burst": 0 } } } },
    }));
    assert_eq!((config.cpu_allocation_ratio(), config.memory_overcommit()), (10, 100));
    assert_eq!(config.controller_rate(), None);
}

#[test]
fn what_nobody_can_follow_is_reported_by_its_path() {
    let config = config(&json!({
        "additionalGuestMemoryOverheadRatio": "lots",
        "developerConfiguration": { "featureGates": ["Warp", "HostDisk"] },
    }));
    assert!(config.enabled(Gate::HostDisk) && config.overhead_ratio().is_none());
    let problems = config.problems().join("\n");
    assert!(problems.contains("\"Warp\"") && problems.contains("additionalGuestMemoryOverheadRatio"), "{problems}");
}
