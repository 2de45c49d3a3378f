//! A runtime in a directory of its own; nothing of it outlives the test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use node::runtime::spec::{Container, ContainerState, PodState, Resources, Root, Sandbox, User};
use node::runtime::{Runtime, RuntimePaths, Shim};
use testkit::NEVER;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A runtime, its directory, and what is checked when it ends.
pub(crate) struct TestHost {
    pub(crate) runtime: Runtime,
    folder: tempfile::TempDir,
    uids: std::sync::Mutex<Vec<String>>,
}

impl TestHost {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::find(places(folder.path()), &["runc", "crun"]).await.unwrap();
        Self { runtime, folder, uids: std::sync::Mutex::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The runtime of an agent that was started anew.
    pub(crate) async fn another_runtime(&self) -> Runtime {
        Runtime::find(places(self.path()), &["runc", "crun"]).await.unwrap()
    }

    pub(crate) fn sandbox(&self) -> Sandbox {
        // Of one length: none is a part of another, and they sort as they came.
        let uid = format!("test-{}-{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        self.uids.lock().unwrap().push(uid.clone());
        Sandbox {
            namespace: "default".to_owned(),
            name: "pod".to_owned(),
            hostname: "a-pod".to_owned(),
            host_network: false,
            logs: self.path().join("logs").join(&uid),
            resources: Resources::default(),
            uid,
        }
    }

    pub(crate) async fn pod(&self) -> (Sandbox, Shim) {
        let sandbox = self.sandbox();
        let shim = self.runtime.sandbox(&sandbox).await.unwrap();
        (sandbox, shim)
    }

    /// What is left of all pods: processes, cgroups, mounts, files.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for uid in self.uids.lock().unwrap().iter() {
            let cgroups = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|it| it.path());
            let groups = cgroups
                .chain([PathBuf::from("/sys/fs/cgroup")])
                .flat_map(|it| [it.join(format!("orlop/pod{uid}")), it.join(format!("orlop/runtime-{uid}"))]);
            left.extend(groups.filter(|it| it.exists()).map(|it| it.display().to_string()));
            let lines = std::fs::read_to_string("/proc/self/mounts").unwrap();
            left.extend(lines.lines().filter(|line| line.contains(uid)).map(str::to_owned));
            let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|it| it.path().join("cmdline"));
            let commands = processes.filter_map(|path| std::fs::read_to_string(path).ok());
            left.extend(commands.filter(|line| line.contains(uid)).map(|line| line.replace('\0', " ")));
        }
        let pods = std::fs::read_dir(self.path().join("pods")).into_iter().flatten().flatten();
        left.extend(pods.map(|it| it.path().display().to_string()));
        left
    }
}

/// Also after a failure nothing may be left running.
impl Drop for TestHost {
    fn drop(&mut self) {
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
    }
}

fn places(folder: &Path) -> RuntimePaths {
    RuntimePaths { state: folder.join("pods"), program: env!("CARGO_BIN_EXE_test-shim").into() }
}

/// A container of the machine's programs.
pub(crate) fn container(args: &[&str]) -> Container {
    Container {
        name: "main".to_owned(),
        attempt: 0,
        root: Root::Machine { files: Vec::new() },
        args: args.iter().map(|it| (*it).to_owned()).collect(),
        env: Vec::new(),
        cwd: String::new(),
        user: User { uid: 1234, gid: 1234, groups: Vec::new() },
        mounts: Vec::new(),
        devices: Vec::new(),
        capabilities: Vec::new(),
        no_new_privileges: true,
        read_only_root: true,
        privileged: false,
        filtered: false,
        resources: Resources::default(),
        oom_score: Some(-998),
        tty: false,
        termination_message: None,
        message_from_log: false,
    }
}

pub(crate) fn shell(script: &str) -> Container {
    container(&["/bin/sh", "-c", script])
}

/// Waits for what the condition is about.
pub(crate) async fn wait(shim: &Shim, condition: impl FnMut(&PodState) -> bool) -> PodState {
    let mut states = shim.states();
    let state = tokio::time::timeout(NEVER, states.wait_for(condition)).await;
    state.unwrap_or_else(|_| panic!("{:?}", shim.states().borrow())).unwrap().clone()
}

/// How a container has ended.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) attempt: u32,
    pub(crate) exit_code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) out_of_memory: bool,
    pub(crate) was_started: bool,
    pub(crate) message: String,
}

pub(crate) async fn end_of(shim: &Shim, name: &str, attempt: u32) -> End {
    let is_over =
        |state: &PodState| state.containers.get(name).is_some_and(|it| it.is_over() && it.attempt() == attempt);
    match wait(shim, is_over).await.containers.remove(name) {
        Some(ContainerState::Exited { attempt, exit_code, signal, out_of_memory, started_at, message, .. }) => {
            End { attempt, exit_code, signal, out_of_memory, was_started: started_at.is_some(), message }
        }
        other => panic!("{other:?}"),
    }
}

/// Runs a container to its end.
pub(crate) async fn run(shim: &Shim, container: &Container) -> End {
    shim.start(container).await.unwrap();
    end_of(shim, &container.name, container.attempt).await
}

/// What a container has written, without times and streams.
pub(crate) fn output(sandbox: &Sandbox, container: &Container) -> String {
    let path = sandbox.logs.join(&container.name).join(format!("{}.log", container.attempt));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| format!("{}\n", line.splitn(4, ' ').nth(3).unwrap())).collect()
}
