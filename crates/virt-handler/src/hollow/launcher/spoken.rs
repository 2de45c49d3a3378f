//! How virt-handler speaks with a simulated launcher. Simulated guests do not move yet: what is asked about that is refused.

use std::sync::Arc;
use std::time::Duration;

use launcher_api::Outcome;
use launcher_api::rpc::{Domain, End, GuestModel, LocalDisks, MigrateRequest, MigrationName, State, TakeRequest};
use tonic::Status;

use super::{Simulated, Stage};
use crate::decide::is_alive;
use crate::host::{Doing, Speaker, Wanted};

/// A launcher that somebody speaks with, and what is done when it has been let go.
pub(in crate::hollow) struct Spoken<F> {
    pub(in crate::hollow) launcher: Arc<Simulated>,
    pub(in crate::hollow) let_go: F,
}

impl<F: Fn() + Send + Sync> Speaker for Spoken<F> {
    fn sync<'a>(&'a self, wanted: Wanted<'a>) -> Doing<'a, (Option<Domain>, Outcome)> {
        Box::pin(async move {
            if wanted.incoming.is_some() {
                return (None, Outcome::never("", stays().message()));
            }
            match self.launcher.start(wanted.vmi, wanted.mark).await {
                Ok(domain) => (Some(domain), Outcome::Done),
                Err(status) => (None, Outcome::retry(status.message())),
            }
        })
    }

    /// No guest, no model.
    fn get_guest(&self) -> Doing<'_, Result<GuestModel, Status>> {
        Box::pin(async { Err(Status::not_found("a simulated guest has no model")) })
    }

    fn unpause(&self) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move {
            self.launcher.answer()?;
            self.launcher.pause(false);
            self.launcher.answer()
        })
    }

    fn shut_down(&self, grace: Duration) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move {
            self.launcher.answer()?;
            self.launcher.press_power(grace);
            self.launcher.answer()
        })
    }

    fn kill(&self) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async move {
            if is_alive(self.launcher.answer()?.state()) {
                self.launcher.then(None);
                self.launcher.enter(State::Ended, End::Killed);
            }
            self.launcher.answer()
        })
    }

    fn delete(&self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async move {
            if is_alive(self.launcher.answer()?.state()) {
                return Err(Status::failed_precondition("the guest has not ended"));
            }
            self.launcher.end(Stage::Exited);
            (self.let_go)();
            Ok(())
        })
    }

    fn get_domain(&self) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async { self.launcher.answer() })
    }

    fn get_local_disks(&self) -> Doing<'_, Result<LocalDisks, Status>> {
        Box::pin(async { Ok(LocalDisks::default()) })
    }

    fn migrate(&self, _: MigrateRequest) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async { Err(stays()) })
    }

    fn cancel_migration(&self, _: MigrationName) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async { Err(stays()) })
    }

    fn give(&self, _: MigrationName) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async { Err(stays()) })
    }

    fn returned(&self, _: MigrationName) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async { Err(stays()) })
    }

    fn take(&self, _: TakeRequest) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async { Err(stays()) })
    }

    fn renounce(&self) -> Doing<'_, Result<Domain, Status>> {
        Box::pin(async { Err(stays()) })
    }
}

fn stays() -> Status {
    Status::unimplemented("a simulated guest stays where it is")
}
