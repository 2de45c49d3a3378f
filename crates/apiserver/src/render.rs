//! Turns stored objects into answers. An object is not parsed for it: its bytes follow a head that names the version and
//! the revision.

use std::sync::Arc;

use serde_json::Value;

use crate::convert;
use crate::registry::{Content, Resource, api_version};
use crate::status::Status;
use crate::store::Object;

/// The revision of an object that only a dry run made.
pub(crate) const NOT_STORED: u64 = 0;

/// Writes objects of one resource in one of its versions.
#[derive(Clone)]
pub(crate) struct Renderer {
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: String,
    /// `{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"`
    head: Vec<u8>,
    /// How items of a list start: Kubernetes leaves out the type of built-in ones.
    item_head: Vec<u8>,
    /// The same for metadata alone.
    metadata_head: &'static str,
    converts: bool,
    /// Whether the version's schema is not that of the stored one.
    reshapes: bool,
}

impl Renderer {
    pub(crate) fn new(resource: Arc<Resource>, version: &str) -> Self {
        let start = "\"metadata\":{\"resourceVersion\":\"";
        let typed = format!(
            "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",{start}",
            api_version(&resource.group, version),
            resource.kind
        );
        let item_head = if resource.is_custom() { typed.clone() } else { format!("{{{start}") };
        let converts = convert::differs(&resource, version);
        Self {
            version: version.to_owned(),
            head: typed.into_bytes(),
            item_head: item_head.into_bytes(),
            metadata_head: "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":\"",
            converts,
            reshapes: resource.reshapes(version),
            resource,
        }
    }

    pub(crate) fn api_version(&self) -> String {
        api_version(&self.resource.group, &self.version)
    }

    /// The object on its own.
    pub(crate) fn object(&self, out: &mut Vec<u8>, object: &Object) -> Result<(), Status> {
        self.write(out, &self.head, object)
    }

    /// The object in a list.
    pub(crate) fn item(&self, out: &mut Vec<u8>, object: &Object) -> Result<(), Status> {
        self.write(out, &self.item_head, object)
    }

    /// Its metadata alone.
    pub(crate) fn metadata(&self, out: &mut Vec<u8>, object: &Object) {
        out.extend_from_slice(self.metadata_head.as_bytes());
        out.extend_from_slice(object.revision.to_string().as_bytes());
        out.extend_from_slice(b"\",");
        out.extend_from_slice(object.draft.metadata_rest());
        out.push(b'}');
    }

    fn write(&self, out: &mut Vec<u8>, head: &[u8], object: &Object) -> Result<(), Status> {
        if self.is_stale(object) {
            let mut value = self.value(object)?;
            if head.len() < self.head.len()
                && let Some(map) = value.as_object_mut()
            {
                map.remove("apiVersion");
                map.remove("kind");
            }
            return serde_json::to_writer(out, &value).map_err(Status::internal);
        }
        out.extend_from_slice(head);
        out.extend_from_slice(object.revision.to_string().as_bytes());
        out.extend_from_slice(b"\",");
        out.extend_from_slice(object.draft.rest());
        Ok(())
    }

    /// Whether the stored form is not what clients of this version shall see.
    fn is_stale(&self, object: &Object) -> bool {
        self.converts || self.reshapes || object.revision == NOT_STORED || object.revision < self.resource.since
    }

    /// The object as a value of this version, with type and resourceVersion.
    pub(crate) fn value(&self, object: &Object) -> Result<Value, Status> {
        let mut value = object.value().map_err(Status::internal)?;
        convert::from_storage(&self.resource, &self.version, &mut value);
        self.add_type(&mut value);
        if object.revision == NOT_STORED
            && let Some(metadata) = value["metadata"].as_object_mut()
        {
            metadata.remove("resourceVersion");
        }
        self.reshape(&mut value, object.revision);
        Ok(value)
    }

    /// The object as a value of the stored form, with the type of this version.
    pub(crate) fn stored_value(&self, object: &Object) -> Result<Value, Status> {
        let mut value = object.value().map_err(Status::internal)?;
        self.add_type(&mut value);
        self.reshape(&mut value, object.revision);
        Ok(value)
    }

    /// Shows an object as its definition has it today, in this version.
    fn reshape(&self, value: &mut Value, revision: u64) {
        let content = |name: &str| self.resource.version(name).map(|version| &version.content);
        let stored = content(&self.resource.storage_version).or_else(|| content(&self.version));
        if let Some(Content::Custom(custom)) = stored
            && revision < self.resource.since
        {
            custom.schema().default(value);
        }
        if let Some(Content::Custom(custom)) = content(&self.version)
            && self.reshapes
        {
            custom.take_in(value);
        }
    }

    fn add_type(&self, value: &mut Value) {
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), self.api_version().into());
            map.insert("kind".to_owned(), self.resource.kind.clone().into());
        }
    }
}
