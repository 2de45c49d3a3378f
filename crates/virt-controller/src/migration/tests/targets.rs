use super::*;

#[test]
fn the_target_pod_is_elsewhere_and_named_by_its_migration() {
    let mut bench = Bench::new("Pending");
    bench.migration.spec.added_node_selector = Some(BTreeMap::from([("zone".to_owned(), "b".to_owned())]));
    bench.source = Some(
        serde_json::from_value(json!({ "metadata": { "name": "one", "labels": {
            "cpu-vendor.node.kubevirt.io/AMD": "true", "host-model-cpu.node.kubevirt.io/EPYC": "true",
        } } }))
        .unwrap(),
    );
    let pod = *bench.decide().create.unwrap();
    let first = crate::render::name::launcher("v", "u");
    assert_ne!(pod.metadata.name.as_deref(), Some(first.as_str()));
    assert_eq!(pod.metadata.labels.as_ref().unwrap()[label::MIGRATION_JOB_UID], "m");
    assert_eq!(pod.metadata.annotations.as_ref().unwrap()[annotation::MIGRATION_JOB_NAME], "m");
    let spec = pod.spec.unwrap();
    let away = spec.affinity.unwrap().pod_anti_affinity.unwrap();
    let terms = away.required_during_scheduling_ignored_during_execution.unwrap();
    assert_eq!(terms[0].topology_key, "kubernetes.io/hostname");
    let selector = spec.node_selector.unwrap();
    for (key, value) in [
        ("zone", "b"),
        ("cpu-vendor.node.kubevirt.io/AMD", "true"),
        ("cpu-model-migration.node.kubevirt.io/EPYC", "true"),
    ] {
        assert_eq!(selector.get(key).map(String::as_str), Some(value), "{key}");
    }
}

#[test]
fn disks_have_the_content_that_the_source_has() {
    let mut bench = Bench::new("Pending");
    let disk = json!([{ "name": "root", "containerDisk": { "image": "disk:latest" } }]);
    let mut vmi = json!(bench.vmi);
    merge(
        &mut vmi,
        &json!({ "spec": { "volumes": disk, "domain": { "devices": { "disks": [{ "name": "root", "disk": {} }] } } } }),
    );
    bench.vmi = Some(serde_json::from_value(vmi).unwrap());
    let held = json!({ "name": "volumeroot", "ready": true, "image": "disk:latest", "restartCount": 0,
        "imageID": "docker-pullable://registry/disk@sha256:abc", "state": { "running": {} } });
    let mut source = json!(bench.pods[0]);
    source["status"]["containerStatuses"].as_array_mut().unwrap().push(held);
    bench.pods[0] = serde_json::from_value(source).unwrap();
    let (config, launcher) = (ClusterConfig::default(), Launcher::new("launcher"));
    let (claims, namespace) = (BTreeMap::new(), Namespace::default());
    let vmi = bench.vmi.as_ref().unwrap();
    let input = Input {
        vmi,
        config: &config,
        launcher: &launcher,
        claims: &claims,
        namespace: &namespace,
        image_volumes: false,
    };
    let pod = target::render(&input, &bench.migration, Some(&bench.pods[0]), None).unwrap();
    let spec = pod.spec.unwrap();
    let image = |name: &str| spec.containers.iter().find(|one| one.name == name).unwrap().image.clone().unwrap();
    assert_eq!(image("volumeroot"), "registry/disk@sha256:abc");
    assert_eq!(image("compute"), "launcher");
}
