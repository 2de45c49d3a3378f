//! The agents of several nodes on one machine: processes of their own, which `orlop up` starts, finds again and keeps running.
//!
//! ```text
//! orlop up ──▶ relay ◀── agent of NAME-0: node agent and virt-handler     outlives orlop up
//!          ──▶ relay ◀── agent of NAME-1                                   may be killed, stopped or cut off by itself
//! ```
//!
//! # Guarantees
//! - At most one agent per node: its lock is the node's directory.
//! - An agent outlives `orlop up`. The next one takes it over if it would start the same, and replaces it otherwise; pods go on
//!   running either way.
//! - An agent that ends is started again, unless somebody asked for its end; that is remembered across restarts.

mod asking;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use virt_handler::NodeGuests;

pub(crate) use asking::{Partition, Request, ask};

use super::home::{Home, Role, node_name};
use super::node::Found;
use super::nodes::{Nodes, Trouble};
use super::{lock, paths, relay};

/// The longest wait before an agent that ended is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// An agent that ran this long had no trouble with its start.
const LONG: Duration = Duration::from_secs(60);

/// What is wanted of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Intent {
    runs: bool,
    /// Whether it is to end at once, without a chance to finish anything.
    #[serde(skip)]
    kills: bool,
    /// Whether it is cut off from the API server.
    cut: bool,
}

impl Default for Intent {
    fn default() -> Self {
        Self { runs: true, kills: false, cut: false }
    }
}

/// How an agent is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    pid: Option<u32>,
    /// Why it does not run, if that is known.
    why: Option<String>,
}

/// All agents of this machine.
#[derive(Clone, Default)]
pub(crate) struct Agents(BTreeMap<String, Agent>);

#[derive(Clone)]
struct Agent {
    intent: watch::Sender<Intent>,
    state: watch::Receiver<State>,
}

/// What an agent was started as: another `orlop up` that would start the same need not.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Origin {
    arguments: Vec<String>,
    settings: BTreeMap<String, String>,
    program: (u64, SystemTime),
}

impl Origin {
    /// This process, with the arguments after its name.
    pub(super) fn own() -> anyhow::Result<Self> {
        let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        Self::of(arguments.collect(), Path::new("/proc/self/exe"))
    }

    fn of(arguments: Vec<String>, program: &Path) -> anyhow::Result<Self> {
        let settings = std::env::vars().filter(|(name, _)| name.starts_with("ORLOP_")).collect();
        let metadata = std::fs::metadata(program).with_context(|| format!("look at {}", program.display()))?;
        Ok(Self { arguments, settings, program: (metadata.len(), metadata.modified()?) })
    }

    fn file(root: &Path) -> PathBuf {
        root.join("agent.json")
    }

    /// Leaves it for the next `orlop up`.
    pub(super) fn write(&self, root: &Path) -> anyhow::Result<()> {
        std::fs::write(Self::file(root), serde_json::to_vec(self)?).context("write down what this agent is")
    }

    /// What the agent in this directory was started as, if that can be read.
    fn read(root: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::file(root)).ok()?).ok()
    }
}

/// Refuses to be one kind of machine while pods of another kind run on it: nobody would look after them.
pub(super) fn check(data: &Path, role: Role, home: &Home) -> anyhow::Result<()> {
    let wanted: Vec<PathBuf> = match role {
        Role::Control { nodes } => {
            (0..nodes.get()).map(|index| paths::node(data, &node_name(&home.machine, index))).collect()
        }
        Role::Sole | Role::Agent { .. } => vec![home.root.clone()],
    };
    for root in paths::homes(data).into_iter().filter(|root| !wanted.contains(root)) {
        let pods = std::fs::read_dir(paths::shims(&root)).map_or(0, Iterator::count);
        if pods > 0 || (root != data && lock::holder(&root)?.is_some()) {
            bail!(
                "{} has {pods} pods of another number of nodes; stop them with `orlop down`, then start again",
                root.display()
            );
        }
    }
    Ok(())
}

/// Starts the agents of all nodes, or finds those that run. They reach the API server at this address, pods at its port.
pub(super) async fn start(
    data: &Path,
    found: &Found,
    server: SocketAddr,
    guests: &NodeGuests,
) -> anyhow::Result<Agents> {
    let (home, program) = (found.home(), found.program());
    let mut agents = Agents::default();
    for index in 0..home.nodes().get() {
        let name = node_name(&home.machine, index);
        let root = paths::node(data, &name);
        apiserver::make_directory(&root).with_context(|| format!("create {}", root.display()))?;
        guests.are_below(&name, paths::kubelet(&root).join("pods"));
        let listener = listen(&root).await.with_context(|| format!("listen for {name}"))?;
        let mut arguments: Vec<String> = std::env::args().skip(1).collect();
        arguments.extend(["--agent".to_owned(), index.to_string()]);
        arguments.extend(["--agent-server".to_owned(), listener.local_addr()?.to_string()]);
        arguments.extend(["--agent-api-port".to_owned(), server.port().to_string()]);
        let intent: Intent = std::fs::read(intent_file(&root))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let (intents, intent) = watch::channel(intent);
        let (cut, is_cut) = watch::channel(intent.borrow().cut);
        let (states, state) = watch::channel(State::default());
        tokio::spawn(relay::run(listener, server, is_cut));
        let keeper = Keeper {
            name: name.clone(),
            root,
            program: program.to_owned(),
            arguments,
            intent,
            states,
            cut,
            child: None,
        };
        tokio::spawn(keeper.keep());
        agents.0.insert(name, Agent { intent: intents, state });
    }
    agents.serve(data)?;
    Ok(agents)
}

