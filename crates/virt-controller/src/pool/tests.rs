mod numbers;
mod properties;
mod trouble;
mod updates;

use json_patch::merge;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A pool of so many VMs, with `changes` of its specification merged in.
#[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
fn pool(replicas: usize, changes: Value) -> VirtualMachinePool {
    let volumes = json!([
        { "name": "root", "dataVolume": { "name": "root" } },
        { "name": "map", "configMap": { "name": "settings" } },
        { "name": "keys", "secret": { "secretName": "keys" } },
    ]);
    let mut pool = json!({
        "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
        "metadata": { "name": "farm", "namespace": "shop", "uid": "u-farm", "resourceVersion": "7", "generation": 3 },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "farm" } },
            "virtualMachineTemplate": {
                "metadata": { "labels": { "app": "farm" }, "annotations": { "a": "b" } },
                "spec": {
                    "runStrategy": "Always",
                    "dataVolumeTemplates": [{ "metadata": { "name": "root" }, "spec": { "source": { "blank": {} } } }],
                    "template": {
                        "metadata": { "labels": { "app": "farm" } },
                        "spec": { "domain": { "devices": {} }, "volumes": volumes },
                    },
                },
            },
        },
    });
    merge(&mut pool, &json!({ "spec": changes }));
    serde_json::from_value(pool).unwrap()
}

/// A change of the template that needs a restart.
fn another_template() -> Value {
    json!({ "virtualMachineTemplate": { "spec": { "template": { "spec": { "hostname": "other" } } } } })
}

/// All objects of a namespace, as the controller brings them about.
#[derive(Clone)]
struct World {
    pool: VirtualMachinePool,
    vms: Vec<VirtualMachine>,
    instances: Vec<VirtualMachineInstance>,
    revisions: Vec<ControllerRevision>,
    nodes: BTreeMap<String, BTreeMap<String, String>>,
    made: u64,
}

impl World {
    fn new(pool: VirtualMachinePool) -> Self {
        Self { pool, vms: Vec::new(), instances: Vec::new(), revisions: Vec::new(), nodes: BTreeMap::new(), made: 0 }
    }

    /// One that has come to rest, with all VMs ready.
    fn settled(pool: VirtualMachinePool) -> Self {
        let mut world = Self::new(pool);
        world.settle();
        world
    }

    fn plan(&self) -> PoolPlan {
        let seen = Observed {
            pool: &self.pool,
            vms: self.vms.iter().collect(),
            in_use: self.vms.iter().map(name).collect(),
            instances: self.instances.iter().map(|one| (one.metadata.name.as_deref().unwrap(), one)).collect(),
            nodes: self.nodes.iter().map(|(name, labels)| (name.as_str(), labels)).collect(),
            revisions: self.revisions.iter().collect(),
            failure: None,
        };
        decide(&seen, now()).unwrap()
    }

    /// What the controller does, and what the server makes of it.
    fn act(&mut self, plan: PoolPlan) {
        self.revisions.extend(plan.keep.map(|revision| *revision));
        self.revisions.retain(|one| !plan.forget.iter().any(|target| Some(&target.name) == one.metadata.name.as_ref()));
        for mut vm in plan.create {
            self.made += 1;
            vm.metadata.uid = Some(format!("u-{}", self.made));
            vm.metadata.creation_timestamp =
                Some(serde_json::from_value(json!(format!("2026-01-01T11:00:{:02}Z", self.made % 60))).unwrap());
            assert!(self.vms.iter().all(|known| known.metadata.name != vm.metadata.name), "the name is free");
            self.vms.push(vm);
        }
        for Deletion { target, .. } in &plan.delete {
            let going = self.vms.iter_mut().find(|vm| vm.metadata.uid.as_deref() == Some(&target.uid)).unwrap();
            going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap();
            self.instances.retain(|one| one.metadata.name.as_deref() != Some(&target.name));
        }
        for (target, patch) in plan.update {
            let vm = self.vms.iter_mut().find(|vm| vm.metadata.uid.as_deref() == Some(&target.uid)).unwrap();
            let mut whole = json!(vm);
            merge(&mut whole, &patch);
            *vm = serde_json::from_value(whole).unwrap();
        }
        for (target, patch) in plan.relabel {
            let one = self.instances.iter_mut().find(|one| one.metadata.uid.as_deref() == Some(&target.uid)).unwrap();
            let mut whole = json!(one);
            merge(&mut whole, &patch);
            *one = serde_json::from_value(whole).unwrap();
        }
        for target in plan.restart {
            self.instances.retain(|one| one.metadata.name.as_deref() != Some(&target.name));
        }
        if let Some(status) = plan.status {
            let mut whole = json!(self.pool);
            merge(&mut whole, &status);
            self.pool = serde_json::from_value(whole).unwrap();
        }
    }

