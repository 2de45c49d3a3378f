//! The parts of `orlop up`: programs of controllers on a server in the same process, without elections.

use std::collections::BTreeMap;
use std::time::Duration;

use apiserver::{ApiServer, Identity, MASTERS};
use kube::Client;
use manager::caches::Caches;
use manager::clients::Clients;
use manager::context::Chance;
use manager::descriptor::{Descriptor, Selection};
use manager::frame::{FrameError, Program};
use manager::gates::Gates;
use manager::serving::Pages;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::clock;

/// Who watches for all parts.
const WATCHER: &str = "orlop-caches";

/// Programs that run, and what they tell of themselves.
pub(crate) struct Parts {
    server: ApiServer,
    /// One for all parts: what several of them watch is here once.
    caches: Caches,
    pages: BTreeMap<&'static str, Pages>,
    running: JoinSet<(&'static str, Result<(), FrameError>)>,
    stop: watch::Sender<bool>,
}

impl Parts {
    /// No parts yet, on a server.
    pub(crate) fn new(server: ApiServer) -> Self {
        let caches = Caches::new(client(&server, WATCHER), Chance::of_the_machine());
        Self { server, caches, pages: BTreeMap::new(), running: JoinSet::new(), stop: watch::Sender::new(false) }
    }

    /// Starts a program in a user's name.
    pub(crate) fn start<S: Send + Sync + 'static>(
        &mut self,
        name: &'static str,
        user: &str,
        descriptors: &'static [Descriptor<S>],
        settings: S,
    ) {
        let (server, user) = (self.server.clone(), user.to_owned());
        let clients = Clients::given(move |_, _| client(&server, &user));
        let pages = Pages::new(name);
        self.pages.insert(name, pages.clone());
        let program = Program {
            name,
            descriptors,
            settings,
            selection: Selection::all(),
            gates: Gates::default(),
            clients,
            caches: Some(self.caches.clone()),
            leading: None,
            start_interval: Duration::ZERO,
            pages,
            now: clock(),
            chance: Chance::of_the_machine(),
        };
        let mut stop = self.stop.subscribe();
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        self.running.spawn(async move { (name, program.run(stopped).await) });
    }

    /// A client in a user's name.
    pub(crate) fn client(&self, user: &str) -> Client {
        client(&self.server, user)
    }

    /// What each part shows of itself.
    pub(crate) fn pages(&self) -> BTreeMap<&'static str, Pages> {
        self.pages.clone()
    }

    /// Waits until a part ends, which none does by itself.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.running.join_next().await {
            Some(Ok((name, Ok(())))) => anyhow::anyhow!("{name} has ended"),
            Some(Ok((name, Err(error)))) => anyhow::Error::new(error).context(name),
            Some(Err(error)) => anyhow::Error::new(error).context("a part was lost"),
            None => std::future::pending().await,
        }
    }

    /// Lets all parts finish what they have.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

/// A client in the name of one of our own programs.
pub(crate) fn client(server: &ApiServer, user: &str) -> Client {
    Client::new(server.for_identity(Identity::new(user, [MASTERS.to_owned()])), "default")
}
