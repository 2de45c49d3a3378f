//! The benchmarks of controllers run, on a small load.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_scheduler_is_measured() {
    let arguments = ["--pods", "40", "--nodes", "4", "--shapes", "plain,required", "--arrivals", "backlog,stream"];
    let table = run(env!("CARGO_BIN_EXE_scheduler"), &[&arguments[..], &["--running"]].concat());
    for load in ["plain, backlog", "plain, stream", "required, backlog", "required, stream"] {
        assert!(table.lines().any(|line| line.contains(load) && line.contains("1.00 POST pods/binding")), "{table}");
    }
}

#[test]
fn the_garbage_collector_is_measured() {
    let table = run(env!("CARGO_BIN_EXE_gc"), &["--owners", "1", "--store", "folder"]);
    assert!(table.starts_with("101 objects in 1 trees\n"), "{table}");
    for policy in ["background", "foreground"] {
        assert!(table.lines().any(|line| line.contains(policy) && line.contains("DELETE configmaps")), "{table}");
    }
}
