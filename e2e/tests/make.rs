//! What the commands of the README say before they build anything.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs a target with programs of our own before the system's, and without the system's directories for administrators.
fn make(target: &str, programs: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for (name, script) in programs {
        let path = folder.path().join(name);
        testkit::scripts::program(&path, &format!("#!/bin/sh\n{script}\n"));
    }
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    // This test may itself be run by make.
    let mut command = Command::new("make");
    command.arg(target).current_dir(e2e::root()).env("PATH", path).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn an_old_cargo_is_told_which_version_is_needed() {
    for target in ["up", "test", "test-fast", "lint"] {
        // Whatever it would install or build fails the test.
        let told = make(target, &[("cargo", "echo 'cargo 1.70.0 (ec8a8a0ca 2023-04-25)'"), ("apt-get", "exit 77")]);
        assert!(!told.status.success(), "{target}");
        let needed = env!("CARGO_PKG_RUST_VERSION");
        let words = format!("Orlop needs Rust {needed} or newer, but cargo is 1.70.0");
        assert!(said(&told).contains(&words) && !said(&told).contains("installing"), "{target}: {}", said(&told));
    }
    // The distribution's own cargo is in the path in any case.
    if !["/usr/bin/cargo", "/bin/cargo"].iter().any(|path| Path::new(path).exists()) {
        let told = make("up", &[("apt-get", "exit 77")]);
        assert!(said(&told).contains("or newer; install it from https://rustup.rs"), "{}", said(&told));
    }
}

#[test]
fn what_is_in_the_systems_own_folders_is_not_installed_again() {
    let new = ("cargo", "echo 'cargo 99.0.0 (0 2099-01-01)'");
    let told = said(&make("run-packages", &[new, ("apt-get", "exit 77"), ("sudo", "exit 77")]));
    for (program, package) in [("runc", "runc"), ("nft", "nftables"), ("iptables", "iptables")] {
        let is_here = ["/usr/sbin", "/sbin"].iter().any(|folder| Path::new(folder).join(program).exists());
        let is_wanted = told.split_whitespace().any(|word| word == package);
        assert!(!(is_here && is_wanted), "{package}: {told}");
    }
}
