//! Where the bytes of an instance's volume come from, as one of several cases instead of sixteen options.

use api::volumes::Volume;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, LocalObjectReference};

use super::local;

/// The one source of a volume, reduced to what a pod needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source<'a> {
    ContainerDisk,
    /// A disk that the launcher makes by itself.
    Made,
    ServiceAccount,
    Claim {
        field: &'static str,
        name: &'a str,
        read_only: bool,
    },
    HostDisk {
        path: &'a str,
    },
    CloudInit {
        user: Option<&'a str>,
        network: Option<&'a str>,
    },
    ConfigMap {
        name: &'a str,
        optional: Option<bool>,
    },
    Secret {
        name: &'a str,
        optional: Option<bool>,
    },
    Sysprep {
        config_map: Option<&'a str>,
        secret: Option<&'a str>,
    },
    DownwardApi {
        items: Option<&'a Vec<DownwardAPIVolumeFile>>,
    },
}

impl<'a> Source<'a> {
    /// The source; `None` if there is not exactly one. A new kind of source does not compile until it is thought of.
    pub(super) fn of(volume: &'a Volume) -> Option<Self> {
        let Volume {
            name: _,
            cloud_init_config_drive: config_drive,
            cloud_init_no_cloud: no_cloud,
            config_map,
            container_disk,
            // Refused before anybody comes here.
            container_path: _,
            data_volume,
            downward_api,
            downward_metrics,
            empty_disk,
            ephemeral,
            host_disk,
            memory_dump: _,
            persistent_volume_claim,
            secret,
            service_account,
            sysprep,
        } = volume;
        let sources = [
            container_disk.as_ref().map(|_| Self::ContainerDisk),
            empty_disk.as_ref().map(|_| Self::Made),
            downward_metrics.as_ref().map(|_| Self::Made),
            service_account.as_ref().map(|_| Self::ServiceAccount),
            persistent_volume_claim.as_ref().map(|claim| Self::Claim {
                field: "persistentVolumeClaim",
                name: &claim.claim_name,
                read_only: claim.read_only == Some(true),
            }),
            // A data volume fills a claim of its own name.
            data_volume.as_ref().map(|source| Self::Claim {
                field: "dataVolume",
                name: &source.name,
                read_only: false,
            }),
            // All writes go to an overlay.
            ephemeral.as_ref().map(|source| Self::Claim {
                field: "ephemeral.persistentVolumeClaim",
                name: source.persistent_volume_claim.as_ref().map_or("", |claim| &claim.claim_name),
                read_only: true,
            }),
            host_disk.as_ref().map(|disk| Self::HostDisk { path: &disk.path }),
            no_cloud.as_ref().map(|source| cloud_init(&source.secret_ref, &source.network_data_secret_ref)),
            config_drive.as_ref().map(|source| cloud_init(&source.secret_ref, &source.network_data_secret_ref)),
            config_map.as_ref().map(|source| Self::ConfigMap {
                name: source.name.as_deref().unwrap_or_default(),
                optional: source.optional,
            }),
            secret.as_ref().map(|source| Self::Secret {
                name: source.secret_name.as_deref().unwrap_or_default(),
                optional: source.optional,
            }),
            sysprep.as_ref().map(|source| Self::Sysprep {
                config_map: local(source.config_map.as_ref()),
                secret: local(source.secret.as_ref()),
            }),
            downward_api.as_ref().map(|source| Self::DownwardApi { items: source.fields.as_ref() }),
        ];
        let mut present = sources.into_iter().flatten();
        let first = present.next()?;
        present.next().is_none().then_some(first)
    }
}

fn cloud_init<'a>(user: &'a Option<LocalObjectReference>, network: &'a Option<LocalObjectReference>) -> Source<'a> {
    Source::CloudInit { user: local(user.as_ref()), network: local(network.as_ref()) }
}
