//! Containers from images, which are made here of the machine's own shell.

use std::path::{Path, PathBuf};
use std::process::Command;

use node::runtime::spec::{Container, Root, User};
use storage::cache::PullPolicy;
use storage::images::{Image, Images};
use storage::pull::{Digest, Limits, Registries};

use crate::support::{TestHost, output, run, shell};

/// An image with a shell in it.
async fn image(folder: &Path) -> Image {
    let layout = folder.join("layout");
    std::fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let blob = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(layout.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        serde_json::json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": bytes.len()})
    };
    let mut layer = tar::Builder::new(Vec::new());
    for path in libraries("/bin/sh").into_iter().chain([PathBuf::from("/bin/sh")]) {
        let name = path.strip_prefix("/").unwrap();
        layer.append_path_with_name(std::fs::canonicalize(&path).unwrap(), name).unwrap();
    }
    let text = b"from the image\n";
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    layer.append_data(&mut header, "etc/note", &text[..]).unwrap();
    let layer = blob(&layer.into_inner().unwrap());
    let config = blob(br#"{"config": {"Cmd": ["/bin/sh"], "Env": ["GREETING=hello"]}}"#);
    let manifest = serde_json::json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let manifest = blob(manifest.to_string().as_bytes());
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [manifest]});
    std::fs::write(layout.join("index.json"), index.to_string()).unwrap();
    let images = Images::open(&folder.join("images"), Limits::default()).unwrap();
    let reference = format!("oci:{}", layout.display()).parse().unwrap();
    images.image(&reference, PullPolicy::IfNotPresent, &Registries::default(), &()).await.unwrap()
}

/// What a program needs to run, by the names that it is looked for.
fn libraries(program: &str) -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

pub(crate) async fn each_container_writes_to_its_own_copy_of_an_image() {
    let machine = TestHost::new().await;
    let image = image(machine.path()).await;
    let (sandbox, shim) = machine.pod().await;
    let of_image = |name: &str, script: &str| Container {
        name: name.to_owned(),
        root: Root::Image(image.root().to_owned()),
        env: image.config().env.clone(),
        user: User::default(),
        read_only_root: false,
        ..shell(script)
    };
    let first =
        of_image("first", "read note < /etc/note; echo $GREETING $note; echo changed > /etc/note; echo new > /new");
    assert_eq!(run(&shim, &first).await.exit_code, 0, "{}", output(&sandbox, &first));
    assert_eq!(output(&sandbox, &first), "hello from the image\n");
    let second = of_image("second", "read note < /etc/note; echo $note; [ -e /new ] || [ -e /home ] || echo clean");
    run(&shim, &second).await;
    assert_eq!(output(&sandbox, &second), "from the image\nclean\n");
    let read_only = Container { read_only_root: true, ..of_image("third", "echo x > /new || echo refused") };
    run(&shim, &read_only).await;
    assert!(output(&sandbox, &read_only).contains("refused"));
    let limits = of_image("fourth", "[ -e /sys/fs/cgroup/memory ] || [ -e /sys/fs/cgroup/memory.max ] && echo limited");
    run(&shim, &limits).await;
    assert_eq!(output(&sandbox, &limits), "limited\n");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
    assert_eq!(std::fs::read(image.root().join("etc/note")).unwrap(), b"from the image\n");
}
