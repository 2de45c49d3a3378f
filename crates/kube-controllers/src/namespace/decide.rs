//! What is left in a namespace, and what that means.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::ApiResource;

use super::PAUSE;

/// What could not be deleted yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Of these.
    pub(super) kinds: Vec<ApiResource>,
    /// Objects by resource.
    objects: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Adds the objects of a resource that are still there, each by its finalizers.
    pub(super) fn add(&mut self, resource: &ApiResource, objects: &[Vec<String>]) {
        if objects.is_empty() {
            return;
        }
        self.kinds.push(resource.clone());
        *self.objects.entry(format!("{}.{}", resource.plural, resource.group)).or_insert(0) += objects.len();
        for finalizer in objects.iter().flatten() {
            *self.finalizers.entry(finalizer.clone()).or_insert(0) += 1;
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is empty.
    LetGo,
    /// Tell what is left, and look again.
    LookAgain { after: Duration, conditions: BTreeMap<&'static str, Condition> },
}

/// A condition of a namespace on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) holds: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Condition {
    pub(super) fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }
}

/// # Guarantees
/// - A namespace is let go only when nothing was found in it.
pub(super) fn decide(left: &Left) -> Plan {
    if left.is_empty() {
        return Plan::LetGo;
    }
    let list = |counts: &BTreeMap<String, usize>, what: fn(&str, usize) -> String| {
        counts.iter().map(|(name, count)| what(name, *count)).collect::<Vec<_>>().join(", ")
    };
    let objects = list(&left.objects, |name, count| format!("{name} has {count} resource instances"));
    let remaining = Condition {
        holds: true,
        reason: "SomeResourcesRemain",
        message: format!("Some resources are remaining: {objects}"),
    };
    let held = list(&left.finalizers, |name, count| format!("{name} in {count} resource instances"));
    let finalizers = if left.finalizers.is_empty() {
        let message = "All content-preserving finalizers finished".to_owned();
        Condition { holds: false, reason: "ContentHasNoFinalizers", message }
    } else {
        let message = format!("Some content in the namespace has finalizers remaining: {held}");
        Condition { holds: true, reason: "SomeFinalizersRemain", message }
    };
    // What failed is not told here: it is tried again, and the log has it. That it did not fail is told, as in Kubernetes.
    let fine = |reason: &'static str, message: &str| Condition { holds: false, reason, message: message.to_owned() };
    let deleted = "All content successfully deleted, may be waiting on finalization";
    let conditions = BTreeMap::from([
        ("NamespaceContentRemaining", remaining),
        ("NamespaceDeletionContentFailure", fine("ContentDeleted", deleted)),
        ("NamespaceDeletionDiscoveryFailure", fine("ResourcesDiscovered", "All resources successfully discovered")),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            fine("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        ("NamespaceFinalizersRemaining", finalizers),
    ]);
    Plan::LookAgain { after: PAUSE, conditions }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn an_empty_namespace_is_let_go() {
        let mut left = Left::default();
        left.add(&ApiResource::erase::<Pod>(&()), &[]);
        assert_eq!(decide(&left), Plan::LetGo);
    }

    #[test]
    fn what_is_left_is_told_with_what_holds_it() {
        let mut left = Left::default();
        left.add(&ApiResource::erase::<Pod>(&()), &[vec!["a/b".to_owned()], vec![]]);
        let Plan::LookAgain { conditions, .. } = decide(&left) else { panic!("there are pods") };
        let holding: Vec<&str> = conditions.values().filter(|one| one.holds).map(|one| one.message.as_str()).collect();
        assert_eq!(conditions.len(), 5);
        assert_eq!(
            holding,
            [
                "Some resources are remaining: pods. has 2 resource instances",
                "Some content in the namespace has finalizers remaining: a/b in 1 resource instances",
            ]
        );
    }
}
