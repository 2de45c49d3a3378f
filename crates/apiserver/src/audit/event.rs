//! An event, field by field as `k8s.io/apiserver/pkg/apis/audit/v1` has it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::identity::Identity;

/// When in the life of a request an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Stage {
    /// The answer has begun, and will go on.
    ResponseStarted,
    /// The answer is sent.
    ResponseComplete,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: &'static str,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: &'a str,
    pub(super) verb: &'a str,
    pub(super) user: User<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[String]>::is_empty")]
    pub(super) source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectRef<'a>>,
    /// A `Status` without its type.
    pub(super) response_status: Value,
    #[serde(serialize_with = "micro")]
    pub(super) request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro")]
    pub(super) stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<&'static str, &'a str>,
}

/// Nobody, where nobody was recognized.
#[derive(Default, Serialize)]
pub(super) struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

impl<'a> From<&'a Identity> for User<'a> {
    fn from(identity: &'a Identity) -> Self {
        let Identity { user, groups, uid, extra } = identity;
        Self { username: user, uid, groups, extra: Some(extra).filter(|extra| !extra.is_empty()) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRef<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) api_group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) subresource: &'a str,
}

/// As Kubernetes writes times with microseconds.
fn micro<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}
