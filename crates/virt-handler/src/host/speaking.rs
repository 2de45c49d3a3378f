//! A launcher that is spoken to over its socket.

use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use kube::Resource as _;
use launcher_api::Outcome;
use launcher_api::client::{self, Client};
use launcher_api::rpc::{
    Domain, Empty, GuestModel, LocalDisks, MigrateRequest, MigrationName, ShutdownRequest, TakeRequest,
};
use tonic::{Response, Status};

use super::{Doing, Speaker, Wanted};

/// The client of one connection.
pub(crate) struct Grpc {
    client: Client,
}

impl Grpc {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Speaker for Grpc {
    fn sync<'a>(&'a self, wanted: Wanted<'a>) -> Doing<'a, (Option<Domain>, Outcome)> {
        Box::pin(async move {
            let Wanted { vmi, accelerator, incoming, mark } = wanted;
            // A list does not always say what it is a list of.
            let whole = VirtualMachineInstance {
                api_version: Some(VirtualMachineInstance::api_version(&()).into_owned()),
                kind: Some(VirtualMachineInstance::kind(&()).into_owned()),
                ..vmi.clone()
            };
            let instance = match serde_json::to_vec(&whole) {
                Ok(instance) => instance,
                Err(error) => return (None, Outcome::never("", error.to_string())),
            };
            let wanted = client::Wanted { instance, accelerator, incoming, mark };
            client::sync(&mut self.client.clone(), wanted).await
        })
    }

    fn get_guest(&self) -> Doing<'_, Result<GuestModel, Status>> {
        Box::pin(async move { self.client.clone().get_guest(Empty {}).await.map(Response::into_inner) })
    }

    fn unpause(&self) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().unpause(Empty {}).await.map(Response::into_inner) })
    }

    fn shut_down(&self, grace: Duration) -> Doing<'_, Result<Domain, Status>> {
        let grace_ms = Some(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
        Box::pin(
            async move { self.client.clone().shutdown(ShutdownRequest { grace_ms }).await.map(Response::into_inner) },
        )
    }

    fn kill(&self) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().kill(Empty {}).await.map(Response::into_inner) })
    }

    fn delete(&self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async move { self.client.clone().delete(Empty {}).await.map(|_| ()) })
    }

    fn get_domain(&self) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().get_domain(Empty {}).await.map(Response::into_inner) })
    }

    fn get_local_disks(&self) -> Doing<'_, Result<LocalDisks, Status>> {
        Box::pin(async move { self.client.clone().get_local_disks(Empty {}).await.map(Response::into_inner) })
    }

    fn migrate(&self, request: MigrateRequest) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().migrate(request).await.map(Response::into_inner) })
    }

    fn cancel_migration(&self, name: MigrationName) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().cancel_migration(name).await.map(Response::into_inner) })
    }

    fn give(&self, name: MigrationName) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().give(name).await.map(Response::into_inner) })
    }

    fn returned(&self, name: MigrationName) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().returned(name).await.map(Response::into_inner) })
    }

    fn take(&self, request: TakeRequest) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().take(request).await.map(Response::into_inner) })
    }

    fn renounce(&self) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move { self.client.clone().renounce(Empty {}).await.map(Response::into_inner) })
    }
}
