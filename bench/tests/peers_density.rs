//! The control plane of virtual machines on a real API server, measured on a small load.

use std::process::Command;

#[test]
#[ignore = "needs the real peers: make test-peers"]
fn density_is_measured_on_kubernetes() {
    let arguments = ["--vms", "20", "--nodes", "2", "--gap", "20ms", "--rest", "1s", "--real"];
    let output = Command::new(env!("CARGO_BIN_EXE_density")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    for words in ["1.00 POST virtualmachineinstances", "1.00 POST pods", "1.00 POST controllerrevisions"] {
        assert!(table.contains(words), "{words} is not in\n{table}");
    }
}
