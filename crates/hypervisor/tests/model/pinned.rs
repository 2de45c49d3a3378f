//! Models that an earlier release has stored, in `stored/`. Guests run from them: these files are never written anew.

use std::path::Path;

use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator::Accelerator;
use hypervisor::guest::Guest;
use hypervisor::guest::build::{Before, build};
use hypervisor::step::difference;

#[path = "../support/samples.rs"]
mod samples;

/// The sample that the model was built from, the model, and its digest then.
const PINNED: [(&str, &str, &str); 2] = [
    (
        "every-device",
        include_str!("../stored/v1-every-device.json"),
        "fe0e7b53008d4bcf41472e4533ef857fa54805213a7b8266fb680da95999dfb4",
    ),
    (
        "least",
        include_str!("../stored/v1-least.json"),
        "7ac1d522340cc2d13d298238caa8c4028a25669afccf6f6b3226c738c4a6d150",
    ),
];

#[test]
fn a_guest_of_an_earlier_release_is_understood_as_it_was() {
    for (sample, stored, digest) in PINNED {
        let guest = Guest::from_stored(stored.as_bytes()).expect("it was a model");
        // Launchers compare it before a guest moves from one release to the next.
        assert_eq!(guest.digest().expect("it has a text"), digest, "{sample}");
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/samples/{sample}.yaml"));
        let document = std::fs::read_to_string(sample).expect("a sample is text");
        let vmi = samples::instance(serde_saphyr::from_str(&document).expect("a sample is YAML")).expect("an instance");
        let vmi = api::decode::object::<VirtualMachineInstance>(vmi).expect("it fits the types").object;
        for before in [Before::Stopped(&guest), Before::Running(&guest)] {
            let again = build(&vmi, Accelerator::Tcg, before).expect("it is supported");
            let found = difference(&guest, &again);
            assert!(found.is_empty() && again.minted == guest.minted, "{found:?}");
        }
    }
}
