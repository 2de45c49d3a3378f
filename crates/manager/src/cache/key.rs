//! What objects are found by: their keys, and the values of indexes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// An object's place: namespace (empty for cluster-wide kinds) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for cluster-wide kinds.
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// The key of an object.
    #[must_use]
    pub fn of<T: kube::ResourceExt>(object: &T) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }

    /// The key of an object that is in no namespace.
    #[must_use]
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: String::new(), name: name.into() }
    }

    pub(super) fn named(metadata: &ObjectMeta) -> Self {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        Self { namespace: text(&metadata.namespace), name: text(&metadata.name) }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// What an object is found by, besides its key.
pub type Index<T> = fn(&T) -> Vec<String>;

/// Finds objects by the UIDs of their owners.
pub fn owners_of<T: kube::ResourceExt>(object: &T) -> Vec<String> {
    object.owner_references().iter().map(|owner| owner.uid.clone()).collect()
}

/// Finds objects by the UID of the owner that controls them.
pub fn controller_of<T: kube::ResourceExt>(object: &T) -> Vec<String> {
    let owners = object.owner_references().iter();
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).collect()
}

/// Finds objects by their labels, as `name=value`.
pub fn labels_of<T: kube::ResourceExt>(object: &T) -> Vec<String> {
    object.labels().iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// Finds objects by their namespace.
pub fn namespace_of<T: kube::ResourceExt>(object: &T) -> Vec<String> {
    object.namespace().into_iter().collect()
}
