//! No space left on the device: clients are told, nothing breaks, and with space again all goes on.

use std::path::Path;

use http::Method;
use serde_json::Value;
use tokio::process::Command;

use crate::process::{MAPS, Process, ask, map};

/// The server on a small file system of its own, in a mount namespace that goes with it.
async fn on_small_disk(folder: &Path) -> Process {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-ec"]);
    command.arg(
        "mount -t tmpfs -o size=2m tmpfs \"$1\"; exec \"$0\" apiserver --listen 127.0.0.1:0 --data-dir \"$1/data\"",
    );
    command.arg(env!("CARGO_BIN_EXE_orlop")).arg(folder);
    let inside = folder.strip_prefix("/").unwrap().to_owned();
    Process::spawn(command, |pid| {
        Path::new("/proc").join(pid.to_string()).join("root").join(inside).join("data/kubeconfig")
    })
    .await
}

#[tokio::test]
#[ignore = "needs root: make test"]
async fn a_full_disk_is_an_error_to_the_client_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = on_small_disk(folder.path()).await;
    let mut connection = server.connect().await.unwrap();
    let text = "x".repeat(100_000);
    let mut made = Vec::new();
    let refused = loop {
        let name = format!("m{:03}", made.len());
        match ask(&mut connection, Method::POST, MAPS, &map(&name, &text)).await {
            Ok(_) => made.push(name),
            Err(error) => break error.to_string(),
        }
        assert!(made.len() < 100, "the disk never fills");
    };
    assert!(refused.contains("507") && refused.contains("no space left on the device"), "{refused}");
    assert!(made.len() > 3, "{made:?}");
    let list = ask(&mut connection, Method::GET, MAPS, &Value::Null).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), made.len());
    // With more space it goes on, without a restart.
    let pid = server.pid().to_string();
    let grown = Command::new("nsenter")
        .args(["--target", &pid, "--user", "--mount", "--preserve-credentials", "mount", "-o", "remount,size=64m"])
        .arg(folder.path())
        .status();
    assert!(grown.await.unwrap().success());
    ask(&mut connection, Method::POST, MAPS, &map("after", &text)).await.unwrap();
    made.push("after".to_owned());
    for name in &made {
        assert_eq!(server.get(name).await.unwrap()["data"]["x"], text.as_str(), "{name}");
    }
    server.terminate().await;
}
