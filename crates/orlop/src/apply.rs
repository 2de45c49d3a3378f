//! `orlop apply`: makes objects what a manifest says, and takes away what it said before and says no more.

mod merge;

use std::io::{Read as _, Write};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::target::Target;
use crate::waiting::{self, Which, until_running};
pub(crate) use merge::LAST as LAST_APPLIED;

/// Create or update the objects of a manifest, as `kubectl apply` does.
#[derive(clap::Args)]
#[group(id = "apply")]
pub(crate) struct Arguments {
    /// Manifest in YAML or JSON; - means standard input.
    #[arg(short, long, value_name = "FILE", env = "ORLOP_APPLY_FILE")]
    filename: PathBuf,
    #[command(flatten)]
    waiting: waiting::Arguments,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { filename, waiting, target } = arguments;
    let text = if filename.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("read standard input")?;
        text
    } else {
        std::fs::read_to_string(filename).with_context(|| format!("read {}", filename.display()))?
    };
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("{} is not a valid manifest", filename.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let client = target.client().await?;
        let mut vms = Vec::new();
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            let Applied { line, vm } = apply(&client, object).await?;
            writeln!(out, "{line}").context("write to standard output")?;
            vms.extend(vm);
        }
        for (namespace, name) in vms.iter().filter(|_| waiting.wait) {
            let namespace = namespace.as_deref().unwrap_or(client.default_namespace());
            let which = Which { namespace, name, instead_of: None, is_started: false };
            until_running(&client, &which, waiting.timeout, out).await?;
        }
        Ok(())
    })
}

/// What became of an object.
struct Applied {
    line: String,
    /// Namespace and name of what can be waited for: a VM, or an instance of its own.
    vm: Option<(Option<String>, String)>,
}

async fn apply(client: &Client, object: Value) -> anyhow::Result<Applied> {
    let types: TypeMeta =
        serde_json::from_value(object.clone()).context("the manifest has an object without apiVersion or kind")?;
    let kind = GroupVersionKind::try_from(&types).context("read the apiVersion")?;
    let (resource, capabilities) = pinned_kind(client, &kind)
        .await
        .with_context(|| format!("the API server does not serve the kind {}", types.kind))?;
    let object = merge::remember(object)?;
    let wanted: DynamicObject = serde_json::from_value(object.clone()).context("read the object")?;
    let name = wanted.name_any();
    if name.is_empty() {
        bail!("the {} has no metadata.name", types.kind);
    }
    let api = api(client, &resource, &capabilities.scope, wanted.namespace().as_deref());
    let shown = format!("{}/{name}", resource.plural);
    let runs = kind.group == "kubevirt.io" && matches!(&*kind.kind, "VirtualMachine" | "VirtualMachineInstance");
    let vm = runs.then(|| (wanted.namespace(), name.clone()));
    let what = match api.get_opt(&name).await.with_context(|| shown.clone())? {
        None => {
            api.create(&PostParams::default(), &wanted).await.with_context(|| shown.clone())?;
            "created"
        }
        Some(live) => {
            let live = serde_json::to_value(&live).context("read the existing object")?;
            match merge::patch(&live, &object) {
                None => "unchanged",
                Some(patch) => {
                    let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
                    patched.with_context(|| shown.clone())?;
                    "configured"
                }
            }
        }
    };
    Ok(Applied { line: format!("{shown} {what}"), vm })
}

fn api(client: &Client, resource: &ApiResource, scope: &Scope, namespace: Option<&str>) -> Api<DynamicObject> {
    match (scope, namespace) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), resource),
    }
}
