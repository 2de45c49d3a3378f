//! Kinds of which controllers read a part. What is dropped is named here, once for all controllers: whoever needs more asks for
//! the objects as they are ([`crate::caches::Caches::of`]), and has a cache of its own.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::cache::Slim;

/// Without how its containers run: commands, environment, mounts, probes, security; and without volumes that are nothing but a
/// place in the pod. What node agents do with a pod is not what controllers do. Two thirds of a launcher's pod are of this.
impl Slim for Pod {
    fn slim(&mut self) {
        let Some(spec) = &mut self.spec else { return };
        spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(slim);
        spec.ephemeral_containers = None;
        if let Some(volumes) = &mut spec.volumes {
            volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
            volumes.shrink_to_fit();
        }
    }
}

fn slim(container: &mut Container) {
    let Container { name, image, ports, resources, restart_policy, .. } = std::mem::take(container);
    *container = Container { name, image, ports, resources, restart_policy, ..Container::default() };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_keeps_what_controllers_read() {
        let pod = |more: &dyn Fn(&mut serde_json::Value)| -> Pod {
            let mut pod = json!({
                "metadata": { "name": "a", "labels": { "a": "b" } },
                "spec": {
                    "nodeName": "one",
                    "containers": [{
                        "name": "c",
                        "image": "i",
                        "ports": [{ "containerPort": 80 }],
                        "resources": { "requests": { "cpu": "1" } },
                    }],
                    "initContainers": [{ "name": "d", "restartPolicy": "Always" }],
                    "tolerations": [{ "key": "k" }],
                    "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "x" } }],
                },
                "status": { "phase": "Running" },
            });
            more(&mut pod);
            serde_json::from_value(pod).unwrap()
        };
        let mut slim = pod(&|pod| {
            pod["spec"]["containers"][0]["env"] = json!([{ "name": "a", "value": "b" }]);
            pod["spec"]["containers"][0]["command"] = json!(["a"]);
            pod["spec"]["initContainers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
            pod["spec"]["volumes"].as_array_mut().unwrap().push(json!({ "name": "e", "emptyDir": {} }));
        });
        slim.slim();
        assert_eq!(slim, pod(&|_| {}));
    }
}
