//! The table of controllers, and what can be set about them.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use manager::context::Started;
use manager::descriptor::Descriptor;
use manager::gates::Gate;
use tokens::Signer;

use crate::cluster_role_aggregation;
use crate::deployment::controller as deployment;
use crate::disruption::controller as disruption;
use crate::endpoint_slice::controller as endpoint_slice;
use crate::endpoints::controller as endpoints;
use crate::garbage::{self, GarbageCollector};
use crate::namespace::{self, NamespaceController};
use crate::node_lifecycle::{self, NodeLifecycleController};
use crate::pod_gc::{self, PodGcController};
use crate::replicaset::controller as replicaset;
use crate::replication_controller;
use crate::root_ca;
use crate::service_account;
use crate::service_account_token::{self, TokenController};
use crate::taint_eviction::{self, TaintEvictionController};

/// What can be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Deployments that are worked on at the same time.
    pub deployment_workers: usize,
    /// Services whose Endpoints are worked on at the same time.
    pub endpoints_workers: usize,
    /// Services whose slices are worked on at the same time, and how many endpoints a slice has at most.
    pub endpoint_slices: endpoint_slice::Options,
    /// Objects that the garbage collector looks at at the same time.
    pub garbage_collector_workers: usize,
    /// Namespaces that are emptied at the same time.
    pub namespace_workers: usize,
    /// Replica sets that are worked on at the same time.
    pub replica_set_workers: usize,
    /// Replication controllers that are worked on at the same time.
    pub replication_controller_workers: usize,
    /// Token secrets that are worked on at the same time.
    pub service_account_token_workers: usize,
    /// How often all nodes are looked at.
    pub node_monitor_period: Duration,
    /// How long a node may be silent.
    pub node_monitor_grace_period: Duration,
    /// How long a node may be silent that never said anything.
    pub node_startup_grace_period: Duration,
    /// Nodes per second that pods may leave, in a zone that is well.
    pub node_eviction_rate: f64,
    /// The same in a large zone that is not well; in a small one, none.
    pub secondary_node_eviction_rate: f64,
    /// The part of a zone's nodes that are not ready from which on the zone is not well.
    pub unhealthy_zone_threshold: f64,
    /// A zone of more nodes is large.
    pub large_cluster_size_threshold: usize,
    /// More pods that ended are cleared away; zero is no limit.
    pub terminated_pod_gc_threshold: usize,
    /// The certificate authority of the API server, in PEM; without one it is not published.
    pub root_ca: Option<String>,
    /// Signs the tokens of service accounts; without one there are none.
    pub signer: Option<Arc<dyn Signer>>,
}

impl Default for Settings {
    fn default() -> Self {
        let nodes = node_lifecycle::Options::default();
        Self {
            deployment_workers: 5,
            endpoints_workers: 5,
            endpoint_slices: endpoint_slice::Options::default(),
            garbage_collector_workers: 20,
            namespace_workers: 10,
            replica_set_workers: 5,
            replication_controller_workers: 5,
            service_account_token_workers: 5,
            node_monitor_period: nodes.monitor_period,
            node_monitor_grace_period: nodes.monitor_grace_period,
            node_startup_grace_period: nodes.startup_grace_period,
            node_eviction_rate: nodes.eviction_rate,
            secondary_node_eviction_rate: nodes.secondary_eviction_rate,
            unhealthy_zone_threshold: nodes.unhealthy_zone_threshold,
            large_cluster_size_threshold: nodes.large_cluster_size_threshold,
            terminated_pod_gc_threshold: 12500,
            root_ca: None,
            signer: None,
        }
    }
}

impl Settings {
    fn nodes(&self) -> node_lifecycle::Options {
        node_lifecycle::Options {
            monitor_period: self.node_monitor_period,
            monitor_grace_period: self.node_monitor_grace_period,
            startup_grace_period: self.node_startup_grace_period,
            eviction_rate: self.node_eviction_rate,
            secondary_eviction_rate: self.secondary_node_eviction_rate,
            unhealthy_zone_threshold: self.unhealthy_zone_threshold,
            large_cluster_size_threshold: self.large_cluster_size_threshold,
        }
    }
}

/// All feature gates. There is none yet: what is built is on.
pub const GATES: &[Gate] = &[];

