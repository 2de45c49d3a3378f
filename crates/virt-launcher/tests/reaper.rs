//! Orphans are buried, as the first process of a pod must.

use std::process::Command;
use std::time::Duration;

use rustix::process::{getpid, set_child_subreaper};

#[tokio::test]
async fn an_orphan_is_buried() {
    // As process 1 would: orphans below this process become its children.
    set_child_subreaper(Some(getpid())).unwrap();
    tokio::spawn(virt_launcher::reaper::bury_orphans());
    let printed = Command::new("sh").args(["-c", "sleep 0.3 >/dev/null & echo $!"]).output().unwrap();
    let orphan = String::from_utf8(printed.stdout).unwrap();
    let record = format!("/proc/{}", orphan.trim());
    assert!(std::path::Path::new(&record).exists(), "it runs");
    let buried = async {
        while std::path::Path::new(&record).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), buried).await.unwrap();
}
