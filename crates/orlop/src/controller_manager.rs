//! `orlop controller-manager`: the built-in controllers of Kubernetes, for an API server that has none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_controllers::endpoint_slice::controller::Options;
use kube_controllers::table::{DESCRIPTORS, GATES, Settings};
use kube_controllers::unwritten::UNWRITTEN;
use manager::descriptor::{self, Selection};
use manager::gates::Gates;
use manager::migration::Migration;
use serde_json::json;
use tokens::{Key, Signer};

use crate::controller_program::{self, ProgramSpec, duration};

/// As the lease, the configuration and the table of leaders know it.
const NAME: &str = "kube-controller-manager";
const PORT: u16 = 10257;

/// Run the built-in controllers of a Kubernetes cluster.
#[derive(clap::Args)]
#[group(id = "controller_manager")]
pub(crate) struct Arguments {
    #[command(flatten)]
    program: controller_program::Arguments,
    /// Controllers to run: `*` enables all that are on by default, `foo` enables foo, `-foo` disables foo.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        long_help = descriptor::help(DESCRIPTORS, UNWRITTEN),
        env = "ORLOP_CONTROLLERS"
    )]
    controllers: Vec<String>,
    /// Features to enable or disable, such as Foo=true.
    #[arg(long, value_delimiter = ',', value_name = "NAME=BOOL", env = "ORLOP_FEATURE_GATES")]
    feature_gates: Vec<String>,
    /// Delay between the starts of two controllers.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_CONTROLLER_START_INTERVAL")]
    controller_start_interval: Duration,
    /// Run each controller with a service account of its own, in kube-system.
    #[arg(long, env = "ORLOP_USE_SERVICE_ACCOUNT_CREDENTIALS")]
    use_service_account_credentials: bool,
    /// Migrate controllers to or from another program, under a second lease.
    #[arg(long, requires = "leader_migration_config", env = "ORLOP_ENABLE_LEADER_MIGRATION")]
    enable_leader_migration: bool,
    /// LeaderMigrationConfiguration that lists the controllers to migrate.
    #[arg(long, value_name = "FILE", env = "ORLOP_LEADER_MIGRATION_CONFIG")]
    leader_migration_config: Option<PathBuf>,
    #[command(flatten)]
    workers: WorkerArguments,
    #[command(flatten)]
    nodes: NodeArguments,
    /// Number of terminated pods to keep; 0 means no limit.
    #[arg(long, default_value_t = 12500, env = "ORLOP_TERMINATED_POD_GC_THRESHOLD")]
    terminated_pod_gc_threshold: usize,
    /// Certificate authority to publish in every namespace. The default is the one of the kubeconfig.
    #[arg(long, value_name = "FILE", env = "ORLOP_ROOT_CA_FILE")]
    root_ca_file: Option<PathBuf>,
    /// Private key that signs service account tokens.
    #[arg(long, value_name = "FILE", env = "ORLOP_SERVICE_ACCOUNT_PRIVATE_KEY_FILE")]
    service_account_private_key_file: Option<PathBuf>,
}

/// How many objects each controller works on at the same time, and how much it puts into one.
#[derive(clap::Args)]
#[group(id = "workers")]
struct WorkerArguments {
    /// Number of deployments to process at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_DEPLOYMENT_SYNCS")]
    concurrent_deployment_syncs: usize,
    /// Number of services whose Endpoints are processed at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_ENDPOINT_SYNCS")]
    concurrent_endpoint_syncs: usize,
    /// Number of services whose endpoint slices are processed at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_SERVICE_ENDPOINT_SYNCS")]
    concurrent_service_endpoint_syncs: usize,
    /// Maximum number of endpoints in one endpoint slice.
    #[arg(
        long,
        default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=1000),
        env = "ORLOP_MAX_ENDPOINTS_PER_SLICE"
    )]
    max_endpoints_per_slice: u16,
    /// Number of objects to garbage-collect at the same time.
    #[arg(long, default_value_t = 20, env = "ORLOP_CONCURRENT_GC_SYNCS")]
    concurrent_gc_syncs: usize,
    /// Number of namespaces to empty at the same time.
    #[arg(long, default_value_t = 10, env = "ORLOP_CONCURRENT_NAMESPACE_SYNCS")]
    concurrent_namespace_syncs: usize,
    /// Number of replica sets to process at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_REPLICASET_SYNCS")]
    concurrent_replicaset_syncs: usize,
    /// Number of replication controllers to process at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_RC_SYNCS")]
    concurrent_rc_syncs: usize,
    /// Number of token secrets to process at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_SERVICEACCOUNT_TOKEN_SYNCS")]
    concurrent_serviceaccount_token_syncs: usize,
}

