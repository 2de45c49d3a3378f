//! kube-rs: watchers as our controllers use them, and its finalizer helper.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::{Stream, StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event as Finalizing, finalizer};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use super::all;

/// How long one event may take.
const PATIENCE: Duration = testkit::NEVER;
const FINALIZER: &str = "orlop.example/hold";

/// Runs every check.
///
/// # Errors
/// With each that failed.
pub async fn run(kubeconfig: &Path) -> Result<()> {
    let client = client(kubeconfig).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "kube-rs" } }))?;
    namespaces.create(&PostParams::default(), &namespace).await.context("create a namespace")?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-rs");
    all(vec![
        ("a_watcher_lists_and_follows", follow(&maps, watcher::Config::default().labels("by=list"), "list").await),
        (
            "a_watcher_lists_in_pages",
            follow(&maps, watcher::Config::default().labels("by=pages").page_size(1), "pages").await,
        ),
        (
            "a_watcher_streams_its_list",
            follow(&maps, watcher::Config::default().labels("by=stream").streaming_lists(), "stream").await,
        ),
        ("a_finalizer_is_added_and_removed", finalize(&maps).await),
        ("objects_are_listed_and_patched", change(&maps).await),
    ])
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn map(name: &str, by: &str) -> Result<ConfigMap> {
    Ok(serde_json::from_value(json!({ "metadata": { "name": format!("{by}-{name}"), "labels": { "by": by } } }))?)
}

/// Two objects at the start, then one made, changed and deleted.
async fn follow(maps: &Api<ConfigMap>, config: watcher::Config, by: &str) -> Result<()> {
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &map(name, by)?).await?;
    }
    let events = watcher(maps.clone(), config);
    pin_mut!(events);
    ensure!(matches!(next(&mut events).await?, Event::Init), "no beginning");
    for name in ["a", "b"] {
        match next(&mut events).await? {
            Event::InitApply(object) => ensure!(object.name_any() == format!("{by}-{name}")),
            other => bail!("not the object {name} but {other:?}"),
        }
    }
    ensure!(matches!(next(&mut events).await?, Event::InitDone), "no end of the beginning");
    maps.create(&PostParams::default(), &map("c", by)?).await?;
    let made = applied(next(&mut events).await?)?;
    let patch = Patch::Merge(json!({ "data": { "k": "v" } }));
    maps.patch(&made.name_any(), &PatchParams::default(), &patch).await?;
    let changed = applied(next(&mut events).await?)?;
    ensure!(changed.data.is_some_and(|data| data["k"] == "v"), "the change is not seen");
    maps.delete(&made.name_any(), &DeleteParams::default()).await?;
    match next(&mut events).await? {
        Event::Delete(object) => ensure!(object.uid() == made.uid(), "another was deleted"),
        other => bail!("no deletion but {other:?}"),
    }
    Ok(())
}

async fn next(
    events: &mut (impl Stream<Item = watcher::Result<Event<ConfigMap>>> + Unpin),
) -> Result<Event<ConfigMap>> {
    Ok(timeout(PATIENCE, events.next()).await.context("no event")?.context("the watcher ended")??)
}

fn applied(event: Event<ConfigMap>) -> Result<ConfigMap> {
    match event {
        Event::Apply(object) => Ok(object),
        other => bail!("no object but {other:?}"),
    }
}

async fn finalize(maps: &Api<ConfigMap>) -> Result<()> {
    let name = "finalized";
    let mut object = map("finalized", "finalizer")?;
    object.metadata.name = Some(name.to_owned());
    let object = maps.create(&PostParams::default(), &object).await?;
    ensure!(reconcile(maps, object).await? == Seen::Nothing, "work before the finalizer stands");
    let object = maps.get(name).await?;
    ensure!(object.finalizers() == [FINALIZER], "the finalizer is not there");
    ensure!(reconcile(maps, object).await? == Seen::Applied, "no work though the finalizer stands");
    maps.delete(name, &DeleteParams::default()).await?;
    let object = maps.get(name).await.context("the finalizer does not hold it")?;
    ensure!(object.metadata.deletion_timestamp.is_some(), "it is not marked as deleted");
    ensure!(reconcile(maps, object).await? == Seen::Cleaned, "no clean-up");
    ensure!(maps.get_opt(name).await?.is_none(), "it is still there");
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Applied,
    Cleaned,
}

async fn reconcile(maps: &Api<ConfigMap>, object: ConfigMap) -> Result<Seen> {
    let seen = Arc::new(std::sync::Mutex::new(Seen::Nothing));
    let noted = Arc::clone(&seen);
    let work = move |event: Finalizing<ConfigMap>| async move {
        if let Ok(mut noted) = noted.lock() {
            *noted = match event {
                Finalizing::Apply(_) => Seen::Applied,
                Finalizing::Cleanup(_) => Seen::Cleaned,
            };
        }
        Ok::<_, std::convert::Infallible>(Action::await_change())
    };
    finalizer(maps, FINALIZER, Arc::new(object), work).await?;
    let seen = seen.lock().map(|seen| *seen).unwrap_or(Seen::Nothing);
    Ok(seen)
}

async fn change(maps: &Api<ConfigMap>) -> Result<()> {
    let object = maps.create(&PostParams::default(), &map("one", "change")?).await?;
    let name = object.name_any();
    let listed = maps.list(&ListParams::default().labels("by=change").limit(1)).await?;
    ensure!(listed.items.len() == 1 && listed.metadata.resource_version.is_some(), "{listed:?}");
    let mut newer = maps.get(&name).await?;
    newer.data = Some([("k".to_owned(), "v".to_owned())].into());
    maps.replace(&name, &PostParams::default(), &newer).await?;
    match maps.replace(&name, &PostParams::default(), &newer).await {
        Err(kube::Error::Api(status)) => ensure!(status.code == 409 && status.is_conflict(), "{status:?}"),
        other => bail!("an old version was taken: {other:?}"),
    }
    let metadata = maps.get_metadata(&name).await?;
    ensure!(metadata.uid() == object.uid(), "the metadata are of another");
    match maps.get("none").await {
        Err(kube::Error::Api(status)) => ensure!(status.is_not_found(), "{status:?}"),
        other => bail!("what is not there was found: {other:?}"),
    }
    Ok(())
}
