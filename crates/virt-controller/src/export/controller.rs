//! Observes, decides and acts: the part of the export controller that speaks to the server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::export::VirtualMachineExport as Export;
use api::owner::controller_reference;
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::volume_snapshot::VolumeSnapshot;
use certificates::{Authority, CertificateError, Leaf, Request};
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Chance, Context, Now, Started};
use manager::events::Recorder;
use manager::kit::{Expected, Kit, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{create, delete, log_created};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::pods::Pods;
use super::source::original;
use super::{ExportPlan, Exporter, External, Observed, Source, decide, exporter_name, manifests, objects};
use crate::configuration::Configuration;
use crate::data_volumes::DataVolumes;
use crate::indexes;
use crate::render::Launcher;
use crate::snapshot::content_name;
use crate::volume_snapshots::{VolumeSnapshots, claim_of};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "export-controller";
/// What a token is made of, and how long it is.
const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const TOKEN: usize = 20;
/// Clocks of others may be ahead.
const LONGER: SignedDuration = SignedDuration::from_hours(1);
/// After a certificate that could not be made.
const AGAIN: Duration = Duration::from_secs(30);

/// What the controller shares with others.
pub(crate) struct Shared {
    pub(crate) data_volumes: DataVolumes,
    pub(crate) volume_snapshots: VolumeSnapshots,
    pub(crate) launcher: watch::Receiver<Launcher>,
    pub(crate) external: Option<External>,
}

/// The controller.
#[must_use]
pub(crate) fn start(context: &Context, shared: Shared, workers: usize) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let exports = caches.of(&[("source", source_of), ("namespace", manager::cache::namespace_of)]);
    let controller = Exports {
        client: context.client.clone(),
        configuration: Configuration::new(context),
        pods: Pods::new(context, &exports),
        exports,
        vms: indexes::vms(caches),
        vmis: indexes::vmis(caches),
        snapshots: caches.of(&[]),
        contents: caches.of(&[]),
        claims: caches.of(&[]),
        services: caches.of(&[]),
        shared,
        expected: kit.expected(),
        written: kit.written(),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("export-controller"),
        chance: context.chance.clone(),
        now: context.now.clone(),
    };
    feed(kit, &controller).run(workers, controller)
}

/// What an export is of, as `kind/namespace/name`.
fn source_of(export: &Export) -> Vec<String> {
    let namespace = export.metadata.namespace.as_deref().unwrap_or_default();
    let source = &export.spec.source;
    vec![format!("{}/{namespace}/{}", source.kind, source.name)]
}

/// Declares all that an export has to be looked at for.
fn feed(kit: Kit, controller: &Exports) -> Kit {
    let Exports { exports, vms, vmis, snapshots, contents, claims, pods, services, shared, configuration, .. } =
        controller;
    let (watching, copies) = (shared.data_volumes.clone(), shared.volume_snapshots.clone());
    let (of_content, of_pod, expected) = (exports.clone(), exports.clone(), controller.expected.clone());
    let late = pods.clone();
    kit.also(async move { watching.run().await })
        .also(async move { copies.run().await })
        .also(async move { late.run().await })
        .reconciles(exports)
        .watch(vms, of::<VirtualMachine>(exports, "VirtualMachine"))
        .watch(vmis, near::<VirtualMachineInstance>(exports))
        .watch(snapshots, of::<Snapshot>(exports, "VirtualMachineSnapshot"))
        .watch(contents, move |change: &Changed<Content>| {
            let content = change.new.as_ref().or(change.old.as_ref());
            let name = content.and_then(|content| content.spec.virtual_machine_snapshot_name.clone());
            let name = format!("VirtualMachineSnapshot/{}/{}", change.key.namespace, name.unwrap_or_default());
            keys(&of_content.find("source", &name))
        })
        .watch(services, near::<Service>(exports))
        // Claims and their users are found by their namespace: few namespaces have an export.
        .watch(claims, near::<PersistentVolumeClaim>(exports))
        .hears_of(&pods.all, move |change: &Changed<Pod>| {
            let [before, now] = [&change.old, &change.new].map(|pod| owner(&of_pod, pod.as_deref()?));
            expected.saw(before.as_ref(), now.as_ref(), change);
            let has_claims = |pod: &Arc<Pod>| !objects::claims_of(pod).is_empty();
            let matters = change.new.as_ref().is_some_and(has_claims) || change.old.as_ref().is_some_and(has_claims);
            let near = if matters { keys(&of_pod.find("namespace", &change.key.namespace)) } else { Vec::new() };
            before.into_iter().chain(now).chain(near).collect::<Vec<_>>()
        })
        .hears_of(shared.data_volumes.cache(), near(exports))
        .needs(shared.volume_snapshots.storage_classes())
        .needs(configuration.objects())
}

