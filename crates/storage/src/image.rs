//! References to images: `docker.io/library/debian:12`, `host:5000/disks/fedora@sha256:...`, `oci:/srv/layout:tag`.
//!
//! Short names mean what they mean to Docker: `debian` is `docker.io/library/debian:latest`.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::pull::Digest;

/// The registry that short names are looked up in.
pub const DOCKER_HUB: &str = "docker.io";

/// The longest text that is read as a reference: a name has at most 255 characters, a tag 128, a digest 135.
const MAX_REFERENCE: usize = 1024;

/// Where an image is.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reference {
    /// In a registry.
    Registry {
        /// `docker.io`, `registry.example:5000`.
        host: String,
        /// `library/debian`.
        repository: String,
        /// Which of the repository's images.
        version: Version,
    },
    /// In a directory on this machine, laid out as the OCI image specification says.
    Layout {
        /// The directory that holds `oci-layout` and `index.json`.
        path: PathBuf,
        /// Which of the directory's images; may be absent when there is one only.
        tag: Option<String>,
    },
}

/// Which image of a repository.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Version {
    /// By a name that can move.
    Tag(String),
    /// By content. A tag beside a digest is checked for its form and then left out, as Docker does.
    Digest(Digest),
}

/// Why a text is no reference.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReferenceError {
    /// There is nothing, or far too much.
    #[error("an image reference must have 1 to {MAX_REFERENCE} characters, not {0}")]
    Length(usize),
    /// The registry is not a host name with an optional port.
    #[error("{0:?} is not a valid registry; use a host such as docker.io or registry.example:5000")]
    Host(String),
    /// The repository breaks the rules for names.
    #[error("{0:?} is not a valid repository; use lower-case words such as library/debian")]
    Repository(String),
    /// The tag breaks the rules for tags.
    #[error("{0:?} is not a valid tag; use up to 128 letters, digits, '.', '_' and '-'")]
    Tag(String),
    /// What follows the `@` is no digest.
    #[error("{0:?} is not a valid digest; use sha256: and 64 hexadecimal digits")]
    Digest(String),
    /// The directory of a layout is relative, or leaves itself.
    #[error("{0:?} is not a valid OCI layout directory; use an absolute path without '..' and ':'")]
    Layout(String),
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.len() > MAX_REFERENCE {
            return Err(ReferenceError::Length(text.len()));
        }
        match text.strip_prefix("oci:") {
            // `oci` followed by a port or a tag is a name like any other.
            Some(rest) if rest.contains('/') => layout(rest),
            _ => registry(text),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry { host, repository, version: Version::Tag(tag) } => write!(f, "{host}/{repository}:{tag}"),
            Self::Registry { host, repository, version: Version::Digest(digest) } => {
                write!(f, "{host}/{repository}@{digest}")
            }
            Self::Layout { path, tag: Some(tag) } => write!(f, "oci:{}:{tag}", path.display()),
            Self::Layout { path, tag: None } => write!(f, "oci:{}", path.display()),
        }
    }
}

impl Serialize for Reference {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// `/path` or `/path:tag`. A colon separates and nothing else, so that a reference means one thing only.
fn layout(text: &str) -> Result<Reference, ReferenceError> {
    let (folder, tag) = match text.rsplit_once(':') {
        Some((folder, tag)) if !tag.contains('/') => (folder, Some(tag)),
        _ => (text, None),
    };
    let path = Path::new(folder);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || folder.contains(['\0', ':']) {
        return Err(ReferenceError::Layout(folder.to_owned()));
    }
    if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
        return Err(ReferenceError::Tag(tag.to_owned()));
    }
    // Written the one way, so that two spellings of a directory are one image.
    let path = path.components().collect();
    Ok(Reference::Layout { path, tag: tag.map(str::to_owned) })
}

