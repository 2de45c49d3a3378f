//! `orlop apply`: makes objects what a manifest says.

use std::io::{Read as _, Write};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::target::Target;

/// Create the objects of a manifest, or change those that are there to what it says.
#[derive(clap::Args)]
#[group(id = "apply")]
pub(crate) struct Arguments {
    /// The manifest, in YAML or JSON; - is standard input.
    #[arg(short, long, value_name = "FILE", env = "ORLOP_APPLY_FILE")]
    filename: PathBuf,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { filename, target } = arguments;
    let text = if filename.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("read standard input")?;
        text
    } else {
        std::fs::read_to_string(filename).with_context(|| format!("read {}", filename.display()))?
    };
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is no manifest", filename.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let client = target.client().await?;
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            let line = apply(&client, object).await?;
            writeln!(out, "{line}").context("write to standard output")?;
        }
        Ok(())
    })
}

async fn apply(client: &Client, object: Value) -> anyhow::Result<String> {
    let types: TypeMeta = serde_json::from_value(object.clone()).context("an object without apiVersion and kind")?;
    let kind = GroupVersionKind::try_from(&types).context("read the apiVersion")?;
    let (resource, capabilities) =
        pinned_kind(client, &kind).await.with_context(|| format!("there is no kind {} here", types.kind))?;
    let object: DynamicObject = serde_json::from_value(object).context("read the object")?;
    let name = object.name_any();
    if name.is_empty() {
        bail!("a {} has no metadata.name", types.kind);
    }
    let api = api(client, &resource, &capabilities.scope, object.namespace().as_deref());
    let shown = format!("{}/{name}", resource.plural);
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(format!("{shown} created")),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&object)).await;
            patched.map(|_| format!("{shown} configured")).with_context(|| shown)
        }
        Err(error) => Err(error).context(shown),
    }
}

fn api(client: &Client, resource: &ApiResource, scope: &Scope, namespace: Option<&str>) -> Api<DynamicObject> {
    match (scope, namespace) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), resource),
    }
}
