//! `orlop virt-controller`: the controllers of virtual machines.

use std::time::Duration;

use anyhow::Context as _;
use api::volumes::PullPolicy;
use manager::descriptor::Selection;
use manager::gates::Gates;
use serde_json::json;
use virt_controller::render::{Directories, Launcher};
use virt_controller::table::{DESCRIPTORS, Settings};

use crate::program::{self, Plan};

/// As the lease and the configuration know it.
const NAME: &str = "virt-controller";
const PORT: u16 = 8182;

/// Run the controllers of virtual machines.
///
/// The KubeVirt object is the configuration, and is followed while it runs; the limit of requests is one of its settings.
#[derive(clap::Args)]
#[group(id = "virt_controller")]
pub(crate) struct Arguments {
    #[command(flatten)]
    program: program::Arguments,
    /// Which controllers run: `*` is all that are on by default, `foo` is foo, `-foo` is not foo.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        env = "ORLOP_VIRT_CONTROLLERS"
    )]
    controllers: Vec<String>,
    /// The image of launcher pods.
    #[arg(long, value_name = "IMAGE", default_value = "orlop", env = "ORLOP_LAUNCHER_IMAGE")]
    launcher_image: String,
    /// The secret for pulling it.
    #[arg(long, value_name = "NAME", env = "ORLOP_IMAGE_PULL_SECRET")]
    image_pull_secret: Vec<String>,
    /// When it is pulled, if the KubeVirt object does not say: Always, IfNotPresent or Never.
    #[arg(long, value_name = "WHEN", default_value = "IfNotPresent", env = "ORLOP_IMAGE_PULL_POLICY")]
    image_pull_policy: String,
    /// Whether nodes can mount images as volumes; by default the version of Kubernetes tells.
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
    /// What virt-handler and the launcher share.
    #[arg(long, value_name = "DIR", env = "ORLOP_KUBEVIRT_SHARE_DIR")]
    kubevirt_share_dir: Option<String>,
    /// Disks that go with the pod.
    #[arg(long, value_name = "DIR", env = "ORLOP_EPHEMERAL_DISK_DIR")]
    ephemeral_disk_dir: Option<String>,
    /// Container disks that come in containers of their own.
    #[arg(long, value_name = "DIR", env = "ORLOP_CONTAINER_DISK_DIR")]
    container_disk_dir: Option<String>,
}

/// How many objects each controller works on at the same time.
#[derive(clap::Args)]
#[group(id = "virt_workers")]
struct WorkerArguments {
    /// Nodes that are worked on at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_NODE_CONTROLLER_THREADS")]
    node_controller_threads: usize,
    /// VMs that are worked on at the same time.
    #[arg(long, default_value_t = 3, env = "ORLOP_VM_CONTROLLER_THREADS")]
    vm_controller_threads: usize,
    /// Instances that are worked on at the same time.
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
    let selection = Selection::parse(controllers.iter().map(String::as_str), DESCRIPTORS).context("--controllers")?;
    let launcher = Launcher {
        pull_secrets: image_pull_secret,
        pull_policy: pull_policy(&image_pull_policy)?,
        directories: directories.into_directories(),
        ..Launcher::new(launcher_image)
    };
    let configuration = json!({ "controllers": controllers, "launcherImage": launcher.image });
    let WorkerArguments { node_controller_threads, vm_controller_threads, vmi_controller_threads } = workers;
    let mut settings = Settings::new(launcher);
    settings.node_workers = node_controller_threads;
    settings.vm_workers = vm_controller_threads;
    settings.vmi_workers = vmi_controller_threads;
    settings.image_volumes = image_volumes;
    let plan = Plan {
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
    program::run(program, plan)
}

fn pull_policy(text: &str) -> anyhow::Result<PullPolicy> {
    match PullPolicy::from(text) {
        PullPolicy::Other(_) => anyhow::bail!("--image-pull-policy {text:?}: it is one of Always, IfNotPresent, Never"),
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
