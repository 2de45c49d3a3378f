//! Disks from elsewhere: DataVolumes are filled by pods, and VMs boot from them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, ensure};
use api::cdi::CDIConfig;
use api::data_volume::{DataVolume, DataVolumePhase};
use api::vm::VirtualMachine;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Test;
use super::guests::{Terminal, add_volume, bare};
use super::storing::volumes_in;
use super::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("a_vm_boots_from_a_disk_that_is_imported_for_it", a_vm_boots_from_a_disk_that_is_imported_for_it),
    ("imports_succeed_or_are_refused_by_name", imports_succeed_or_are_refused_by_name),
];

/// The machine, as pods see it.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 199, 0, 1));
/// A port of the machine that pods may reach.
pub(crate) const PORT: u16 = 8097;

fn a_vm_boots_from_a_disk_that_is_imported_for_it() -> Result<()> {
    let machine = TestHost::with(&["--allow-host-port", &PORT.to_string()])?;
    let image = e2e::guest::directory()?.join("disk.qcow2");
    let checksum = e2e::output(Command::new("sha256sum").arg(&image))?;
    let checksum = checksum.split_whitespace().next().context("no checksum")?.to_owned();
    let _server = serve(Arc::new(std::fs::read(&image)?))?;

    let mut vm = bare("v", "Always");
    let template = |name: &str, source: Value, size: &str| {
        let storage = json!({ "resources": { "requests": { "storage": size } } });
        json!({ "metadata": { "name": name }, "spec": { "source": source, "storage": storage } })
    };
    let http = json!({ "url": url("/disk.qcow2"), "checksum": format!("sha256:{checksum}") });
    vm["spec"]["dataVolumeTemplates"] =
        json!(
            [template("v-root", json!({ "http": http }), "1Gi"), template("v-data", json!({ "blank": {} }), "64Mi"),]
        );
    add_volume(&mut vm, "root", "dataVolume", json!({ "name": "v-root" }))?;
    add_volume(&mut vm, "data", "dataVolume", json!({ "name": "v-data" }))?;
    machine.create::<VirtualMachine>(vm)?;

    let volume = reached(&machine, "v-root", DataVolumePhase::Succeeded)?;
    let status = volume.status.clone().unwrap_or_default();
    ensure!(status.progress.as_deref() == Some("100.0%"), "{status:?}");
    let claim = machine.get::<PersistentVolumeClaim>("v-root")?.context("no claim")?;
    ensure!(claim.annotations().get("orlop.dev/populated").is_some_and(|is| is == "true"), "{:?}", claim.annotations());
    let first = machine.phase("v", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    // As large as the claim, not as the image.
    ensure!(terminal.run("cat /sys/block/vda/size")? == (1024 * 2048).to_string());
    ensure!(terminal.run("cat /sys/block/vdb/size")? == (64 * 2048).to_string());
    terminal.run("echo kept > /data/mark && sync")?;
    drop(terminal);
    e2e::output(&mut machine.orlop(&["restart", "v"]))?;
    machine.phase("v", Phase::Running, first.metadata.uid.as_deref())?;
    // It is the VM's own disk, and is not imported again.
    ensure!(Terminal::log_in(&machine, "v")?.run("cat /data/mark")? == "kept");
    ensure!(importers(&machine)?.is_empty(), "an importer is left over");

    machine.delete::<VirtualMachine>("v")?;
    machine.gone::<VirtualMachine>("v")?;
    machine.gone::<PersistentVolumeClaim>("v-root")?;
    let folder = machine.data().join("volumes");
    testkit::waiting::until("the disks are gone", || volumes_in(&folder) == 0);
    Ok(())
}

fn imports_succeed_or_are_refused_by_name() -> Result<()> {
    let machine = TestHost::with(&["--allow-host-port", &PORT.to_string()])?;
    // As clients ask before they import.
    let configs: Api<CDIConfig> = Api::all(machine.client());
    let shares = machine.until_some("config", || {
        let config = machine.runtime.block_on(configs.get_opt("config")).ok()??;
        config.status?.filesystem_overhead
    })?;
    let of_class = shares.storage_class.as_ref().and_then(|shares| shares.get("local"));
    ensure!((shares.global.as_deref(), of_class.map(String::as_str)) == (Some("0"), Some("0")), "{shares:?}");
    let mut raw = vec![0; 3 << 20];
    raw[..5].copy_from_slice(b"begin");
    raw[(2 << 20)..((2 << 20) + 3)].copy_from_slice(b"end");
    let _server = serve(Arc::new(raw.clone()))?;
    machine.create::<Secret>(json!({
        "metadata": { "name": "login" }, "stringData": { "accessKeyId": "user", "secretKey": "word" },
    }))?;

    let zeros = "0".repeat(64);
    let cases = [
        ("good", json!({ "url": url("/raw") }), None),
        ("login", json!({ "url": url("/private"), "secretRef": "login" }), None),
        ("nobody", json!({ "url": url("/private") }), Some("answered with status 401")),
        ("missing", json!({ "url": url("/none") }), Some("answered with status 404")),
        (
            "wrong",
            json!({ "url": url("/raw"), "checksum": format!("sha256:{zeros}") }),
            Some("has the checksum sha256:"),
        ),
        ("own", json!({ "url": "http://127.0.0.1:6443/" }), Some("imports do not go there")),
        ("sent", json!({ "url": url("/redirect") }), Some("169.254.169.254, which belongs to the machine")),
        ("endless", json!({ "url": url("/endless") }), Some("which is all that the claim has room for")),
    ];
    for (name, http, _) in &cases {
        machine.create::<DataVolume>(volume(name, json!({ "http": http })))?;
    }
    machine.create::<DataVolume>(volume("bucket", json!({ "s3": { "url": "http://a/b" } })))?;
    for (name, _, problem) in &cases {
        match problem {
            None => {
                reached(&machine, name, DataVolumePhase::Succeeded)?;
                let disk = std::fs::read(disk_of(&machine, name)?)?;
                ensure!(disk.len() == 16 << 20, "{name} has {} bytes", disk.len());
                ensure!(disk.starts_with(&raw), "{name} has another content");
            }
            Some(problem) => refused(&machine, name, problem)?,
        }
    }
    refused(&machine, "bucket", "spec.source.s3 is not supported")?;
    Ok(())
}

fn refused(machine: &TestHost, name: &str, problem: &str) -> Result<()> {
    let volume = reached(machine, name, DataVolumePhase::Failed)?;
    let conditions = volume.status.and_then(|status| status.conditions).unwrap_or_default();
    let running = conditions.iter().find(|condition| condition.type_ == "Running").context("no condition")?;
    let told = running.message.as_deref().unwrap_or_default();
    ensure!(told.contains(problem), "{name}: {told}");
    if machine.get::<PersistentVolumeClaim>(name)?.is_some() {
        let left = std::fs::read_dir(disk_of(machine, name)?.parent().context("a directory")?)?;
        let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
        ensure!(left.is_empty(), "{name} leaves {left:?}");
    }
    Ok(())
}

pub(crate) fn volume(name: &str, source: Value) -> Value {
    let storage = json!({ "resources": { "requests": { "storage": "16Mi" } } });
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": { "name": name },
        "spec": { "source": source, "storage": storage },
    })
}

