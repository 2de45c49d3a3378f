//! The part of an instancetype: sizes that the template must not set as well.

use std::collections::BTreeMap;
use std::fmt;

use api::domain::{DomainSpec, Memory};
use api::instancetype::{CPUInstancetype, MemoryInstancetype, VirtualMachineInstancetypeSpec};
use api::preference::VirtualMachinePreferenceSpec;
use api::quantity::{Amount, Quantity};
use api::vmi::VirtualMachineInstance;

use super::topology::{Topology, topology};
use super::{Conflict, says};

const SPEC: &str = "spec.template.spec";

/// Sets what the instancetype says; the instance is of no use if there are conflicts.
pub(super) fn apply(
    vmi: &mut VirtualMachineInstance,
    instancetype: &VirtualMachineInstancetypeSpec,
    preference: Option<&VirtualMachinePreferenceSpec>,
) -> Result<(), Vec<Conflict>> {
    let VirtualMachineInstancetypeSpec {
        cpu,
        memory,
        annotations,
        gpus,
        host_devices,
        io_threads,
        io_threads_policy,
        launch_security,
        node_selector,
        scheduler_name,
    } = instancetype;
    let mut sizing = Sizing { conflicts: Vec::new() };
    let spec = &mut vmi.spec;
    sizing.map("nodeSelector", &mut spec.node_selector, node_selector.as_ref());
    sizing.word("schedulerName", &mut spec.scheduler_name, scheduler_name.as_ref());
    sizing.cpu(&mut spec.domain, cpu, preference);
    sizing.memory(&mut spec.domain, memory);
    if let Some(count) = io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count) {
        let threads = spec.domain.io_threads.get_or_insert_default();
        let path = "domain.ioThreads.supplementalPoolThreadCount";
        sizing.give(path, &mut threads.supplemental_pool_thread_count, Some(&count));
    }
    sizing.word("domain.ioThreadsPolicy", &mut spec.domain.io_threads_policy, io_threads_policy.as_ref());
    sizing.give("domain.launchSecurity", &mut spec.domain.launch_security, launch_security.as_ref());
    sizing.list("domain.devices.gpus", &mut spec.domain.devices.gpus, gpus.as_deref());
    sizing.list("domain.devices.hostDevices", &mut spec.domain.devices.host_devices, host_devices.as_deref());
    sizing.annotations(&mut vmi.metadata.annotations, annotations.as_ref());
    if sizing.conflicts.is_empty() { Ok(()) } else { Err(sizing.conflicts) }
}

struct Sizing {
    conflicts: Vec<Conflict>,
}

impl Sizing {
    fn taken(&mut self, field: &str) {
        self.conflicts.push(Conflict::Taken { path: format!("{SPEC}.{field}") });
    }

    /// A field that is set if it is there.
    fn give<T: Clone>(&mut self, field: &str, slot: &mut Option<T>, value: Option<&T>) {
        let Some(value) = value else { return };
        if slot.is_some() {
            self.taken(field);
        }
        *slot = Some(value.clone());
    }

    /// A text or word; an empty one says nothing.
    fn word<T: Clone + fmt::Display>(&mut self, field: &str, slot: &mut Option<T>, value: Option<&T>) {
        let Some(value) = value.filter(|value| says(Some(*value))) else { return };
        if says(slot.as_ref()) {
            self.taken(field);
        }
        *slot = Some(value.clone());
    }

    /// A switch; `false` on both sides is no dispute.
    fn switch(&mut self, field: &str, slot: &mut Option<bool>, value: Option<bool>) {
        let Some(value) = value else { return };
        if *slot == Some(true) || slot.is_some_and(|set| set != value) {
            self.taken(field);
        }
        *slot = Some(value);
    }

    /// A list; an empty one says nothing.
    fn list<T: Clone>(&mut self, field: &str, slot: &mut Option<Vec<T>>, values: Option<&[T]>) {
        let Some(values) = values.filter(|values| !values.is_empty()) else { return };
        if slot.as_ref().is_some_and(|set| !set.is_empty()) {
            self.taken(field);
        }
        *slot = Some(values.to_vec());
    }

