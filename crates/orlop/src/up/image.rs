//! The machine's own programs are for launchers: only virt-controller makes pods of their image.

use apiserver::{Admission, Review, Status};
use serde_json::Value;

/// Refuses the machine's image to everybody but one user.
pub(super) struct OnlyFor {
    /// The image.
    pub(super) image: &'static str,
    /// Who may make pods of it.
    pub(super) user: &'static str,
}

impl Admission for OnlyFor {
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>, _: &mut Vec<String>) -> Result<(), Status> {
        let attributes = &review.attributes;
        let concerns = attributes.group.is_empty()
            && attributes.resource == "pods"
            && matches!(attributes.verb, "create" | "update")
            && matches!(attributes.subresource, "" | "ephemeralcontainers");
        if !concerns || review.identity.user == self.user {
            return Ok(());
        }
        let Some(path) = object.and_then(|pod| uses(pod, self.image)) else { return Ok(()) };
        // What virt-controller has made may be labelled by others.
        if review.old.is_some_and(|old| uses(old, self.image).is_some()) {
            return Ok(());
        }
        let image = self.image;
        Err(Status::denied(format!("{path}: {image} is for virtual machines alone; create a VirtualMachine")))
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

/// With a tag or a digest it is the same image to whoever compares names.
pub(super) fn is_same(used: &str, image: &str) -> bool {
    used.strip_prefix(image).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@']))
}

#[cfg(test)]
mod tests {
    use apiserver::{ApiServer, Identity, MASTERS, Place};
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Patch, PatchParams, PostParams};
    use kube::{Api, Client};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn nobody_but_virt_controller_makes_pods_of_the_machines_image() {
        let rule = OnlyFor { image: "orlop.dev/machine", user: "controller" };
        let server = ApiServer::builder(Place::Memory).admission(rule).start().await.unwrap();
        let api = |user: &str| -> Api<Pod> {
            let identity = Identity::new(user, [MASTERS.to_owned()]);
            Api::default_namespaced(Client::new(server.for_identity(identity), "default"))
        };
        let pod = |name: &str, image: &str| -> Pod {
            let spec = json!({ "containers": [{ "name": "a", "image": "x" }, { "name": "b", "image": image }] });
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
        };
        let (admin, controller) = (api("admin"), api("controller"));
        for image in ["orlop.dev/machine", "orlop.dev/machine:latest"] {
            let refused = admin.create(&PostParams::default(), &pod("p", image)).await.unwrap_err().to_string();
            assert!(refused.contains("spec.containers[1].image: orlop.dev/machine is for"), "{refused}");
        }
        admin.create(&PostParams::default(), &pod("other", "orlop.dev/machines")).await.unwrap();
        controller.create(&PostParams::default(), &pod("launcher", "orlop.dev/machine")).await.unwrap();
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        admin.patch("launcher", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    }
}
