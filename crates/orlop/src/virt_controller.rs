//! `orlop virt-controller`: the controllers of virtual machines.

use std::time::Duration;

use anyhow::Context as _;
use api::volumes::PullPolicy;
use manager::descriptor::{self, Selection};
use manager::gates::Gates;
use serde_json::json;
use virt_controller::{DESCRIPTORS, Directories, Launcher, Settings, UNWRITTEN};

use crate::controller_program::{self, ProgramSpec};

/// As the lease and the configuration know it.
const NAME: &str = "virt-controller";
const PORT: u16 = 8182;

/// Run the virtual machine controllers.
///
/// The KubeVirt object is the configuration, including the limit on requests. Changes take effect while the program runs.
#[derive(clap::Args)]
#[group(id = "virt_controller")]
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
        env = "ORLOP_VIRT_CONTROLLERS"
    )]
    controllers: Vec<String>,
    /// Image of launcher pods.
    #[arg(long, value_name = "IMAGE", default_value = "orlop", env = "ORLOP_LAUNCHER_IMAGE")]
    launcher_image: String,
    /// Secret for pulling the launcher image.
    #[arg(long, value_name = "NAME", env = "ORLOP_IMAGE_PULL_SECRET")]
    image_pull_secret: Vec<String>,
    /// When to pull the launcher image, if the KubeVirt object does not say: Always, IfNotPresent or Never.
    #[arg(long, value_name = "WHEN", default_value = "IfNotPresent", env = "ORLOP_IMAGE_PULL_POLICY")]
    image_pull_policy: String,
    /// Whether nodes can mount images as volumes. The default depends on the version of Kubernetes.
    #[arg(long, value_name = "BOOL", env = "ORLOP_IMAGE_VOLUMES")]
    image_volumes: Option<bool>,
    #[command(flatten)]
    directories: DirectoryArguments,
    #[command(flatten)]
    workers: WorkerArguments,
}

/// Where things are inside launcher pods. virt-handler must know the same.
#[derive(clap::Args)]
#[group(id = "directories")]
struct DirectoryArguments {
    /// Directory that virt-handler and the launcher share.
    #[arg(long, value_name = "DIR", env = "ORLOP_KUBEVIRT_SHARE_DIR")]
    kubevirt_share_dir: Option<String>,
    /// Directory of the disks that are deleted with the pod.
    #[arg(long, value_name = "DIR", env = "ORLOP_EPHEMERAL_DISK_DIR")]
    ephemeral_disk_dir: Option<String>,
    /// Directory of the container disks that are shared by other containers.
    #[arg(long, value_name = "DIR", env = "ORLOP_CONTAINER_DISK_DIR")]
    container_disk_dir: Option<String>,
}

/// How many objects each controller works on at the same time.
#[derive(clap::Args)]
#[group(id = "virt_workers")]
struct WorkerArguments {
    /// Number of clones to process at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_CLONE_CONTROLLER_THREADS")]
    clone_controller_threads: usize,
    /// Number of disruption budgets to process at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_DISRUPTION_BUDGET_CONTROLLER_THREADS")]
    disruption_budget_controller_threads: usize,
    /// Number of nodes to move instances away from at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_EVACUATION_CONTROLLER_THREADS")]
    evacuation_controller_threads: usize,
    /// Number of exports to process at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_EXPORT_CONTROLLER_THREADS")]
    export_controller_threads: usize,
    /// Number of nodes to process at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_NODE_CONTROLLER_THREADS")]
    node_controller_threads: usize,
    /// Number of pools of VMs to process at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_POOL_CONTROLLER_THREADS")]
    pool_controller_threads: usize,
    /// Number of replica sets of instances to process at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_REPLICASET_CONTROLLER_THREADS")]
    replicaset_controller_threads: usize,
    /// Number of restores to process at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_RESTORE_CONTROLLER_THREADS")]
    restore_controller_threads: usize,
    /// Number of snapshots to process at the same time.
    #[arg(long, default_value_t = 6, env = "ORLOP_SNAPSHOT_CONTROLLER_THREADS")]
    snapshot_controller_threads: usize,
    /// Number of VMs to process at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_VM_CONTROLLER_THREADS")]
    vm_controller_threads: usize,
    /// Number of instances to process at the same time.
    #[arg(long, default_value_t = 10, env = "ORLOP_VMI_CONTROLLER_THREADS")]
    vmi_controller_threads: usize,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments {
        program,
        controllers,
        launcher_image,
        image_pull_secret,
        image_pull_policy,
        image_volumes,
        directories,
        workers,
    } = arguments;
    let names = controllers.iter().map(String::as_str);
    let selection = Selection::parse(names, DESCRIPTORS, UNWRITTEN).context("--controllers")?;
    let launcher = Launcher {
        pull_secrets: image_pull_secret,
        pull_policy: pull_policy(&image_pull_policy)?,
        directories: directories.into_directories(),
        ..Launcher::new(launcher_image)
    };
    let configuration = json!({ "controllers": controllers, "launcherImage": launcher.image });
    let WorkerArguments {
        clone_controller_threads,
        disruption_budget_controller_threads,
        evacuation_controller_threads,
        export_controller_threads,
        node_controller_threads,
        pool_controller_threads,
        replicaset_controller_threads,
        restore_controller_threads,
        snapshot_controller_threads,
        vm_controller_threads,
        vmi_controller_threads,
    } = workers;
    let mut settings = Settings::new(launcher);
    settings.clone_workers = clone_controller_threads;
    settings.restore_workers = restore_controller_threads;
    settings.snapshot_workers = snapshot_controller_threads;
    settings.disruption_budget_workers = disruption_budget_controller_threads;
    settings.export_workers = export_controller_threads;
    settings.evacuation_workers = evacuation_controller_threads;
    settings.node_workers = node_controller_threads;
    settings.pool_workers = pool_controller_threads;
    settings.replica_set_workers = replicaset_controller_threads;
    settings.vm_workers = vm_controller_threads;
    settings.vmi_workers = vmi_controller_threads;
    settings.image_volumes = image_volumes;
    let plan = ProgramSpec {
        name: NAME,
        port: PORT,
        descriptors: DESCRIPTORS,
        settings: Box::new(move |_, limiter| {
            settings.limiter = Some(limiter.clone());
            settings
        }),
        selection,
        gates: Gates::default(),
        start_interval: Duration::ZERO,
        accounts: false,
        migration: None,
        configuration: ("kubevirt.io", configuration),
        gauges: Some(("kubevirt_virt_controller_ready_status", "kubevirt_virt_controller_leading_status")),
    };
    controller_program::run(program, plan)
}

fn pull_policy(text: &str) -> anyhow::Result<PullPolicy> {
    match PullPolicy::from(text) {
        PullPolicy::Other(_) => anyhow::bail!("--image-pull-policy {text:?}: use Always, IfNotPresent or Never"),
        policy => Ok(policy),
    }
}

impl DirectoryArguments {
    fn into_directories(self) -> Directories {
        let usual = Directories::default();
        Directories {
            share: self.kubevirt_share_dir.unwrap_or(usual.share),
            ephemeral_disks: self.ephemeral_disk_dir.unwrap_or(usual.ephemeral_disks),
            container_disks: self.container_disk_dir.unwrap_or(usual.container_disks),
            private: usual.private,
        }
    }
}
