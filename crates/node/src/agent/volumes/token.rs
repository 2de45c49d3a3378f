//! Tokens of service accounts, bound to their pod.

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ServiceAccount, ServiceAccountTokenProjection};
use kube::Api;
use kube::api::PostParams;

use super::{Preparing, VolumeError};

const LIFE: i64 = 3600;

/// A token, and until when it is good.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) expires: Timestamp,
}

/// Asks the API server for one.
pub(super) async fn request(
    preparing: &Preparing<'_>,
    source: &ServiceAccountTokenProjection,
) -> Result<Token, VolumeError> {
    let metadata = &preparing.facts.pod.metadata;
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
    };
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(source.audience.iter().cloned().collect()),
            bound_object_ref: Some(bound),
            expiration_seconds: Some(source.expiration_seconds.unwrap_or(LIFE)),
        }),
        ..TokenRequest::default()
    };
    let account = preparing.spec.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    let accounts: Api<ServiceAccount> = Api::namespaced(preparing.client.clone(), preparing.namespace());
    let answer = accounts.create_subresource("token", account, &PostParams::default(), &request).await;
    let answer: TokenRequest = answer.map_err(VolumeError::Api)?;
    let unsupported = || VolumeError::Unsupported("a service account token: the API server returned none".to_owned());
    let status = answer.status.ok_or_else(unsupported)?;
    let token = status.token.zip(status.expiration_timestamp);
    token.map(|(text, expires)| Token { text, expires: expires.0 }).ok_or_else(unsupported)
}