fn keys(all: &[Arc<Export>]) -> Vec<Key> {
    all.iter().map(|one| Key::of(&**one)).collect()
}

/// An object is news for the exports that are of it.
fn of<T>(exports: &Cache<Export>, kind: &'static str) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + use<T> {
    let exports = exports.clone();
    move |change| keys(&exports.find("source", &format!("{kind}/{}/{}", change.key.namespace, change.key.name)))
}

/// An object is news for the exports of its namespace.
fn near<T>(exports: &Cache<Export>) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + use<T> {
    let exports = exports.clone();
    move |change| keys(&exports.find("namespace", &change.key.namespace))
}

/// The export that a pod is the exporter of.
fn owner(exports: &Cache<Export>, pod: &Pod) -> Option<Key> {
    let reference = api::owner::controller_of(&pod.metadata)?;
    let key = Key { namespace: pod.metadata.namespace.clone().unwrap_or_default(), name: reference.name.clone() };
    exports.get(&key).filter(|export| export.metadata.uid.as_ref() == Some(&reference.uid)).map(|_| key)
}

struct Exports {
    client: Client,
    configuration: Configuration,
    exports: Cache<Export>,
    vms: Cache<VirtualMachine>,
    vmis: Cache<VirtualMachineInstance>,
    snapshots: Cache<Snapshot>,
    contents: Cache<Content>,
    claims: Cache<PersistentVolumeClaim>,
    pods: Pods,
    services: Cache<Service>,
    shared: Shared,
    expected: Expected,
    written: Written,
    failures: Remembered<String>,
    recorder: Recorder,
    chance: Chance,
    now: Now,
}

impl Reconciler for Exports {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(export) = self.exports.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*export) {
            return Ok(Next::Wait);
        }
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
        }
        self.shared.data_volumes.known().await;
        self.shared.volume_snapshots.known().await;
        self.pods.all.synced().await;
        let plan = self.decide(key, &export);
        let done = self.act(key, &export, plan).await;
        self.failures.refusal(key, done)
    }
}

/// What caches hold for one export.
struct Found {
    vm: Option<Arc<VirtualMachine>>,
    vmi: Option<Arc<VirtualMachineInstance>>,
    snapshot: Option<Arc<Snapshot>>,
    content: Option<Arc<Content>>,
    copies: Vec<Arc<VolumeSnapshot>>,
    claims: Vec<Arc<PersistentVolumeClaim>>,
}

