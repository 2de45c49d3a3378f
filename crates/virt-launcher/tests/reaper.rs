//! Orphans are buried, as the first process of a pod must.

use std::path::Path;
use std::process::Command;

use rustix::process::{getpid, set_child_subreaper};
use testkit::waiting::eventually;

#[tokio::test]
async fn an_orphan_is_buried() {
    // As process 1 would: orphans below this process become its children.
    set_child_subreaper(Some(getpid())).unwrap();
    tokio::spawn(virt_launcher::reaper::bury_orphans());
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    // Whoever reads what the shell says waits for its end: the orphan holds none of it open.
    let script = format!("until [ -e {} ]; do sleep 0.01; done >/dev/null 2>&1 & echo $!", end.display());
    let printed = Command::new("sh").args(["-c", &script]).output().unwrap();
    let orphan = String::from_utf8(printed.stdout).unwrap();
    let record = format!("/proc/{}", orphan.trim());
    assert!(Path::new(&record).exists(), "it runs");
    std::fs::write(end, "").unwrap();
    eventually("its burial", async || (!Path::new(&record).exists()).then_some(())).await;
}
