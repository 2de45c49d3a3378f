//! `orlop virt-api` behind a real kube-apiserver: its webhooks, and its API through the aggregation layer, with the rights of its
//! role and none beyond.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use certificates::{Authority, Leaf, Request};
use e2e::control_plane::ControlPlane;
use e2e::{output, peer, root};
use jiff::{SignedDuration, Timestamp};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Harness, Need, ports, tests};

fn main() -> std::process::ExitCode {
    Harness::default().needing(&[Need::Peers]).run(tests![async kubernetes_asks_virt_api])
}

async fn kubernetes_asks_virt_api() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.aggregated().context("the aggregated API")?;
    cluster.webhooks().context("the webhooks")?;
    cluster.subresources().context("the subresources")
}

/// A control plane, and virt-api beside it.
struct Cluster {
    // Dropped in this order: virt-api before the server that it asks.
    _virt_api: Ended,
    plane: ControlPlane,
    folder: TempDir,
}

/// A process that is killed and reaped when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "TLS has the machine's clock")]
fn authority(name: &str) -> Result<Authority> {
    Ok(Authority::make(name, Timestamp::now(), SignedDuration::from_hours(24))?)
}

#[expect(clippy::disallowed_methods, reason = "TLS has the machine's clock")]
fn issue(by: &Authority, request: &Request) -> Result<Leaf> {
    Ok(by.issue(request, Timestamp::now(), SignedDuration::from_hours(24))?)
}

/// Writes the files of a certificate.
fn keep(folder: &Path, name: &str, leaf: &Leaf) -> Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    std::fs::write(&certificate, &leaf.certificate)?;
    std::fs::write(&key, &leaf.key)?;
    Ok((certificate, key))
}

