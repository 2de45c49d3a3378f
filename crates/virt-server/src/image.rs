//! The machine's own programs are for launchers, importers and exporters: only their controllers make pods of their image.

use apiserver::{Admission, Review, Status};
use serde_json::Value;

use crate::Component;

/// Refuses the machine's image to everybody but virt-controller and the controller of DataVolumes.
pub(crate) struct OnlyForLaunchers {
    pub(crate) image: String,
}

impl Admission for OnlyForLaunchers {
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>, _: &mut Vec<String>) -> Result<(), Status> {
        let attributes = &review.attributes;
        let concerns = attributes.group.is_empty()
            && attributes.resource == "pods"
            && matches!(attributes.verb, "create" | "update")
            && matches!(attributes.subresource, "" | "ephemeralcontainers");
        let makers = [Component::VirtController, Component::DataVolumes];
        if !concerns || makers.iter().any(|maker| review.identity.user == maker.identity().user) {
            return Ok(());
        }
        let Some(path) = object.and_then(|pod| uses(pod, &self.image)) else { return Ok(()) };
        // What they have made may be labelled by others.
        if review.old.is_some_and(|old| uses(old, &self.image).is_some()) {
            return Ok(());
        }
        let image = &self.image;
        Err(Status::denied(format!("{path}: only virtual machines may use {image}; create a VirtualMachine")))
    }
}

/// The field that asks for an image, if one does.
fn uses(pod: &Value, image: &str) -> Option<String> {
    ["containers", "initContainers", "ephemeralContainers"].into_iter().find_map(|list| {
        let containers = pod["spec"][list].as_array()?;
        let index = containers.iter().position(|one| one["image"].as_str().is_some_and(|used| is_same(used, image)))?;
        Some(format!("spec.{list}[{index}].image"))
    })
}

/// Whether a pod's image is this one: with a tag or a digest it is the same to whoever compares names.
#[must_use]
pub fn is_same(used: &str, image: &str) -> bool {
    used.strip_prefix(image).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@']))
}

#[cfg(test)]
mod tests {
    use apiserver::{ApiServer, Identity, Place};
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Patch, PatchParams, PostParams};
    use kube::{Api, Client};
    use manager::context::Chance;
    use serde_json::json;

    use super::*;
    use crate::Settings;

    #[tokio::test]
    async fn nobody_but_virt_controller_makes_pods_of_the_machines_image() {
        let settings = Settings {
            kinds: Vec::new(),
            chance: Chance::seeded(1),
            machine_image: Some("orlop.dev/machine".to_owned()),
            guests: None,
        };
        let server = crate::start(ApiServer::builder(Place::Memory), settings).await.unwrap();
        let api = |identity: Identity| -> Api<Pod> {
            Api::default_namespaced(Client::new(server.for_identity(identity), "default"))
        };
        let pod = |name: &str, image: &str| -> Pod {
            let spec = json!({ "containers": [{ "name": "a", "image": "x" }, { "name": "b", "image": image }] });
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
        };
        let (admin, controller) = (api(Identity::admin()), api(Component::VirtController.identity()));
        for image in ["orlop.dev/machine", "orlop.dev/machine:latest"] {
            let refused = admin.create(&PostParams::default(), &pod("p", image)).await.unwrap_err().to_string();
            assert!(
                refused.contains("spec.containers[1].image: only virtual machines may use orlop.dev/machine"),
                "{refused}"
            );
        }
        admin.create(&PostParams::default(), &pod("other", "orlop.dev/machines")).await.unwrap();
        controller.create(&PostParams::default(), &pod("launcher", "orlop.dev/machine")).await.unwrap();
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        admin.patch("launcher", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    }
}