fn registry(text: &str) -> Result<Reference, ReferenceError> {
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => {
            let parsed = digest.parse().map_err(|_| ReferenceError::Digest(digest.to_owned()))?;
            (name, Some(parsed))
        }
        None => (text, None),
    };
    let (host, rest) = match name.split_once('/') {
        Some((first, rest)) if names_a_host(first) => (first, rest),
        _ => (DOCKER_HUB, name),
    };
    let host = if host == "index.docker.io" { DOCKER_HUB } else { host };
    if !is_host(host) {
        return Err(ReferenceError::Host(host.to_owned()));
    }
    let (path, tag) = match rest.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
        return Err(ReferenceError::Tag(tag.to_owned()));
    }
    let repository =
        if host == DOCKER_HUB && !path.contains('/') { format!("library/{path}") } else { path.to_owned() };
    if repository.len() > 255 || !repository.split('/').all(is_word) {
        return Err(ReferenceError::Repository(path.to_owned()));
    }
    let version = match (digest, tag) {
        (Some(digest), _) => Version::Digest(digest),
        (None, Some(tag)) => Version::Tag(tag.to_owned()),
        (None, None) => Version::Tag("latest".to_owned()),
    };
    Ok(Reference::Registry { host: host.to_ascii_lowercase(), repository, version })
}

/// Docker's rule for telling `library/debian` from `host/debian`.
fn names_a_host(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.chars().any(|c| c.is_ascii_uppercase())
}

/// A host name, an IPv4 address or an IPv6 address in brackets, with an optional port.
pub(crate) fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    if port.is_some_and(|port| port.starts_with('+') || port.parse::<u16>().is_err()) {
        return false;
    }
    if let Some(address) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_tag(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
        && !text.starts_with(['.', '-'])
}

/// Lower-case letters and digits, with one `.`, one or two `_`, or any number of `-` between them.
fn is_word(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_letter)
        && text.ends_with(is_letter)
        && text
            .split(is_letter)
            .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.chars().all(|c| c == '-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn full(text: &str) -> String {
        text.parse::<Reference>().unwrap().to_string()
    }

    #[test]
    fn short_names_mean_what_they_mean_to_docker() {
        for (text, expected) in [
            ("debian", "docker.io/library/debian:latest"),
            ("debian:12", "docker.io/library/debian:12"),
            ("kubevirt/cirros", "docker.io/kubevirt/cirros:latest"),
            ("docker.io/debian", "docker.io/library/debian:latest"),
            ("index.docker.io/a/b", "docker.io/a/b:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a/b:c", "localhost:5000/a/b:c"),
            ("quay.io/containerdisks/fedora:41", "quay.io/containerdisks/fedora:41"),
            ("QUAY.io/a/b", "quay.io/a/b:latest"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("oci:latest", "docker.io/library/oci:latest"),
            ("oci:/srv/disk", "oci:/srv/disk"),
            ("oci:/srv//disk/:v1", "oci:/srv/disk:v1"),
        ] {
            assert_eq!(full(text), expected, "{text}");
        }
        assert_eq!(full(&format!("debian@{DIGEST}")), format!("docker.io/library/debian@{DIGEST}"));
        assert_eq!(full(&format!("h:1/a:tag@{DIGEST}")), format!("h:1/a@{DIGEST}"));
    }

    #[test]
    fn malformed_references_are_refused() {
        for text in [
            "",
            ":tag",
            "a:",
            "a:.b",
            "A",
            "a//b",
            "a/",
            "/a",
            "../a",
            "a..b",
            "a___b",
            "a b",
            "http://a/b",
            "host:99999/a",
            "host:+80/a",
            "-host.x/a",
            "u@h.x/a",
            "a@sha256:00",
            "a@md5:00",
            "[::1/a",
            "oci:relative/folder",
            "oci:/srv/../etc",
            "oci:/srv:bad tag",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text:?} was taken as {:?}", text.parse::<Reference>());
        }
        assert_eq!("a".repeat(2000).parse::<Reference>(), Err(ReferenceError::Length(2000)));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,60}") {
            let _ = text.parse::<Reference>();
        }

        #[test]
        fn a_full_name_is_its_own_full_name(text in "(oci:/)?[a-z.:/@_-]{1,30}") {
            if let Ok(reference) = text.parse::<Reference>() {
                let again: Reference = reference.to_string().parse().unwrap();
                prop_assert_eq!(again, reference);
            }
        }

        #[test]
        fn hosts_tags_and_repositories_survive(
            host in "[a-z]{1,8}\\.[a-z]{2,3}(:[1-9][0-9]{0,3})?",
            repository in "[a-z0-9]{1,5}(/[a-z0-9]{1,5}([._-][a-z0-9]{1,3})?){0,3}",
            tag in "[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}",
        ) {
            let parsed: Reference = format!("{host}/{repository}:{tag}").parse().unwrap();
            prop_assert_eq!(parsed, Reference::Registry { host, repository, version: Version::Tag(tag) });
        }
    }
}