    /// A map as a whole; an empty one says nothing.
    fn map(
        &mut self,
        field: &str,
        slot: &mut Option<BTreeMap<String, String>>,
        values: Option<&BTreeMap<String, String>>,
    ) {
        let Some(values) = values.filter(|values| !values.is_empty()) else { return };
        if slot.as_ref().is_some_and(|set| !set.is_empty()) {
            self.taken(field);
        }
        *slot = Some(values.clone());
    }

    /// Annotations are disputed one by one, and only if they differ.
    fn annotations(&mut self, slot: &mut Option<BTreeMap<String, String>>, values: Option<&BTreeMap<String, String>>) {
        let Some(values) = values.filter(|values| !values.is_empty()) else { return };
        let annotations = slot.get_or_insert_default();
        for (key, value) in values {
            if annotations.get(key).is_some_and(|set| set != value) {
                let path = format!("spec.template.metadata.annotations[{key}]");
                self.conflicts.push(Conflict::Taken { path });
            }
            annotations.insert(key.clone(), value.clone());
        }
    }

    fn cpu(
        &mut self,
        domain: &mut DomainSpec,
        instancetype: &CPUInstancetype,
        preference: Option<&VirtualMachinePreferenceSpec>,
    ) {
        let CPUInstancetype {
            guest,
            dedicated_cpu_placement,
            isolate_emulator_thread,
            max_sockets,
            model,
            numa,
            realtime,
        } = instancetype;
        self.amounts(domain, "cpu");
        let cpu = domain.cpu.get_or_insert_default();
        for (field, set) in [("sockets", cpu.sockets), ("cores", cpu.cores), ("threads", cpu.threads)] {
            if set.is_some_and(|set| set != 0) {
                self.taken(&format!("domain.cpu.{field}"));
            }
        }
        match topology(*guest, preference) {
            Ok(Topology { sockets, cores, threads }) => {
                (cpu.sockets, cpu.cores, cpu.threads) = (Some(sockets), Some(cores), Some(threads));
            }
            Err(conflict) => self.conflicts.push(conflict),
        }
        self.word("domain.cpu.model", &mut cpu.model, model.as_ref());
        let path = "domain.cpu.dedicatedCpuPlacement";
        self.switch(path, &mut cpu.dedicated_cpu_placement, *dedicated_cpu_placement);
        self.switch("domain.cpu.isolateEmulatorThread", &mut cpu.isolate_emulator_thread, *isolate_emulator_thread);
        self.give("domain.cpu.maxSockets", &mut cpu.max_sockets, max_sockets.as_ref());
        self.give("domain.cpu.numa", &mut cpu.numa, numa.as_ref());
        self.give("domain.cpu.realtime", &mut cpu.realtime, realtime.as_ref());
    }

    fn memory(&mut self, domain: &mut DomainSpec, instancetype: &MemoryInstancetype) {
        let MemoryInstancetype { guest, hugepages, max_guest, overcommit_percent } = instancetype;
        self.amounts(domain, "memory");
        let memory: &mut Memory = domain.memory.get_or_insert_default();
        self.give("domain.memory.guest", &mut memory.guest, Some(guest));
        self.give("domain.memory.hugepages", &mut memory.hugepages, hugepages.as_ref());
        self.give("domain.memory.maxGuest", &mut memory.max_guest, max_guest.as_ref());
        if let Some(request) =
            overcommit_percent.filter(|percent| *percent > 0).and_then(|percent| less(guest, percent))
        {
            let requests = domain.resources.get_or_insert_default().requests.get_or_insert_default();
            requests.insert("memory".to_owned(), request);
        }
    }

    /// What the pod asks for follows from the instancetype.
    fn amounts(&mut self, domain: &DomainSpec, resource: &str) {
        let Some(resources) = &domain.resources else { return };
        for (kind, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
            if amounts.as_ref().is_some_and(|amounts| amounts.contains_key(resource)) {
                self.taken(&format!("domain.resources.{kind}.{resource}"));
            }
        }
    }
}

/// An amount of memory less a percentage of it, in whole bytes. `None` if that is no amount.
fn less(whole: &Quantity, percent: u32) -> Option<Quantity> {
    let left = 100_u32.saturating_sub(percent);
    let bytes = whole.amount().scaled(i64::from(left), 100)?.units();
    u64::try_from(bytes).ok().map(|bytes| Amount::bytes(bytes).into())
}