impl Exports {
    fn decide(&self, key: &Key, export: &Export) -> ExportPlan {
        let found = self.find(key, export);
        let Found { vm, vmi, snapshot, content, copies, claims } = &found;
        let volumes = self.shared.data_volumes.of(&key.namespace);
        let names = || claims.iter().map(|claim| name(&claim.metadata));
        let within = |claim: &str| format!("{}/{claim}", key.namespace);
        let is_used = |claim: &&str| {
            let runs = |vmi: &Arc<VirtualMachineInstance>| !vmi.is_final();
            !self.pods.all.find("claim", &within(claim)).is_empty()
                || self.vmis.find("claim", &within(claim)).iter().any(runs)
        };
        let is_disk = |claim: &&str| {
            !self.vms.find("claim", &within(claim)).is_empty() || !self.vmis.find("claim", &within(claim)).is_empty()
        };
        let own = Key { namespace: key.namespace.clone(), name: exporter_name(&key.name) };
        let (service, pod) = (self.services.get(&own), self.pods.all.get(&own));
        let failure = self.failures.get(key);
        let observed = Observed {
            export,
            source: match export.spec.source.kind.as_str() {
                "PersistentVolumeClaim" => Source::Claim,
                "VirtualMachine" => Source::Machine { vm: vm.as_deref(), instance: vmi.as_deref() },
                "VirtualMachineSnapshot" => {
                    Source::Snapshot { snapshot: snapshot.as_deref(), content: content.as_deref() }
                }
                _ => Source::Unknown,
            },
            claims: claims.iter().map(|one| (name(&one.metadata), &**one)).collect(),
            data_volumes: volumes.as_ref().map(|all| all.iter().map(|one| (name(&one.metadata), &**one)).collect()),
            copies: copies.iter().map(|one| (name(&one.metadata), &**one)).collect(),
            used: names().filter(is_used).collect(),
            disks: names().filter(is_disk).collect(),
            service: service.as_deref(),
            pod: pod.as_deref(),
            external: self.shared.external.as_ref(),
            failure: failure.as_deref(),
        };
        decide(&observed, (self.now)())
    }

    fn find(&self, key: &Key, export: &Export) -> Found {
        let here = |name: &str| Key { namespace: key.namespace.clone(), name: name.to_owned() };
        let source = &export.spec.source;
        let is = |kind: &str| source.kind == kind;
        let vm = self.vms.get(&here(&source.name)).filter(|_| is("VirtualMachine"));
        let vmi = self.vmis.get(&here(&source.name)).filter(|_| is("VirtualMachine"));
        let snapshot = self.snapshots.get(&here(&source.name)).filter(|_| is("VirtualMachineSnapshot"));
        let content = snapshot.as_deref().and_then(|snapshot| self.contents.get(&here(&content_name(snapshot))));
        let mut names: BTreeSet<String> =
            [source.name.clone()].into_iter().filter(|_| is("PersistentVolumeClaim")).collect();
        let template = vm.as_ref().and_then(|vm| vm.spec.template.spec.as_ref());
        let volumes = template.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
        names.extend(volumes.filter_map(claim_of).map(str::to_owned));
        let backups = || content.iter().flat_map(|content| content.spec.volume_backups.iter().flatten());
        names.extend(backups().map(|backup| format!("{}-{}", key.name, original(backup))));
        let copies = backups().filter_map(|backup| backup.volume_snapshot_name.as_deref());
        let copies = copies.filter_map(|name| self.shared.volume_snapshots.snapshots().get(&here(name))).collect();
        let claims = names.iter().filter_map(|name| self.claims.get(&here(name))).collect();
        Found { vm, vmi, snapshot, content, copies, claims }
    }

