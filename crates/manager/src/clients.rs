//! One client per controller: its own name in every request, its own token where service accounts are on, one rate limit for
//! all, and one count of what they ask for.

use std::sync::Arc;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::config::AuthInfo;
use kube::{Client, Config};

use crate::fence::Fence;
use crate::rate::{Limit, RateLimitLayer, RateLimiter};

mod counting;
mod token;

pub use counting::{Counted, RequestMetrics};
use token::{Token, TokenLayer};

/// Where the accounts of controllers are.
const NAMESPACE: &str = "kube-system";

/// Makes clients. Clones share the rate limit and the count.
#[derive(Clone)]
pub struct Clients {
    source: Source,
    limiter: RateLimiter,
    requests: RequestMetrics,
    fence: Fence,
    accounts: bool,
}

/// Who a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker<'a> {
    /// What in the program asks.
    pub name: &'a str,
    /// The account of the controller that asks; none, if the program itself does.
    pub account: Option<&'a str>,
}

type Make = dyn Fn(Asker<'_>, &Fence) -> Client + Send + Sync;

#[derive(Clone)]
enum Source {
    /// A server on the network, and the program's name.
    Server(Box<Config>, String),
    /// A server in this process, which knows its callers by name.
    Given(Arc<Make>),
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The name cannot be in a request.
    #[error("{name:?} is not a valid client name")]
    Name { name: String },
    /// The configuration cannot be used.
    #[error("use the configuration of the client")]
    Config(#[source] Box<kube::Error>),
}

impl Clients {
    /// Clients of a server on the network. With `accounts`, each controller is a service account of its own in
    /// `kube-system` instead of having the program's rights.
    #[must_use]
    pub fn of_server(config: Config, program: &str, limit: Limit, accounts: bool) -> Self {
        let source = Source::Server(Box::new(config), program.to_owned());
        let (limiter, requests) = (RateLimiter::new(limit), RequestMetrics::default());
        Self { source, limiter, requests, fence: Fence::default(), accounts }
    }

    /// Clients as somebody else makes them, such as for a server in this process. They have no limit, and stay within the
    /// fence that they are given.
    pub fn given(make: impl Fn(Asker<'_>, &Fence) -> Client + Send + Sync + 'static) -> Self {
        let unlimited = RateLimiter::new(Limit { qps: 0.0, burst: 0 });
        let (source, requests) = (Source::Given(Arc::new(make)), RequestMetrics::default());
        Self { source, limiter: unlimited, requests, fence: Fence::default(), accounts: false }
    }

    /// The same clients, counted by whoever makes them.
    #[must_use]
    pub fn counted(self, requests: RequestMetrics) -> Self {
        Self { requests, ..self }
    }

    /// The same clients within another fence: each lease has its own.
    #[must_use]
    pub(crate) fn within(&self, fence: Fence) -> Self {
        Self { fence, ..self.clone() }
    }

    /// The limit that all clients share; it can be changed at any time.
    #[must_use]
    pub fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    /// What all clients have asked for.
    #[must_use]
    pub fn requests(&self) -> &RequestMetrics {
        &self.requests
    }

    /// A client with the program's own rights.
    ///
    /// # Errors
    /// When it cannot be made from the configuration.
    pub fn privileged(&self, name: &str) -> Result<Client, ClientError> {
        match &self.source {
            Source::Given(make) => Ok(make(Asker { name, account: None }, &self.fence)),
            Source::Server(config, program) => {
                let config = named((**config).clone(), program, name)?;
                let builder = ClientBuilder::try_from(config).map_err(wrong)?.with_layer(&self.requests);
                Ok(builder.with_layer(&self.fence).with_layer(&RateLimitLayer(self.limiter.clone())).build())
            }
        }
    }

    /// The client of a controller: with the rights of its account if service accounts are on, or as whoever gives clients
    /// sees fit.
    ///
    /// # Errors
    /// When it cannot be made from the configuration.
    pub fn controller(&self, name: &str, account: &str) -> Result<Client, ClientError> {
        let (config, program) = match &self.source {
            Source::Given(make) => return Ok(make(Asker { name, account: Some(account) }, &self.fence)),
            Source::Server(..) if !self.accounts => return self.privileged(name),
            Source::Server(config, program) => (config, program),
        };
        let token = Token::new(self.privileged(&format!("{name}-token"))?, NAMESPACE, account);
        let mut config = named((**config).clone(), program, name)?;
        config.auth_info = AuthInfo::default();
        let builder = ClientBuilder::try_from(config).map_err(wrong)?;
        let builder = builder.with_layer(&self.requests).with_layer(&TokenLayer(token)).with_layer(&self.fence);
        Ok(builder.with_layer(&RateLimitLayer(self.limiter.clone())).build())
    }
}

fn wrong(error: kube::Error) -> ClientError {
    ClientError::Config(Box::new(error))
}

/// As Kubernetes' own programs name themselves: the program, and what in it asks.
fn named(mut config: Config, program: &str, name: &str) -> Result<Config, ClientError> {
    let agent = format!("{program}/{} (linux/{}) orlop/{name}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let value = HeaderValue::from_str(&agent).map_err(|_| ClientError::Name { name: name.to_owned() })?;
    config.headers.push((USER_AGENT, value));
    Ok(config)
}
