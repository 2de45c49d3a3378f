//! The components of `orlop up`: programs of controllers, without elections, on a server in the same process or, for nodes that are
//! processes of their own, in another.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::ApiServer;
use kube::{Client, Config};
use manager::caches::Caches;
use manager::clients::{Asker, Clients};
use manager::context::Chance;
use manager::descriptor::{Descriptor, Selection};
use manager::frame::{FrameError, Program};
use manager::gates::Gates;
use manager::rate::{Limit, RateLimitLayer, RateLimiter};
use manager::serving::Pages;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::Layer as _;
use virt_server::Component;

use crate::cluster::clock;

/// The API server that programs use.
enum Server {
    /// In this process. What several programs watch is here once.
    Here { server: ApiServer, caches: Caches },
    /// In another one, with a way to it for each program, by user.
    There(BTreeMap<String, Config>),
}

/// Programs that run, and what they tell of themselves.
pub(crate) struct Components {
    server: Server,
    pages: BTreeMap<&'static str, Pages>,
    running: JoinSet<(&'static str, Result<(), FrameError>)>,
    stop: watch::Sender<bool>,
}

impl Components {
    /// No components yet, on a server.
    pub(crate) fn new(server: ApiServer) -> Self {
        let caches = Caches::new(client(&server, &Component::Caches), Chance::of_the_machine());
        Self::on(Server::Here { server, caches })
    }

    /// No components yet, on a server in another process: only the programs that a way to it is named for can be started.
    pub(crate) fn remote(ways: impl IntoIterator<Item = (Component, Config)>) -> Self {
        let ways = ways.into_iter().map(|(component, config)| (component.identity().user, config));
        Self::on(Server::There(ways.collect()))
    }

    fn on(server: Server) -> Self {
        Self { server, pages: BTreeMap::new(), running: JoinSet::new(), stop: watch::Sender::new(false) }
    }

    /// What has the caches that programs share forget what they can read again.
    pub(crate) fn forgetting(&self) -> impl Fn() + use<> {
        let caches = match &self.server {
            Server::Here { caches, .. } => Some(caches.clone()),
            Server::There(_) => None,
        };
        move || caches.iter().for_each(Caches::cool)
    }

    /// Starts a program with its own rights, and each of its controllers with those of its account.
    pub(crate) fn start<S: Send + Sync + 'static>(
        &mut self,
        name: &'static str,
        component: Component,
        descriptors: &'static [Descriptor<S>],
        settings: S,
    ) {
        self.start_with(name, component, descriptors, |_| settings);
    }

    /// The same, with settings that follow the limit of the program's requests. The server has flow control; a limit from the start
    /// would only make guests wait.
    pub(crate) fn start_with<S: Send + Sync + 'static>(
        &mut self,
        name: &'static str,
        component: Component,
        descriptors: &'static [Descriptor<S>],
        settings: impl FnOnce(RateLimiter) -> S,
    ) {
        let none = Limit { qps: 0.0, burst: 0 };
        let (clients, caches, limiter) = match &self.server {
            Server::Here { server, caches } => {
                let (server, limiter) = (server.clone(), RateLimiter::new(none));
                let limited = RateLimitLayer(limiter.clone());
                let clients = Clients::given(move |Asker { account, .. }, _| {
                    let identity =
                        account.map_or_else(|| component.identity(), |account| component.controller(account));
                    Client::new(limited.layer(server.for_identity(identity)), "default")
                });
                (clients, Some(caches.clone()), limiter)
            }
            Server::There(ways) => {
                let Some(config) = ways.get(&component.identity().user) else {
                    tracing::error!(name, "a program has no way to the API server, and is not started");
                    return;
                };
                let clients = Clients::of_server(config.clone(), name, none, false);
                let limiter = clients.limiter().clone();
                (clients, None, limiter)
            }
        };
        let pages = Pages::new(name);
        self.pages.insert(name, pages.clone());
        let program = Program {
            name,
            descriptors,
            settings: settings(limiter),
            selection: Selection::all(),
            gates: Gates::default(),
            clients,
            caches,
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

    /// A client with a program's rights.
    ///
    /// # Errors
    /// When the server is in another process, and no client can be made for that component.
    pub(crate) fn client(&self, component: &Component) -> anyhow::Result<Client> {
        match &self.server {
            Server::Here { server, .. } => Ok(client(server, component)),
            Server::There(ways) => {
                let config = ways.get(&component.identity().user).context("there is no way to the API server")?;
                Client::try_from(config.clone()).context("make a client")
            }
        }
    }

    /// The pages of each component.
    pub(crate) fn pages(&self) -> BTreeMap<&'static str, Pages> {
        self.pages.clone()
    }

    /// Waits until a component ends, which none does unless something is wrong.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.running.join_next().await {
            Some(Ok((name, Ok(())))) => anyhow::anyhow!("{name} has ended"),
            Some(Ok((name, Err(error)))) => anyhow::Error::new(error).context(name),
            Some(Err(error)) => anyhow::Error::new(error).context("a component was lost"),
            None => std::future::pending().await,
        }
    }

    /// Lets all components finish what they have.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

/// A client with the rights of one of our own programs.
pub(crate) fn client(server: &ApiServer, component: &Component) -> Client {
    Client::new(server.for_identity(component.identity()), "default")
}