    /// The VM controller and nodes: what was deleted is gone, and each VM has an instance that is ready.
    fn run(&mut self) {
        self.vms.retain(is_active);
        for vm in &mut self.vms {
            let status = json!({ "ready": true, "printableStatus": "Running" });
            vm.status = serde_json::from_value(status).unwrap();
            if self.instances.iter().all(|one| one.metadata.name != vm.metadata.name) {
                self.instances.push(instance(vm));
            }
        }
    }

    /// Until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..200 {
            let plan = self.plan();
            if plan == PoolPlan::default() && self.instances.len() == self.vms.len() {
                return;
            }
            self.act(plan);
            self.run();
        }
        panic!("never at rest: {:?}", self.plan());
    }

    fn names(&self) -> Vec<&str> {
        self.vms.iter().map(name).collect()
    }

    /// The number of VMs whose instances are ready.
    fn available(&self) -> usize {
        let is_ready = |vm: &&VirtualMachine| self.instances.iter().any(|one| one.metadata.name == vm.metadata.name);
        self.vms.iter().filter(is_ready).count()
    }
}

fn instance(vm: &VirtualMachine) -> VirtualMachineInstance {
    let template = vm.spec.template.metadata.as_ref().unwrap();
    serde_json::from_value(json!({
        "metadata": { "name": name(vm), "namespace": "shop", "uid": format!("i-{}", name(vm)), "labels": template.labels },
        "spec": vm.spec.template.spec,
        "status": {
            "phase": "Running", "nodeName": format!("node-{}", name(vm)),
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    }))
    .unwrap()
}

fn victims(world: &World) -> Vec<String> {
    world.plan().delete.into_iter().map(|deletion| deletion.target.name).collect()
}

#[test]
fn vms_are_numbered_and_so_is_what_belongs_to_them() {
    let names = json!({ "nameGeneration": { "appendIndexToConfigMapRefs": true, "appendIndexToSecretRefs": true } });
    let plan = World::new(pool(2, names)).plan();
    let revision = plan.keep.unwrap();
    assert_eq!((revision.metadata.name.as_deref(), revision.revision), (Some("farm-3"), 3));
    let vm = &plan.create[1];
    assert_eq!(name(vm), "farm-1");
    let labels = vm.metadata.labels.as_ref().unwrap();
    assert_eq!((labels["app"].as_str(), labels[REVISION].as_str()), ("farm", "farm-3"));
    assert_eq!(vm.metadata.annotations.as_ref().unwrap()["a"], "b");
    let owner = &vm.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.api_version.as_str(), owner.kind.as_str()), ("pool.kubevirt.io/v1beta1", "VirtualMachinePool"));
    let spec = json!(vm.spec);
    let volumes = &spec["template"]["spec"]["volumes"];
    assert_eq!(volumes[0]["dataVolume"]["name"], "root-1");
    assert_eq!(
        (&volumes[1]["configMap"]["name"], &volumes[2]["secret"]["secretName"]),
        (&json!("settings-1"), &json!("keys-1"))
    );
    assert_eq!(spec["template"]["metadata"]["labels"][REVISION], "farm-3");
    // Without the pool's word, config maps and secrets are shared.
    let shared = json!(World::new(pool(1, json!({}))).plan().create[0].spec);
    assert_eq!(shared["template"]["spec"]["volumes"][1]["configMap"]["name"], "settings");
}

#[test]
fn the_lowest_free_number_is_taken_whoever_has_the_others() {
    let mut world = World::settled(pool(3, json!({})));
    assert_eq!(world.names(), ["farm-0", "farm-1", "farm-2"]);
    world.vms.remove(1);
    world.instances.remove(1);
    // A stranger's name is taken. One that goes keeps its name and its place until it is gone.
    let mut stranger = world.vms[0].clone();
    stranger.metadata.owner_references = None;
    stranger.metadata.name = Some("farm-3".to_owned());
    stranger.metadata.uid = Some("u-stranger".to_owned());
    world.vms.push(stranger);
    world.vms[0].metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap();
    let created = |world: &World| -> Vec<String> { world.plan().create.iter().map(|vm| name(vm).to_owned()).collect() };
    assert_eq!(created(&world), ["farm-1"]);
    world.pool.spec.replicas = Some(4);
    assert_eq!(created(&world), ["farm-1", "farm-4"]);
    world.vms.remove(0);
    assert_eq!(created(&world), ["farm-0", "farm-1", "farm-4"]);
}

