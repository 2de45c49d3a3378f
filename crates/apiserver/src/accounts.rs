//! Admission of pods by their service accounts: a pod runs in the name of one, and gets its token.

use serde_json::{Value, json};

use crate::clock::Chance;
use crate::identity::{Admission, Review};
use crate::status::{Status, Subject};

/// Whose name pods take that name nobody.
const DEFAULT: &str = "default";
/// Where programs look for the token.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// A pod that only shows what a node does by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// As long as Kubernetes asks for; the node asks for another in time.
const SECONDS: i64 = 3607;

/// Gives every new pod an account, the account's token unless somebody refuses it, and the account's secrets for pulls.
///
/// A pod that wants no token is admitted before its namespace has the default account: then nothing depends on it.
pub struct ServiceAccounts {
    chance: Chance,
}

impl ServiceAccounts {
    /// Names of volumes are random, or repeatable by a seed.
    #[must_use]
    pub fn new(seed: Option<u64>) -> Self {
        Self { chance: Chance::new(seed) }
    }

    fn give_token(&self, pod: &mut Value) {
        let name = format!("kube-api-access-{}", self.chance.suffix());
        let mut used = false;
        for kind in ["initContainers", "containers"] {
            let containers = pod["spec"].get_mut(kind).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let mounts = &mut container["volumeMounts"];
                let own = mounts.as_array().into_iter().flatten().any(|mount| mount["mountPath"] == MOUNT);
                if !own {
                    push(mounts, json!({ "name": name, "mountPath": MOUNT, "readOnly": true }));
                    used = true;
                }
            }
        }
        if used {
            push(&mut pod["spec"]["volumes"], volume(&name));
        }
    }
}

impl Admission for ServiceAccounts {
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>, _: &mut Vec<String>) -> Result<(), Status> {
        let what = review.attributes;
        if what.verb != "create" || !what.group.is_empty() || what.resource != "pods" || !what.subresource.is_empty() {
            return Ok(());
        }
        let Some(pod) = object.filter(|pod| pod["metadata"]["annotations"][MIRROR].is_null()) else { return Ok(()) };
        let named = pod["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let name = named.clone().unwrap_or_else(|| DEFAULT.to_owned());
        let account = review.stored.get("", "serviceaccounts", what.namespace, &name);
        let automount = |of: &Value| of["automountServiceAccountToken"].as_bool();
        let wanted = automount(&pod["spec"]).or_else(|| automount(account.as_ref()?)).unwrap_or(true);
        if account.is_none() && (wanted || named.is_some()) {
            let pods = Subject { group: "", resource: "pods", kind: "Pod" };
            let place = what.namespace;
            let why = format!("error looking up service account {place}/{name}: serviceaccount \"{name}\" not found");
            return Err(Status::forbidden(pods, pod["metadata"]["name"].as_str().unwrap_or_default(), why));
        }
        for field in ["serviceAccountName", "serviceAccount"] {
            pod["spec"][field] = name.clone().into();
        }
        let Some(account) = account else { return Ok(()) };
        if pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
            && account["imagePullSecrets"].as_array().is_some_and(|secrets| !secrets.is_empty())
        {
            pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
        }
        if wanted {
            self.give_token(pod);
        }
        Ok(())
    }
}

/// The token, whom to trust, and where the pod is.
fn volume(name: &str) -> Value {
    let namespace =
        json!({ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } });
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": SECONDS, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [namespace] } },
            ],
        },
    })
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = Value::Array(vec![item]),
    }
}
