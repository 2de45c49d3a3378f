//! Data volumes that a VM brings along.

use api::data_volume::{DataVolumeSource, DataVolumeSpec};
use api::vm::{DataVolumeTemplateSpec, VirtualMachine};

use crate::denial::Problems;
use crate::request::Known;

pub(super) fn check(vm: &VirtualMachine, known: &dyn Known, problems: &mut Problems) {
    let templates = vm.spec.data_volume_templates.as_deref().unwrap_or_default();
    let volumes = || vm.spec.template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    if !templates.is_empty() && !known.serves_data_volumes() {
        let message = "data volumes are not supported here; create a PersistentVolumeClaim and use it in the template";
        problems.unsupported("spec.dataVolumeTemplates", message);
    }
    for (index, template) in templates.iter().enumerate() {
        let field = format!("spec.dataVolumeTemplates[{index}]");
        let name = name(template);
        if name.is_empty() {
            problems.required(format!("{field}.metadata.name"), "is empty; name the data volume");
        }
        let used = volumes().any(|volume| {
            let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
            let data_volume = volume.data_volume.as_ref().map(|volume| volume.name.as_str());
            claim == Some(name) || data_volume == Some(name)
        });
        if !name.is_empty() && !used {
            let message = format!("no volume of the template uses {name:?}; add one to spec.template.spec.volumes");
            problems.required(field.clone(), message);
        }
        check_spec(&template.spec, &format!("{field}.spec"), problems);
    }
}

fn name(template: &DataVolumeTemplateSpec) -> &str {
    template.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
}

fn check_spec(spec: &DataVolumeSpec, field: &str, problems: &mut Problems) {
    let populated = match (&spec.pvc, &spec.storage) {
        (None, None) => {
            problems.required(format!("{field}.storage"), "has no storage size; set storage or pvc");
            false
        }
        (Some(_), Some(_)) => {
            problems.invalid(format!("{field}.pvc"), "cannot be combined with storage; keep one");
            false
        }
        (Some(pvc), None) => pvc.data_source.is_some() || pvc.data_source_ref.is_some(),
        (None, Some(storage)) => storage.data_source.is_some() || storage.data_source_ref.is_some(),
    };
    let sources = spec.source.as_ref().map(sources);
    match (sources, &spec.source_ref, populated) {
        (None, None, true) | (None, Some(_), false) | (Some(1), None, false) => {}
        (None, None, false) => problems.required(format!("{field}.source"), "is required; set one source"),
        (Some(0), None, false) => problems.required(format!("{field}.source"), "has no source; set one"),
        (Some(_), None, false) => problems.invalid(format!("{field}.source"), "has more than one source; keep one"),
        (Some(_), Some(_), false) => {
            problems.invalid(format!("{field}.sourceRef"), "cannot be combined with source; keep one");
        }
        (_, _, true) => {
            let message = "the claim is filled from its dataSource; remove source and sourceRef";
            problems.invalid(format!("{field}.source"), message);
        }
    }
}

fn sources(source: &DataVolumeSource) -> usize {
    let DataVolumeSource { blank, gcs, http, imageio, pvc, registry, s3, snapshot, upload, vddk } = source;
    let set = [
        blank.is_some(),
        gcs.is_some(),
        http.is_some(),
        imageio.is_some(),
        pvc.is_some(),
        registry.is_some(),
        s3.is_some(),
        snapshot.is_some(),
        upload.is_some(),
        vddk.is_some(),
    ];
    set.iter().filter(|set| **set).count()
}
