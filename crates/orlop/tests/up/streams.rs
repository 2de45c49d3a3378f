//! Streams to real guests: many at once, long ones, and by virt-api and virt-handler as processes of their own, as on Kubernetes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::vm::VirtualMachine;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use certificates::{Authority, Leaf, Request, Use};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use testkit::ports;
use tokio::time::Instant;

use super::Test;
use super::guests::{Terminal, linux};
use super::sockets::{Socket, path};
use super::test_host::{PATIENCE, TestHost};
use super::tiny;
use super::ways::{Running, lasting};

pub(crate) const TESTS: &[(&str, Test)] =
    &[("virt_api_reaches_a_guest_by_its_handler", virt_api_reaches_a_guest_by_its_handler)];

/// What takes minutes where guests are emulated.
pub(crate) const LONG: &[(&str, Test)] = &[
    ("twenty_guests_are_looked_at_at_once", twenty_guests_are_looked_at_at_once),
    ("a_gibibyte_passes_a_forwarded_port", a_gibibyte_passes_a_forwarded_port),
];

const GUESTS: usize = 20;

fn twenty_guests_are_looked_at_at_once() -> Result<()> {
    let machine = TestHost::up()?;
    let folder = tempfile::tempdir()?;
    let image = tiny::image(folder.path())?;
    let names: Vec<String> = (0..GUESTS).map(|number| format!("guest-{number}")).collect();
    for name in &names {
        machine.create::<VirtualMachine>(tiny::tiny(name, &image)?)?;
    }
    for name in &names {
        machine.phase(name, Phase::Running, None)?;
    }
    let client = machine.client();
    machine.runtime.block_on(async {
        let mut all = Vec::new();
        for name in &names {
            // Also what it said before.
            let console = path("v1", name, "console?replay=true");
            let opened = Socket::open(&client, &console, &[]).await?;
            all.push((name, opened.map_err(|refusal| anyhow::anyhow!("{name}: {refusal:?}"))?));
        }
        for (name, socket) in &mut all {
            socket.until("ready").await.with_context(|| (*name).clone())?;
        }
        // Each hears its own guest, while all are open.
        for (name, socket) in &mut all {
            socket.send(format!("<{name}>").as_bytes()).await?;
        }
        for (name, socket) in &mut all {
            socket.until(&format!("<{name}>")).await?;
        }
        Ok(())
    })
}

fn a_gibibyte_passes_a_forwarded_port() -> Result<()> {
    let machine = TestHost::up()?;
    machine.create::<VirtualMachine>(linux("v", "Always")?)?;
    machine.phase("v", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    send_back(&mut terminal)?;
    transfer(&machine, 1024)
}

/// The port on which a guest sends everything back.
const ECHO: u16 = 7000;

/// Has the guest send back whatever comes to a port.
pub(crate) fn send_back(terminal: &mut Terminal) -> Result<()> {
    terminal.run(&format!("(setsid nc -ll -p {ECHO} -e cat > /dev/null 2>&1 &)"))?;
    terminal.run(&format!("until grep -q :{ECHO:X} /proc/net/tcp*; do sleep 0.2; done")).map(drop)
}

const BLOCK: usize = 64 << 10;

/// So many bytes that follow from a number, and are different from all others.
fn block(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(BLOCK / 8).flatten().collect()
}

/// Sends so many mebibytes to a guest by a forwarded port while the guest sends them back: they come as they were sent.
pub(crate) fn transfer(machine: &TestHost, mebibytes: u64) -> Result<()> {
    let (_forwarding, line) = lasting(machine, &["port-forward", "v", &format!(":{ECHO}")])?;
    let address = line.strip_prefix("forwarding ").and_then(|rest| rest.split(' ').next());
    let address: SocketAddr = address.with_context(|| line.clone())?.parse()?;
    let mut stream = TcpStream::connect(address)?;
    let mut sending = stream.try_clone()?;
    let blocks = mebibytes * (1 << 20) / u64::try_from(BLOCK)?;
    let sent = std::thread::spawn(move || -> std::io::Result<()> {
        (0..blocks).try_for_each(|number| sending.write_all(&block(number)))
    });
    let mut heard = vec![0; BLOCK];
    for number in 0..blocks {
        stream.read_exact(&mut heard).with_context(|| format!("block {number} of {blocks} did not come back"))?;
        ensure!(heard == block(number), "block {number} came back as another");
    }
    match sent.join() {
        Ok(sent) => Ok(sent?),
        Err(_) => bail!("the sender panicked"),
    }
}

/// The node of the guest that is reached by virt-handler.
const NODE: &str = "here-0";
const SERVICE: &str = "virt-api.kubevirt.svc";
const FRONT: &str = "front-proxy-client";

fn authority(name: &str) -> Result<Authority> {
    Ok(Authority::make(name, Timestamp::now(), SignedDuration::from_hours(24))?)
}

fn issue(by: &Authority, request: &Request) -> Result<Leaf> {
    Ok(by.issue(request, Timestamp::now(), SignedDuration::from_hours(24))?)
}

/// virt-api and virt-handler beside a machine, and what they know each other by.
struct Apart<'a> {
    machine: &'a TestHost,
    folder: PathBuf,
}

