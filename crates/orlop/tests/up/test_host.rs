//! A machine under `orlop up`, and a client of it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

#[path = "processes.rs"]
pub(crate) mod processes;

pub(crate) use processes::qemus;

/// How long anything may take. Guests are emulated, several at a time, and what failed before is tried again after five
/// minutes at the latest: whoever waits longer waits in vain.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);
/// The bridge of tests. They have a machine of their own, so that it is in nobody's way.
pub(crate) const BRIDGE: &str = "orloptest0";

/// `orlop up` in a directory of its own. Everything is stopped and removed when it is dropped.
pub(crate) struct TestHost {
    folder: TempDir,
    process: Option<Child>,
    flags: Vec<String>,
    /// A file with the id of this boot, if it is not the machine's own.
    boot_id: Option<PathBuf>,
    /// What a shell does before it becomes `orlop up`, among mounts that others do not see.
    enter: Option<String>,
    pub(crate) runtime: Runtime,
    client: Option<Client>,
}

impl TestHost {
    /// Starts one.
    pub(crate) fn up() -> Result<Self> {
        Self::with(&[])
    }

    /// Starts one with further flags.
    pub(crate) fn with(flags: &[&str]) -> Result<Self> {
        // A long path, as no socket can have it.
        let folder = tempfile::Builder::new()
            .prefix("orlop-up-in-a-folder-whose-name-is-longer-than-that-of-any-socket-may-be-")
            .tempdir()?;
        Self::made(folder, None, flags)
    }

    /// Starts one on another kind of machine: a shell makes it so, among mounts that others do not see.
    pub(crate) fn on(enter: &str, flags: &[&str]) -> Result<Self> {
        Self::made(tempfile::tempdir()?, Some(enter.to_owned()), flags)
    }

    /// Starts one whose directory is below another.
    pub(crate) fn within(place: &Path) -> Result<Self> {
        Self::made(tempfile::tempdir_in(place)?, None, &[])
    }

    fn made(folder: TempDir, enter: Option<String>, flags: &[&str]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut machine = Self { folder, process: None, flags, boot_id: None, enter, runtime, client: None };
        machine.start()?;
        Ok(machine)
    }

