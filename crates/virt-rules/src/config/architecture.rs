//! What the guests of one CPU architecture get: machine type, firmware folder, allowed machines.

use api::configuration::KubeVirtConfiguration;

/// The settings of one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Architecture<'a> {
    /// The machine type of instances that set none.
    pub machine_type: &'a str,
    /// Patterns of machine types that an instance may ask for; `*` stands for anything.
    pub emulated_machines: Vec<&'a str>,
    /// The folder of the UEFI images; the launcher's own if unset.
    pub ovmf_path: Option<&'a str>,
}

impl<'a> Architecture<'a> {
    /// An architecture that is not known is treated as amd64.
    pub(super) fn of(spec: &'a KubeVirtConfiguration, name: Option<&str>) -> Self {
        let table = spec.architecture_configuration.as_ref();
        let name = name.or_else(|| table.and_then(|table| table.default_architecture.as_deref()));
        let (own, machine_type, machines): (_, _, &[&str]) = match name {
            Some("arm64") => (table.and_then(|table| table.arm64.as_ref()), "virt", &["virt*"]),
            Some("s390x") => (table.and_then(|table| table.s390x.as_ref()), "s390-ccw-virtio", &["s390-ccw-virtio*"]),
            Some("ppc64le") => (table.and_then(|table| table.ppc64le.as_ref()), "pseries", &["pseries*"]),
            Some(_) | None => (table.and_then(|table| table.amd64.as_ref()), "q35", &["q35*", "pc-q35*"]),
        };
        // The deprecated settings have no architecture; they were there before others than amd64 were.
        let amd64 = !matches!(name, Some("arm64" | "s390x" | "ppc64le"));
        let old_machine = spec.machine_type.as_deref().filter(|_| amd64);
        let old_machines = spec.emulated_machines.as_ref().filter(|_| amd64);
        let old_firmware = spec.ovmf_path.as_deref().filter(|_| amd64);
        let listed = own.and_then(|own| own.emulated_machines.as_ref()).or(old_machines);
        let set = |text: &&str| !text.is_empty();
        Self {
            machine_type: own
                .and_then(|own| own.machine_type.as_deref())
                .filter(set)
                .or(old_machine.filter(set))
                .unwrap_or(machine_type),
            emulated_machines: match listed {
                Some(listed) if !listed.is_empty() => listed.iter().map(String::as_str).collect(),
                Some(_) | None => machines.to_vec(),
            },
            ovmf_path: own.and_then(|own| own.ovmf_path.as_deref()).or(old_firmware).filter(set),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::configuration::{ArchConfiguration, ArchSpecificConfiguration};

    #[test]
    fn each_architecture_has_its_machine() {
        let spec = KubeVirtConfiguration::default();
        assert_eq!(Architecture::of(&spec, None).machine_type, "q35");
        assert_eq!(Architecture::of(&spec, Some("arm64")).machine_type, "virt");
        assert_eq!(Architecture::of(&spec, Some("s390x")).emulated_machines, ["s390-ccw-virtio*"]);
    }

    #[test]
    fn the_new_setting_wins_over_the_deprecated_one() {
        let amd64 = ArchSpecificConfiguration { machine_type: Some("pc-q35-9.0".into()), ..Default::default() };
        let table = ArchConfiguration { amd64: Some(amd64), ..Default::default() };
        let mut spec = KubeVirtConfiguration { machine_type: Some("pc".into()), ..Default::default() };
        assert_eq!(Architecture::of(&spec, Some("amd64")).machine_type, "pc");
        assert_eq!(Architecture::of(&spec, Some("arm64")).machine_type, "virt");
        spec.architecture_configuration = Some(table);
        assert_eq!(Architecture::of(&spec, None).machine_type, "pc-q35-9.0");
    }

    #[test]
    fn the_cluster_may_have_another_default() {
        let table = ArchConfiguration { default_architecture: Some("arm64".into()), ..Default::default() };
        let spec = KubeVirtConfiguration { architecture_configuration: Some(table), ..Default::default() };
        assert_eq!(Architecture::of(&spec, None).machine_type, "virt");
    }
}
