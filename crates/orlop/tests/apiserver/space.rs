//! No space left on the device: clients are told, nothing breaks, deletes go on, and with space again all does.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::process::{MAPS, Process, ask, map};

/// The server on a small file system of its own, in a mount namespace that goes with it.
async fn on_small_disk(folder: &Path) -> Process {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-ec"]);
    command.arg(
        "mount -t tmpfs -o size=24m tmpfs \"$1\"; exec \"$0\" apiserver --listen 127.0.0.1:0 --data-dir \"$1/data\"",
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
async fn a_full_disk_refuses_what_takes_space_and_still_takes_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = on_small_disk(folder.path()).await;
    let mut connection = server.connect().await.unwrap();
    let text = "x".repeat(300_000);
    let mut kept = map("kept", "1");
    kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
    ask(&mut connection, Method::POST, MAPS, &kept).await.unwrap();
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
    assert_eq!(list["items"].as_array().unwrap().len(), made.len() + 1);
    // One that is only marked by its deletion, and one after the other of those that go at once.
    let path = format!("{MAPS}/kept");
    let mut marked = ask(&mut connection, Method::DELETE, &path, &Value::Null).await.unwrap();
    marked["metadata"]["finalizers"] = json!([]);
    ask(&mut connection, Method::PUT, &path, &marked).await.unwrap();
    for name in made.split_off(1) {
        ask(&mut connection, Method::DELETE, &format!("{MAPS}/{name}"), &Value::Null).await.unwrap();
    }
    // Nobody takes what was given up for deletes.
    let refused = ask(&mut connection, Method::POST, MAPS, &map("small", "1")).await.unwrap_err().to_string();
    assert!(refused.contains("507"), "{refused}");
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
