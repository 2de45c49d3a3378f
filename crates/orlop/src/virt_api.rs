//! `orlop virt-api`: admission webhooks and `subresources.kubevirt.io`, behind Kubernetes' API server.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use certificates::{Following, files, tls};
use kube::Client;
use manager::clients::Clients;
use manager::context::Chance;
use manager::rate::Limit;
use manager::serving::Pages;
use tokio::sync::watch;
use virt_extension::manifests::Registration;
use virt_extension::{Extension, Guests, Handlers, Nowhere};

use crate::cluster::Cluster;
use crate::controller_program::{ServingArguments, stop_signal};

const NAME: &str = "virt-api";
/// The port of health and metrics.
const PAGES: u16 = 8183;

/// Run the admission webhooks and the API of running VMs for a Kubernetes cluster.
///
/// Kubernetes' API server calls this program. The APIServices and webhook configurations that `--print-manifests` prints tell it
/// to. The serving certificate must name SERVICE.NAMESPACE.svc. Certificates are reloaded when their files change; open
/// connections keep the ones that they began with.
#[derive(clap::Args)]
#[group(id = "virt_api")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    serving: ServingArguments,
    #[command(flatten)]
    handlers: HandlerArguments,
    #[command(flatten)]
    manifests: ManifestArguments,
    /// Address to serve webhooks and the API on.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443", env = "ORLOP_VIRT_API_LISTEN")]
    listen: SocketAddr,
    /// Average number of requests per second to the API server; 0 means no limit.
    #[arg(long, default_value_t = 200.0, env = "ORLOP_KUBE_API_QPS")]
    kube_api_qps: f64,
    /// Number of requests to the API server that may exceed that average in a burst.
    #[arg(long, default_value_t = 400, env = "ORLOP_KUBE_API_BURST")]
    kube_api_burst: u32,
}

/// How virt-handler on each node is reached. Without these flags, running guests cannot be reached.
#[derive(clap::Args)]
#[group(id = "virt_api_handlers")]
struct HandlerArguments {
    /// Client certificate for connections to virt-handler.
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["handler_tls_private_key_file", "handler_ca_file"],
        env = "ORLOP_HANDLER_TLS_CERT_FILE"
    )]
    handler_tls_cert_file: Option<PathBuf>,
    /// Private key of that certificate.
    #[arg(long, value_name = "FILE", requires = "handler_tls_cert_file", env = "ORLOP_HANDLER_TLS_PRIVATE_KEY_FILE")]
    handler_tls_private_key_file: Option<PathBuf>,
    /// Certificate authorities that the certificates of virt-handlers are verified against. Each must name its node.
    #[arg(long, value_name = "FILE", requires = "handler_tls_cert_file", env = "ORLOP_HANDLER_CA_FILE")]
    handler_ca_file: Option<PathBuf>,
}

/// What is printed for a cluster.
#[derive(clap::Args)]
#[group(id = "virt_api_manifests")]
struct ManifestArguments {
    /// Print the APIServices and webhook configurations, and exit.
    #[arg(long, requires = "ca_bundle_file", env = "ORLOP_PRINT_MANIFESTS")]
    print_manifests: bool,
    /// Certificate authorities that the API server verifies the serving certificate against.
    #[arg(long, value_name = "FILE", env = "ORLOP_CA_BUNDLE_FILE")]
    ca_bundle_file: Option<PathBuf>,
    /// Namespace of the Service that leads to virt-api.
    #[arg(long, value_name = "NAME", default_value = "kubevirt", env = "ORLOP_SERVICE_NAMESPACE")]
    service_namespace: String,
    /// Name of that Service.
    #[arg(long, value_name = "NAME", default_value = "virt-api", env = "ORLOP_SERVICE_NAME")]
    service_name: String,
    /// Port of that Service.
    #[arg(long, value_name = "PORT", default_value_t = 443, env = "ORLOP_SERVICE_PORT")]
    service_port: u16,
}

pub(crate) fn run(arguments: Arguments, output: &mut dyn Write) -> anyhow::Result<()> {
    if arguments.manifests.print_manifests {
        return arguments.manifests.print(output);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { cluster, serving, handlers, manifests: _, listen, kube_api_qps, kube_api_burst } = arguments;
    let Some((certificate, key)) = serving.certificate_files() else {
        bail!("virt-api needs --tls-cert-file and --tls-private-key-file: the API server verifies its certificate");
    };
    let limit = Limit { qps: kube_api_qps, burst: kube_api_burst };
    let clients = Clients::of_server(cluster.config().await?, NAME, limit, false);
    let client = clients.privileged(NAME).context("make a client")?;
    let pages = Pages::new(NAME);
    pages.registry(|registry| clients.requests().register(registry));
    let stop = stop_signal()?;
    let shown = serving.listen(PAGES, NAME, &clients, &pages).await?;
    let (guests, chance) = (handlers.guests(client.clone())?, Chance::of_the_machine());
    let extension = Extension { address: listen, certificate, key, client, guests, chance, pages };
    let listening = extension.bind().await.context("serve the API server")?;
    tracing::info!(address = %listening.address(), "serving webhooks and subresources.kubevirt.io");
    let (ended, mut has_ended) = watch::channel(());
    let served = async {
        listening.run(stop).await;
        ended.send_replace(());
    };
    let showing = async {
        if let Some(shown) = shown {
            shown.run(async move { drop(has_ended.changed().await) }).await;
        }
    };
    tokio::join!(served, showing);
    Ok(())
}

impl HandlerArguments {
    fn guests(self, client: Client) -> anyhow::Result<Arc<dyn Guests>> {
        let Self { handler_tls_cert_file, handler_tls_private_key_file, handler_ca_file } = self;
        let (Some(certificate), Some(key), Some(authorities)) =
            (handler_tls_cert_file, handler_tls_private_key_file, handler_ca_file)
        else {
            tracing::warn!("guests cannot be reached: start virt-api with --handler-tls-cert-file");
            return Ok(Arc::new(Nowhere));
        };
        let all = vec![certificate.clone(), key.clone(), authorities.clone()];
        let tls = Following::new(all, move || {
            let believed = tls::roots(&String::from_utf8_lossy(&files::read(&authorities)?))?;
            tls::client_with(believed, files::chain(&certificate)?, files::key(&key)?)
        });
        let tls = tls.context("use the certificate for virt-handler")?;
        Ok(Arc::new(Handlers::new(client, Arc::new(tls))))
    }
}

impl ManifestArguments {
    fn print(self, output: &mut dyn Write) -> anyhow::Result<()> {
        let Self { print_manifests: _, ca_bundle_file, service_namespace, service_name, service_port } = self;
        let path = ca_bundle_file.context("--print-manifests needs --ca-bundle-file")?;
        let authorities = String::from_utf8(files::read(&path)?).context("read --ca-bundle-file")?;
        tls::roots(&authorities).with_context(|| format!("read {}", path.display()))?;
        let registration =
            Registration { namespace: service_namespace, service: service_name, port: service_port, authorities };
        let mut documents = Vec::new();
        for service in registration.api_services() {
            documents.push(serde_json::to_value(service)?);
        }
        documents.push(serde_json::to_value(registration.mutating()?)?);
        documents.push(serde_json::to_value(registration.validating()?)?);
        for document in documents {
            writeln!(output, "---\n{}", serde_saphyr::to_string(&document)?.trim_end())?;
        }
        Ok(())
    }
}
