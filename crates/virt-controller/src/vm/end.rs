//! The end of a VM: its instance first, unless the instance shall outlive it.

use api::names::finalizer;
use api::owner::controller_of;
use api::vmi::VirtualMachineInstance;
use serde_json::json;

use super::{Making, has, patch_of, target, without};

impl Making<'_> {
    /// The VM goes: its instance first, unless the instance shall outlive it.
    pub(super) fn end(&mut self) {
        let metadata = &self.seen.vm.metadata;
        let orphans = has(metadata, finalizer::ORPHAN);
        if let Some(instance) = self.mine {
            let held = has(&instance.metadata, finalizer::VM_CONTROLLER);
            if held && (orphans || (instance.is_marked_for_deletion() && instance.is_final())) {
                self.let_go(instance);
            }
            if !orphans {
                return self.stop();
            }
            if held {
                return;
            }
        }
        // The garbage collector was faster with taking it off its owner.
        let left = self.seen.instance.filter(|instance| controller_of(&instance.metadata).is_none());
        if let Some(instance) = left.filter(|instance| has(&instance.metadata, finalizer::VM_CONTROLLER)) {
            self.let_go(instance);
        }
        if has(metadata, finalizer::VM_CONTROLLER) {
            self.plan.ask = self.seen.instance.is_none() && !self.seen.asked;
            let finalizers = without(metadata, finalizer::VM_CONTROLLER);
            self.plan.vm = Some(patch_of(metadata, json!({ "metadata": { "finalizers": finalizers } })));
        }
    }

    /// The VM has seen the end of the instance, or has nothing more to do with it.
    pub(super) fn let_go(&mut self, instance: &VirtualMachineInstance) {
        let finalizers = without(&instance.metadata, finalizer::VM_CONTROLLER);
        let patch = patch_of(&instance.metadata, json!({ "metadata": { "finalizers": finalizers } }));
        self.plan.instances.push((target(&instance.metadata), patch));
    }
}

#[cfg(test)]
mod tests {
    use api::vm::VirtualMachine;
    use serde_json::Value;
    use virt_rules::config::ClusterConfig;

    use super::*;
    use crate::vm::instancetypes::Chosen;
    use crate::vm::{Observed, Plan, decide};
    use crate::vmi::volumes::Known;

    fn plan(finalizers: &[&str], owners: &Value) -> Plan {
        let metadata = json!({
            "name": "v", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers,
        });
        let vm = json!({ "metadata": metadata, "spec": { "runStrategy": "Always", "template": {} } });
        let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
        let metadata = json!({
            "name": "v", "uid": "i", "resourceVersion": "7", "ownerReferences": owners,
            "finalizers": [finalizer::VM_CONTROLLER, finalizer::VMI],
        });
        let vmi = json!({ "metadata": metadata, "spec": { "domain": { "devices": {} } } });
        let instance: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        let seen = Observed {
            vm: &vm,
            instance: Some(&instance),
            asked: false,
            strays: Vec::new(),
            revisions: Vec::new(),
            chosen: Ok(Chosen::default()),
            volumes: Known::default(),
            snapshot_classes: crate::volume_snapshots::SnapshotClasses::default(),
            config: &ClusterConfig::new(None),
            failure: None,
            chance: 0.0,
        };
        decide(&seen, jiff::Timestamp::UNIX_EPOCH)
    }

    fn owner(uid: &str) -> Value {
        json!([{ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "v", "uid": uid, "controller": true }])
    }

    #[test]
    fn an_instance_goes_first_and_only_as_it_was_seen() {
        let plan = plan(&[finalizer::VM_CONTROLLER], &owner("u"));
        assert_eq!(plan.stop.map(|stop| stop.version).as_deref(), Some("7"));
        assert_eq!(plan.vm, None);
    }

    #[test]
    fn an_instance_that_shall_stay_is_let_go_whoever_is_first() {
        let by_us = plan(&[finalizer::VM_CONTROLLER, finalizer::ORPHAN], &owner("u"));
        let by_the_collector = plan(&[finalizer::VM_CONTROLLER], &Value::Null);
        for plan in [by_us, by_the_collector] {
            let (target, patch) = &plan.instances[0];
            assert_eq!((target.uid.as_str(), &patch["metadata"]["finalizers"]), ("i", &json!([finalizer::VMI])));
            assert_eq!(plan.stop, None);
        }
    }

    #[test]
    fn an_instance_of_another_is_none_of_its_business() {
        let plan = plan(&[finalizer::VM_CONTROLLER], &owner("another"));
        assert_eq!((plan.instances, plan.stop), (Vec::new(), None));
    }
}
