//! What `orlop run` and `orlop virt-launcher` need to boot a guest, and its flags.

mod named_path;
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
use virt_launcher::volumes::VolumePaths;

pub(crate) use named_path::NamedPath;
pub(crate) use port::Port;

#[derive(clap::Args)]
#[group(id = "workbench")]
pub(crate) struct Arguments {
    /// File, directory or block device behind a persistent volume claim: NAME=PATH.
    #[arg(long = "claim", value_name = "NAME=PATH", env = "ORLOP_CLAIM", value_delimiter = ',')]
    claims: Vec<NamedPath>,
    /// Directory with the files of a secret: NAME=PATH.
    #[arg(long = "secret", value_name = "NAME=PATH", env = "ORLOP_SECRET", value_delimiter = ',')]
    secrets: Vec<NamedPath>,
    /// Directory with the files of a config map: NAME=PATH.
    #[arg(long = "config-map", value_name = "NAME=PATH", env = "ORLOP_CONFIG_MAP", value_delimiter = ',')]
    config_maps: Vec<NamedPath>,
    /// Registry to access without TLS: HOST or HOST:PORT.
    #[arg(long = "insecure-registry", value_name = "HOST", env = "ORLOP_INSECURE_REGISTRY", value_delimiter = ',')]
    insecure_registries: Vec<String>,
    /// Directory for pulled images. The default is `orlop` in the user's cache directory.
    #[arg(long, value_name = "DIR", env = "ORLOP_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
    /// QEMU program to run guests with.
    #[arg(long, default_value = "qemu-system-x86_64", env = "ORLOP_QEMU")]
    qemu: PathBuf,
    /// Accelerator: auto (KVM if it works, otherwise emulation), kvm or tcg (emulation).
    #[arg(long, default_value_t = Choice::Auto, env = "ORLOP_ACCELERATOR")]
    accelerator: Choice,
}

impl Arguments {
    /// Looks for everything.
    pub(crate) fn build(&self, folder: &Path, progress: Box<dyn Progress>) -> anyhow::Result<Workbench> {
        let Self { claims, secrets, config_maps, insecure_registries, cache_dir, qemu, accelerator } = self;
        let qemu = find_qemu(qemu)?;
        let cache_dir =
            cache_dir.clone().or_else(default_cache).context("cannot find the home directory; set --cache-dir")?;
        std::fs::create_dir_all(&cache_dir).with_context(|| format!("create {}", cache_dir.display()))?;
        let this = std::env::current_exe().context("find this program")?;
        Ok(Workbench {
            this,
            qemu,
            choice: *accelerator,
            folder: folder.to_owned(),
            disks: folder.to_owned(),
            firmware: None,
            places: VolumePaths {
                claims: NamedPath::collect(claims),
                secrets: NamedPath::collect(secrets),
                config_maps: NamedPath::collect(config_maps),
                ..VolumePaths::default()
            },
            cache: Cache::open(&cache_dir.join("images"), Limits::default()).context("open the image cache")?,
            registries: registries(insecure_registries)?,
            findings: cache_dir,
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
        format!(
            "{} is not installed; on Debian or Ubuntu run `sudo apt-get install qemu-system-x86 qemu-utils`",
            program.display()
        )
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