pub(crate) fn reached(machine: &TestHost, name: &str, phase: DataVolumePhase) -> Result<DataVolume> {
    let what = format!("{phase:?}");
    let is_there = move |volume: Option<&DataVolume>| {
        let told = volume.and_then(|volume| volume.status.as_ref()?.phase.as_ref());
        // The other end is one as well.
        matches!(told, Some(DataVolumePhase::Succeeded | DataVolumePhase::Failed))
    };
    let found = machine.wait::<DataVolume>(name, &what, is_there)?.context("the DataVolume is gone")?;
    let status = found.status.clone().unwrap_or_default();
    ensure!(status.phase == Some(phase), "{name}: {status:?}");
    Ok(found)
}

fn disk_of(machine: &TestHost, claim: &str) -> Result<PathBuf> {
    let claim = machine.get::<PersistentVolumeClaim>(claim)?.context("no claim")?;
    let volume = claim.spec.and_then(|spec| spec.volume_name).context("no volume")?;
    Ok(machine.data().join("volumes").join(volume).join("disk.img"))
}

fn importers(machine: &TestHost) -> Result<Vec<Pod>> {
    let selected = ListParams::default().labels("cdi.kubevirt.io=importer");
    Ok(machine.runtime.block_on(machine.api::<Pod>().list(&selected))?.items)
}

pub(crate) fn url(path: &str) -> String {
    format!("http://{GATEWAY}:{PORT}{path}")
}

/// A web server with one file and some bad manners.
pub(crate) fn serve(file: Arc<Vec<u8>>) -> Result<Server> {
    let listener = TcpListener::bind((GATEWAY, PORT))?;
    let ends = Arc::<AtomicBool>::default();
    let ended = ends.clone();
    let thread = std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if ended.load(Ordering::SeqCst) {
                return;
            }
            let file = file.clone();
            // Whoever hangs up early sees that itself.
            std::thread::spawn(move || drop(answer(stream, &file)));
        }
    });
    Ok(Server { ends, thread: Some(thread) })
}

/// Listens until it is dropped.
pub(crate) struct Server {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // It looks when somebody comes. Where nobody can come any more, it is left alone.
        if TcpStream::connect((GATEWAY, PORT)).is_ok() {
            drop(self.thread.take().map(JoinHandle::join));
        }
    }
}

fn answer(mut stream: TcpStream, file: &[u8]) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => request.extend_from_slice(&buffer[..length]),
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split_whitespace().nth(1).unwrap_or_default();
    // "user:word", in base64.
    let is_known = request.to_ascii_lowercase().contains("authorization: basic dxnlcjp3b3jk");
    match path {
        "/private" if !is_known => write!(stream, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"),
        "/none" => write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        "/redirect" => {
            let to = "http://169.254.169.254/latest/meta-data";
            write!(stream, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
        }
        "/endless" => {
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[1; 4096])?;
            }
        }
        _ => {
            write!(stream, "HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: {}\r\n\r\n", file.len())?;
            stream.write_all(file)
        }
    }
}
