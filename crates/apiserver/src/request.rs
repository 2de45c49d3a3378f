//! What a request asks for: its path, its query, its body.

use percent_encoding::percent_decode_str;

use crate::status::Status;

/// A path below `/api` or `/apis/GROUP`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The deprecated `/watch/` form.
    pub(crate) watch: bool,
}

impl Target {
    /// Reads a path; none, if it has another form.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/').map(decoded).collect::<Option<Vec<_>>>()?;
        if parts.last().is_some_and(String::is_empty) {
            parts.pop();
        }
        let mut parts = parts.into_iter().peekable();
        let group = match parts.next()?.as_str() {
            "api" => String::new(),
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let watch = parts.next_if(|part| part == "watch").is_some();
        let mut target = Self { group, version, watch, ..Self::default() };
        let rest: Vec<String> = parts.collect();
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let rest = match rest.as_slice() {
            ["namespaces", name, sub @ ("status" | "finalize")] if target.group.is_empty() => {
                target.resource = "namespaces".to_owned();
                target.name = Some((*name).to_owned());
                target.subresource = Some((*sub).to_owned());
                return Some(target);
            }
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                target.namespace = Some((*namespace).to_owned());
                rest
            }
            all => all,
        };
        match rest {
            [resource] => target.resource = (*resource).to_owned(),
            [resource, name] => {
                target.resource = (*resource).to_owned();
                target.name = Some((*name).to_owned());
            }
            [resource, name, sub @ ..] if !sub.is_empty() => {
                target.resource = (*resource).to_owned();
                target.name = Some((*name).to_owned());
                target.subresource = Some(sub.join("/"));
            }
            _ => return None,
        }
        let empty = |part: &Option<String>| part.as_deref() == Some("");
        (!target.resource.is_empty() && !empty(&target.name) && !empty(&target.namespace)).then_some(target)
    }
}

fn decoded(part: &str) -> Option<String> {
    percent_decode_str(part).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// The query, decoded, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
            (plain(key), plain(value))
        });
        Self(pairs.collect())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// As Go reads booleans in queries: present and neither `0` nor `false`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.optional_flag(key).unwrap_or(false)
    }

    pub(crate) fn optional_flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|value| !matches!(value, "0" | "false" | "False" | "FALSE" | "f" | "F"))
    }

    /// A number.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Status> {
        match self.get(key).filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))),
        }
    }
}

/// Options that writes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) validation: FieldValidation,
}

/// What to do about unknown fields and fields that are given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl WriteOptions {
    /// Reads them; `kind` is that of the options, such as `CreateOptions`.
    ///
    /// # Errors
    /// When a value is not known.
    pub(crate) fn parse(query: &Query, kind: &str) -> Result<Self, Status> {
        let mut options = Self::default();
        for value in query.all("dryRun") {
            options.dry_run |= dry_run(value, kind)?;
        }
        options.validation = match query.get("fieldValidation").unwrap_or_default() {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = "supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
                return Err(invalid_option(
                    kind,
                    "fieldValidation",
                    &format!("Unsupported value: \"{other}\": {supported}"),
                ));
            }
        };
        Ok(options)
    }
}

/// `All`, or nothing.
pub(crate) fn dry_run(value: &str, kind: &str) -> Result<bool, Status> {
    match value {
        "All" => Ok(true),
        other => {
            Err(invalid_option(kind, "dryRun", &format!("Unsupported value: [\"{other}\"]: supported values: \"All\"")))
        }
    }
}

fn invalid_option(kind: &str, field: &str, message: &str) -> Status {
    let subject = crate::status::Subject { group: "meta.k8s.io", resource: "", kind };
    let error = structural::FieldError {
        field: field.to_owned(),
        reason: structural::Reason::NotSupported,
        message: message.to_owned(),
    };
    Status::invalid(subject, "", &[error])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(path: &str) -> Option<[String; 6]> {
        let target = Target::parse(path)?;
        let text = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
        Some([
            target.group,
            target.version,
            text(target.namespace),
            target.resource,
            text(target.name),
            text(target.subresource),
        ])
    }

    #[test]
    fn paths_are_taken_apart() {
        for (path, expected) in [
            ("/api/v1/pods", ["", "v1", "-", "pods", "-", "-"]),
            ("/api/v1/namespaces", ["", "v1", "-", "namespaces", "-", "-"]),
            ("/api/v1/namespaces/a", ["", "v1", "-", "namespaces", "a", "-"]),
            ("/api/v1/namespaces/a/finalize", ["", "v1", "-", "namespaces", "a", "finalize"]),
            ("/api/v1/namespaces/a/pods/b/status", ["", "v1", "a", "pods", "b", "status"]),
            ("/apis/apps/v1/namespaces/a/deployments/", ["apps", "v1", "a", "deployments", "-", "-"]),
            ("/apis/g.io/v1/things/system:a%2Fb", ["g.io", "v1", "-", "things", "system:a/b", "-"]),
        ] {
            assert_eq!(parts(path).unwrap(), expected, "{path}");
        }
        for path in ["/", "/api", "/api/v1", "/apis/apps/v1", "/foo/v1/pods", "/api/v1//", "/api/v1/pods/%ff"] {
            assert_eq!(parts(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_or_query_makes_it_panic(text in "[/a-z%0-9&=+]{0,40}") {
            let _ = Target::parse(&text);
            let _ = Target::parse(&format!("/api/v1/{text}"));
            let _ = Query::parse(&text);
        }
    }
}
