//! With real mount namespaces: a container is a process that has left ours and has a root of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::*;

const POD: &str = "9f1c0a7e-1111-2222-3333-444455556666";

/// A container with a root of its own that offers its image; ends when it is dropped.
struct Container {
    child: Child,
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node: a folder of pods, an image, and what is mounted is taken away at the end.
struct Node {
    folder: tempfile::TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = unmount_all(&self.pods(), POD);
    }
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Self { folder };
        fs::create_dir_all(node.volume()).unwrap();
        fs::create_dir_all(node.image().join("disk")).unwrap();
        fs::create_dir_all(node.image().join("proc")).unwrap();
        node
    }

    fn pods(&self) -> PathBuf {
        self.folder.path().join("pods")
    }

    fn volume(&self) -> PathBuf {
        self.pods().join(folders::volume_path(POD, CONTAINER_DISKS))
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Runs a process in the image whose socket is in the launcher's folder. The socket is made before it leaves.
    fn container(&self) -> Container {
        self.container_of("disk_0")
    }

    /// One that offers the disk of this name.
    fn container_of(&self, disk: &str) -> Container {
        let script = "import os, socket, sys\n\
             os.chdir(sys.argv[1])\n\
             listener = socket.socket(socket.AF_UNIX)\n\
             listener.bind(sys.argv[3] + '.sock')\n\
             listener.listen()\n\
             os.chroot(sys.argv[2])\n\
             print('ready', flush=True)\n\
             sys.stdin.read()\n";
        // A mount of its own in a namespace of its own: ours must not be able to reach it by name.
        let command = "mount --bind \"$1\" \"$1\" && exec python3 -c \"$2\" \"$0\" \"$1\" \"$3\"";
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", command])
            .arg(self.volume())
            .arg(self.image())
            .arg(script)
            .arg(disk)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        Container { child }
    }

    async fn mount(&self, disk: &serde_json::Value) -> Result<(), DiskError> {
        self.mount_disks(&json!([{ "name": "root", "containerDisk": disk }])).await
    }

    async fn mount_disks(&self, volumes: &serde_json::Value) -> Result<(), DiskError> {
        let vmi = json!({ "spec": { "domain": { "devices": {} }, "volumes": volumes } });
        mount_all(&self.pods(), POD, &serde_json::from_value(vmi).unwrap()).await
    }
}

fn image() -> serde_json::Value {
    json!({ "image": "i" })
}

#[tokio::test]
#[ignore = "needs root: make test"]
async fn the_disk_of_a_container_is_mounted_read_only_and_taken_away_again() {
    let node = Node::new();
    fs::write(node.image().join("disk/some.img"), "the disk").unwrap();
    assert!(matches!(node.mount(&image()).await, Err(DiskError::NotReady(_))));
    let _container = node.container();
    node.mount(&image()).await.unwrap();
    let target = node.volume().join("disk_0.img");
    assert_eq!(fs::read_to_string(&target).unwrap(), "the disk");
    let refused = fs::OpenOptions::new().write(true).open(&target).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    node.mount(&image()).await.unwrap();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    // Other tests mount disks beside this one.
    let is_here = |line: &&str| line.contains(target.to_str().unwrap());
    let lines: Vec<String> = mounts().lines().filter(is_here).map(str::to_owned).collect();
    assert_eq!(lines.len(), 1, "mounted once: {lines:?}");
    for option in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(lines[0].split([' ', ',']).any(|one| one == option), "{option}: {}", lines[0]);
    }
    unmount_all(&node.pods(), POD).unwrap();
    unmount_all(&node.pods(), POD).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "");
}

#[tokio::test]
#[ignore = "needs root: make test"]
async fn a_link_in_the_image_stays_inside_of_it() {
    let node = Node::new();
    let secret = node.folder.path().join("secret");
    fs::write(&secret, "of the machine").unwrap();
    fs::create_dir_all(node.image().join(secret.strip_prefix("/").unwrap().parent().unwrap())).unwrap();
    symlink(&secret, node.image().join("disk/some.img")).unwrap();
    let _container = node.container();
    assert!(matches!(node.mount(&image()).await, Err(DiskError::Image { .. })), "there is no such file in the image");
    fs::write(node.image().join(secret.strip_prefix("/").unwrap()), "of the image").unwrap();
    node.mount(&image()).await.unwrap();
    assert_eq!(fs::read_to_string(node.volume().join("disk_0.img")).unwrap(), "of the image");
}

