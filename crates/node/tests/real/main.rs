//! The agent with real containers in a real network, on a machine of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "../support/pods.rs"]
mod pods;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use apiserver::{ApiServer, Identity, Place};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use manager::context::{Chance, Now};
use network::cni::{self, Cni};
use node::agent::{Agent, MachineImage, Settings, logs};
use node::runtime::{Runtime, RuntimePaths};
use serde_json::{Value, json};
use storage::images::Images;
use storage::pull::{Digest, Limits, Registries};
use tempfile::TempDir;
use testkit::waiting::eventually;
use testkit::{Harness, Need, tests, world};
use tokio::task::JoinHandle;
use virt_server::Component;

use pods::{is_ready, phase, status};

fn main() -> std::process::ExitCode {
    let needs = [Need::Root, Need::Program("runc"), Need::Program("iptables"), Need::Program("/usr/lib/cni/bridge")];
    let tests = tests![async pods_run_on_a_real_machine_and_leave_nothing_behind];
    Harness::default().needing(&needs).on_own_machine().run(tests)
}

struct Real {
    folder: TempDir,
    client: Client,
    /// The agent's.
    own: Client,
    runtime: Runtime,
    cni: Arc<Cni>,
    tasks: Vec<JoinHandle<()>>,
}

/// Also after a failure nothing may be left running.
impl Drop for Real {
    fn drop(&mut self) {
        self.kill();
        let runtime = self.runtime.clone();
        let end = move || {
            let events = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            events.block_on(async {
                for (_, shim) in runtime.existing().await.unwrap() {
                    shim.end().await.unwrap();
                }
            });
        };
        std::thread::spawn(end).join().unwrap();
        for path in mounts(self.folder.path()).into_iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

fn mounts(below: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let paths = table.lines().filter_map(|line| line.split(' ').nth(4));
    paths.filter(|path| Path::new(path).starts_with(below)).map(str::to_owned).collect()
}

impl Real {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings =
            virt_server::Settings { kinds: Vec::new(), chance: Chance::seeded(1), machine_image: None, guests: None };
        let server = virt_server::start(ApiServer::builder(Place::Memory).seed(1), settings).await.unwrap();
        let client = Client::new(server.for_identity(Identity::admin()), "default");
        let node = Component::Node("here".to_owned());
        let own = Client::new(server.for_identity(node.identity()), "default");
        let places =
            RuntimePaths { state: folder.path().join("shims"), program: env!("CARGO_BIN_EXE_test-shim").into() };
        let runtime = Runtime::find(places, &["runc", "crun"]).await.unwrap();
        let cni = Cni::new(cni::Settings {
            network: cni::Network {
                bridge: "orlop0".to_owned(),
                subnet4: ([10, 88, 0, 0].into(), 24),
                subnet6: None,
                mtu: None,
            },
            plugins: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            state: folder.path().join("cni"),
            node: None,
        });
        let cni = Arc::new(cni.unwrap());
        cni.prepare().await.unwrap();
        let mut real = Self { folder, client, own, runtime, cni, tasks: Vec::new() };
        real.start();
        real
    }

    fn kill(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }

    #[expect(clippy::disallowed_methods, reason = "a test on a real machine has its clock")]
    fn start(&mut self) -> Agent {
        let now: Now = Arc::new(Timestamp::now);
        let (context, writer) = world::context(self.own.clone(), now, "test");
        let root = self.folder.path();
        let agent = Agent::new(
            &context,
            Settings {
                node: "here".to_owned(),
                root: root.to_owned(),
                logs: root.join("logs"),
                runtime: Arc::new(self.runtime.clone()),
                images: Arc::new(Images::open(&root.join("images"), Limits::default()).unwrap()),
                registries: Registries::default(),
                network: Some(self.cni.clone()),
                identities: None,
                machine: MachineImage {
                    name: "orlop.dev/machine".to_owned(),
                    files: Vec::new(),
                    users: 900_000..900_010,
                    is_for: |pod| pod.metadata.labels.is_some(),
                },
                resolv_conf: "/etc/resolv.conf".into(),
                reserved_memory: 0,
                nodes: std::num::NonZeroU32::MIN,
                addresses: vec!["10.88.0.1".parse().unwrap()],
                api_server: None,
                labels: std::collections::BTreeMap::new(),
            },
        );
        let running = agent.clone();
        let run = tokio::spawn(async move { running.run().await });
        self.tasks.extend([writer, run, world::watch(&context)]);
        agent
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create(&self, object: Value) {
        self.pods().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    async fn until(&self, name: &str, what: impl Fn(&Pod) -> bool) -> Pod {
        eventually(name, async || self.pods().get(name).await.ok().filter(|pod| what(pod))).await
    }

    /// Waits until nothing of any pod is left; directories go after the object.
    async fn empty(&self) {
        let count = |name: &str| std::fs::read_dir(self.folder.path().join(name)).unwrap().count();
        eventually("the end of all pods", async || (count("pods") + count("logs") == 0).then_some(())).await;
    }

    async fn gone(&self, name: &str) {
        eventually("its end", async || self.pods().get_opt(name).await.unwrap().is_none().then_some(())).await;
    }
}

/// A pod of one container that runs once.
fn pod_of(name: &str, container: &Value) -> Value {
    let spec = json!({ "nodeName": "here", "restartPolicy": "Never", "containers": [container] });
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn launcher() -> Value {
    let owner = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "v", "uid": "u", "controller": true,
    });
    json!({
        "metadata": { "name": "launcher", "labels": { "kubevirt.io": "virt-launcher" }, "ownerReferences": [owner] },
        "spec": {
            "nodeName": "here",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "volumes": [
                { "name": "private", "emptyDir": {} },
                { "name": "config", "downwardAPI": { "items": [
                    { "path": "key", "fieldRef": { "fieldPath": "metadata.name" } },
                ] } },
            ],
            "containers": [{
                "name": "compute",
                "image": "orlop.dev/machine",
                "command": ["/bin/sh", "-c", "id -u; touch /private/mine; cat /config/key; echo; exec sleep 1000"],
                "resources": { "limits": { "memory": "64Mi" } },
                "readinessProbe": { "exec": { "command": ["/bin/sh", "-c", "test -e /private/mine"] }, "periodSeconds": 1 },
                "volumeMounts": [
                    { "name": "private", "mountPath": "/private" },
                    { "name": "config", "mountPath": "/config" },
                ],
            }],
        },
    })
}

async fn text(agent: &Agent, pod: &Pod, container: &str) -> String {
    let mut lines = agent.logs(pod, container, &logs::Options::default()).await.unwrap();
    let mut text = Vec::new();
    while let Some(piece) = lines.next().await {
        text.extend(piece.unwrap());
    }
    String::from_utf8(text).unwrap()
}

/// An image of the machine's own shell, in a directory.
fn layout(folder: &Path) -> String {
    let layout = folder.join("layout");
    std::fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let blob = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(layout.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": bytes.len() })
    };
    let listed = Command::new("ldd").arg("/bin/sh").output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    let mut layer = tar::Builder::new(Vec::new());
    for path in libraries.chain([PathBuf::from("/bin/sh")]) {
        let name = path.strip_prefix("/").unwrap();
        layer.append_path_with_name(std::fs::canonicalize(&path).unwrap(), name).unwrap();
    }
    let layer = blob(&layer.into_inner().unwrap());
    let config = blob(br#"{"config": {"Entrypoint": ["/bin/sh", "-c"], "Env": ["GREETING=hello"]}}"#);
    let manifest = blob(json!({ "schemaVersion": 2, "config": config, "layers": [layer] }).to_string().as_bytes());
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    std::fs::write(layout.join("index.json"), index.to_string()).unwrap();
    format!("oci:{}", layout.display())
}

async fn pods_run_on_a_real_machine_and_leave_nothing_behind() {
    let mut real = Real::new().await;
    a_launcher_lives_on(&mut real).await;
    a_job_ends(&mut real).await;
    let root = real.folder.path();
    assert_eq!(mounts(root), Vec::<String>::new());
    assert!(real.runtime.existing().await.unwrap().is_empty());
    let links = Command::new("ip").args(["-brief", "link"]).output().unwrap().stdout;
    assert!(!String::from_utf8(links).unwrap().contains("veth"));
}

async fn a_launcher_lives_on(real: &mut Real) {
    let pod = launcher();
    real.create(pod).await;
    let ready = real.until("launcher", is_ready).await;
    let address = ready.status.clone().unwrap().pod_ip.unwrap();
    assert!(address.starts_with("10.88.0."), "{address}");
    let before = status(&ready, "compute").unwrap().container_id.clone();

    real.kill();
    let agent = real.start();
    // When the next agent has run another pod, it has seen all.
    let image = layout(real.folder.path());
    real.create(pod_of("later", &json!({ "name": "c", "image": image, "args": ["true"] }))).await;
    real.until("later", |pod| phase(pod) == "Succeeded").await;
    real.pods().delete("later", &DeleteParams::default()).await.unwrap();
    let after = real.until("launcher", is_ready).await;
    assert_eq!(status(&after, "compute").unwrap().container_id, before);
    assert_eq!(text(&agent, &after, "compute").await, "900000\nlauncher\n");
    real.pods().delete("launcher", &DeleteParams::default()).await.unwrap();
    real.gone("launcher").await;
    real.empty().await;
}

async fn a_job_ends(real: &mut Real) {
    real.kill();
    let agent = real.start();
    let container = json!({ "name": "c", "image": layout(real.folder.path()), "args": ["echo $GREETING; echo bye > /dev/termination-log; exit 3"] });
    real.create(pod_of("job", &container)).await;
    let failed = real.until("job", |pod| phase(pod) == "Failed").await;
    let end = status(&failed, "c").unwrap().state.clone().unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.message.as_deref()), (3, Some("bye\n")));
    assert_eq!(text(&agent, &failed, "c").await, "hello\n");
    real.pods().delete("job", &DeleteParams::default()).await.unwrap();
    real.gone("job").await;
    real.empty().await;
}
