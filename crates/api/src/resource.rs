//! What makes a root type a Kubernetes resource: its names, and where its objects live.

/// Implements the `k8s-openapi` traits for a root type, from which `kube` derives its own, and those of `serde`: what is
/// derived with `remote = "Self"` is only a function, which is compiled here for one format.
///
/// `Default` fills in `apiVersion` and `kind`, so that an object built in code is complete; an object that came from
/// elsewhere keeps what it had, an older version for instance.
macro_rules! resource {
    ($kind:ident is namespaced $plural:literal of $group:literal in $version:literal with { $($part:ident),* }) => {
        crate::resource::resource!(@ $kind, $plural, $group, $version, NamespaceResourceScope, $($part),*);
    };
    ($kind:ident is cluster $plural:literal of $group:literal in $version:literal with { $($part:ident),* }) => {
        crate::resource::resource!(@ $kind, $plural, $group, $version, ClusterResourceScope, $($part),*);
    };
    (@ $kind:ident, $plural:literal, $group:literal, $version:literal, $scope:ident, $($part:ident),*) => {
        impl k8s_openapi::Resource for $kind {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($kind);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::$scope;
        }

        impl k8s_openapi::ListableResource for $kind {
            const LIST_KIND: &'static str = concat!(stringify!($kind), "List");
        }

        impl k8s_openapi::Metadata for $kind {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }

        impl crate::decode::Root for $kind {
            fn read(tree: crate::decode::Tree<'_>) -> Result<Self, crate::decode::Misfit> {
                $kind::deserialize(tree)
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let json = serde_json::Value::deserialize(deserializer)?;
                crate::decode::any(json).map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $kind::serialize(self, serializer)
            }
        }

        impl Default for $kind {
            fn default() -> Self {
                Self {
                    api_version: Some(<Self as k8s_openapi::Resource>::API_VERSION.to_owned()),
                    kind: Some(<Self as k8s_openapi::Resource>::KIND.to_owned()),
                    metadata: Default::default(),
                    $($part: Default::default(),)*
                }
            }
        }
    };
}

pub(crate) use resource;
