//! Owner references: who made an object, and whose deletion takes it along.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, Resource};

/// A reference that makes `owner` the controller of whatever carries it, and blocks the owner's foreground deletion.
///
/// `None` while `owner` has no name or UID yet: an object that was never stored owns nothing.
#[must_use]
pub fn controller_reference<T: Resource + Metadata<Ty = ObjectMeta>>(owner: &T) -> Option<OwnerReference> {
    let metadata = owner.metadata();
    Some(OwnerReference {
        api_version: T::API_VERSION.to_owned(),
        kind: T::KIND.to_owned(),
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

/// The one owner that controls the object, if any.
#[must_use]
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether the object with this UID controls it. Names can be reused, UIDs cannot.
#[must_use]
pub fn is_controlled_by(metadata: &ObjectMeta, uid: &str) -> bool {
    controller_of(metadata).is_some_and(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::VirtualMachine;

    fn vm(uid: Option<&str>) -> VirtualMachine {
        let metadata = ObjectMeta { name: Some("db".into()), uid: uid.map(Into::into), ..Default::default() };
        VirtualMachine { metadata, ..Default::default() }
    }

    #[test]
    fn a_stored_object_can_own() {
        let reference = controller_reference(&vm(Some("u-1"))).unwrap();
        assert_eq!((reference.api_version.as_str(), reference.kind.as_str()), ("kubevirt.io/v1", "VirtualMachine"));
        let child = ObjectMeta { owner_references: Some(vec![reference]), ..Default::default() };
        assert!(is_controlled_by(&child, "u-1"));
        assert!(!is_controlled_by(&child, "u-2"), "a recreated owner of the same name is another owner");
    }

    #[test]
    fn an_object_without_uid_owns_nothing() {
        assert_eq!(controller_reference(&vm(None)), None);
    }

    #[test]
    fn an_owner_that_does_not_control_is_no_controller() {
        let mut reference = controller_reference(&vm(Some("u-1"))).unwrap();
        reference.controller = None;
        let child = ObjectMeta { owner_references: Some(vec![reference]), ..Default::default() };
        assert_eq!(controller_of(&child), None);
    }
}
