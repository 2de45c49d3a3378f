//! The log of a launcher, read through the API server.

use std::io::Write;

use anyhow::{Context as _, bail};
use api::names::label;
use api::vmi::VirtualMachineInstance;
use futures_util::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::core::Request;
use kube::{Api, Client, Resource as _, ResourceExt as _};

use super::Part;
use crate::target::{Target, machine};

/// The container that runs the guest.
const COMPUTE: &str = "compute";

/// Which of a launcher's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// The guest's console.
    Console,
    /// The launcher's own log.
    Own,
}

pub(super) fn show(vm: &str, stream: Stream, part: &Part, target: &Target, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let client = target.client().await?;
        let (_, vmi) = machine(&client, vm).await?;
        let Some(vmi) = vmi else { bail!("VM {vm} is not running, and its log ends with its launcher") };
        let pod = pod(&client, &vmi).await?;
        copy(&client, &pod, stream, part, out).await
    })
}

/// The newest launcher of an instance.
async fn pod(client: &Client, vmi: &VirtualMachineInstance) -> anyhow::Result<String> {
    let own = ListParams::default().labels(&format!("{}={}", label::CREATED_BY, vmi.uid().unwrap_or_default()));
    let pods = Api::<Pod>::default_namespaced(client.clone()).list(&own).await.context("find the launcher")?;
    let newest = pods.into_iter().max_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
    let Some(pod) = newest else { bail!("VM {} has no launcher yet", vmi.name_any()) };
    Ok(pod.name_any())
}

async fn copy(client: &Client, pod: &str, stream: Stream, part: &Part, out: &mut impl Write) -> anyhow::Result<()> {
    let Part { follow, tail } = part;
    let parameters = LogParams {
        container: Some(COMPUTE.to_owned()),
        follow: *follow,
        tail_lines: tail.map(|lines| i64::try_from(lines).unwrap_or(i64::MAX)),
        ..LogParams::default()
    };
    let path = Pod::url_path(&(), Some(client.default_namespace()));
    let mut request = Request::new(path).logs(pod, &parameters).context("make the request")?;
    let name = match stream {
        Stream::Console => "Stdout",
        Stream::Own => "Stderr",
    };
    *request.uri_mut() = format!("{}&stream={name}", request.uri()).parse().context("make the request")?;
    let answer = client.request_stream(request).await.context("ask the API server")?;
    let mut answer = std::pin::pin!(answer);
    let mut piece = vec![0; 16 << 10];
    loop {
        let length = answer.read(&mut piece).await.context("read the log")?;
        if length == 0 {
            return Ok(());
        }
        out.write_all(&piece[..length])?;
        out.flush()?;
    }
}
