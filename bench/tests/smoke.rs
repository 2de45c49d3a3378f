//! The benchmarks run, on a small load.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::Value;

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
fn streams_are_measured() {
    let told = run(env!("CARGO_BIN_EXE_streams"), &["--mib", "2", "--rounds", "1", "--keys", "5"]);
    let figures: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [down, up, keys] = &figures[..] else { panic!("{told}") };
    for (figure, direction) in [(down, "down"), (up, "up")] {
        assert_eq!(figure["direction"], direction);
        assert!(figure["ratio"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{told}");
    }
    assert!(keys["median_ms"].as_f64().is_some_and(|millis| millis > 0.0), "{told}");
}

#[test]
fn the_garbage_collector_is_measured() {
    let table = run(env!("CARGO_BIN_EXE_gc"), &["--owners", "1", "--store", "folder"]);
    assert!(table.starts_with("101 objects in 1 trees, debug build\n"), "{table}");
    for policy in ["background", "foreground"] {
        assert!(table.lines().any(|line| line.contains(policy) && line.contains("DELETE configmaps")), "{table}");
    }
}

#[test]
fn the_cost_of_virtual_machines_is_measured() {
    let arguments = ["--vms", "8", "--nodes", "2", "--gap", "20ms", "--rest", "1s"];
    let told = run(env!("CARGO_BIN_EXE_density"), &arguments);
    for kind in ["vm", "vmi"] {
        let (_, figures) = told.split_once(&format!("embedded, {kind}\n")).unwrap_or_else(|| panic!("{told}"));
        let lines: Vec<&str> = figures.lines().take(4).collect();
        let [all, own, writes, rest] = lines[..] else { panic!("{told}") };
        assert!(all.contains("1.00 POST pods/binding") && own.contains("1.00 POST pods"), "{told}");
        assert!(writes.contains(" events") && rest.ends_with(" none"), "{told}");
    }
}

/// The program that is built beside these, as `cargo test --workspace` does.
fn orlop() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_BIN_EXE_apiserver")).with_file_name("orlop")
}

/// Of the program that is built beside this one, as `cargo test --workspace` does.
#[test]
fn the_cost_of_each_part_is_measured() {
    let told = run(env!("CARGO_BIN_EXE_growth"), &["--vms", "6", "--nodes", "2", "--rest-seconds", "0"]);
    assert!(told.contains("6 VMs on 2 nodes, virt-controller ours: all run after"), "{told}");
    for part in ["apiserver", "virt-controller", "controller-manager", "scheduler", "node", "virt-handler", "all"] {
        assert!(told.lines().any(|line| line.starts_with(part)), "{part} is not in\n{told}");
    }
    assert!(told.contains("1.00 POST pods/binding") && told.contains("1.00 POST virtualmachineinstances"), "{told}");
}

#[test]
fn the_api_server_is_measured() {
    let load = ["--objects", "40", "--requests", "40", "--clients", "2", "--events", "5", "--seconds", "1"];
    let figures =
        run(env!("CARGO_BIN_EXE_apiserver"), &[&["--embedded", orlop().to_str().unwrap()][..], &load].concat());
    let figures: Vec<Value> = figures.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| figures.iter().find(|figure| figure["figure"] == name).unwrap_or_else(|| panic!("no {name}"));
    // What is measured was checked: the list of all is ten times the other, in bytes.
    let size = |count: usize| of(&format!("list {count} instances, size"))["value"].as_f64().unwrap();
    assert!((8.0..12.0).contains(&(size(40) / size(4))), "{} {}", size(40), size(4));
    for name in ["start-up to ready", "create config map, 1 client", "watch fan-out to 100, delivered"] {
        assert!(of(name)["value"].as_f64().unwrap() > 0.0, "{name}");
    }
    assert!(figures.iter().all(|figure| figure["profile"] == "debug"), "{figures:?}");
}

/// Of the program that is built beside this one, as `cargo test --workspace` does.
#[test]
fn the_start_of_virtual_machines_is_measured() {
    let arguments = ["--parts", "many,hollow", "--many", "1", "--hollow", "3", "--hollow-nodes", "1"];
    let figures = run(env!("CARGO_BIN_EXE_boot"), &arguments);
    for figure in ["orlop up to ready", "1 VMs at once, the last runs", "3 hollow VMs at once, the last runs"] {
        assert!(figures.contains(&format!("\"figure\":\"{figure}\"")), "{figures}");
    }
    for figure in figures.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        assert_eq!(figure["profile"], "debug", "{figure}");
    }
}
