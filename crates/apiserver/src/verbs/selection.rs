//! Which objects a list, a watch or a deletion of many is about.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use serde_json::Value;

use crate::convert;
use crate::registry::Resource;
use crate::request::Query;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::Status;
use crate::store::{Key, Object};

use super::Call;

/// Conditions of one selector. A condition may name any number of values.
const MOST_CONDITIONS: usize = 100;

/// Namespace, labels and fields.
#[derive(Clone)]
pub(crate) struct Selection {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: Vec<(Field, String, bool)>,
    resource: Arc<Resource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    Stored(usize),
}

impl Selection {
    /// Reads the selectors of a call.
    pub(crate) fn of(call: &Call) -> Result<Self, Status> {
        let resource = &call.resource;
        let labels = call.query.get("labelSelector").unwrap_or_default();
        let fields = call.query.get("fieldSelector").unwrap_or_default();
        let labels_read = LabelSelector::parse(labels).map_err(Status::bad_request)?;
        let fields_read = FieldSelector::parse(fields).map_err(Status::bad_request)?;
        check_count("labelSelector", labels_read.count())?;
        check_count("fieldSelector", fields_read.requirements.len())?;
        let mut conditions = Vec::new();
        for one in &fields_read.requirements {
            let field = match one.field.as_str() {
                "metadata.name" => Field::Name,
                "metadata.namespace" if resource.namespaced => Field::Namespace,
                other => {
                    let stored = convert::stored_field(resource, other);
                    let index = resource.field(&stored).ok_or_else(|| unknown_field(resource, other))?;
                    Field::Stored(index)
                }
            };
            let condition = (field, one.value.clone(), one.equal);
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        if let Some(name) = &call.target.name {
            conditions.push((Field::Name, name.clone(), true));
        }
        let namespace = call.target.namespace.clone();
        Ok(Self { namespace, labels: labels_read, fields: conditions, resource: call.resource.clone() })
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The one object that can match, where the selection says so.
    pub(crate) fn single(&self) -> Option<Key> {
        let name = self.fields.iter().find(|(field, _, equal)| matches!(field, Field::Name) && *equal);
        name.filter(|_| self.namespace.is_some())
            .map(|(_, name, _)| Key::new(self.namespace.as_deref().unwrap_or_default(), name))
    }

    /// Whether every object of the table that can be read matches.
    pub(crate) fn is_everything(&self) -> bool {
        self.namespace.is_none() && !self.has_selectors()
    }

    pub(crate) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// What cannot be read matches nothing: it would spoil the list for everything else in it.
    pub(crate) fn matches(&self, key: &Key, object: &Object) -> bool {
        object.draft.is_readable() && self.takes(key, object)
    }

    /// Whether a deletion is about an object, whether or not anybody can read it.
    pub(crate) fn takes(&self, key: &Key, object: &Object) -> bool {
        // Read once, whatever is asked of it.
        let read = OnceCell::new();
        self.namespace.as_deref().is_none_or(|namespace| *key.namespace == *namespace)
            && self.fields.iter().all(|(field, value, equal)| match field {
                Field::Name => (*key.name == **value) == *equal,
                Field::Namespace => (*key.namespace == **value) == *equal,
                Field::Stored(index) => (self.stored(object, *index, &read) == **value) == *equal,
            })
            && (self.labels.is_empty() || self.labels.matches(|label| object.draft.label(label)))
    }
}

impl Selection {
    /// A field that was taken out when the object was written, or would have been had the definition been today's.
    fn stored<'a>(&self, object: &'a Object, index: usize, read: &OnceCell<Option<Value>>) -> Cow<'a, str> {
        match self.resource.fields.get(index) {
            Some(path) if object.revision < self.resource.since => {
                let value = read.get_or_init(|| object.value().ok()).as_ref();
                value.map_or(Cow::Borrowed(""), |value| Cow::Owned(path.text(value).into_string()))
            }
            _ => Cow::Borrowed(object.draft.field(index)),
        }
    }
}

/// Each condition is looked at for each object.
fn check_count(selector: &str, count: usize) -> Result<(), Status> {
    if count > MOST_CONDITIONS {
        let problem = format!("{selector}: Too many: {count}: must have at most {MOST_CONDITIONS} conditions");
        return Err(Status::bad_request(problem));
    }
    Ok(())
}

fn unknown_field(resource: &Resource, field: &str) -> Status {
    let problem = if resource.is_custom() || has_own_conversion(resource) {
        format!("field label not supported: {field}")
    } else {
        let known = if resource.namespaced { "\"metadata.name\", \"metadata.namespace\"" } else { "\"metadata.name\"" };
        format!("\"{field}\" is not a known field selector: only {known}")
    };
    Status::bad_request(problem)
}

/// Kinds with fields of their own word the refusal shorter.
fn has_own_conversion(resource: &Resource) -> bool {
    !resource.fields.is_empty()
}

/// The `resourceVersion` of a query; none, if it is left out or empty.
pub(crate) fn revision(query: &Query) -> Result<Option<u64>, Status> {
    match query.get("resourceVersion").filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| invalid_revision(text)),
    }
}

fn invalid_revision(text: &str) -> Status {
    Status::bad_request(format!(
        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    ))
}