#[tokio::test]
#[ignore = "needs root: make test"]
async fn what_is_no_file_or_not_the_only_one_is_refused() {
    let node = Node::new();
    fs::create_dir(node.image().join("disk/folder")).unwrap();
    let _container = node.container();
    let error = node.mount(&image()).await.unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Never(_)) && error.to_string().contains("is not a file"), "{error}");
    fs::write(node.image().join("disk/one"), "").unwrap();
    let error = node.mount(&image()).await.unwrap_err();
    assert!(error.to_string().contains("several files"), "{error}");
    node.mount(&json!({ "image": "i", "path": "/disk/one" })).await.unwrap();
}

#[tokio::test]
#[ignore = "needs root: make test"]
async fn a_container_that_is_not_ready_keeps_no_other_disk_waiting() {
    let node = Node::new();
    fs::write(node.image().join("disk/some.img"), "the disk").unwrap();
    let container = node.container_of("disk_1");
    let disks = json!([{ "name": "slow", "containerDisk": image() }, { "name": "root", "containerDisk": image() }]);
    assert!(matches!(node.mount_disks(&disks).await, Err(DiskError::NotReady(name)) if name == "disk_0"));
    assert_eq!(fs::read_to_string(node.volume().join("disk_1.img")).unwrap(), "the disk");
    // What will never be there is said first.
    drop(container);
    unmount_all(&node.pods(), POD).unwrap();
    fs::remove_file(node.volume().join("disk_1.sock")).unwrap();
    fs::write(node.image().join("disk/other.img"), "another disk").unwrap();
    let _container = node.container_of("disk_1");
    let error = node.mount_disks(&disks).await.unwrap_err();
    assert!(matches!(&error, DiskError::Image { name, .. } if name == "disk_1"), "{error}");
}

#[tokio::test]
#[ignore = "needs root: make test"]
async fn a_launchers_folder_or_file_that_is_a_link_is_refused() {
    let node = Node::new();
    fs::write(node.image().join("disk/some.img"), "the disk").unwrap();
    let victim = node.folder.path().join("victim");
    fs::write(&victim, "").unwrap();
    {
        let _container = node.container();
        symlink(&victim, node.volume().join("disk_0.img")).unwrap();
        assert!(matches!(node.mount(&image()).await, Err(DiskError::Mount { .. })));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "");
    }
    let elsewhere = node.folder.path().join("elsewhere");
    fs::rename(node.volume(), &elsewhere).unwrap();
    symlink(&elsewhere, node.volume()).unwrap();
    let error = node.mount(&image()).await.unwrap_err();
    assert!(matches!(error, DiskError::Mount { .. }), "{error}");
    assert!(unmount_all(&node.pods(), POD).is_err());
}

#[tokio::test]
#[ignore = "needs root: make test"]
async fn what_was_opened_is_what_is_mounted() {
    let node = Node::new();
    let disk = node.image().join("disk/some.img");
    fs::write(&disk, "the one that was looked at").unwrap();
    let container = node.container();
    let folder = folder(&node.pods(), POD).unwrap().unwrap();
    let peer = offered_by(&folder, "disk_0", POD).await.unwrap();
    let wanted = Wanted { socket: "disk_0".into(), file: None, target: "disk_0.img".into() };
    let root = open_path(Path::new(&format!("/proc/{}/root", peer.pid))).unwrap();
    assert_ne!(peer.pid, std::process::id());
    let file = find(&root, &wanted).unwrap();
    let looked_at = fs::metadata(&disk).unwrap().ino();
    // In between, the image's owner has another file ready.
    fs::rename(&disk, node.image().join("old")).unwrap();
    fs::write(&disk, "another").unwrap();
    let tree = mounting::clone_from(&peer.mounts().unwrap(), file).unwrap();
    mounting::attach(&tree, &folder, &wanted.target).unwrap();
    drop(container);
    let mounted = node.volume().join("disk_0.img");
    assert_eq!(fs::metadata(&mounted).unwrap().ino(), looked_at);
    assert_eq!(fs::read_to_string(&mounted).unwrap(), "the one that was looked at");
}
