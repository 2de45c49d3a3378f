use serde::Deserialize;

use super::qemu::{AskError, Expansion, MachineType, Model};
use super::*;

/// As QEMU 7.2 answered, reduced to what is read.
const RECORDED: &str = include_str!("qemu-7.2-tcg.json");

#[derive(Deserialize)]
struct Recorded {
    definitions: Vec<Model>,
    machines: Vec<MachineType>,
    expansion: Expansion,
}

fn recorded() -> Offer {
    let Recorded { definitions: models, machines, expansion } = serde_json::from_str(RECORDED).unwrap();
    Offer { models, machines, features: expansion.on(), enlightenments: BTreeSet::new(), is_emulated: true }
}

fn made(obsolete: &[&str]) -> BTreeMap<String, String> {
    let processor = Processor { vendor: Some("AMD".to_owned()), ..Processor::default() };
    labels(&recorded(), &processor, &obsolete.iter().copied().collect())
}

#[test]
fn what_can_be_used_is_a_label_and_nothing_else() {
    let labels = made(&["486", "pentium"]);
    for name in [
        "machine-type.node.kubevirt.io/q35",
        "machine-type.node.kubevirt.io/pc-q35-7.2",
        "machine-type.node.kubevirt.io/pc-i440fx-7.2",
        "cpu-model.node.kubevirt.io/Nehalem",
        "cpu-model.node.kubevirt.io/qemu64",
        "cpu-feature.node.kubevirt.io/aes",
        "cpu-feature.node.kubevirt.io/sse4.1",
        "cpu-feature.node.kubevirt.io/lahf-lm",
        "cpu-vendor.node.kubevirt.io/AMD",
    ] {
        assert_eq!(labels.get(name).map(String::as_str), Some("true"), "{name}");
    }
    for name in [
        "machine-type.node.kubevirt.io/none",
        "cpu-model.node.kubevirt.io/486",
        "cpu-model.node.kubevirt.io/host",
        "cpu-model.node.kubevirt.io/max",
        "cpu-model.node.kubevirt.io/Nehalem-v1",
        "cpu-model.node.kubevirt.io/Skylake-Server",
        "cpu-feature.node.kubevirt.io/sse4_1",
        "cpu-feature.node.kubevirt.io/sse4-1",
        "cpu-feature.node.kubevirt.io/legacy-cache",
        "cpu-feature.node.kubevirt.io/avx512f",
        "cpu-feature.node.kubevirt.io/family",
    ] {
        assert!(!labels.contains_key(name), "{name}");
    }
    assert!(
        !labels.keys().any(|name| name.starts_with(label::HYPERV_PREFIX) || name.starts_with(label::CPU_TIMER_PREFIX))
    );
}

#[test]
fn enlightenments_have_names_of_their_own() {
    let on = ["hv-stimer", "hv-vpindex", "hv-time"].map(str::to_owned);
    let offer = Offer { enlightenments: on.into(), ..Offer::default() };
    let labels = labels(&offer, &Processor::default(), &BTreeSet::new());
    let names: Vec<&str> = labels.keys().map(String::as_str).collect();
    assert_eq!(names, ["hyperv.node.kubevirt.io/synictimer", "hyperv.node.kubevirt.io/vpindex"]);
}

#[test]
fn only_what_differs_is_written_and_what_is_no_longer_true_is_removed() {
    let wanted = made(&[]);
    let mut node = Node::default();
    let first = change(&node, &wanted);
    assert_eq!(first.len(), wanted.len());
    let mut labels = wanted.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), "n".to_owned());
    labels.insert("cpu-model.node.kubevirt.io/Old".to_owned(), "true".to_owned());
    node.metadata.labels = Some(labels);
    let change_of = |node: &Node| Value::Object(change(node, &wanted));
    assert_eq!(change_of(&node), json!({ "cpu-model.node.kubevirt.io/Old": null }));
    let skip = (annotation::SKIP_NODE_LABELLER.to_owned(), "true".to_owned());
    node.metadata.annotations = Some([skip].into());
    assert_eq!(change_of(&node), json!({}));
}

#[test]
fn an_alias_stands_for_a_machine() {
    let offer = recorded();
    assert_eq!(offer.machine("q35"), Some("pc-q35-7.2"));
    assert_eq!(offer.machine("pc-q35-7.2"), Some("pc-q35-7.2"));
    assert_eq!(offer.machine("virt"), None);
}

#[tokio::test]
#[ignore = "needs QEMU: make test"]
async fn the_qemu_of_this_machine_answers() {
    let offer = ask(None, "qemu-system-x86_64".as_ref(), hypervisor::accelerator::Accelerator::Tcg).await.unwrap();
    assert!(offer.is_emulated && offer.machine("q35").is_some());
    assert!(offer.models.iter().any(|model| model.name == "qemu64" && model.unavailable_features.is_empty()));
    assert!(offer.features.contains("sse2"));
}

#[tokio::test]
async fn what_is_no_qemu_is_an_error() {
    let accelerator = hypervisor::accelerator::Accelerator::Tcg;
    assert!(matches!(ask(None, "/nowhere/qemu".as_ref(), accelerator).await, Err(AskError::Start(_))));
    assert!(matches!(ask(None, "true".as_ref(), accelerator).await, Err(AskError::Ask(_))));
}