/// When a node counts as lost, and what follows.
#[derive(clap::Args)]
#[group(id = "nodes")]
struct NodeArguments {
    /// How often to check the nodes.
    #[arg(long, default_value = "5s", value_parser = duration, env = "ORLOP_NODE_MONITOR_PERIOD")]
    node_monitor_period: Duration,
    /// How long a node may be unresponsive before it is marked unhealthy.
    #[arg(long, default_value = "50s", value_parser = duration, env = "ORLOP_NODE_MONITOR_GRACE_PERIOD")]
    node_monitor_grace_period: Duration,
    /// How long a starting node may be unresponsive before it is marked unhealthy.
    #[arg(long, default_value = "1m", value_parser = duration, env = "ORLOP_NODE_STARTUP_GRACE_PERIOD")]
    node_startup_grace_period: Duration,
    /// Nodes per second to evict pods from when they fail, in a healthy zone.
    #[arg(long, default_value_t = 0.1, env = "ORLOP_NODE_EVICTION_RATE")]
    node_eviction_rate: f64,
    /// Nodes per second to evict pods from when they fail, in an unhealthy large zone.
    #[arg(long, default_value_t = 0.01, env = "ORLOP_SECONDARY_NODE_EVICTION_RATE")]
    secondary_node_eviction_rate: f64,
    /// Fraction of a zone's nodes that must fail for the zone to be unhealthy.
    #[arg(long, default_value_t = 0.55, env = "ORLOP_UNHEALTHY_ZONE_THRESHOLD")]
    unhealthy_zone_threshold: f64,
    /// Number of nodes above which a zone is large.
    #[arg(long, default_value_t = 50, env = "ORLOP_LARGE_CLUSTER_SIZE_THRESHOLD")]
    large_cluster_size_threshold: usize,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments {
        program,
        controllers,
        feature_gates,
        controller_start_interval,
        use_service_account_credentials,
        enable_leader_migration,
        leader_migration_config,
        workers,
        nodes,
        terminated_pod_gc_threshold,
        root_ca_file,
        service_account_private_key_file,
    } = arguments;
    let names = controllers.iter().map(String::as_str);
    let selection = Selection::parse(names, DESCRIPTORS, UNWRITTEN).context("--controllers")?;
    let gates = Gates::parse(feature_gates.iter().map(String::as_str), GATES).context("--feature-gates")?;
    let migration = leader_migration_config
        .filter(|_| enable_leader_migration)
        .map(|path| read_migration(&path).with_context(|| format!("--leader-migration-config {}", path.display())));
    let signer = service_account_private_key_file
        .map(|path| read_key(&path).with_context(|| format!("--service-account-private-key-file {}", path.display())));
    let root_ca = root_ca_file
        .map(|path| std::fs::read_to_string(&path).with_context(|| format!("--root-ca-file {}", path.display())));
    let mut settings = Settings {
        terminated_pod_gc_threshold,
        root_ca: root_ca.transpose()?,
        signer: signer.transpose()?,
        ..Settings::default()
    };
    workers.put_into(&mut settings);
    nodes.put_into(&mut settings);
    let configuration = json!({
        "generic": {
            "controllers": controllers,
            "controllerStartInterval": format!("{}ms", controller_start_interval.as_millis()),
            "leaderMigrationEnabled": enable_leader_migration,
        },
        "featureGates": feature_gates,
        "useServiceAccountCredentials": use_service_account_credentials,
    });
    let plan = ProgramSpec {
        name: NAME,
        port: PORT,
        descriptors: DESCRIPTORS,
        settings: Box::new(move |config, _| {
            // As Kubernetes does: the authority that this program itself trusts.
            settings.root_ca = settings.root_ca.or_else(|| authority(config));
            settings
        }),
        selection,
        gates,
        start_interval: controller_start_interval,
        accounts: use_service_account_credentials,
        migration: migration.transpose()?,
        configuration: ("kubecontrollermanager.config.k8s.io", configuration),
        gauges: None,
    };
    controller_program::run(program, plan)
}

/// The authorities of the API server, in PEM.
fn authority(config: &kube::Config) -> Option<String> {
    let certificates = config.root_cert.as_ref()?.iter().map(|der| {
        let text = STANDARD.encode(der);
        let lines: Vec<&str> =
            (0..text.len()).step_by(64).filter_map(|at| text.get(at..text.len().min(at + 64))).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    });
    Some(certificates.collect())
}

fn read_migration(path: &std::path::Path) -> anyhow::Result<Migration> {
    let text = std::fs::read_to_string(path)?;
    let migration: Migration = serde_saphyr::from_str(&text)?;
    migration.check()?;
    Ok(migration)
}

fn read_key(path: &std::path::Path) -> anyhow::Result<Arc<dyn Signer>> {
    Ok(Arc::new(Key::from_pem(&std::fs::read_to_string(path)?)?))
}

impl WorkerArguments {
    fn put_into(self, settings: &mut Settings) {
        let Self {
            concurrent_deployment_syncs,
            concurrent_endpoint_syncs,
            concurrent_service_endpoint_syncs,
            max_endpoints_per_slice,
            concurrent_gc_syncs,
            concurrent_namespace_syncs,
            concurrent_replicaset_syncs,
            concurrent_rc_syncs,
            concurrent_serviceaccount_token_syncs,
        } = self;
        settings.deployment_workers = concurrent_deployment_syncs;
        settings.endpoints_workers = concurrent_endpoint_syncs;
        settings.endpoint_slices =
            Options { workers: concurrent_service_endpoint_syncs, most: usize::from(max_endpoints_per_slice) };
        settings.garbage_collector_workers = concurrent_gc_syncs;
        settings.namespace_workers = concurrent_namespace_syncs;
        settings.replica_set_workers = concurrent_replicaset_syncs;
        settings.replication_controller_workers = concurrent_rc_syncs;
        settings.service_account_token_workers = concurrent_serviceaccount_token_syncs;
    }
}

impl NodeArguments {
    fn put_into(self, settings: &mut Settings) {
        let Self {
            node_monitor_period,
            node_monitor_grace_period,
            node_startup_grace_period,
            node_eviction_rate,
            secondary_node_eviction_rate,
            unhealthy_zone_threshold,
            large_cluster_size_threshold,
        } = self;
        settings.node_monitor_period = node_monitor_period;
        settings.node_monitor_grace_period = node_monitor_grace_period;
        settings.node_startup_grace_period = node_startup_grace_period;
        settings.node_eviction_rate = node_eviction_rate;
        settings.secondary_node_eviction_rate = secondary_node_eviction_rate;
        settings.unhealthy_zone_threshold = unhealthy_zone_threshold;
        settings.large_cluster_size_threshold = large_cluster_size_threshold;
    }
}