impl Apart<'_> {
    /// Writes a certificate, and names the flags that take it.
    fn certificate(&self, name: &str, leaf: &Leaf, flags: [&str; 2]) -> Result<Vec<String>> {
        let mut words = Vec::new();
        for (flag, text, end) in [(flags[0], &leaf.certificate, "crt"), (flags[1], &leaf.key, "key")] {
            words.extend([flag.to_owned(), self.write(&format!("{name}.{end}"), text)?]);
        }
        Ok(words)
    }

    fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// A program of its own, on this machine's API server.
    fn program(&self, words: &[&str], certificates: &[String]) -> Result<Running> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(words).args(certificates).arg("--kubeconfig").arg(self.machine.kubeconfig());
        Ok(Running::new(command.stdin(Stdio::null()).spawn()?))
    }

    /// virt-handler in the place of the node's own, which has ended. It finds the guests that run.
    fn handler(&self, port: u16, certificates: &[String]) -> Result<Running> {
        let home = self.machine.data().join("nodes").join(NODE);
        let (kubelet, state) = (home.join("kubelet"), home.join("virt-handler"));
        let (kubelet, state) = (kubelet.display().to_string(), state.display().to_string());
        let listen = format!("127.0.0.1:{port}");
        let of_node = ["virt-handler", "--node-name", NODE, "--kubelet-dir", &kubelet, "--state-dir", &state];
        let door = ["--listen", &listen, "--advertise-address", "127.0.0.1"];
        self.program(&[&of_node[..], &door].concat(), certificates)
    }

    /// A client that virt-api takes for the front proxy of its cluster.
    async fn front_proxy(&self, port: u16, serving: &Authority, leaf: &Leaf) -> Result<Client> {
        let text = |text: &str| STANDARD.encode(text);
        let cluster = json!({
            "server": format!("https://127.0.0.1:{port}"), "tls-server-name": SERVICE,
            "certificate-authority-data": text(serving.certificate()),
        });
        let user = json!({ "client-certificate-data": text(&leaf.certificate), "client-key-data": text(&leaf.key) });
        let file: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{ "name": "it", "cluster": cluster }], "users": [{ "name": "it", "user": user }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }], "current-context": "it",
        }))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

/// In whose name the front proxy asks.
const ADMIN: [(&str, &str); 2] = [("x-remote-user", "admin"), ("x-remote-group", "system:masters")];

/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(100);

/// A stream to `v` by the front proxy, as soon as virt-api and virt-handler are there.
async fn opened(client: &Client, way: &str) -> Result<Socket> {
    let mut told = String::new();
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match Socket::open(client, &path("v1", "v", way), &ADMIN).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(refusal)) => told = format!("{refusal:?}"),
            Err(error) => told = format!("{error:#}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
    bail!("{way} was not opened: {told}")
}

