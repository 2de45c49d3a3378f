//! Runs a program of controllers: its flags, its client, its election and its pages.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use manager::caches::Caches;
use manager::clients::Clients;
use manager::context::Chance;
use manager::descriptor::{Descriptor, Selection};
use manager::frame::{Leading, Program};
use manager::gates::Gates;
use manager::leader::Durations;
use manager::migration::Migration;
use manager::rate::{Limit, RateLimiter};
use manager::serving::{CertificateSource, Listening, Pages, Serving};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cluster::{Cluster, clock};
use crate::process_memory;

/// Flags of every program.
#[derive(clap::Args)]
#[group(id = "program")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    election: ElectionArguments,
    #[command(flatten)]
    serving: ServingArguments,
    /// Average number of requests per second to the API server; 0 means no limit, since API servers have flow control.
    #[arg(long, default_value_t = 0.0, env = "ORLOP_KUBE_API_QPS")]
    kube_api_qps: f64,
    /// Number of requests to the API server that may exceed that average in a burst.
    #[arg(long, default_value_t = 100, env = "ORLOP_KUBE_API_BURST")]
    kube_api_burst: u32,
}

/// How a program is elected.
#[derive(clap::Args)]
#[group(id = "election")]
struct ElectionArguments {
    /// Wait for a lease before doing anything. Needed when several replicas run.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, env = "ORLOP_LEADER_ELECT")]
    leader_elect: bool,
    /// Time after which others may take a lease that was not renewed.
    #[arg(long, default_value = "15s", value_parser = duration, env = "ORLOP_LEADER_ELECT_LEASE_DURATION")]
    leader_elect_lease_duration: Duration,
    /// Time after which a leader that cannot renew its lease gives up.
    #[arg(long, default_value = "10s", value_parser = duration, env = "ORLOP_LEADER_ELECT_RENEW_DEADLINE")]
    leader_elect_renew_deadline: Duration,
    /// Time between two attempts to take or renew the lease.
    #[arg(long, default_value = "2s", value_parser = duration, env = "ORLOP_LEADER_ELECT_RETRY_PERIOD")]
    leader_elect_retry_period: Duration,
    /// Name of the lease. The default is the name of the program.
    #[arg(long, value_name = "NAME", env = "ORLOP_LEADER_ELECT_RESOURCE_NAME")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the lease.
    #[arg(long, value_name = "NAME", default_value = "kube-system", env = "ORLOP_LEADER_ELECT_RESOURCE_NAMESPACE")]
    leader_elect_resource_namespace: String,
}

/// What a program shows, and to whom.
#[derive(clap::Args)]
#[group(id = "serving")]
pub(crate) struct ServingArguments {
    /// Address to serve health, metrics and configuration on.
    #[arg(long, default_value = "0.0.0.0", env = "ORLOP_BIND_ADDRESS")]
    bind_address: IpAddr,
    /// Port to serve them on; 0 disables them. The default is the port of the Kubernetes program.
    #[arg(long, visible_alias = "port", env = "ORLOP_SECURE_PORT")]
    secure_port: Option<u16>,
    /// Serving certificate; it is reloaded when the file changes.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file", env = "ORLOP_TLS_CERT_FILE")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the serving certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file", env = "ORLOP_TLS_PRIVATE_KEY_FILE")]
    tls_private_key_file: Option<PathBuf>,
    /// Directory of the serving certificate, if no file is given; it is created if missing. By default, each run has a new one.
    #[arg(long, value_name = "DIR", env = "ORLOP_CERT_DIR")]
    cert_dir: Option<PathBuf>,
    /// Certificate authorities that client certificates are verified against.
    #[arg(long, value_name = "FILE", env = "ORLOP_CLIENT_CA_FILE")]
    client_ca_file: Option<PathBuf>,
    /// Paths that need no authorization; a * at the end matches any suffix.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez",
        env = "ORLOP_AUTHORIZATION_ALWAYS_ALLOW_PATHS"
    )]
    authorization_always_allow_paths: Vec<String>,
}

/// Makes settings of how the API server is reached, and of the limit of all requests to it.
type Settings<S> = Box<dyn FnOnce(&kube::Config, &RateLimiter) -> S>;

/// A program that is ready to run.
pub(crate) struct ProgramSpec<S: 'static> {
    pub(crate) name: &'static str,
    /// The port of Kubernetes' own program of that name.
    pub(crate) port: u16,
    pub(crate) descriptors: &'static [Descriptor<S>],
    /// What is set.
    pub(crate) settings: Settings<S>,
    pub(crate) selection: Selection,
    pub(crate) gates: Gates,
    pub(crate) start_interval: Duration,
    pub(crate) accounts: bool,
    pub(crate) migration: Option<Migration>,
    /// What `/configz` shows, by group.
    pub(crate) configuration: (&'static str, serde_json::Value),
    /// Other names of the gauges that tell whether it is ready and leads.
    pub(crate) gauges: Option<(&'static str, &'static str)>,
}

