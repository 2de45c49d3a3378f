//! Namespaces from their start to their end.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Check, Cluster, WAIT};
use crate::clients::kubectl::has;
use crate::output;

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("every_namespace_has_an_account_and_the_authority", furnished),
    ("what_is_taken_away_comes_back", restored),
    ("a_token_secret_is_filled_and_goes_with_its_account", token),
    ("a_namespace_goes_with_custom_objects_in_it", deleted),
];

/// A key that signs tokens, as an administrator makes it.
pub(super) fn make_key(folder: &Path) -> Result<PathBuf> {
    let file = folder.join("account.key");
    let mut command = Command::new("openssl");
    output(command.args(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"]).arg(&file))?;
    Ok(file)
}

fn furnished(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["create", "namespace", "fresh"])?;
    let authority = std::fs::read_to_string(cluster.authority()?)?;
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease", "fresh"] {
        kubectl.ok(&["wait", "-n", namespace, "--for=create", "serviceaccount/default", WAIT])?;
        kubectl.ok(&["wait", "-n", namespace, "--for=create", "configmap/kube-root-ca.crt", WAIT])?;
        let path = "jsonpath={.data.ca\\.crt}";
        let published = kubectl.ok(&["get", "-n", namespace, "configmap", "kube-root-ca.crt", "-o", path])?;
        ensure!(published == authority, "{namespace} has another authority: {published}");
    }
    Ok(())
}

fn restored(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    for object in ["serviceaccount/default", "configmap/kube-root-ca.crt"] {
        kubectl.ok(&["delete", "-n", "fresh", object])?;
        kubectl.ok(&["wait", "-n", "fresh", "--for=create", object, WAIT])?;
    }
    Ok(())
}

fn token(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["create", "serviceaccount", "-n", "fresh", "robot"])?;
    let secret = "
apiVersion: v1
kind: Secret
metadata: {name: robot, namespace: fresh, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
";
    kubectl.given(&["create", "-f", "-"], secret)?;
    kubectl.ok(&["wait", "-n", "fresh", "--for=jsonpath={.data.token}", "secret/robot", WAIT])?;
    let data = |field: &str| -> Result<String> {
        let path = format!("jsonpath={{.data.{field}}}");
        let text = kubectl.ok(&["get", "-n", "fresh", "secret", "robot", "-o", &path])?;
        Ok(String::from_utf8(STANDARD.decode(text.trim())?)?)
    };
    ensure!(data("namespace")? == "fresh", "another namespace");
    ensure!(data("ca\\.crt")? == std::fs::read_to_string(cluster.authority()?)?, "another authority");
    let token = data("token")?;
    let claims = token.split('.').nth(1).context("it is no token")?;
    let claims = String::from_utf8(base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims)?)?;
    has(&claims, r#""sub":"system:serviceaccount:fresh:robot""#)?;
    kubectl.ok(&["delete", "serviceaccount", "-n", "fresh", "robot"])?;
    kubectl.ok(&["wait", "-n", "fresh", "--for=delete", "secret/robot", WAIT]).map(drop)
}

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.test.orlop}
spec:
  group: test.orlop
  scope: Namespaced
  names: {plural: ships, singular: ship, kind: Ship}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Makes a kind and an object of it in a namespace, with a deployment beside, and deletes the namespace.
pub(super) fn deleted(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.given(&["create", "-f", "-"], DEFINITION)?;
    kubectl.ok(&["wait", "--for=condition=Established", "crd/ships.test.orlop", WAIT])?;
    kubectl.ok(&["create", "namespace", "full"])?;
    kubectl.ok(&["wait", "-n", "full", "--for=create", "serviceaccount/default", WAIT])?;
    let ship = "apiVersion: test.orlop/v1\nkind: Ship\nmetadata: {name: argo, namespace: full}\n";
    kubectl.given(&["create", "-f", "-"], ship)?;
    kubectl.ok(&["create", "deployment", "-n", "full", "web", "--image=i:1", "--replicas=2"])?;
    kubectl.ok(&["rollout", "status", "-n", "full", "deployment/web", WAIT])?;
    kubectl.ok(&["delete", "namespace", "full", WAIT])?;
    for kind in ["ships.test.orlop", "deployments", "replicasets", "pods", "events", "configmaps"] {
        let left = kubectl.ok(&["get", kind, "-n", "full", "-o", "name"])?;
        ensure!(left.is_empty(), "left in the namespace: {left}");
    }
    kubectl.ok(&["delete", "crd", "ships.test.orlop", WAIT]).map(drop)
}