#[test]
fn one_that_no_longer_matches_is_let_go_and_a_stranger_is_not_adopted() {
    let mut world = World::settled(pool(2, json!({})));
    world.vms[0].metadata.labels.as_mut().unwrap().insert("app".to_owned(), "own".to_owned());
    let mut stranger = world.vms[1].clone();
    stranger.metadata.owner_references = None;
    stranger.metadata.name = Some("stray".to_owned());
    world.vms.push(stranger);
    let plan = world.plan();
    let released: Vec<&str> = plan.release.iter().map(|patch| patch.target.name.as_str()).collect();
    assert_eq!((released, plan.create.len(), plan.delete.len()), (vec!["farm-0"], 1, 0));
}

#[test]
fn a_pool_that_is_paused_or_goes_is_left_as_it_is() {
    let paused = World::new(pool(3, json!({ "paused": true }))).plan();
    assert_eq!((paused.create.len(), paused.keep), (0, None));
    assert_eq!(paused.status.unwrap()["status"]["conditions"][0]["type"], "ReplicaPaused");
    assert_eq!(paused.events[0].reason, "SuccessfulPaused");
    let mut going = pool(3, json!({}));
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap();
    assert_eq!(World::new(going).plan().create, []);
}

#[test]
fn those_go_first_that_the_policy_names() {
    let with = |policy: Value| {
        let strategy = json!({ "scaleInStrategy": { "proactive": { "selectionPolicy": policy } } });
        let mut world = World::settled(pool(4, strategy));
        world.pool.spec.replicas = Some(2);
        world
    };
    for (sort, gone) in [
        ("AscendingOrder", ["farm-0", "farm-1"]),
        ("DescendingOrder", ["farm-3", "farm-2"]),
        ("Oldest", ["farm-0", "farm-1"]),
        ("Newest", ["farm-3", "farm-2"]),
    ] {
        assert_eq!(victims(&with(json!({ "sortPolicy": sort }))), gone, "{sort}");
    }
    // Chance is the same for everybody who looks, and takes those first that nobody can use.
    let mut random = with(json!({}));
    assert_eq!(victims(&random), victims(&random));
    random.instances.remove(2);
    assert_eq!(victims(&random)[0], "farm-2");
    // Selected ones go before all others, by labels and by nodes.
    let labels =
        json!({ "selectors": { "labelSelector": { "matchLabels": { "go": "yes" } } }, "sortPolicy": "AscendingOrder" });
    let mut labelled = with(labels);
    labelled.vms[2].metadata.labels.as_mut().unwrap().insert("go".to_owned(), "yes".to_owned());
    assert_eq!(victims(&labelled), ["farm-2", "farm-0"]);
    let node = json!({ "selectors": { "nodeSelectorRequirementMatcher": [{ "key": "age", "operator": "Gt", "values": ["3"] }] }, "sortPolicy": "AscendingOrder" });
    let mut placed = with(node);
    placed.nodes.insert("node-farm-3".to_owned(), BTreeMap::from([("age".to_owned(), "5".to_owned())]));
    placed.nodes.insert("node-farm-2".to_owned(), BTreeMap::from([("age".to_owned(), "3".to_owned())]));
    assert_eq!(victims(&placed), ["farm-3", "farm-0"]);
}

#[test]
fn nobody_is_shut_down_where_the_strategy_waits() {
    let mut waiting = World::settled(pool(3, json!({ "scaleInStrategy": { "opportunistic": {} } })));
    waiting.pool.spec.replicas = Some(1);
    assert_eq!(victims(&waiting), Vec::<String>::new());
    waiting.instances.remove(1);
    assert_eq!(victims(&waiting), ["farm-1"]);
    let mut unmanaged = World::settled(pool(3, json!({ "scaleInStrategy": { "unmanaged": {} } })));
    unmanaged.pool.spec.replicas = Some(1);
    assert_eq!(victims(&unmanaged), Vec::<String>::new());
}

#[test]
fn disks_stay_where_the_pool_says_so() {
    for (preservation, kept) in [("Disabled", vec![]), ("Offline", vec!["root-1".to_owned()])] {
        let policy = json!({ "sortPolicy": "DescendingOrder" });
        let proactive = json!({ "selectionPolicy": policy, "statePreservation": preservation });
        let mut world = World::settled(pool(2, json!({ "scaleInStrategy": { "proactive": proactive } })));
        world.pool.spec.replicas = Some(1);
        assert_eq!(world.plan().delete[0].keeps, kept, "{preservation}");
    }
}

