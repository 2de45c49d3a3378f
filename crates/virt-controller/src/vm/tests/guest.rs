//! What is kept of a guest from one instance to the next.

use super::*;

#[test]
fn what_a_guest_has_seen_is_kept_for_the_next_instance() {
    let seen = json!({ "metadata": { "annotations": { annotation::GUEST: "seen" } } });
    let mut ended = seen.clone();
    merge(&mut ended, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    // Nothing is written while it runs: one write when it ends is enough, and the instance stays until then.
    assert_eq!(Bench::new("Always", &json!({})).instance("Running", &seen).decide().vm, None);
    let plan = Bench::new("Always", &json!({})).instance("Succeeded", &ended).decide();
    assert_eq!(plan.vm.unwrap()["metadata"]["annotations"], json!({ annotation::GUEST: "seen" }));
    assert_eq!((plan.instances.len(), plan.start), (0, None));
    let known = Bench::new("Always", &seen).instance("Succeeded", &ended);
    assert_eq!(known.decide().vm, None, "it is known");
    let next = Bench::new("Always", &seen).decide().start.unwrap().instance;
    assert_eq!(next.metadata.annotations.unwrap()[annotation::GUEST], "seen");
    // What the template says of it is nobody's.
    let template = json!({ "spec": { "template": { "metadata": { "annotations": { annotation::GUEST: "other" } } } } });
    let next = Bench::new("Always", &template).decide().start.unwrap().instance;
    assert!(!next.metadata.annotations.unwrap().contains_key(annotation::GUEST));
    // A VM that goes needs no memory.
    let gone = json!({ "metadata": { "deletionTimestamp": DELETED } });
    assert_eq!(Bench::new("Always", &gone).instance("Succeeded", &ended).decide().vm, None);
}