/// All controllers. Their accounts are those that Kubernetes gives rights to (`system:controller:*`).
pub const DESCRIPTORS: &[Descriptor<Settings>] = &[
    Descriptor::new(cluster_role_aggregation::NAME, &["clusterrole-aggregation"], |context, _| {
        Ok(cluster_role_aggregation::start(context))
    }),
    Descriptor::new(deployment::NAME, &["deployment"], |context, settings| {
        Ok(deployment::start(context, settings.deployment_workers))
    }),
    Descriptor::new(disruption::NAME, &["disruption"], |context, _| Ok(disruption::start(context))),
    Descriptor {
        account: "endpoint-controller",
        ..Descriptor::new(endpoints::NAME, &["endpoint"], |context, settings| {
            Ok(endpoints::start(context, settings.endpoints_workers))
        })
    },
    Descriptor::new(endpoint_slice::NAME, &["endpointslice"], |context, settings| {
        Ok(endpoint_slice::start(context, settings.endpoint_slices))
    }),
    Descriptor {
        account: "generic-garbage-collector",
        ..Descriptor::new(garbage::NAME, &["garbagecollector"], |context, settings| {
            let (collector, workers) = (GarbageCollector::new(context), settings.garbage_collector_workers);
            let (shown, checked) = (collector.clone(), collector.clone());
            let started = Started::new(async move { collector.run(workers).await });
            Ok(started.debug(move |path| shown.debug(path)).health(move || checked.health()))
        })
    },
    Descriptor::new(namespace::NAME, &["namespace"], |context, settings| {
        let (controller, workers) = (NamespaceController::new(context), settings.namespace_workers);
        Ok(controller.page().of(Started::new(async move { controller.run(workers).await })))
    }),
    Descriptor {
        account: "node-controller",
        ..Descriptor::new(node_lifecycle::NAME, &["nodelifecycle"], |context, settings| {
            let controller = NodeLifecycleController::new(context, settings.nodes());
            Ok(controller.page().of(Started::new(async move { controller.run().await })))
        })
    },
    Descriptor {
        account: "pod-garbage-collector",
        ..Descriptor::new(pod_gc::NAME, &["podgc"], |context, settings| {
            let controller = PodGcController::new(context, settings.terminated_pod_gc_threshold);
            Ok(controller.page().of(Started::new(async move { controller.run().await })))
        })
    },
    Descriptor::new(replicaset::NAME, &["replicaset"], |context, settings| {
        Ok(replicaset::start(context, settings.replica_set_workers))
    }),
    Descriptor {
        account: "replication-controller",
        ..Descriptor::new(replication_controller::NAME, &["replicationcontroller"], |context, settings| {
            Ok(replication_controller::start(context, settings.replication_controller_workers))
        })
    },
    Descriptor {
        account: "root-ca-cert-publisher",
        ..Descriptor::new(root_ca::NAME, &["root-ca-cert-publisher"], |context, settings| {
            let Some(root_ca) = settings.root_ca.clone() else {
                tracing::warn!(controller = root_ca::NAME, "no certificate authority is configured to publish");
                return Ok(Started::until_stopped(context, pending()));
            };
            Ok(root_ca::start(context, root_ca))
        })
    },
    Descriptor {
        account: "service-account-controller",
        ..Descriptor::new(service_account::NAME, &["serviceaccount"], |context, _| Ok(service_account::start(context)))
    },
    Descriptor {
        special_handling: true,
        ..Descriptor::new(service_account_token::NAME, &["serviceaccount-token"], |context, settings| {
            let Some(signer) = settings.signer.clone() else {
                tracing::warn!(controller = service_account_token::NAME, "no key is configured to sign tokens");
                return Ok(Started::until_stopped(context, pending()));
            };
            let controller = TokenController::new(context, signer, settings.root_ca.clone());
            let workers = settings.service_account_token_workers;
            Ok(controller.page().of(Started::new(async move { controller.run(workers).await })))
        })
    },
    Descriptor {
        account: "node-controller",
        ..Descriptor::new(taint_eviction::NAME, &[], |context, _| {
            let controller = TaintEvictionController::new(context);
            Ok(controller.page().of(Started::new(async move { controller.run().await })))
        })
    },
];

#[cfg(test)]
mod tests {
    use testkit::world::World;
    use tokens::SignError;

    use super::*;

    #[derive(Debug)]
    struct Seal;

    impl Signer for Seal {
        fn algorithm(&self) -> &str {
            "none"
        }

        fn key_id(&self) -> &str {
            "seal"
        }

        fn sign(&self, _: &[u8]) -> Result<Vec<u8>, SignError> {
            Ok(Vec::new())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_controller_shows_a_page_and_says_how_it_is() {
        let world = World::start().await;
        let settings = Settings { root_ca: Some("ca".to_owned()), signer: Some(Arc::new(Seal)), ..Settings::default() };
        for descriptor in DESCRIPTORS {
            let name = descriptor.name;
            let started = (descriptor.start)(&world.kubernetes(descriptor.account), &settings).unwrap();
            let page = started.debug.as_ref().and_then(|page| page("")).unwrap_or_default();
            assert!(!page.is_empty(), "{name} shows nothing under /debug/controllers/{name}");
            let is_collector = name == garbage::NAME;
            assert!(is_collector || page.starts_with("caches\n") && page.contains("\nqueue\n"), "{name}: {page}");
            let health = started.health.unwrap_or_else(|| panic!("{name} does not say how it is"));
            assert_eq!(health(), Ok(()), "{name}");
        }
    }
}
