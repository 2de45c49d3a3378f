//! Controllers that Kubernetes' own program has and this one does not have yet. Those of clouds are left out: they have moved to a
//! program of their own.

use manager::descriptor::Unwritten;

const fn unwritten(name: &'static str, aliases: &'static [&'static str]) -> Unwritten {
    Unwritten { name, aliases }
}

/// Which they are, by their names and aliases there.
pub const UNWRITTEN: &[Unwritten] = &[
    unwritten("bootstrap-signer-controller", &["bootstrapsigner"]),
    unwritten("certificatesigningrequest-approving-controller", &["csrapproving"]),
    unwritten("certificatesigningrequest-cleaner-controller", &["csrcleaner"]),
    unwritten("certificatesigningrequest-signing-controller", &["csrsigning"]),
    unwritten("cronjob-controller", &["cronjob"]),
    unwritten("daemonset-controller", &["daemonset"]),
    unwritten("device-taint-eviction-controller", &[]),
    unwritten("endpointslice-mirroring-controller", &["endpointslicemirroring"]),
    unwritten("ephemeral-volume-controller", &["ephemeral-volume"]),
    unwritten("horizontal-pod-autoscaler-controller", &["horizontalpodautoscaling"]),
    unwritten("job-controller", &["job"]),
    unwritten("legacy-serviceaccount-token-cleaner-controller", &["legacy-service-account-token-cleaner"]),
    unwritten("node-ipam-controller", &["nodeipam"]),
    unwritten("persistentvolume-attach-detach-controller", &["attachdetach"]),
    unwritten("persistentvolume-binder-controller", &["persistentvolume-binder"]),
    unwritten("persistentvolume-expander-controller", &["persistentvolume-expander"]),
    unwritten("persistentvolume-protection-controller", &["pv-protection"]),
    unwritten("persistentvolumeclaim-protection-controller", &["pvc-protection"]),
    unwritten("resourceclaim-controller", &["resource-claim-controller"]),
    unwritten("resourcequota-controller", &["resourcequota"]),
    unwritten("selinux-warning-controller", &[]),
    unwritten("service-cidr-controller", &[]),
    unwritten("statefulset-controller", &["statefulset"]),
    unwritten("storageversion-garbage-collector-controller", &["storage-version-gc"]),
    unwritten("storage-version-migrator-controller", &[]),
    unwritten("token-cleaner-controller", &["tokencleaner"]),
    unwritten("ttl-after-finished-controller", &["ttl-after-finished"]),
    unwritten("ttl-controller", &["ttl"]),
    unwritten("validatingadmissionpolicy-status-controller", &[]),
    unwritten("volumeattributesclass-protection-controller", &[]),
];