/// The same port as before, if it is free: an agent that is still there goes on with it.
async fn listen(root: &Path) -> anyhow::Result<TcpListener> {
    let file = root.join("relay.port");
    let before = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<u16>().ok());
    let listener = match before {
        Some(port) => TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.ok(),
        None => None,
    };
    let listener = match listener {
        Some(listener) => listener,
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
    };
    std::fs::write(&file, listener.local_addr()?.port().to_string())?;
    Ok(listener)
}

fn intent_file(root: &Path) -> PathBuf {
    root.join("intent.json")
}

/// Keeps one agent as it is wanted.
struct Keeper {
    name: String,
    root: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    intent: watch::Receiver<Intent>,
    states: watch::Sender<State>,
    cut: watch::Sender<bool>,
    /// The agent, if this process started it.
    child: Option<Child>,
}

impl Keeper {
    async fn keep(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            let intent = *self.intent.borrow_and_update();
            self.cut.send_replace(intent.cut);
            if let Err(error) = std::fs::write(intent_file(&self.root), serde_json::to_vec(&intent).unwrap_or_default())
            {
                tracing::warn!(node = self.name, %error, "what is wanted of an agent was not written down");
            }
            if !intent.runs {
                self.end(intent.kills).await;
                self.states.send_replace(State::default());
                if self.intent.changed().await.is_err() {
                    return;
                }
                pause = Duration::ZERO;
                continue;
            }
            let begun = Instant::now();
            let why = match self.run().await {
                Ok(pid) => {
                    self.states.send_replace(State { pid: Some(pid), why: None });
                    tokio::select! {
                        biased;
                        changed = self.intent.changed() => match changed {
                            Ok(()) => continue,
                            Err(_) => return,
                        },
                        () = ended(pid) => {}
                    }
                    self.reap();
                    format!("its agent ended{}", self.last_words())
                }
                Err(error) => format!("its agent cannot be started: {error:#}"),
            };
            tracing::warn!(node = self.name, why, "a node has no agent; it is started again");
            self.states.send_replace(State { pid: None, why: Some(why) });
            let had_no_trouble = begun.elapsed() > LONG;
            let longer = (pause * 2).clamp(Duration::from_secs(1), LONGEST_PAUSE);
            pause = if had_no_trouble { Duration::ZERO } else { longer };
            tokio::select! {
                biased;
                _ = self.intent.changed() => self.intent.mark_changed(),
                () = sleep(pause) => {}
            }
        }
    }

    /// The kernel keeps what is left of a process until its parent has asked about it.
    fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// The agent that runs as it should, or a new one.
    async fn run(&mut self) -> anyhow::Result<u32> {
        let wanted = Origin::of(self.arguments.clone(), &self.program)?;
        if let Some(child) = &self.child {
            return Ok(child.id());
        }
        if let Some(pid) = lock::holder(&self.root)? {
            if Origin::read(&self.root).as_ref() == Some(&wanted) {
                tracing::info!(node = self.name, pid, "took over the agent of a node");
                return Ok(pid);
            }
            tracing::info!(node = self.name, pid, "replacing the agent of a node: it was started as another");
            self.end(false).await;
        }
        let errors = File::create(self.root.join("agent.err")).context("make a file for its last words")?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            // What is typed at this terminal is not meant for it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        let pid = child.id();
        tracing::info!(node = self.name, pid, "started the agent of a node");
        self.child = Some(child);
        Ok(pid)
    }

    /// Ends the agent, if it runs; returns when it has.
    async fn end(&mut self, kills: bool) {
        // One that was just started may not have its lock yet.
        let started = self.child.as_ref().map(Child::id);
        let Some(pid) = started.or_else(|| lock::holder(&self.root).ok().flatten()) else { return };
        let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        match kill_process(process, if kills { Signal::KILL } else { Signal::TERM }) {
            Ok(()) => ended(pid).await,
            Err(error) => tracing::debug!(node = self.name, pid, %error, "an agent was gone before it was ended"),
        }
        self.reap();
    }

    fn last_words(&self) -> String {
        let words = std::fs::read_to_string(self.root.join("agent.err")).unwrap_or_default();
        words.lines().rfind(|line| !line.trim().is_empty()).map(|line| format!(": {line}")).unwrap_or_default()
    }
}

/// Resolves when a process has ended, whoever's child it is.
async fn ended(pid: u32) {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(Ok(process)) = process.map(|process| pidfd_open(process, PidfdFlags::empty())) else { return };
    let wait = move || {
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        while poll(&mut ended, None) == Err(Errno::INTR) {}
    };
    // A thread that waits when nobody is interested any more ends with the process.
    drop(tokio::task::spawn_blocking(wait).await);
}

impl Agents {
    /// What is to be told of the nodes whose agents do not run as usual.
    pub(crate) fn add_to(&self, nodes: &mut Nodes) {
        for (name, agent) in &self.0 {
            let intent = *agent.intent.borrow();
            let state = agent.state.borrow().clone();
            let start = format!("`sudo orlop node start {name}` undoes that");
            let (why, remedy) = match (intent.runs, intent.cut, state.why) {
                (false, ..) => ("its agent was stopped".to_owned(), start),
                (true, true, _) => ("its agent was cut off from the API server".to_owned(), start),
                (true, false, Some(why)) => (why, "it is started again by itself".to_owned()),
                (true, false, None) => continue,
            };
            let known = nodes.entry(name.clone()).or_default();
            let trouble = known.get_or_insert_with(|| Trouble { why: String::new(), remedies: Vec::new() });
            trouble.why = [why.as_str(), trouble.why.as_str()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; ");
            trouble.remedies.insert(0, remedy);
        }
    }
}
