//! `orlop controller-manager`: the controllers that a cluster has, for an API server that has none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_controllers::table::{DESCRIPTORS, GATES, Settings};
use manager::descriptor::Selection;
use manager::gates::Gates;
use manager::migration::Migration;
use serde_json::json;
use tokens::{Key, Signer};

use crate::program::{self, Plan, duration};

/// As the lease, the configuration and the table of leaders know it.
const NAME: &str = "kube-controller-manager";
const PORT: u16 = 10257;

/// Run the controllers of a cluster.
#[derive(clap::Args)]
#[group(id = "controller_manager")]
pub(crate) struct Arguments {
    #[command(flatten)]
    program: program::Arguments,
    /// Which controllers run: `*` is all that are on by default, `foo` is foo, `-foo` is not foo.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true, env = "ORLOP_CONTROLLERS")]
    controllers: Vec<String>,
    /// Features to switch on or off, such as Foo=true.
    #[arg(long, value_delimiter = ',', value_name = "NAME=BOOL", env = "ORLOP_FEATURE_GATES")]
    feature_gates: Vec<String>,
    /// How long between the starts of two controllers.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_CONTROLLER_START_INTERVAL")]
    controller_start_interval: Duration,
    /// Whether each controller has its own rights, as the service account of its name in kube-system.
    #[arg(long, env = "ORLOP_USE_SERVICE_ACCOUNT_CREDENTIALS")]
    use_service_account_credentials: bool,
    /// Whether controllers move to or from another program, under a second lease.
    #[arg(long, requires = "leader_migration_config", env = "ORLOP_ENABLE_LEADER_MIGRATION")]
    enable_leader_migration: bool,
    /// Which ones: a LeaderMigrationConfiguration.
    #[arg(long, value_name = "FILE", env = "ORLOP_LEADER_MIGRATION_CONFIG")]
    leader_migration_config: Option<PathBuf>,
    #[command(flatten)]
    workers: WorkerArguments,
    #[command(flatten)]
    nodes: NodeArguments,
    /// Pods that ended and are kept; 0 is no limit.
    #[arg(long, default_value_t = 12500, env = "ORLOP_TERMINATED_POD_GC_THRESHOLD")]
    terminated_pod_gc_threshold: usize,
    /// The certificate authority that is published in every namespace; by default the one of the kubeconfig.
    #[arg(long, value_name = "FILE", env = "ORLOP_ROOT_CA_FILE")]
    root_ca_file: Option<PathBuf>,
    /// The key that signs the tokens of service accounts.
    #[arg(long, value_name = "FILE", env = "ORLOP_SERVICE_ACCOUNT_PRIVATE_KEY_FILE")]
    service_account_private_key_file: Option<PathBuf>,
}

/// How many objects each controller works on at the same time.
#[derive(clap::Args)]
#[group(id = "workers")]
struct WorkerArguments {
    /// Deployments that are worked on at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_DEPLOYMENT_SYNCS")]
    concurrent_deployment_syncs: usize,
    /// Objects that are collected at the same time.
    #[arg(long, default_value_t = 20, env = "ORLOP_CONCURRENT_GC_SYNCS")]
    concurrent_gc_syncs: usize,
    /// Namespaces that are emptied at the same time.
    #[arg(long, default_value_t = 10, env = "ORLOP_CONCURRENT_NAMESPACE_SYNCS")]
    concurrent_namespace_syncs: usize,
    /// Replica sets that are worked on at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_REPLICASET_SYNCS")]
    concurrent_replicaset_syncs: usize,
    /// Token secrets that are worked on at the same time.
    #[arg(long, default_value_t = 5, env = "ORLOP_CONCURRENT_SERVICEACCOUNT_TOKEN_SYNCS")]
    concurrent_serviceaccount_token_syncs: usize,
}

/// When a node counts as lost, and what follows.
#[derive(clap::Args)]
#[group(id = "nodes")]
struct NodeArguments {
    /// How often nodes are looked at.
    #[arg(long, default_value = "5s", value_parser = duration, env = "ORLOP_NODE_MONITOR_PERIOD")]
    node_monitor_period: Duration,
    /// How long a node may be silent.
    #[arg(long, default_value = "50s", value_parser = duration, env = "ORLOP_NODE_MONITOR_GRACE_PERIOD")]
    node_monitor_grace_period: Duration,
    /// How long a node may be silent that never said anything.
    #[arg(long, default_value = "1m", value_parser = duration, env = "ORLOP_NODE_STARTUP_GRACE_PERIOD")]
    node_startup_grace_period: Duration,
    /// Lost nodes per second whose pods are evicted, in a zone that is well.
    #[arg(long, default_value_t = 0.1, env = "ORLOP_NODE_EVICTION_RATE")]
    node_eviction_rate: f64,
    /// The same in a large zone that is not well.
    #[arg(long, default_value_t = 0.01, env = "ORLOP_SECONDARY_NODE_EVICTION_RATE")]
    secondary_node_eviction_rate: f64,
    /// The part of a zone's nodes that must be lost for the zone not to be well.
    #[arg(long, default_value_t = 0.55, env = "ORLOP_UNHEALTHY_ZONE_THRESHOLD")]
    unhealthy_zone_threshold: f64,
    /// A zone of more nodes is large.
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
    let selection = Selection::parse(controllers.iter().map(String::as_str), DESCRIPTORS).context("--controllers")?;
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
    let plan = Plan {
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
    program::run(program, plan)
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
            concurrent_gc_syncs,
            concurrent_namespace_syncs,
            concurrent_replicaset_syncs,
            concurrent_serviceaccount_token_syncs,
        } = self;
        settings.deployment_workers = concurrent_deployment_syncs;
        settings.garbage_collector_workers = concurrent_gc_syncs;
        settings.namespace_workers = concurrent_namespace_syncs;
        settings.replica_set_workers = concurrent_replicaset_syncs;
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
