//! What a preference needs at least, against what the VM has.

use api::domain::CPU;
use api::instancetype::VirtualMachineInstancetypeSpec;
use api::preference::{
    CPUPreferenceRequirement, MemoryPreferenceRequirement, PreferenceRequirements, VirtualMachinePreferenceSpec,
};
use api::quantity::{Amount, Quantity};
use api::vmi::VirtualMachineInstanceSpec;

use super::topology::Unit;

const DOMAIN: &str = "spec.template.spec.domain";

/// Something of which the VM has less than its preference needs, or another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    /// Too few vCPUs.
    #[error("{path}: the preference needs {needed} vCPUs{}, but the VM has {given}", .counted.map(|unit| format!(" counted in {unit}")).unwrap_or_default())]
    Cpu {
        /// The VM's field to change.
        path: String,
        /// vCPUs needed.
        needed: u32,
        /// vCPUs there are.
        given: u32,
        /// What they are counted in, if not in all there are.
        counted: Option<&'static str>,
    },
    /// Too little memory.
    #[error("{path}: the preference needs {needed} of guest memory, but the VM has {given}")]
    Memory {
        /// The VM's field to change.
        path: String,
        /// Memory needed.
        needed: String,
        /// Memory there is.
        given: String,
    },
    /// Another architecture.
    #[error("{path}: the preference needs {needed:?}, but the VM has {given:?}")]
    Architecture {
        /// The VM's field to change.
        path: String,
        /// The architecture needed.
        needed: String,
        /// The architecture there is.
        given: String,
    },
}

impl Unmet {
    /// The VM's field that must change.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Cpu { path, .. } | Self::Memory { path, .. } | Self::Architecture { path, .. } => path,
        }
    }
}

/// Checks a template, before or after [`super::apply`], against the requirements of its preference. An instancetype
/// decides over CPU and memory if there is one. `architecture` is the instance's if the template names none.
///
/// # Errors
/// Everything that is not met.
pub fn check_requirements(
    spec: &VirtualMachineInstanceSpec,
    architecture: &str,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: &VirtualMachinePreferenceSpec,
) -> Result<(), Vec<Unmet>> {
    let Some(PreferenceRequirements { architecture: needed, cpu, memory }) = &preference.requirements else {
        return Ok(());
    };
    let cpu = cpu.as_ref().and_then(|cpu| check_cpu(spec, cpu, instancetype, preference));
    let memory = memory.as_ref().and_then(|memory| check_memory(spec, memory, instancetype));
    let given = spec.architecture.as_deref().filter(|name| !name.is_empty()).unwrap_or(architecture);
    let architecture = needed.as_ref().filter(|needed| !needed.is_empty() && *needed != given).map(|needed| {
        let path = "spec.template.spec.architecture".to_owned();
        Unmet::Architecture { path, needed: needed.clone(), given: given.to_owned() }
    });
    let unmet: Vec<Unmet> = [cpu, memory, architecture].into_iter().flatten().collect();
    if unmet.is_empty() { Ok(()) } else { Err(unmet) }
}

fn check_cpu(
    spec: &VirtualMachineInstanceSpec,
    requirement: &CPUPreferenceRequirement,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: &VirtualMachinePreferenceSpec,
) -> Option<Unmet> {
    let needed = requirement.guest;
    if let Some(instancetype) = instancetype {
        let given = instancetype.cpu.guest;
        let path = "spec.instancetype".to_owned();
        return (given < needed).then_some(Unmet::Cpu { path, needed, given, counted: None });
    }
    let CPU { sockets, cores, threads, .. } = spec.domain.cpu.clone().unwrap_or_default();
    let [sockets, cores, threads] = [sockets, cores, threads].map(|count| count.unwrap_or(1).max(1));
    let product = |counts: &[u32]| counts.iter().copied().fold(1, u32::saturating_mul);
    // A preference with an unknown word is refused elsewhere, by that word.
    let (given, field, counted) = match Unit::of(Some(preference)).ok()? {
        Unit::Sockets => (sockets, ".sockets", Some("sockets")),
        Unit::Cores => (cores, ".cores", Some("cores")),
        Unit::Threads => (threads, ".threads", Some("threads")),
        Unit::SocketsCores { .. } => (product(&[sockets, cores]), "", Some("sockets and cores")),
        Unit::CoresThreads { .. } => (product(&[cores, threads]), "", Some("cores and threads")),
        Unit::Any | Unit::SocketsCoresThreads { .. } => (product(&[sockets, cores, threads]), "", None),
    };
    let path = format!("{DOMAIN}.cpu{field}");
    (given < needed).then_some(Unmet::Cpu { path, needed, given, counted })
}

