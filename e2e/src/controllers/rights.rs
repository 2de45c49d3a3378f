//! Who the controllers are to a real API server, and who may see what their program shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::{Check, Cluster, WAIT, namespaces, nodes};
use crate::control_plane::ControlPlane;
use crate::http::Server;
use crate::kubeconfig::Kubeconfig;

/// The checks in the order they run: what the controllers do, then what the server says of it.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a_deployment_comes_and_goes", deployment),
    ("a_taint_without_execution_evicts", taint),
    ("the_authority_is_published_and_put_right", authority),
    ("a_namespace_goes_with_custom_objects_in_it", namespaces::deleted),
    ("only_who_may_sees_metrics", pages),
    ("nodes_whose_process_ended_are_lost", nodes::lost),
    ("each_controller_is_its_own_account", accounts),
];

pub(super) const LOG: &str = "audit.log";
const POLICY: &str = "{\"apiVersion\": \"audit.k8s.io/v1\", \"kind\": \"Policy\", \"omitStages\": [\"RequestReceived\"], \
    \"rules\": [{\"level\": \"Metadata\"}]}";

/// A server that writes down who asks for what.
pub(super) fn audited(folder: &Path) -> Result<ControlPlane> {
    let policy = folder.join("policy.json");
    std::fs::write(&policy, POLICY)?;
    let log = format!("--audit-log-path={}", folder.join(LOG).display());
    ControlPlane::start_with(&[&format!("--audit-policy-file={}", policy.display()), &log])
}

/// What our controllers are started with.
pub(super) fn flags(folder: &Path, authority: &Path) -> Result<Vec<String>> {
    Ok(vec![
        format!("--root-ca-file={}", authority.display()),
        "--use-service-account-credentials".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", testkit::ports::free()),
        format!("--cert-dir={}", folder.display()),
    ])
}

fn deployment(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["wait", "--for=create", "serviceaccount/default", WAIT])?;
    kubectl.ok(&["create", "deployment", "web", "--image=i:1", "--replicas=3"])?;
    kubectl.ok(&["rollout", "status", "deployment/web", WAIT])?;
    kubectl.ok(&["set", "image", "deployment/web", "i=i:2"])?;
    kubectl.ok(&["rollout", "status", "deployment/web", WAIT])?;
    kubectl.ok(&["delete", "deployment", "web", "--cascade=background"])?;
    kubectl.ok(&["wait", "--for=delete", "rs,pods", "-l", "app=web", WAIT])?;
    kubectl.ok(&["create", "deployment", "left", "--image=i:1"])?;
    kubectl.ok(&["rollout", "status", "deployment/left", WAIT])?;
    kubectl.ok(&["delete", "deployment", "left", "--cascade=orphan", WAIT])?;
    kubectl.ok(&["delete", "rs", "-l", "app=left", "--cascade=foreground", WAIT]).map(drop)
}

fn taint(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["create", "deployment", "moved", "--image=i:1", "--replicas=4"])?;
    kubectl.ok(&["rollout", "status", "deployment/moved", WAIT])?;
    kubectl.ok(&["taint", "nodes", "hollow-1", "k=v:NoExecute"])?;
    nodes::empty(kubectl, "moved", "hollow-1")?;
    kubectl.ok(&["rollout", "status", "deployment/moved", WAIT])?;
    kubectl.ok(&["taint", "nodes", "hollow-1", "k:NoExecute-"]).map(drop)
}

fn authority(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let authority = std::fs::read_to_string(cluster.authority()?)?;
    kubectl.ok(&["wait", "--for=create", "configmap/kube-root-ca.crt", WAIT])?;
    kubectl.ok(&["patch", "configmap", "kube-root-ca.crt", "--patch", "{\"data\":{\"ca.crt\":\"forged\"}}"])?;
    let get = ["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"];
    kubectl.until(&get, |shown| shown == authority).map(drop)
}

fn pages(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    for name in ["scraper", "stranger"] {
        kubectl.ok(&["create", "serviceaccount", name])?;
    }
    kubectl.ok(&["create", "clusterrole", "scraper", "--verb=get", "--non-resource-url=/metrics"])?;
    let account = "--serviceaccount=default:scraper";
    kubectl.ok(&["create", "clusterrolebinding", "scraper", "--clusterrole=scraper", account])?;
    let token =
        |name: &str| -> Result<Option<String>> { Ok(Some(kubectl.ok(&["create", "token", name])?.trim().to_owned())) };
    let port = cluster.flags.iter().find_map(|flag| flag.strip_prefix("--secure-port=")).context("no port")?;
    let expected = [
        ("/healthz", None, 200),
        ("/metrics", None, 403),
        ("/metrics", token("scraper")?, 200),
        ("/metrics", token("stranger")?, 403),
        ("/configz", token("scraper")?, 403),
        ("/metrics", Some("forged".to_owned()), 401),
    ];
    for (path, token, status) in expected {
        let known = token.is_some();
        let config = Kubeconfig {
            server: format!("https://127.0.0.1:{port}"),
            authority: std::fs::read(cluster.folder.path().join("kube-controller-manager.crt"))?,
            identity: None,
            token,
        };
        let found = get(&config, path)?;
        ensure!(found == status, "{path}, {}: {found}, not {status}", if known { "with a token" } else { "without" });
    }
    Ok(())
}

fn get(config: &Kubeconfig, path: &str) -> Result<u16> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = Server::new(config)?.connect().await?;
        Ok(connection.ask(Method::GET, path, &[], Bytes::new()).await?.status().as_u16())
    })
}

/// Every controller has asked as the account that Kubernetes gives rights to, and nothing was refused for want of them.
fn accounts(cluster: &mut Cluster) -> Result<()> {
    let log = std::fs::read_to_string(cluster.audit.as_ref().context("no log")?)?;
    let mut seen = BTreeSet::new();
    let mut refused = BTreeMap::<String, usize>::new();
    for line in log.lines() {
        // The last line may be half written.
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        let user = entry["user"]["username"].as_str().unwrap_or_default();
        let Some(account) = user.strip_prefix("system:serviceaccount:kube-system:") else { continue };
        seen.insert(account.to_owned());
        // Not every 403 is for want of rights: a namespace that goes takes nothing new from anybody.
        if entry["annotations"]["authorization.k8s.io/decision"] == "forbid" {
            let about = &entry["objectRef"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let what = format!(
                "{account} may not {} {}/{}",
                text(&entry["verb"]),
                text(&about["resource"]),
                text(&about["subresource"])
            );
            *refused.entry(what).or_default() += 1;
        }
    }
    ensure!(refused.is_empty(), "refused: {refused:#?}; accounts: {seen:?}");
    let expected = [
        "deployment-controller",
        "generic-garbage-collector",
        "namespace-controller",
        "node-controller",
        "replicaset-controller",
        "root-ca-cert-publisher",
        "service-account-controller",
    ];
    for account in expected {
        ensure!(seen.contains(account), "{account} has asked for nothing; accounts: {seen:?}");
    }
    Ok(())
}