/// The pool changes; what came before is what it was settled with.
fn edited(world: &mut World, changes: &Value) {
    let mut whole = json!(world.pool);
    merge(
        &mut whole,
        &json!({ "spec": changes, "metadata": { "generation": world.pool.metadata.generation.unwrap() + 1 } }),
    );
    world.pool = serde_json::from_value(whole).unwrap();
}

#[test]
fn a_changed_template_reaches_vms_at_once_and_guests_by_a_restart() {
    let mut world = World::settled(pool(3, json!({ "maxUnavailable": 1 })));
    // What admission has given to a VM stays.
    let spec = world.vms[0].spec.template.spec.as_mut().unwrap();
    spec.domain.firmware = serde_json::from_value(json!({ "uuid": "f" })).unwrap();
    world.vms[0].metadata.labels.as_mut().unwrap().insert("own".to_owned(), "yes".to_owned());
    edited(&mut world, &another_template());
    let plan = world.plan();
    assert_eq!((plan.update.len(), plan.restart.len(), plan.delete.len()), (3, 0, 0));
    world.act(plan);
    let changed = world.vms.iter().find(|vm| name(vm) == "farm-0").unwrap();
    let spec = changed.spec.template.spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("other"));
    assert_eq!(spec.domain.firmware.as_ref().unwrap().uuid.as_deref(), Some("f"));
    let labels = changed.metadata.labels.as_ref().unwrap();
    assert_eq!((labels["own"].as_str(), labels[REVISION].as_str()), ("yes", "farm-4"));
    // One after the other, and no sooner than the one before is ready.
    for _ in 0..3 {
        let plan = world.plan();
        assert_eq!(plan.restart.len(), 1);
        world.act(plan);
        assert_eq!(world.plan().restart, []);
        world.run();
    }
    world.settle();
    let revisions: Vec<_> = world.revisions.iter().map(|one| one.metadata.name.clone().unwrap()).collect();
    assert_eq!(revisions, ["farm-4"], "what nothing is left of is forgotten");
}

#[test]
fn a_change_of_size_alone_is_no_change_of_the_template() {
    let mut world = World::settled(pool(2, json!({})));
    edited(&mut world, &json!({ "replicas": 3 }));
    let plan = world.plan();
    assert_eq!((plan.keep, plan.update.len(), plan.create.len()), (None, 0, 1));
    assert_eq!(plan.create[0].metadata.labels.as_ref().unwrap()[REVISION], "farm-3");
}

#[test]
fn strategies_say_whom_a_change_reaches() {
    let with = |strategy: Value| {
        let mut world = World::settled(pool(2, json!({ "updateStrategy": strategy })));
        edited(&mut world, &another_template());
        world
    };
    let mut opportunistic = with(json!({ "opportunistic": {} }));
    let plan = opportunistic.plan();
    assert_eq!(plan.update.len(), 2);
    opportunistic.act(plan);
    assert_eq!(opportunistic.plan().restart, []);
    let unmanaged = with(json!({ "unmanaged": {} })).plan();
    assert_eq!((unmanaged.update.len(), unmanaged.restart.len()), (0, 0));
    let ordered = json!({ "proactive": { "selectionPolicy": { "sortPolicy": "DescendingOrder" } } });
    let mut proactive = with(ordered);
    proactive.pool.spec.max_unavailable = serde_json::from_value(json!("50%")).unwrap();
    let plan = proactive.plan();
    proactive.act(plan);
    assert_eq!(proactive.plan().restart[0].name, "farm-1");
}

#[test]
fn a_vm_whose_disks_are_others_is_made_again() {
    let mut world = World::settled(pool(2, json!({ "maxUnavailable": 1 })));
    let disks = json!([{ "metadata": { "name": "root" }, "spec": { "source": { "http": { "url": "http://x" } } } }]);
    edited(&mut world, &json!({ "virtualMachineTemplate": { "spec": { "dataVolumeTemplates": disks } } }));
    let plan = world.plan();
    assert_eq!((plan.update.len(), plan.delete.len(), plan.delete[0].why), (0, 1, Why::OtherDisks));
    world.settle();
    assert_eq!(world.vms.len(), 2);
    assert!(
        world
            .vms
            .iter()
            .all(|vm| json!(vm.spec)["dataVolumeTemplates"][0]["spec"]["source"]["http"]["url"] == "http://x")
    );
}
