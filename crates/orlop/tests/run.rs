//! `orlop run` with real guests, asked over their serial console.

mod support;

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Result, ensure};
use e2e::guest;
use e2e::registry::Registry;
use serde_json::{Value, json};
use testkit::waiting::until;
use testkit::{Harness, Need, ports, tests};

use support::{Guest, instance, qemus};

fn main() -> std::process::ExitCode {
    const GUEST: [Need; 2] = [Need::Qemu, Need::Guest];
    const LOOPS: [Need; 3] = [Need::Qemu, Need::Guest, Need::Root];
    const REGISTRY: [Need; 4] = [Need::Qemu, Need::Guest, Need::Program("docker-registry"), Need::Program("skopeo")];
    let guests = tests![
        a_container_disk_boots_with_cloud_init_network_and_entropy,
        efi_firmware_boots_a_disk_with_a_config_drive_from_a_secret,
        killing_orlop_leaves_no_qemu,
    ];
    let loops =
        tests![a_kernel_boots_directly_with_disks_on_every_bus, another_distribution_has_qemu_and_firmware_elsewhere,];
    let registry = tests![a_container_disk_comes_from_a_registry_once];
    let refusals = tests![what_cannot_be_honoured_is_refused_by_its_path, a_missing_image_is_named];
    let guests = guests.into_iter().map(|test| test.needing(&GUEST));
    let loops = loops.into_iter().map(|test| test.needing(&LOOPS));
    let registry = registry.into_iter().map(|test| test.needing(&REGISTRY));
    let all = guests.chain(loops).chain(registry).chain(refusals).collect();
    // Guests are known by their names, and other tests on this machine may have the same.
    Harness::default().on_own_machine().run(all)
}

const USER_DATA: &str = "#cloud-config\npassword: secret\nchpasswd: { expire: false }\nssh_authorized_keys:\n\
                         - ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFakeKeyForTheTest someone@example.org\n";

fn a_container_disk_boots_with_cloud_init_network_and_entropy() -> Result<()> {
    let domain = json!({
        "cpu": { "sockets": 1, "cores": 2, "threads": 1 },
        "memory": { "guest": "320Mi" },
        "devices": {
            "disks": [{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "seed", "disk": { "bus": "virtio" } }],
            "interfaces": [{ "name": "default", "masquerade": {} }],
            "rng": {},
        },
    });
    let volumes = json!([
        { "name": "root", "containerDisk": { "image": guest::image("demo")? } },
        { "name": "seed", "cloudInitNoCloud": { "userData": USER_DATA } },
    ]);
    let mut vmi = instance("layout", &domain, &volumes);
    vmi["spec"]["networks"] = json!([{ "name": "default", "pod": {} }]);
    vmi["spec"]["hostname"] = "anna".into();
    let port = ports::free();
    let mut guest = Guest::run(&vmi, &["-p", &format!("{port}:22")])?;
    let console = &mut guest.console;
    console.log_in("orlop", "secret")?;
    ensure!(console.run("hostname")? == "anna");
    ensure!(console.run("grep -c ^processor /proc/cpuinfo")? == "2");
    ensure!(
        console.run("cat /sys/devices/system/cpu/cpu0/topology/core_cpus_list")? == "0",
        "two cores, one thread each"
    );
    let kib: u64 = console.run("awk '/MemTotal/ {print $2}' /proc/meminfo")?.parse()?;
    ensure!((240 << 10..=320 << 10).contains(&kib), "{kib} KiB of memory");
    ensure!(console.run("cat /sys/class/misc/hw_random/rng_current")?.starts_with("virtio_rng"));
    ensure!(console.run("cat ~/.ssh/authorized_keys")?.contains("FakeKeyForTheTest"));

    greets(port);

    // Ctrl-C asks the guest to power off, and that is a good end.
    guest.signal("INT")?;
    ensure!(guest.wait()?.success());
    ensure!(qemus("layout").is_empty(), "QEMU is gone");
    Ok(())
}

