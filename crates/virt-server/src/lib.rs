//! What makes an embedded API server one of virtual machines: their kinds, admission of what is written of them, the roles of
//! their users and of our own programs, and who those programs are.
//!
//! ```text
//! Builder ──> start ──> admission mounted ──> server ──> kinds defined and served ──> roles bound ──> ApiServer
//!                                                                                                       │
//!                         Component::identity ──> for_identity ──> the client of a program <────────────┘
//! ```
//! `orlop up`, `orlop apiserver`, the simulation and the tests of controllers all begin here, so that a role or a rule that is
//! wrong is wrong in every one of them.
//!
//! With a way to guests, it also answers for what is done to virtual machines that run.
//!
//! Absent on purpose: what the rules are (`virt-api`, `virt-rules`), and how programs run.

mod admission;
mod components;
mod image;
mod kinds;
mod roles;
mod subresources;

use std::sync::Arc;

use apiserver::{ApiServer, Builder, Identity, OpenError};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use manager::context::Chance;
use virt_api::subresources::Guests;

use image::OnlyForLaunchers;

pub use admission::{Objects, VirtualMachines};
pub use components::{Component, LOCAL_VOLUMES};
pub use image::is_same as is_same_image;
pub use roles::OPERATORS;

/// What can be set.
pub struct Settings {
    /// The kinds that are served.
    pub kinds: Vec<CustomResourceDefinition>,
    /// Where the UUIDs of guests come from.
    pub chance: Chance,
    /// An image that only virt-controller makes pods of.
    pub machine_image: Option<String>,
    /// How guests are reached. With it, the server answers for `subresources.kubevirt.io`.
    pub guests: Option<Arc<dyn Guests>>,
}

impl Settings {
    /// All kinds, and those of storage that a cluster has from others.
    ///
    /// # Errors
    /// When one of them has no schema.
    pub fn new(chance: Chance) -> Result<Self, StartError> {
        let mut kinds = api::crd::all().map_err(StartError::Schemas)?;
        kinds.extend(api::crd::storage().map_err(StartError::Schemas)?);
        Ok(Self { kinds, chance, machine_image: None, guests: None })
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kinds cannot be told.
    #[error("create the schemas of virtual machines")]
    Schemas(#[source] api::crd::CrdError),
    /// The store is not to be used.
    #[error("open the store")]
    Store(#[source] OpenError),
    /// A kind is not served.
    #[error("define {name}")]
    Kind {
        /// Its definition.
        name: String,
        source: Box<kube::Error>,
    },
    /// Nobody says when the kinds are served.
    #[error("wait until the kinds of virtual machines are served")]
    Watch(#[source] Option<Box<kube::runtime::watcher::Error>>),
    /// A role or its binding was not made.
    #[error("create the role {name}")]
    Role { name: String, source: Box<kube::Error> },
}

/// Makes the roles of users, and those of our programs that replace KubeVirt's, in a Kubernetes cluster, or brings them up to date. Who
/// has them is only said where nobody has said so yet.
///
/// # Errors
/// When one of them cannot be written.
pub async fn install_roles(client: &Client) -> Result<(), StartError> {
    roles::install_on_kubernetes(client).await
}

/// Starts a server of virtual machines: it admits what is written of them, serves their kinds, and knows the roles of their
/// users and of our programs. What an earlier release made is brought up to date.
///
/// # Errors
/// When the store cannot be opened, or something of this cannot be written to it.
pub async fn start(builder: Builder, settings: Settings) -> Result<ApiServer, StartError> {
    let Settings { kinds, chance, machine_image, guests } = settings;
    let mut builder = builder.admission(VirtualMachines::new(chance));
    if let Some(image) = machine_image {
        builder = builder.admission(OnlyForLaunchers { image });
    }
    let mounted = guests.map(subresources::Mounted::new);
    if let Some(mounted) = &mounted {
        builder = mounted.on(builder);
    }
    let server = builder.start().await.map_err(StartError::Store)?;
    if let Some(mounted) = mounted {
        mounted.answer_with(Client::new(server.for_identity(Component::VirtApi.identity()), "default"));
    }
    // As Kubernetes' server does for itself: there is nobody yet whose role would allow it.
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    kinds::install(&client, &kinds).await?;
    roles::install(&client).await?;
    Ok(server)
}
