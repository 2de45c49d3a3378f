//! No instance makes the conversion panic, and no text in it reaches QEMU as anything but that text.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/lines.rs"]
mod lines;
mod support;

use api::testing::{Optional, values};
use api::vmi::VirtualMachineInstance;
use hypervisor::render::CommandLine;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Keys that the builders write, by option. Anything else came out of somebody's text.
const KEYS: &[(&str, &[&str])] = &[
    ("-name", &["guest", "debug-threads"]),
    ("-machine", &["", "usb", "vmport", "dump-guest-core", "hpet", "acpi", "graphics", "pflash0", "pflash1"]),
    ("-smbios", &["type", "manufacturer", "product", "family", "serial", "asset", "sku", "version"]),
    ("-chardev", &["", "id", "path", "server", "wait", "logfile", "logappend"]),
    ("-netdev", &["", "id", "hostfwd", "ifname", "script", "downscript"]),
    ("-rtc", &["base", "driftfix", "clock"]),
    ("-vnc", &[""]),
    ("-smp", &["", "maxcpus", "sockets", "cores", "threads"]),
    ("-m", &["size", "maxmem"]),
];

/// Splits an option as QEMU does: a doubled comma is a comma.
fn keys(option: &str) -> Vec<String> {
    let marked = option.replace(",,", "\u{0}");
    marked.split(',').map(|part| part.split_once('=').map_or(String::new(), |(key, _)| key.to_owned())).collect()
}

fn check(line: &CommandLine) -> Result<(), TestCaseError> {
    let texts: Vec<&str> = line.arguments.iter().map(|argument| argument.to_str().expect("text")).collect();
    for pair in texts.windows(2) {
        let (option, value) = (pair[0], pair[1]);
        prop_assert!(!value.chars().any(char::is_control), "{value:?} has control characters");
        if let Some((_, known)) = KEYS.iter().find(|(name, _)| *name == option) {
            for key in keys(value) {
                prop_assert!(known.contains(&key.as_str()), "{option} {value:?} has the key {key:?}");
            }
        }
        if matches!(option, "-device" | "-blockdev" | "-object") {
            let json: Value =
                serde_json::from_str(value).map_err(|error| TestCaseError::fail(format!("{value}: {error}")))?;
            prop_assert!(json.is_object());
        }
        if option == "-cpu" {
            prop_assert!(
                value.split(',').skip(1).all(|flag| flag.ends_with("=on") || flag.ends_with("=off")),
                "{value}"
            );
        }
    }
    for (_, value) in &line.environment {
        prop_assert!(!value.chars().any(char::is_control), "{value:?} has control characters");
    }
    Ok(())
}

/// Texts that QEMU's syntax, a shell or a terminal could trip over.
fn nasty() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z][-a-z0-9]{0,8}",
        2 => "[a-z,=\\[\\]{}\"'%$: /.-]{0,12}",
        1 => "\\PC{0,12}",
        1 => "[a-z]{1,3}[\n\r\t\u{0}\u{1b}][a-z]{1,3}",
        1 => Just(",id=evil,path=/etc/shadow".to_owned()),
        1 => Just("json:{\"driver\":\"file\"}".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(512), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn texts_stay_texts(
        texts in prop::collection::vec(nasty(), 12),
        bus in prop::sample::select(vec!["virtio", "sata", "scsi"]),
        model in prop::option::of(nasty()),
    ) {
        let text = |index: usize| texts[index].as_str();
        let object = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": { "name": text(0), "namespace": text(1) },
            "spec": {
                "domain": {
                    "chassis": { "asset": text(2), "sku": text(3) },
                    "clock": { "timezone": "UTC" },
                    "cpu": { "model": model, "features": [{ "name": "vmx" }] },
                    "devices": {
                        "disks": [{ "name": text(4), "serial": text(5), "disk": { "bus": bus } }],
                        "interfaces": [{ "name": text(6), "masquerade": {} }],
                        "watchdog": { "name": text(7), "i6300esb": {} },
                    },
                    "firmware": {
                        "serial": text(8),
                        "kernelBoot": { "container": { "image": "x", "kernelPath": "/k" }, "kernelArgs": text(9) },
                    },
                    "machine": { "type": if text(10).contains(',') { text(10) } else { "q35" } },
                    "memory": { "guest": "64Mi" },
                },
                "volumes": [{ "name": text(4), "containerDisk": { "image": "x" } }],
            },
        });
        let vmi = api::decode::object::<VirtualMachineInstance>(object).expect("it fits the types").object;
        if let Ok(line) = lines::command_line(&vmi) {
            check(&line)?;
        }
    }

    #[test]
    fn no_instance_makes_it_panic(object in values(&api::schema::structural::<VirtualMachineInstance>(), 9, Optional::Sometimes)) {
        let mut object = object;
        object["kind"] = "VirtualMachineInstance".into();
        object["apiVersion"] = "kubevirt.io/v1".into();
        let vmi = api::decode::object::<VirtualMachineInstance>(object).expect("it fits the types").object;
        if let Ok(line) = lines::command_line(&vmi) {
            check(&line)?;
        }
    }
}