fn a_kernel_boots_directly_with_disks_on_every_bus() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("claim.img");
    std::fs::File::create(&file)?.set_len(16 << 20)?;
    let domain = json!({
        "firmware": { "kernelBoot": {
            "container": { "image": guest::image("kernel")?, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img" },
            "kernelArgs": "console=ttyS0 quiet no_timer_check",
        } },
        "devices": {
            "disks": [
                { "name": "one", "serial": "virtio-1", "disk": { "bus": "virtio" } },
                { "name": "two", "serial": "sata-1", "disk": { "bus": "sata" } },
                { "name": "three", "serial": "sata-2", "disk": { "bus": "sata" } },
                { "name": "four", "serial": "scsi-1", "disk": { "bus": "scsi", "readonly": true } },
                { "name": "five", "serial": "scsi-2", "disk": { "bus": "scsi" } },
                { "name": "config", "cdrom": { "bus": "sata" } },
                { "name": "block", "serial": "block-1", "disk": { "bus": "virtio" } },
            ],
            "interfaces": [{ "name": "default", "masquerade": {}, "model": "e1000", "macAddress": "02:00:00:00:00:42" }],
        },
    });
    let empty = |name: &str| json!({ "name": name, "emptyDisk": { "capacity": "8Mi" } });
    let volumes = json!([
        empty("one"), empty("two"), empty("three"), empty("five"),
        { "name": "four", "persistentVolumeClaim": { "claimName": "claim" } },
        { "name": "block", "persistentVolumeClaim": { "claimName": "block" } },
        { "name": "config", "configMap": { "name": "settings", "volumeLabel": "settings" } },
    ]);
    let settings = folder.path().join("settings");
    std::fs::create_dir(&settings)?;
    std::fs::write(settings.join("color"), "green")?;
    let vmi = with_network(instance("buses", &domain, &volumes));
    let claim = format!("claim={}", file.display());
    let map = format!("settings={}", settings.display());
    let device = Loop::new(&folder.path().join("block.img"), 8 << 20)?;
    let block = format!("block={}", device.0);
    let port = ports::free();
    let forward = format!("127.0.0.1:{port}:22");
    let mut guest = Guest::run(&vmi, &["--claim", &claim, "--claim", &block, "--config-map", &map, "-p", &forward])?;
    let console = &mut guest.console;
    console.log_in("root", "orlop")?;
    ensure!(console.run("cat /sys/block/vda/serial")? == "virtio-1");
    ensure!(console.run("cat /sys/block/vdb/serial")? == "block-1");
    let serials =
        console.run("for d in /sys/block/sd?; do cat $d/device/vpd_pg80 | tr -cd '[:alnum:]-'; echo; done")?;
    for serial in ["sata-1", "sata-2", "scsi-1", "scsi-2"] {
        ensure!(serials.contains(serial), "{serial} is not among {serials}");
    }
    ensure!(console.run("mkdir -p /m && mount -t iso9660 -o ro /dev/sr0 /m && cat /m/color")? == "green");
    ensure!(console.run("cat /sys/class/net/*/address")?.contains("02:00:00:00:00:42"));
    ensure!(console.run("basename $(readlink /sys/class/net/eth0/device/driver)")? == "e1000");

    console.run("printf written > /dev/vdb && sync")?;
    // The old card carries the port, too.
    greets(port);

    // A guest that powers itself off ends well.
    console.send("poweroff")?;
    ensure!(guest.wait()?.success());
    ensure!(std::fs::read(&device.0)?.starts_with(b"written"), "what the guest wrote is on the device");
    Ok(())
}

/// A real block device, gone when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &std::path::Path, size: u64) -> Result<Self> {
        std::fs::File::create(file)?.set_len(size)?;
        let printed = e2e::output(Command::new("losetup").args(["--find", "--show"]).arg(file))?;
        Ok(Self(printed.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn efi_firmware_boots_a_disk_with_a_config_drive_from_a_secret() -> Result<()> {
    let domain = json!({ "firmware": { "bootloader": { "efi": { "secureBoot": false } } } });
    let volumes = json!([
        { "name": "root", "containerDisk": { "image": guest::image("demo")? } },
        { "name": "drive", "cloudInitConfigDrive": { "secretRef": { "name": "seed" } } },
    ]);
    let secret = tempfile::tempdir()?;
    std::fs::write(secret.path().join("userdata"), "#cloud-config\nhostname: berta\n")?;
    let flag = format!("seed={}", secret.path().display());
    let mut guest = Guest::run(&instance("efi", &domain, &volumes), &["--secret", &flag])?;
    guest.console.log_in("root", "orlop")?;
    ensure!(guest.console.run("hostname")? == "berta", "cloud-init took the user data from the secret");
    ensure!(guest.console.run("test -d /sys/firmware/efi && echo yes")? == "yes");
    Ok(())
}

fn another_distribution_has_qemu_and_firmware_elsewhere() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = format!(
        "cd '{}'; mkdir -p usr/libexec usr/share/edk2/ovmf empty; qemu=$(command -v qemu-system-x86_64); \
         cp $qemu usr/libexec/qemu-kvm; \
         for part in CODE VARS; do cp /usr/share/OVMF/OVMF_${{part}}_4M.fd usr/share/edk2/ovmf/OVMF_$part.fd; done; \
         mount -t overlay overlay -o lowerdir=$PWD/usr:/usr /usr; \
         mount --bind empty /usr/share/OVMF; mount --bind /dev/null $qemu",
        folder.path().display()
    );
    let domain = json!({ "firmware": { "bootloader": { "efi": { "secureBoot": false } } } });
    let volumes = json!([{ "name": "root", "containerDisk": { "image": guest::image("demo")? } }]);
    let mut guest = Guest::behind(&script, &instance("elsewhere", &domain, &volumes), &[])?;
    guest.console.log_in("root", "orlop")?;
    ensure!(guest.console.run("test -d /sys/firmware/efi && echo yes")? == "yes");
    let runs = qemus("elsewhere")
        .iter()
        .any(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("libexec/qemu-kvm")));
    ensure!(runs, "another QEMU runs it");
    Ok(())
}

