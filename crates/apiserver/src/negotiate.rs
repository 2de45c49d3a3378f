//! Which form an answer takes: what the client accepts, in its order of preference.

use crate::status::Status;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Representation {
    pub(crate) view: View,
    pub(crate) encoding: Encoding,
}

/// What of the objects is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Objects whole.
    Whole,
    /// Rows and cells, for people.
    Table,
    /// Metadata alone, of one object.
    Metadata,
    /// Metadata alone, of each in a list.
    MetadataList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

impl Encoding {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

const ACCEPTED: [&str; 2] = ["application/json", "application/yaml"];

/// One of the alternatives in an `Accept` header.
struct Alternative<'a> {
    media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Alternative<'a> {
    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn encoding(&self) -> Option<Encoding> {
        match self.media_type {
            "application/json" | "*/*" => Some(Encoding::Json),
            "application/yaml" => Some(Encoding::Yaml),
            _ => None,
        }
    }
}

fn alternatives(header: &str) -> Vec<Alternative<'_>> {
    let mut all: Vec<Alternative<'_>> = header
        .split(',')
        .map(|one| {
            let mut parts = one.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let parameters: Vec<_> =
                parts.filter_map(|part| part.split_once('=')).map(|(key, value)| (key.trim(), value.trim())).collect();
            let quality = parameters.iter().find(|(key, _)| *key == "q").and_then(|(_, value)| value.parse().ok());
            Alternative { media_type, parameters, quality: quality.unwrap_or(1.0) }
        })
        .collect();
    // Stable: equals keep the client's order.
    all.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    all
}

/// The form for an answer that holds objects.
///
/// # Errors
/// When the client accepts nothing that can be given.
pub(crate) fn objects(header: &str) -> Result<Representation, Status> {
    if header.trim().is_empty() {
        return Ok(Representation { view: View::Whole, encoding: Encoding::Json });
    }
    for one in alternatives(header) {
        let Some(encoding) = one.encoding() else { continue };
        let meta = one.parameter("g") == Some("meta.k8s.io") && one.parameter("v") == Some("v1");
        let view = match one.parameter("as") {
            None => View::Whole,
            Some("Table") if meta => View::Table,
            Some("PartialObjectMetadata") if meta => View::Metadata,
            Some("PartialObjectMetadataList") if meta => View::MetadataList,
            Some(_) => continue,
        };
        return Ok(Representation { view, encoding });
    }
    Err(Status::not_acceptable(&ACCEPTED))
}

/// Which discovery document a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    Plain,
    /// All groups in one, in this version of the document.
    Aggregated(&'static str),
}

/// What a client of discovery gets, and how it is written.
///
/// # Errors
/// When the client accepts nothing that can be given.
pub(crate) fn discovery(header: &str) -> Result<(Discovery, Encoding), Status> {
    if header.trim().is_empty() {
        return Ok((Discovery::Plain, Encoding::Json));
    }
    for one in alternatives(header) {
        let Some(encoding) = one.encoding() else { continue };
        let aggregated =
            one.parameter("g") == Some("apidiscovery.k8s.io") && one.parameter("as") == Some("APIGroupDiscoveryList");
        match one.parameter("v") {
            Some("v2") if aggregated => return Ok((Discovery::Aggregated("v2"), encoding)),
            _ if one.parameter("as").is_none() => return Ok((Discovery::Plain, encoding)),
            _ => {}
        }
    }
    Err(Status::not_acceptable(&ACCEPTED))
}

/// A document that there is as JSON alone.
///
/// # Errors
/// When the client does not accept that.
pub(crate) fn json(header: &str) -> Result<(), Status> {
    let mut alternatives = alternatives(header).into_iter();
    let accepts = alternatives.any(|one| one.encoding() == Some(Encoding::Json) && one.parameter("as").is_none());
    if accepts || header.trim().is_empty() { Ok(()) } else { Err(Status::not_acceptable(&["application/json"])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_can_be_given_is_taken() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (header, view, encoding) in [
            ("", View::Whole, Encoding::Json),
            ("*/*", View::Whole, Encoding::Json),
            ("application/vnd.kubernetes.protobuf,application/json", View::Whole, Encoding::Json),
            (table, View::Table, Encoding::Json),
            ("application/json;q=0.5,application/yaml", View::Whole, Encoding::Yaml),
            ("application/json;as=Other;v=v1;g=meta.k8s.io, application/json", View::Whole, Encoding::Json),
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", View::Metadata, Encoding::Json),
        ] {
            assert_eq!(objects(header).unwrap(), Representation { view, encoding }, "{header}");
        }
        assert!(objects("application/vnd.kubernetes.protobuf").is_err());
        assert!(objects("text/html").is_err());
    }

    #[test]
    fn discovery_is_given_as_the_newest_form_that_is_understood() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                       application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(discovery(kubectl).unwrap(), (Discovery::Aggregated("v2"), Encoding::Json));
        assert_eq!(discovery("application/yaml").unwrap(), (Discovery::Plain, Encoding::Yaml));
        assert!(discovery("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList").is_err());
    }
}