    async fn act(&self, key: &Key, export: &Export, plan: ExportPlan) -> Result<Next, kube::Error> {
        let api: Api<Export> = self.api(key);
        if let Some(gone) = &plan.delete {
            delete(&api, &gone.name, Some(&gone.uid), None).await?;
            return Ok(Next::Wait);
        }
        if let Some(service) = &plan.service {
            create(&self.api::<Service>(key), service).await?;
        }
        if let Some(secret) = &plan.token {
            create(&self.api::<Secret>(key), &self.token(export, secret)).await?;
        }
        for claim in &plan.claims {
            create(&self.api::<PersistentVolumeClaim>(key), claim).await?;
            self.failures.take(key);
        }
        if let Some(exporter) = plan.exporter {
            match self.make(export, *exporter) {
                Ok((secret, pod)) => self.create_exporter(key, &secret, &pod).await?,
                Err(error) => {
                    let error: &(dyn std::error::Error + 'static) = &error;
                    tracing::error!(error, "cannot make the certificate of an exporter");
                    return Ok(Next::After(AGAIN));
                }
            }
        }
        if let Some(gone) = &plan.delete_pod {
            delete(&self.api::<Pod>(key), &gone.name, Some(&gone.uid), None).await?;
        }
        if let Some(status) = &plan.status {
            self.written.patch_status(&api, key, status).await?;
        }
        for event in plan.events {
            self.recorder.record(export, event.kind, event.reason, event.message);
        }
        Ok(plan.recheck_after.map_or(Next::Wait, Next::After))
    }

    /// Until the cache shows the pod, nobody makes another certificate.
    async fn create_exporter(&self, key: &Key, secret: &Secret, pod: &Pod) -> Result<(), kube::Error> {
        create(&self.api::<Secret>(key), secret).await?;
        self.expected.expect(key, 1, None);
        match self.api::<Pod>(key).create(&PostParams::default(), pod).await {
            Ok(made) => log_created(&made),
            Err(error) => {
                self.expected.created(key);
                let is_there = matches!(&error, kube::Error::Api(status) if status.is_already_exists());
                // An answer was lost, or another leader was faster: the cache will show whose it is.
                return if is_there { Ok(()) } else { Err(error) };
            }
        }
        self.failures.take(key);
        Ok(())
    }

    /// A secret with a token that nobody can guess.
    fn token(&self, export: &Export, name: &str) -> Secret {
        let count = ALPHABET.len() as u64;
        let letter = |_| {
            let at = usize::try_from(self.chance.number() % count).unwrap_or_default();
            ALPHABET.get(at).copied().unwrap_or(b'0')
        };
        let token: Vec<u8> = (0..TOKEN).map(letter).collect();
        secret(export, name.to_owned(), [("token", token)])
    }

    /// The exporter's pod with its certificate, which is its own and ends with the export.
    fn make(&self, export: &Export, exporter: Exporter) -> Result<(Secret, Pod), CertificateError> {
        let Exporter { pod, host, until, machine } = exporter;
        let now = (self.now)();
        let life = until.duration_since(now) + LONGER;
        let authority = Authority::make(&format!("export of {host}"), now, life)?;
        let local = format!("{host}.cluster.local");
        let Leaf { certificate, key, .. } =
            authority.issue(&Request::server(&host, &[host.as_str(), local.as_str()], &[]), now, life)?;
        let authority = authority.certificate();
        let hash: String =
            Sha256::digest(authority.as_bytes()).iter().take(5).map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{}-{hash}", pod.metadata.name.as_deref().unwrap_or_default());
        let mut content = vec![
            ("tls.crt", certificate.into_bytes()),
            ("tls.key", key.into_bytes()),
            ("ca.crt", authority.as_bytes().to_vec()),
        ];
        content
            .extend(machine.iter().map(|machine| (manifests::FILE, machine.file(authority).to_string().into_bytes())));
        let launcher = self.shared.launcher.borrow().clone();
        let config = self.configuration.current();
        let pull_secrets: Vec<String> =
            config.image_pull_secrets().iter().chain(&launcher.pull_secrets).cloned().collect();
        let made = objects::Made {
            secret: &name,
            authority,
            image: &launcher.image,
            pull_policy: config.image_pull_policy().unwrap_or(&launcher.pull_policy).as_str(),
            pull_secrets: &pull_secrets,
            has_manifests: machine.is_some(),
        };
        let pod = objects::complete(pod, &made);
        Ok((secret(export, name.clone(), content), pod))
    }

    fn api<T: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>>(&self, key: &Key) -> Api<T> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn secret(export: &Export, name: String, content: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: export.metadata.namespace.clone(),
            owner_references: controller_reference(export).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(content.into_iter().map(|(name, bytes)| (name.to_owned(), ByteString(bytes))).collect()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}