fn a_container_disk_comes_from_a_registry_once() -> Result<()> {
    let registry = Registry::start()?;
    let reference = registry.push(&guest::image("demo")?, "guests/demo:1")?;
    let cache = tempfile::tempdir()?;
    let folder = cache.path().display().to_string();
    let volumes = json!([{ "name": "root", "containerDisk": { "image": reference } }]);
    let vmi = instance("registry", &json!({}), &volumes);
    let address = registry.address.clone();
    let flags = ["--cache-dir", folder.as_str(), "--insecure-registry", address.as_str()];
    let mut guest = Guest::run(&vmi, &flags)?;
    guest.console.expect("guest: userland")?;
    drop(guest);

    // The second time the registry is not asked, and may be gone.
    drop(registry);
    let mut guest = Guest::run(&vmi, &flags)?;
    guest.console.expect("guest: userland")?;
    Ok(())
}

fn killing_orlop_leaves_no_qemu() -> Result<()> {
    let volumes = json!([{ "name": "root", "containerDisk": { "image": guest::image("demo")? } }]);
    let mut guest = Guest::run(&instance("orphan", &json!({}), &volumes), &[])?;
    guest.console.expect("guest: userland")?;
    let before = qemus("orphan");
    ensure!(before.len() == 1, "{before:?}");
    guest.signal("KILL")?;
    // The console ends when the last process that holds it has ended.
    guest.console.rest();
    // A killed process takes a moment to go.
    until("QEMU is gone", || qemus("orphan").is_empty());
    Ok(())
}

fn what_cannot_be_honoured_is_refused_by_its_path() -> Result<()> {
    let domain = json!({ "devices": { "gpus": [{ "name": "gpu", "deviceName": "example.org/gpu" }] } });
    let folder = tempfile::tempdir()?;
    let manifest = folder.path().join("vmi.json");
    std::fs::write(&manifest, instance("refused", &domain, &json!([])).to_string())?;
    let output = support::orlop().arg("run").arg(&manifest).output()?;
    ensure!(!output.status.success());
    let text = String::from_utf8(output.stderr)?;
    ensure!(text.contains("spec.domain.devices.gpus: is not supported yet"), "{text}");
    Ok(())
}

fn a_missing_image_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let volumes = json!([{ "name": "root", "containerDisk": { "image": "oci:/nowhere:gone" } }]);
    let manifest = folder.path().join("vmi.json");
    std::fs::write(&manifest, instance("missing", &json!({}), &volumes).to_string())?;
    let output = support::orlop().arg("run").arg(&manifest).output()?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(!output.status.success() && text.contains("spec.volumes[0].containerDisk.image"), "{text}");
    Ok(())
}

/// Waits until a forwarded port leads to the guest's SSH server, which speaks first. It may start after the login.
fn greets(port: u16) {
    let asked = || {
        let mut greeting = [0; 4];
        TcpStream::connect(("127.0.0.1", port)).and_then(|mut guest| guest.read_exact(&mut greeting))?;
        std::io::Result::Ok(&greeting == b"SSH-")
    };
    testkit::waiting::until("the guest's SSH server greets", || asked().unwrap_or(false));
}

fn with_network(mut vmi: Value) -> Value {
    vmi["spec"]["networks"] = json!([{ "name": "default", "pod": {} }]);
    vmi
}