fn check_memory(
    spec: &VirtualMachineInstanceSpec,
    requirement: &MemoryPreferenceRequirement,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
) -> Option<Unmet> {
    let needed = &requirement.guest;
    let (given, path) = match instancetype {
        Some(instancetype) => (Some(&instancetype.memory.guest), "spec.instancetype".to_owned()),
        None => (guest_memory(spec), format!("{DOMAIN}.memory.guest")),
    };
    let amount = given.map_or(Amount::default(), Quantity::amount);
    (amount < needed.amount()).then(|| Unmet::Memory {
        path,
        needed: needed.to_string(),
        given: given.map_or_else(|| "0".to_owned(), ToString::to_string),
    })
}

/// The guest's memory, or what it will be: the pod's request, else its limit.
fn guest_memory(spec: &VirtualMachineInstanceSpec) -> Option<&Quantity> {
    let guest = spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let resources = spec.domain.resources.as_ref();
    let request = resources.and_then(|resources| resources.requests.as_ref()?.get("memory"));
    let limit = resources.and_then(|resources| resources.limits.as_ref()?.get("memory"));
    guest.or(request).or(limit)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(domain: &Value, instancetype: Option<Value>, preference: Value) -> Vec<String> {
        let mut spec = json!({ "domain": { "devices": {} } });
        for (key, value) in domain.as_object().unwrap() {
            spec["domain"][key] = value.clone();
        }
        let spec = serde_json::from_value(spec).unwrap();
        let instancetype = instancetype.map(|spec| serde_json::from_value(spec).unwrap());
        let preference = serde_json::from_value(preference).unwrap();
        let checked = check_requirements(&spec, "amd64", instancetype.as_ref(), &preference);
        checked.err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    fn cpu(count: u32, topology: &str) -> Value {
        json!({ "cpu": { "preferredCPUTopology": topology }, "requirements": { "cpu": { "guest": count } } })
    }

    #[test]
    fn vcpus_are_counted_as_the_preference_lays_them_out() {
        let four_cores = json!({ "cpu": { "cores": 4 } });
        assert_eq!(check(&four_cores, None, cpu(4, "cores")), [""; 0]);
        assert_eq!(check(&four_cores, None, cpu(4, "any")), [""; 0]);
        assert_eq!(check(&four_cores, None, cpu(4, "spread")), [""; 0]);
        assert_eq!(
            check(&four_cores, None, cpu(4, "sockets")),
            [
                "spec.template.spec.domain.cpu.sockets: the preference needs 4 vCPUs counted in sockets, but the VM has 1"
            ]
        );
    }

    #[test]
    fn an_instancetype_decides_over_cpu_and_memory() {
        let small = json!({ "cpu": { "guest": 1 }, "memory": { "guest": "1Gi" } });
        let preference = json!({ "requirements": { "cpu": { "guest": 2 }, "memory": { "guest": "2Gi" } } });
        let unmet = check(&json!({ "cpu": { "sockets": 8 }, "memory": { "guest": "8Gi" } }), Some(small), preference);
        assert_eq!(
            unmet,
            [
                "spec.instancetype: the preference needs 2 vCPUs, but the VM has 1",
                "spec.instancetype: the preference needs 2Gi of guest memory, but the VM has 1Gi",
            ]
        );
    }

    #[test]
    fn memory_may_stand_in_the_requests() {
        let preference = json!({ "requirements": { "memory": { "guest": "2Gi" } } });
        let requests = |amount: &str| json!({ "resources": { "requests": { "memory": amount } } });
        assert_eq!(check(&requests("2048Mi"), None, preference.clone()), [""; 0]);
        assert_eq!(
            check(&requests("1Gi"), None, preference.clone()),
            ["spec.template.spec.domain.memory.guest: the preference needs 2Gi of guest memory, but the VM has 1Gi"]
        );
        assert_eq!(check(&json!({}), None, preference).len(), 1);
    }

    #[test]
    fn the_architecture_must_be_the_one_that_is_needed() {
        let preference = json!({ "requirements": { "architecture": "arm64" } });
        assert_eq!(
            check(&json!({}), None, preference),
            ["spec.template.spec.architecture: the preference needs \"arm64\", but the VM has \"amd64\""]
        );
        assert_eq!(check(&json!({}), None, json!({ "requirements": { "architecture": "amd64" } })), [""; 0]);
    }
}