async fn by_all_ways(client: &Client) -> Result<Socket> {
    let mut console = opened(client, "console").await?;
    console.send(b"\r").await?;
    console.until("login:").await?;
    opened(client, "vnc").await?.greeting().await?;
    opened(client, "portforward/22").await?.until("SSH-2.0-").await?;
    Ok(console)
}

/// Two processes and two hops of TLS before a real guest, as on Kubernetes: its node's virt-handler is another process that takes
/// the guest over, virt-api is one that knows nothing of this machine. The test is the front proxy.
fn virt_api_reaches_a_guest_by_its_handler() -> Result<()> {
    let machine = TestHost::with(&["--nodes", "1"])?;
    machine.create::<VirtualMachine>(linux("v", "Always")?)?;
    let before = machine.phase("v", Phase::Running, None)?;
    e2e::output(&mut machine.orlop(&["node", "stop", NODE]))?;

    let folder = tempfile::tempdir()?;
    let apart = Apart { machine: &machine, folder: folder.path().to_owned() };
    let (serving, front, inner) = (authority("serving")?, authority("front")?, authority("inner")?);
    let maps: Api<ConfigMap> = Api::namespaced(machine.client(), "kube-system");
    let map = serde_json::from_value(trust(&front))?;
    machine.runtime.block_on(maps.create(&PostParams::default(), &map))?;
    let believed = apart.write("inner.crt", inner.certificate())?;

    let of_node = issue(&inner, &Request::server(NODE, &[NODE], &[]))?;
    let mut of_node = apart.certificate("node", &of_node, ["--tls-cert-file", "--tls-private-key-file"])?;
    of_node.extend(["--client-ca-file".to_owned(), believed.clone()]);
    let door = ports::free();
    let handler = apart.handler(door, &of_node)?;

    let shown = issue(&serving, &Request::server("virt-api", &[SERVICE], &[]))?;
    let mut of_api = apart.certificate("serving", &shown, ["--tls-cert-file", "--tls-private-key-file"])?;
    let shown =
        issue(&inner, &Request { used: Use::Client, ..Request::client("kubevirt.io:system:client:virt-api", &[]) })?;
    let flags = ["--handler-tls-cert-file", "--handler-tls-private-key-file"];
    of_api.extend(apart.certificate("client", &shown, flags)?);
    of_api.extend(["--handler-ca-file".to_owned(), believed]);
    let port = ports::free();
    let words = ["virt-api", "--secure-port", "0", "--listen", &format!("127.0.0.1:{port}")];
    let _virt_api = apart.program(&words, &of_api)?;

    let leaf = issue(&front, &Request::client(FRONT, &[]))?;
    let client = machine.runtime.block_on(apart.front_proxy(port, &serving, &leaf))?;
    let mut console = machine.runtime.block_on(by_all_ways(&client))?;

    // virt-handler is started again under an open stream: it takes leave, and the next one leads to the same guest.
    handler.terminate()?;
    let closed = machine.runtime.block_on(console.closed())?;
    ensure!(closed == (1011, "virt-handler stops".to_owned()), "{closed:?}");
    let handler = apart.handler(door, &of_node)?;
    drop(machine.runtime.block_on(by_all_ways(&client))?);
    let after = machine.phase("v", Phase::Running, None)?;
    ensure!(after.metadata.uid == before.metadata.uid, "another guest runs");
    handler.terminate()?;
    e2e::output(&mut machine.orlop(&["node", "start", NODE])).map(drop)
}

/// The config map in which a cluster says who its front proxy is.
fn trust(front: &Authority) -> serde_json::Value {
    json!({
        "metadata": { "name": "extension-apiserver-authentication" },
        "data": {
            "requestheader-client-ca-file": front.certificate(),
            "requestheader-allowed-names": json!([FRONT]).to_string(),
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        },
    })
}
