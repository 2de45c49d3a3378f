//! The data volumes of a VM's templates, and what its volumes mean for a start.

use api::data_volume::DataVolume;
use api::names::annotation;
use api::owner::controller_reference;
use api::vm::DataVolumeTemplateSpec;
use api::vmi::VirtualMachineInstanceSpec;
use api::volumes::Volume;
use virt_rules::instancetype::storage_class;

use super::Making;
use super::instancetypes::Chosen;
use super::printable;
use crate::indexes::claim_names_of_vm;
use crate::vmi::volumes::{Readiness, doomed, readiness_of};

impl Making<'_> {
    fn spec(&self) -> Option<&VirtualMachineInstanceSpec> {
        self.seen.vm.spec.template.spec.as_ref()
    }

    /// Data volumes that are missing are made, even for a VM that does not run, unless it says that it does not want that.
    pub(super) fn make_volumes(&mut self, starts: bool, chosen: Option<&Chosen>) {
        let vm = self.seen.vm;
        let Some(templates) = vm.spec.data_volume_templates.as_ref().filter(|templates| !templates.is_empty()) else {
            return;
        };
        let Some(known) = &self.seen.volumes.data_volumes else {
            let message = "spec.dataVolumeTemplates: this cluster has no DataVolumes; install the Containerized Data \
                           Importer, or use PersistentVolumeClaims instead";
            self.problem.get_or_insert(("FailedDataVolumeCreate", message.to_owned()));
            return;
        };
        let annotations = vm.metadata.annotations.as_ref();
        let late = annotations.and_then(|all| all.get(annotation::IMMEDIATE_DATA_VOLUME_CREATION));
        if late.is_some_and(|value| value == "false") && !starts {
            return;
        }
        let mut templates = templates.clone();
        if let Some(preference) = chosen.and_then(|chosen| chosen.preference.as_ref()) {
            storage_class(&mut templates, preference);
        }
        for template in &templates {
            let name = name(template);
            // A claim that is there already holds the data, whoever made it. One that goes is made again when it is gone.
            if known.contains_key(name) || self.seen.volumes.claims.contains_key(name) {
                continue;
            }
            match self.data_volume(template) {
                Ok(volume) => self.plan.volumes.push(volume),
                Err(problem) => drop(self.problem.get_or_insert(problem)),
            }
        }
    }

    fn data_volume(&self, template: &DataVolumeTemplateSpec) -> Result<DataVolume, (&'static str, String)> {
        let vm = self.seen.vm;
        let elsewhere = template.spec.source.as_ref().and_then(|source| Some(source.pvc.as_ref()?.namespace.as_str()));
        let here = vm.metadata.namespace.as_deref().unwrap_or_default();
        if elsewhere.is_some_and(|namespace| !namespace.is_empty() && namespace != here) {
            let message = format!(
                "the DataVolume {} clones a claim of another namespace, which is not supported yet; create it yourself",
                name(template),
            );
            return Err(("UnauthorizedDataVolumeCreate", message));
        }
        let mut metadata = template.metadata.as_ref().cloned().unwrap_or_default();
        metadata.namespace.clone_from(&vm.metadata.namespace);
        metadata.owner_references = controller_reference(vm).map(|owner| vec![owner]);
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(api::names::label::CREATED_BY.to_owned(), vm.metadata.uid.clone().unwrap_or_default());
        Ok(DataVolume { metadata, spec: template.spec.clone(), ..DataVolume::default() })
    }

    fn readiness_of(&self, volume: &Volume) -> Readiness {
        readiness_of(volume, &self.seen.volumes, controller_reference(self.seen.vm).as_ref())
    }

    /// Why a volume that is there is not this VM's: it goes with an earlier one, or is being deleted.
    fn doomed_volume(&self) -> Option<String> {
        let vm = controller_reference(self.seen.vm);
        let mut names = claim_names_of_vm(self.seen.vm).into_iter();
        names.find_map(|name| doomed(&name, &self.seen.volumes, vm.as_ref()))
    }

    /// A data volume that is not there yet, or failed. Claims that are missing do not count: the instance tells of them.
    pub(super) fn volume_obstacle(&self) -> Option<(&'static str, String)> {
        if !self.plan.volumes.is_empty() || self.doomed_volume().is_some() {
            return Some(("", String::new()));
        }
        let volumes = self.spec().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let mut made = volumes.iter().filter(|volume| volume.data_volume.is_some());
        made.find_map(|volume| match self.readiness_of(volume) {
            Readiness::Waits { .. } => Some(("", String::new())),
            Readiness::Failed { reason, message } => Some((reason, message)),
            Readiness::Ready | Readiness::NeedsConsumer { .. } | Readiness::Missing { .. } => None,
        })
    }

    /// What a VM that has no instance waits for, if its data volumes are not filled yet.
    pub(super) fn volume_wait(&self) -> Option<String> {
        let volumes = self.spec().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let mut made = volumes.iter().filter(|volume| volume.data_volume.is_some() && self.mine.is_none());
        let filled = made.find_map(|volume| match self.readiness_of(volume) {
            Readiness::Waits { message } => Some(message),
            _ => None,
        });
        filled.or_else(|| self.doomed_volume().filter(|_| self.mine.is_none() && self.starts))
    }

    /// How the volumes are, for the word that people read.
    pub(super) fn printable_volumes(&self) -> printable::Volumes {
        let volumes = self.spec().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let mut told = printable::Volumes { provisioning: !self.plan.volumes.is_empty(), ..Default::default() };
        for volume in volumes {
            let made = volume.data_volume.is_some();
            match self.readiness_of(volume) {
                Readiness::Failed { .. } if made => told.failed = true,
                Readiness::Waits { .. } | Readiness::NeedsConsumer { .. } if made => told.provisioning = true,
                Readiness::Waits { .. } => told.unbound = self.mine.is_some(),
                _ => {}
            }
        }
        told
    }
}

fn name(template: &DataVolumeTemplateSpec) -> &str {
    template.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
}
