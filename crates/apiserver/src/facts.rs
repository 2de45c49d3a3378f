//! What is known of Kubernetes' built-in kinds: one table, read once, that everything else is driven by.
//!
//! `facts/types.txt` has a block per type, a line per field:
//!
//! ```text
//! type core.v1.PodSpec
//!   containers 2 [core.v1.Container] required list=map:name patch=merge:name
//!   hostNetwork 11 boolean
//! ```
//!
//! that is: name, protobuf number (several with dots where protobuf nests what JSON inlines, `-` where there is none),
//! shape, and then `required`, `atomic`, `list=`, `patch=` and `default=` where they apply. `facts/resources.txt` has a
//! line per resource or subresource. `facts/defaults.txt` adds the defaults that Kubernetes' code applies and its schemas
//! do not tell. The first two are written by `cargo xtask facts`.

mod conditional;
mod decode;
mod parse;

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

pub(crate) use decode::decode;

/// Index of a type in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeId(u16);

/// A type: what its objects may hold.
#[derive(Debug)]
pub(crate) struct Type {
    /// Such as `core.v1.Pod`.
    pub(crate) name: &'static str,
    /// Group, version and kind, where the type is a kind.
    pub(crate) kind: Option<Gvk>,
    /// Whether server-side apply takes it as one value.
    pub(crate) atomic: bool,
    /// By name, sorted.
    pub(crate) fields: Vec<Field>,
}

impl Type {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let index = self.fields.binary_search_by(|field| field.name.cmp(name)).ok()?;
        self.fields.get(index)
    }
}

/// A kind's full name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gvk {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
}

/// One field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// Numbers of the protobuf fields that lead to it.
    pub(crate) numbers: Vec<u32>,
    pub(crate) shape: Shape,
    /// Written even when it is empty.
    pub(crate) required: bool,
    /// Server-side apply takes it as one value.
    pub(crate) atomic: bool,
    pub(crate) list: Option<ListType>,
    /// Strategic merge: strategies, and the key that items are merged by.
    pub(crate) patch: Option<Patch>,
    pub(crate) default: Option<Value>,
}

/// What a value looks like in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    String,
    Boolean,
    Int32,
    Int64,
    Number,
    /// Base64.
    Bytes,
    /// Any object.
    Object,
    /// Any value at all.
    Any,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Struct(TypeId),
    List(Box<Shape>),
    Map(Box<Shape>),
}

/// How server-side apply sees a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    Map(Vec<&'static str>),
}

/// How strategic merge sees a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) strategies: Vec<&'static str>,
    pub(crate) key: Option<&'static str>,
}

/// A resource or subresource as discovery tells it.
#[derive(Clone, Debug)]
pub(crate) struct ResourceFact {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// `pods` or `pods/status`.
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) singular: &'static str,
    pub(crate) verbs: Vec<&'static str>,
    pub(crate) short_names: Vec<&'static str>,
    pub(crate) categories: Vec<&'static str>,
    /// Where the kind is of another group: `pods/eviction` is of `policy/v1`.
    pub(crate) of: Option<(&'static str, &'static str)>,
}

/// The whole table.
#[derive(Debug)]
pub(crate) struct Facts {
    types: Vec<Type>,
    names: HashMap<&'static str, TypeId>,
    /// By `group/version/kind`.
    kinds: HashMap<String, TypeId>,
    pub(crate) resources: Vec<ResourceFact>,
}

static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    parse::read(
        include_str!("../facts/types.txt"),
        include_str!("../facts/defaults.txt"),
        include_str!("../facts/resources.txt"),
    )
});

/// The table, read on first use.
pub(crate) fn facts() -> &'static Facts {
    &FACTS
}

impl Facts {
    pub(crate) fn get(&self, id: TypeId) -> &Type {
        // An id is only ever made for a type that is in the table.
        &self.types[usize::from(id.0)]
    }

    pub(crate) fn named(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).copied()
    }

    pub(crate) fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        self.kinds.get(&format!("{group}/{version}/{kind}")).copied()
    }

    #[cfg(test)]
    pub(crate) fn types(&self) -> &[Type] {
        &self.types
    }
}