    /// The directory of everything.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The admin's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data().join("kubeconfig")
    }

    /// The port of the API, here and at the pods' gateway.
    pub(crate) fn api_port(&self) -> Result<u16> {
        let text = std::fs::read_to_string(self.kubeconfig())?;
        let port = text.split("https://127.0.0.1:").nth(1).and_then(|rest| rest.split_whitespace().next());
        port.context("the kubeconfig names no port")?.parse().context("a port")
    }

    /// The program with a verb, for this machine.
    pub(crate) fn orlop(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(words).arg("--data-dir").arg(self.data());
        command
    }

    /// Starts `orlop up`, and waits until it says that it is.
    pub(crate) fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut process = self
            .up_command()
            .arg("up")
            .arg("--data-dir")
            .arg(self.data())
            .args(["--bridge", BRIDGE, "--pod-cidr", "10.199.0.0/24"])
            .env("ORLOP_LISTEN", "127.0.0.1:0")
            .env(
                "ORLOP_IMAGE_DIR",
                format!("{},{}", e2e::guest::directory()?.display(), std::env::temp_dir().display()),
            )
            .args(["--pod-cidr6", "fd99::/64", "--node-name", "here"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("start orlop up")?;
        let mut lines = BufReader::new(process.stdout.take().context("no standard output")?).lines();
        self.process = Some(process);
        match lines.next() {
            Some(Ok(line)) if line.starts_with("orlop is up") => {}
            other => bail!("orlop up said {other:?}\n{}", self.log()),
        }
        // Whatever else it says must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        let file = Kubeconfig::read_from(self.kubeconfig())?;
        self.client = Some(self.runtime.block_on(async {
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?);
        Ok(())
    }

    /// The program, in this boot of the machine: the kernel tells boots apart by an id.
    fn up_command(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_orlop");
        if let Some(enter) = &self.enter {
            let mut command = Command::new("unshare");
            command.args(["--mount", "bash", "-c", &format!("{enter} exec \"$@\""), "bash", program]);
            return command;
        }
        let Some(boot_id) = &self.boot_id else { return Command::new(program) };
        let mut command = Command::new("unshare");
        let enter = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        command.args(["--mount", "sh", "-c", enter]).arg(boot_id).arg(program);
        command
    }

    /// Starts the machine anew, but not `orlop up`. `cut_power` ends all that runs.
    pub(crate) fn reboot(&mut self, cut_power: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut process = self.process.take().context("orlop up does not run")?;
        cut_power()?;
        process.wait()?;
        let boot_id = self.folder.path().join("boot_id");
        std::fs::write(&boot_id, "00000000-0000-4000-8000-000000000000\n")?;
        self.boot_id = Some(boot_id);
        Ok(())
    }

    /// What it wrote to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The process of `orlop up`.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    /// The flags with which it starts from now on.
    pub(crate) fn change_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// Waits for the end of an `orlop up` that ends by itself.
    pub(crate) fn forget_process(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| Ok(process.wait().map(drop)?))
    }

    /// Kills `orlop up`, and nothing else.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("orlop up does not run")?;
        process.kill()?;
        let status = process.wait()?;
        ensure!(status.signal() == Some(9), "orlop up ended with {status}\n{}", self.log());
        Ok(())
    }

    /// Asks `orlop up` to end, as an init system does.
    pub(crate) fn terminate(&mut self) -> Result<()> {
        let mut process = self.process.take().context("orlop up does not run")?;
        e2e::output(Command::new("kill").arg(process.id().to_string()))?;
        let status = process.wait()?;
        ensure!(status.success(), "orlop up ended with {status}\n{}", self.log());
        Ok(())
    }

    /// `orlop down`.
    pub(crate) fn down(&mut self) -> Result<String> {
        let said = e2e::output(&mut self.orlop(&["down"]));
        if let Some(mut process) = self.process.take() {
            process.wait()?;
        }
        said
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        self.client.clone().unwrap_or_else(|| panic!("orlop up never ran"))
    }

    /// The objects of a kind in the namespace `default`.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), "default")
    }

    /// Creates an object.
    pub(crate) fn create<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object)?;
        Ok(self.runtime.block_on(self.api::<K>().create(&PostParams::default(), &object))?)
    }

    /// Reads an object.
    pub(crate) fn get<K>(&self, name: &str) -> Result<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        Ok(self.runtime.block_on(self.api::<K>().get_opt(name))?)
    }

    /// Changes an object.
    pub(crate) fn patch<K>(&self, name: &str, patch: &Value) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let (api, parameters) = (self.api::<K>(), PatchParams::default());
        self.runtime.block_on(api.patch(name, &parameters, &Patch::Merge(patch)))?;
        Ok(())
    }

    /// Deletes an object.
    pub(crate) fn delete<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let (api, parameters) = (self.api::<K>(), DeleteParams::default());
        self.runtime.block_on(api.delete(name, &parameters))?;
        Ok(())
    }

    /// Waits until something is true of an object.
    pub(crate) fn wait<K>(&self, name: &str, what: &str, condition: impl Condition<K>) -> Result<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug + Send + 'static,
    {
        let waiting = await_condition(self.api::<K>(), name, condition);
        match self.runtime.block_on(async { tokio::time::timeout(PATIENCE, waiting).await }) {
            Ok(found) => Ok(found?),
            Err(_) => {
                let now =
                    self.get::<K>(name)?.and_then(|object| serde_json::to_value(&object).ok()).unwrap_or_default();
                bail!("{name} is not {what}: {}\n{}\n{}", now["status"], self.everything(), tail(&self.log()))
            }
        }
    }

    /// Instances, pods and events, as a person would look at them.
    fn everything(&self) -> String {
        let of = |text: Result<Vec<Value>>| {
            let lines = text.unwrap_or_default().into_iter().map(|object| format!("  {object}\n"));
            lines.collect::<String>()
        };
        let instances = of(self.statuses::<VirtualMachineInstance>());
        let pods = of(self.statuses::<k8s_openapi::api::core::v1::Pod>());
        let events =
            self.runtime.block_on(self.api::<k8s_openapi::api::core::v1::Event>().list(&ListParams::default()));
        let events = events.map(|events| {
            let told = events.items.into_iter().map(|one| {
                let time = one.last_timestamp.map(|time| time.0.to_string()).unwrap_or_default();
                let about = one.involved_object.name.unwrap_or_default();
                json!([time, about, one.reason, one.message, one.count])
            });
            told.collect()
        });
        format!("instances\n{instances}pods\n{pods}events\n{}", of(events.map_err(Into::into)))
    }

    fn statuses<K>(&self) -> Result<Vec<Value>>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let objects = self.runtime.block_on(self.api::<K>().list(&ListParams::default()))?.items;
        let told = objects.iter().map(|object| {
            let whole = serde_json::to_value(object)?;
            Ok(json!([
                whole["metadata"]["name"],
                whole["metadata"]["uid"],
                whole["metadata"]["deletionTimestamp"],
                whole["status"]
            ]))
        });
        told.collect()
    }

    /// Waits until the node takes pods.
    pub(crate) fn ready(&self) -> Result<()> {
        let ready = |node: Option<&Node>| {
            let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
        };
        let waiting = await_condition(Api::<Node>::all(self.client()), "here", ready);
        let waited = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, waiting).await });
        waited.with_context(|| format!("the node is not ready\n{}", self.log()))??;
        Ok(())
    }

    /// Waits until an instance is in a phase, and is not another one than `not`.
    pub(crate) fn phase(&self, name: &str, phase: Phase, not: Option<&str>) -> Result<VirtualMachineInstance> {
        let (wanted, not) = (phase.clone(), not.map(str::to_owned));
        let reached = move |vmi: Option<&VirtualMachineInstance>| {
            vmi.is_some_and(|vmi| *vmi.phase() == wanted && vmi.metadata.uid != not)
        };
        let found = self.wait(name, &format!("{phase:?}"), reached)?;
        found.context("the instance is gone")
    }

    /// Looks again and again until there is what is looked for.
    pub(crate) fn until_some<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> Result<T> {
        let mut found = None;
        testkit::waiting::until(what, || {
            found = look();
            found.is_some()
        });
        found.with_context(|| format!("there is no {what}"))
    }

    /// Changes the node.
    pub(crate) fn patch_node(&self, patch: &Value) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client());
        self.runtime.block_on(nodes.patch("here", &PatchParams::default(), &Patch::Merge(patch)))?;
        Ok(())
    }

    /// Waits until a VM tells this status.
    pub(crate) fn status(&self, name: &str, status: &'static str) -> Result<VirtualMachine> {
        let told = move |vm: Option<&VirtualMachine>| {
            let printable = vm.and_then(|vm| vm.status.as_ref()?.printable_status.as_ref());
            printable.is_some_and(|printable| printable.to_string() == status)
        };
        self.wait(name, status, told)?.context("the VM is gone")
    }

    /// Waits until there is no such object.
    pub(crate) fn gone<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug + Send + 'static,
    {
        self.wait::<K>(name, "gone", |object: Option<&K>| object.is_none()).map(drop)
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        // A test that failed: what it said is worth more than what this says.
        if self.data().exists() {
            let _ = self.down();
        }
    }
}

fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(6000);
    text.get(text.ceil_char_boundary(start)..).unwrap_or_default()
}