impl Cluster {
    async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        let (front, serving) = (authority("front-proxy")?, authority("virt-api")?);
        std::fs::write(path.join("front-proxy-ca.crt"), front.certificate())?;
        std::fs::write(path.join("serving-ca.crt"), serving.certificate())?;
        let (certificate, key) =
            keep(path, "front-proxy", &issue(&front, &Request::client("front-proxy-client", &[]))?)?;
        let plane = ControlPlane::start_with(&[
            &format!("--requestheader-client-ca-file={}", path.join("front-proxy-ca.crt").display()),
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            &format!("--proxy-client-cert-file={}", certificate.display()),
            &format!("--proxy-client-key-file={}", key.display()),
        ])?;
        let port = ports::free();
        let kubectl = |words: &[&str]| output(plane.kubectl().args(words));
        output(plane.kubectl().args(["apply", "-f"]).arg(root().join("deploy/crds")))?;
        kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"])?;
        kubectl(&["create", "namespace", "kubevirt"])?;
        kubectl(&["create", "serviceaccount", "kubevirt-apiserver", "-n", "kubevirt"])?;
        // There is no network of pods here: the Service leads to this machine.
        kubectl(&["create", "service", "externalname", "virt-api", "--external-name=localhost", "-n", "kubevirt"])?;
        let admin = Kubeconfig::read_from(plane.kubeconfig())?;
        let admin = kube::Config::from_custom_kubeconfig(admin, &KubeConfigOptions::default()).await?;
        virt_server::install_roles(&kube::Client::try_from(admin)?).await?;
        let token = kubectl(&["create", "token", "kubevirt-apiserver", "-n", "kubevirt"])?;
        let kubeconfig = path.join("kubeconfig");
        std::fs::write(&kubeconfig, as_account(&plane.kubeconfig(), token.trim())?)?;
        let names = Request::server("virt-api", &["virt-api.kubevirt.svc"], &[]);
        let (certificate, key) = keep(path, "serving", &issue(&serving, &names)?)?;
        let virt_api = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["virt-api", "--secure-port", "0", "--listen", &format!("127.0.0.1:{port}"), "--kubeconfig"])
            .arg(&kubeconfig)
            .arg("--tls-cert-file")
            .arg(&certificate)
            .arg("--tls-private-key-file")
            .arg(&key)
            .stdin(Stdio::null())
            .spawn()
            .context("start virt-api")?;
        let cluster = Self { _virt_api: Ended(virt_api), plane, folder };
        let manifests = output(
            Command::new(env!("CARGO_BIN_EXE_orlop"))
                .args(["virt-api", "--print-manifests", "--service-port", &port.to_string(), "--ca-bundle-file"])
                .arg(cluster.folder.path().join("serving-ca.crt")),
        )?;
        cluster.apply(&manifests)?;
        Ok(cluster)
    }

    fn kubectl(&self, words: &[&str]) -> Result<String> {
        output(self.plane.kubectl().args(words))
    }

    /// What kubectl says when it fails, which it must.
    fn refused(&self, words: &[&str], text: &str) -> Result<String> {
        match self.given(words, text) {
            Ok(printed) => bail!("{words:?} did not fail: {printed}"),
            Err(error) => Ok(error.to_string()),
        }
    }

    /// Runs kubectl with a text to read.
    fn given(&self, words: &[&str], text: &str) -> Result<String> {
        let mut child = self
            .plane
            .kubectl()
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no standard input")?.write_all(text.as_bytes())?;
        let done = child.wait_with_output()?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(done.status.success(), "{}", said(&done.stderr));
        Ok(said(&done.stdout))
    }

    fn apply(&self, text: &str) -> Result<String> {
        self.given(&["apply", "-f", "-"], text)
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(words)?)?)
    }

    fn aggregated(&self) -> Result<()> {
        for version in ["v1", "v1alpha3"] {
            let path = format!("/apis/subresources.kubevirt.io/{version}");
            // The server looks for those that it was told of again and again.
            self.plane.wait_for(&path)?;
            let listed = self.json(&["get", "--raw", &path])?;
            let names: Vec<&str> = listed["resources"]
                .as_array()
                .context("no list")?
                .iter()
                .filter_map(|one| one["name"].as_str())
                .collect();
            ensure!(names.contains(&"virtualmachines/start"), "{listed}");
        }
        let groups = self.kubectl(&["api-versions"])?;
        ensure!(groups.contains("subresources.kubevirt.io/v1alpha3"), "{groups}");
        let version = self.json(&["get", "--raw", "/apis/subresources.kubevirt.io/v1/version"])?;
        ensure!(version["gitVersion"].as_str().is_some_and(|text| text.contains("orlop")), "{version}");
        self.plane.wait_for("/openapi/v3/apis/subresources.kubevirt.io/v1")
    }

    fn webhooks(&self) -> Result<()> {
        // Webhooks are called a moment after they were registered.
        let created = loop {
            self.apply(&vm("defaulted", "64Mi").to_string())?;
            let created = self.json(&["get", "vm", "defaulted", "-o", "json"])?;
            if created["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"].is_string() {
                break created;
            }
            self.kubectl(&["delete", "vm", "defaulted"])?;
        };
        let domain = &created["spec"]["template"]["spec"]["domain"];
        ensure!(domain["machine"]["type"].is_string(), "{domain}");
        let said = self.refused(&["apply", "-f", "-"], &vm("wrong", "-1").to_string())?;
        ensure!(said.contains("spec.template.spec.domain.memory.guest"), "{said}");
        ensure!(self.kubectl(&["get", "vm", "wrong"]).is_err(), "it is there all the same");
        Ok(())
    }

    fn subresources(&self) -> Result<()> {
        let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/defaulted";
        let strategy = || -> Result<Value> {
            Ok(self.json(&["get", "vm", "defaulted", "-o", "json"])?["spec"]["runStrategy"].take())
        };
        self.given(&["replace", "--raw", &format!("{path}/start"), "-f", "-"], "{}")?;
        ensure!(strategy()? == "Always", "{}", strategy()?);
        let again = self.refused(&["replace", "--raw", &format!("{path}/start"), "-f", "-"], "{}")?;
        ensure!(again.contains("Always does not support manual start requests"), "{again}");
        let mut virtctl = Command::new(peer("virtctl")?);
        virtctl.arg("--kubeconfig").arg(self.plane.kubeconfig()).env("HOME", self.folder.path());
        output(virtctl.args(["stop", "defaulted"]))?;
        ensure!(strategy()? == "Halted", "{}", strategy()?);
        let stranger = ["--as", "stranger", "replace", "--raw", &format!("{path}/start"), "-f", "-"];
        let said = self.refused(&stranger, "{}")?;
        ensure!(said.contains("cannot update resource \"virtualmachines/start\""), "{said}");
        ensure!(strategy()? == "Halted", "{}", strategy()?);
        Ok(())
    }
}

fn vm(name: &str, memory: &str) -> Value {
    let spec = json!({ "domain": { "devices": {}, "memory": { "guest": memory } } });
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": name, "namespace": "default" },
        "spec": { "runStrategy": "Halted", "template": { "spec": spec } },
    })
}

/// The same server, for whoever has this token.
fn as_account(kubeconfig: &Path, token: &str) -> Result<String> {
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    file["users"] = json!([{ "name": "admin", "user": { "token": token } }]);
    Ok(file.to_string())
}