/// A duration as Kubernetes' flags have it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = api::duration::Duration::from_str(text).map_err(|error| error.to_string())?;
    duration.to_std().ok_or_else(|| format!("{text:?} must not be negative"))
}

/// Runs a program until a signal asks for its end.
pub(crate) fn run<S: Send + Sync + 'static>(arguments: Arguments, plan: ProgramSpec<S>) -> anyhow::Result<()> {
    process_memory::share_arenas();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve_and_run(arguments, plan))
}

async fn serve_and_run<S: Send + Sync + 'static>(arguments: Arguments, plan: ProgramSpec<S>) -> anyhow::Result<()> {
    let Arguments { cluster, election, serving, kube_api_qps, kube_api_burst } = arguments;
    let ProgramSpec {
        name,
        port,
        descriptors,
        settings,
        selection,
        gates,
        start_interval,
        accounts,
        migration,
        configuration,
        gauges,
    } = plan;
    let leading = election.leading(name, migration)?;
    let limit = Limit { qps: kube_api_qps, burst: kube_api_burst };
    let config = cluster.config().await?;
    let clients = Clients::of_server(config.clone(), name, limit, accounts);
    let settings = settings(&config, clients.limiter());
    let pages = Pages::new(name);
    if let Some((ready, leading)) = gauges {
        pages.also_known_as(ready, leading);
    }
    let (group, shown) = configuration;
    pages.configz(group, shown);
    let stop = stop_signal()?;
    let listening = serving.listen(port, name, &clients, &pages).await?;
    let (program_ended, mut ended) = watch::channel(());
    let served = async {
        match listening {
            Some(listening) => listening.run(async move { drop(ended.changed().await) }).await,
            None => drop(ended.changed().await),
        }
    };
    let now = clock();
    let chance = Chance::of_the_machine();
    let caches = Caches::new(clients.privileged("shared-caches").context("make a client")?, chance.clone());
    let program = Program {
        name,
        descriptors,
        settings,
        selection,
        gates,
        clients,
        caches: Some(caches.clone()),
        leading,
        start_interval,
        pages,
        now,
        chance,
    };
    let run = async {
        let result = process_memory::during(&caches, program.run(stop)).await;
        program_ended.send_replace(());
        result
    };
    let ((), result) = tokio::join!(served, run);
    result.context(name)
}

/// Resolves with the first SIGTERM or Ctrl-C.
pub(crate) fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

impl ElectionArguments {
    fn leading(self, program: &str, migration: Option<Migration>) -> anyhow::Result<Option<Leading>> {
        let Self {
            leader_elect,
            leader_elect_lease_duration: lease,
            leader_elect_renew_deadline: renew_deadline,
            leader_elect_retry_period: retry,
            leader_elect_resource_name,
            leader_elect_resource_namespace: namespace,
        } = self;
        if !leader_elect {
            if migration.is_some() {
                bail!("leader migration needs --leader-elect");
            }
            return Ok(None);
        }
        if renew_deadline >= lease || retry >= renew_deadline {
            bail!(
                "the lease duration must be longer than the renew deadline, and the renew deadline longer than the retry period"
            );
        }
        if lease.as_secs() == 0 || lease.subsec_nanos() != 0 {
            bail!("the lease duration must be a whole number of seconds");
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("make an identity")?;
        Ok(Some(Leading {
            namespace,
            lease: leader_elect_resource_name.unwrap_or_else(|| program.to_owned()),
            identity: format!("{host}_{}", uuid.trim()),
            durations: Durations { lease, renew_deadline, retry },
            migration,
        }))
    }
}

impl ServingArguments {
    /// The serving certificate and its key, if they are files.
    pub(crate) fn certificate_files(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls_cert_file.clone().zip(self.tls_private_key_file.clone())
    }

    pub(crate) async fn listen(
        self,
        default_port: u16,
        name: &str,
        clients: &Clients,
        pages: &Pages,
    ) -> anyhow::Result<Option<Listening>> {
        let Self {
            bind_address,
            secure_port,
            tls_cert_file,
            tls_private_key_file,
            cert_dir,
            client_ca_file,
            authorization_always_allow_paths,
        } = self;
        let port = secure_port.unwrap_or(default_port);
        if port == 0 {
            return Ok(None);
        }
        let certificate = match (tls_cert_file, tls_private_key_file) {
            (Some(certificate), Some(key)) => CertificateSource::Files { certificate, key },
            _ => cert_dir.map_or(CertificateSource::Memory, CertificateSource::Folder),
        };
        let serving = Serving {
            address: SocketAddr::new(bind_address, port),
            certificate,
            client_ca: client_ca_file,
            always_allow_paths: authorization_always_allow_paths,
            reviews: Some(clients.privileged("authorization").context("make a client")?),
            now: clock(),
        };
        let listening = serving.bind(pages.clone()).await.with_context(|| format!("show the health of {name}"))?;
        tracing::info!(address = %listening.address(), "listening");
        Ok(Some(listening))
    }
}
