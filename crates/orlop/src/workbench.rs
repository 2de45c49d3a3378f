//! What `orlop run` and `orlop virt-launcher` need to boot a guest, and the flags that say where it is.

mod place;
mod port;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator::Choice;
use hypervisor::wiring::{Attachment, Forward};
use storage::cache::Cache;
use storage::pull::{Limits, Progress, Registries};
use virt_launcher::boot::Workbench;
use virt_launcher::volumes::Places;

pub(crate) use place::Place;
pub(crate) use port::Port;

#[derive(clap::Args)]
#[group(id = "workbench")]
pub(crate) struct Arguments {
    /// The file, folder or block device behind a persistent volume claim: NAME=PATH.
    #[arg(long = "claim", value_name = "NAME=PATH", env = "ORLOP_CLAIM", value_delimiter = ',')]
    claims: Vec<Place>,
    /// The folder with the files of a secret: NAME=PATH.
    #[arg(long = "secret", value_name = "NAME=PATH", env = "ORLOP_SECRET", value_delimiter = ',')]
    secrets: Vec<Place>,
    /// The folder with the files of a config map: NAME=PATH.
    #[arg(long = "config-map", value_name = "NAME=PATH", env = "ORLOP_CONFIG_MAP", value_delimiter = ',')]
    config_maps: Vec<Place>,
    /// A registry that is spoken to without TLS: HOST or HOST:PORT.
    #[arg(long = "insecure-registry", value_name = "HOST", env = "ORLOP_INSECURE_REGISTRY", value_delimiter = ',')]
    insecure_registries: Vec<String>,
    /// Where pulled images are kept; by default a folder of the user's cache.
    #[arg(long, value_name = "FOLDER", env = "ORLOP_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
    /// The QEMU to run.
    #[arg(long, default_value = "qemu-system-x86_64", env = "ORLOP_QEMU")]
    qemu: PathBuf,
    /// What runs guests: auto (KVM where it works, else emulation), kvm or tcg (emulation).
    #[arg(long, default_value_t = Choice::Auto, env = "ORLOP_ACCELERATOR")]
    accelerator: Choice,
}

impl Arguments {
    /// Looks for everything.
    pub(crate) fn build(&self, folder: &Path, progress: Box<dyn Progress>) -> anyhow::Result<Workbench> {
        let Self { claims, secrets, config_maps, insecure_registries, cache_dir, qemu, accelerator } = self;
        let qemu = find_qemu(qemu)?;
        let cache_dir = cache_dir.clone().or_else(default_cache).context("no home folder; name one by --cache-dir")?;
        std::fs::create_dir_all(&cache_dir).with_context(|| format!("create {}", cache_dir.display()))?;
        let this = std::env::current_exe().context("find this program")?;
        Ok(Workbench {
            this,
            qemu,
            choice: *accelerator,
            folder: folder.to_owned(),
            disks: folder.to_owned(),
            firmware: None,
            places: Places {
                claims: Place::collect(claims),
                secrets: Place::collect(secrets),
                config_maps: Place::collect(config_maps),
                ..Places::default()
            },
            cache: Cache::open(&cache_dir.join("images"), Limits::default()).context("open the image cache")?,
            registries: registries(insecure_registries)?,
            memory: cache_dir,
            progress,
        })
    }
}

/// Every interface gets QEMU's own network; the first one also the forwards.
pub(crate) fn user_network(vmi: &VirtualMachineInstance, ports: &[Port]) -> BTreeMap<String, Attachment> {
    let forwards: Vec<Forward> = ports.iter().map(|Port(forward)| *forward).collect();
    let names = vmi.spec.domain.devices.interfaces.iter().flatten().map(|interface| interface.name.clone());
    names
        .enumerate()
        .map(|(index, name)| (name, Attachment::User { forwards: if index == 0 { forwards.clone() } else { vec![] } }))
        .collect()
}

fn find_qemu(program: &Path) -> anyhow::Result<PathBuf> {
    hypervisor::programs::qemu(program).with_context(|| {
        format!("{} is not installed; on Debian: apt-get install qemu-system-x86 qemu-utils", program.display())
    })
}

fn default_cache() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    Some(std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?.join("orlop"))
}

pub(crate) fn registries(insecure: &[String]) -> anyhow::Result<Registries> {
    let mut registries = Registries::default();
    for host in insecure {
        registries.set_insecure(host).with_context(|| format!("--insecure-registry {host}"))?;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    if let Some(config) = home.and_then(|home| std::fs::read(home.join(".docker/config.json")).ok()) {
        registries.add_docker_config(&config).context("read .docker/config.json")?;
    }
    Ok(registries)
}
