//! How much memory a launcher holds beside its guest: resident, idle and with a guest running.
//!
//! `cargo build --release -p orlop && cargo run --release -p bench --bin launcher-memory`
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use bench::resident_kib;
use bench::rounds::profile;
use hyper_util::rt::TokioIo;
use launcher_api::rpc::launcher_client::LauncherClient;
use launcher_api::rpc::{Empty, SyncRequest};
use serde_json::json;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = e2e::root().join("target/release/orlop");
    let tell = |figure: &str, kib: u64| {
        println!("{}", json!({ "figure": figure, "kib": kib, "profile": profile(&program) }));
    };
    let child = Command::new(&program)
        .arg("virt-launcher")
        .arg("--socket")
        .arg(folder.path().join("socket"))
        .arg("--runtime-dir")
        .arg(folder.path().join("run"))
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("start {}; build it first", program.display()))?;
    let launcher = Ended(child);
    let mut client = LauncherClient::new(connect(&folder.path().join("socket")).await?);
    tell("launcher resident, idle", resident_kib(launcher.0.id()));

    client.sync(SyncRequest { instance: instance()?.to_string().into_bytes(), ..SyncRequest::default() }).await?;
    while client.guest_ping(Empty {}).await.is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    client.get_guest_info(Empty {}).await?;
    tell("launcher resident, guest running", resident_kib(launcher.0.id()));
    let stats = client.get_stats(Empty {}).await?.into_inner();
    tell("QEMU resident, 256 MiB guest", stats.resident_bytes / 1024);
    Ok(())
}

/// A process that is killed and reaped when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn instance() -> Result<serde_json::Value> {
    Ok(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "bench-memory", "uid": "bench" },
        "spec": {
            "domain": {
                "devices": { "disks": [{ "name": "root", "disk": { "bus": "virtio" } }] },
                "memory": { "guest": "256Mi" },
            },
            "volumes": [{ "name": "root", "containerDisk": { "image": e2e::guest::image("demo")? } }],
        },
    }))
}

async fn connect(socket: &Path) -> Result<Channel> {
    while UnixStream::connect(socket).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Ok(Endpoint::from_static("http://launcher").connect_with_connector(connector).await?)
}
