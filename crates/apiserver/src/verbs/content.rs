//! From a request's body to an object that fits its kind.

use http::header;
use serde_json::Value;
use structural::{FieldError, Reason};

use super::Call;
use crate::bounds::cut;
use crate::convert;
use crate::facts;
use crate::json::{self, Document};
use crate::protobuf;
use crate::registry::{Content, api_version};
use crate::request::FieldValidation;
use crate::status::{Status, Subject};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The last one for built-in kinds only.
const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", PROTOBUF];

impl Call {
    /// The media type of the body, without parameters.
    pub(super) fn content_type(&self) -> &str {
        let header = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        header.and_then(|text| text.split(';').next()).map_or("", str::trim)
    }

    /// The body as a document, whatever it describes.
    pub(super) fn document(&self) -> Result<Document, Status> {
        match self.content_type() {
            // Clients that say nothing mean JSON.
            "" | "application/json" => json::parse(&self.body)
                .map_err(|error| Status::bad_request(format!("couldn't get version/kind; json parse error: {error}"))),
            "application/yaml" => json::parse_yaml(&self.body)
                .map_err(|error| Status::bad_request(format!("couldn't get version/kind; yaml parse error: {error}"))),
            // Go's typed clients send it without asking, and do not fall back.
            PROTOBUF if !self.resource.is_custom() => {
                let value = protobuf::decode(&self.body).map_err(|error| Status::bad_request(error.to_string()))?;
                Ok(Document { value, duplicates: Vec::new() })
            }
            _ if self.resource.is_custom() => Err(Status::unsupported_media_type(&ACCEPTED[..2])),
            _ => Err(Status::unsupported_media_type(&ACCEPTED)),
        }
    }

    /// The body as an object of a kind that is not the resource's own: what is posted to a subresource.
    pub(super) fn document_of(&self, (group, version, kind): (&str, &str, &str)) -> Result<Value, Status> {
        let mut value = self.document()?.value;
        if value.is_null() {
            value = Value::Object(serde_json::Map::new());
        }
        let id = facts::facts().of_kind(group, version, kind).ok_or_else(Status::not_served)?;
        let cannot = |problem: &str| {
            Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {problem}"))
        };
        facts::decode(id, &mut value).map_err(|problem| cannot(&problem))?;
        Ok(value)
    }

    /// The body as an object of the call's kind, in the stored form.
    pub(super) fn object(&mut self, validation: FieldValidation) -> Result<Value, Status> {
        let Document { mut value, duplicates } = self.document()?;
        self.written.sent(&value["metadata"]);
        self.check_type(&mut value, false)?;
        self.fit(value, duplicates, validation)
    }

    /// The type in the body must be that of the path; left out, it is taken from there.
    pub(super) fn check_type(&self, value: &mut Value, patched: bool) -> Result<(), Status> {
        let kind = &self.resource.kind;
        let expected = api_version(&self.resource.group, &self.version.name);
        if value.is_null() && !self.resource.is_custom() {
            *value = Value::Object(serde_json::Map::new());
        }
        let Some(map) = value.as_object_mut() else {
            let what = match value {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "bool",
                _ => "null",
            };
            return Err(Status::bad_request(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type \
                 struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                 \"json:\\\"kind,omitempty\\\"\" }}"
            )));
        };
        for (field, expected) in [("apiVersion", expected.as_str()), ("kind", kind)] {
            let found = map.get(field).and_then(Value::as_str).unwrap_or_default();
            if found.is_empty() {
                if self.resource.is_custom() {
                    let text = cut(&serde_json::to_string(&map).unwrap_or_default()).into_owned();
                    let name = if field == "kind" { "Kind" } else { "apiVersion" };
                    return Err(Status::bad_request(format!("Object '{name}' is missing in '{text}'")));
                }
                map.insert(field.to_owned(), expected.into());
            } else if found != expected && self.resource.is_custom() && (field == "kind" || patched) {
                let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
                let subject = Subject { group: &self.resource.group, resource: "", kind };
                let name = map.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
                return Err(Status::invalid(subject, name, &[other_type(field, found, expected)]));
            } else if found != expected && field == "apiVersion" {
                return Err(Status::bad_request(format!(
                    "the API version in the data ({found}) does not match the expected API version ({expected})"
                )));
            } else if found != expected {
                return Err(Status::bad_request(format!(
                    "{found} in version \"{}\" cannot be handled as a {kind}: no kind \"{found}\" is registered for version \"{}\"",
                    self.version.name,
                    api_version(&self.resource.group, &self.version.name),
                )));
            }
        }
        Ok(())
    }

    /// Drops what the kind does not have, sets defaults, and tells or refuses what is odd.
    pub(super) fn fit(
        &mut self,
        mut value: Value,
        duplicates: Vec<String>,
        validation: FieldValidation,
    ) -> Result<Value, Status> {
        let version = self.version.name.clone();
        let cannot = |kind: &str, problem: &str| {
            Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {problem}"))
        };
        let unknown = match &self.version.content {
            Content::BuiltIn(id) => {
                facts::decode(*id, &mut value).map_err(|problem| cannot(&self.resource.kind, &problem))?.unknown
            }
            Content::Custom(custom) => {
                let mut unknown = fit_metadata(&mut value).map_err(|problem| cannot(&self.resource.kind, &problem))?;
                unknown.extend(custom.schema().prune(&mut value));
                if !custom.schema().default(&mut value) {
                    return Err(Status::bad_request(
                        "the object is too large or too deep with the defaults of its schema",
                    ));
                }
                unknown
            }
        };
        let problems = unknown
            .into_iter()
            .map(|path| format!("unknown field \"{path}\""))
            .chain(duplicates.into_iter().map(|path| format!("duplicate field \"{path}\"")));
        let problems: Vec<String> = problems.collect();
        match validation {
            FieldValidation::Strict if !problems.is_empty() => {
                let all = problems.join(", ");
                return Err(cannot(&self.resource.kind, &format!("strict decoding error: {all}")));
            }
            FieldValidation::Warn => self.warnings.list().extend(problems),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        if convert::differs(&self.resource, &self.version.name) {
            convert::to_storage(&self.resource, &self.version.name, &mut value);
            convert::complete(&self.resource, &mut value);
        }
        Ok(value)
    }
}

fn other_type(field: &str, found: &str, expected: &str) -> FieldError {
    let message = format!("Invalid value: \"{found}\": must be {expected}");
    FieldError { field: field.to_owned(), reason: Reason::Invalid, message }
}

impl Call {
    /// What is stored has the form of the stored version, whichever it came in.
    pub(super) fn reshape_for_storage(&self, object: &mut Value) {
        if !self.resource.reshapes(&self.version.name) {
            return;
        }
        let stored = self.resource.version(&self.resource.storage_version).map(|version| &version.content);
        if let Some(Content::Custom(custom)) = stored {
            custom.take_in(object);
        }
    }
}

/// The metadata of custom objects is that of all kinds, whatever their schema says.
fn fit_metadata(value: &mut Value) -> Result<Vec<String>, String> {
    let Some(metadata) = value.get_mut("metadata").filter(|metadata| !metadata.is_null()) else {
        return Ok(Vec::new());
    };
    let Some(id) = facts::facts().named("meta.v1.ObjectMeta") else { return Ok(Vec::new()) };
    let decoded = facts::decode(id, metadata)?;
    Ok(decoded.unknown.into_iter().map(|path| format!("metadata.{path}")).collect())
}
