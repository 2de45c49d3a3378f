//! Our API server beside a real one, measured on a small load.

use std::process::Command;

use serde_json::Value;

#[test]
#[ignore = "needs the real peers: make test-peers"]
fn both_servers_are_measured_in_turns_and_their_ratio_has_a_spread() {
    let orlop = std::path::Path::new(env!("CARGO_BIN_EXE_apiserver")).with_file_name("orlop");
    let load = ["--objects", "40", "--requests", "40", "--clients", "2", "--events", "5", "--seconds", "1"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_apiserver"));
    let output = command.arg("--compare").arg(orlop).args(load).args(["--rounds", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<Value> = figures.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let started = figures.iter().filter(|one| one["figure"] == "start-up to ready" && one["server"].is_string());
    let order: Vec<&str> =
        started.filter(|one| one["value"].is_number()).filter_map(|one| one["server"].as_str()).collect();
    assert_eq!(order, ["embedded", "kubernetes", "kubernetes", "embedded"]);
    for name in ["start-up to ready", "list 40 instances", "list 40 instances, size", "get config map, 1 client"] {
        let ratio = figures.iter().find(|one| one["figure"] == name && one["ratio"].is_object());
        let ratio = &ratio.unwrap_or_else(|| panic!("no ratio of {name}"))["ratio"];
        let number = |value: &Value| value.as_f64().unwrap();
        let (lower, upper) = (number(&ratio["quartiles"][0]), number(&ratio["quartiles"][1]));
        assert!(lower <= number(&ratio["median"]) && number(&ratio["median"]) <= upper, "{name}: {ratio}");
        assert_eq!(ratio["rounds"], 2, "{name}");
    }
}
