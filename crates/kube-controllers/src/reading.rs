//! Looks past the cache.

use std::fmt::Debug;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

/// An object as the server itself has it, by a list of one: Kubernetes lets several of its controllers list what they may not
/// `get`.
pub(crate) async fn find<K>(api: &Api<K>, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let one = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(api.list(&one).await?.items.pop())
}
