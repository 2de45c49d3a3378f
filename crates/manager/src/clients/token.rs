//! The token of a service account, asked for when it is needed and renewed before it ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::errors::chain;

/// How long a token shall live.
const LIFE: Duration = Duration::from_secs(3600);
/// After so much of its life it is renewed.
const RENEWED_AFTER: f64 = 0.8;
/// How long a failed attempt is not repeated: requests meanwhile go without a token, and are refused.
const PAUSE: Duration = Duration::from_secs(1);

/// The token of one account. Clones share it.
#[derive(Clone)]
pub(super) struct Token {
    accounts: Api<ServiceAccount>,
    account: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    header: Option<HeaderValue>,
    /// When to ask again.
    again: Option<Instant>,
}

impl Token {
    pub(super) fn new(client: Client, namespace: &str, account: &str) -> Self {
        Self { accounts: Api::namespaced(client, namespace), account: account.to_owned(), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self) -> bool {
        self.state().again.is_some_and(|again| Instant::now() < again)
    }

    /// The server does not know the token any more.
    fn refused(&self) {
        self.state().again = None;
    }

    async fn renew(self) {
        match self.request().await {
            Ok((header, life)) => {
                let again = Instant::now() + life.mul_f64(RENEWED_AFTER);
                *self.state() = State { header: Some(header), again: Some(again) };
            }
            Err(error) => {
                tracing::warn!(
                    account = self.account,
                    error = chain(&error),
                    "cannot get a new token for a controller"
                );
                self.state().again = Some(Instant::now() + PAUSE);
            }
        }
    }

    async fn request(&self) -> Result<(HeaderValue, Duration), kube::Error> {
        let spec = TokenRequestSpec { expiration_seconds: i64::try_from(LIFE.as_secs()).ok(), ..Default::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let parameters = PostParams::default();
        let ask = || self.accounts.create_token_request(&self.account, &parameters, &request);
        let answer = match ask().await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.create_account().await?;
                ask().await?
            }
            answer => answer?,
        };
        let life = answer.spec.and_then(|spec| spec.expiration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
        let token = answer.status.and_then(|status| status.token).unwrap_or_default();
        let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            kube::Error::SerdeError(serde::de::Error::custom(
                "the token has characters that are not allowed in a request",
            ))
        })?;
        header.set_sensitive(true);
        Ok((header, life.map_or(LIFE, Duration::from_secs)))
    }

    async fn create_account(&self) -> Result<(), kube::Error> {
        let metadata = ObjectMeta { name: Some(self.account.clone()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        match self.accounts.create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => made.map(drop),
        }
    }
}

/// Puts a token into every request.
pub(super) struct TokenLayer(pub(super) Token);

impl<S> tower::Layer<S> for TokenLayer {
    type Service = WithToken<S>;

    fn layer(&self, inner: S) -> WithToken<S> {
        WithToken { inner, token: self.0.clone(), renewal: None }
    }
}

/// A service whose requests carry a token.
pub(super) struct WithToken<S> {
    inner: S,
    token: Token,
    renewal: Option<BoxFuture<'static, ()>>,
}

impl<S, A, B> tower::Service<Request<A>> for WithToken<S>
where
    S: tower::Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.renewal.is_none() && !self.token.is_fresh() {
            self.renewal = Some(Box::pin(self.token.clone().renew()));
        }
        if let Some(renewal) = &mut self.renewal {
            ready!(renewal.as_mut().poll(context));
            self.renewal = None;
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        if let Some(header) = self.token.state().header.clone() {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let (answer, token) = (self.inner.call(request), self.token.clone());
        Box::pin(async move {
            let answer = answer.await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                token.refused();
            }
            Ok(answer)
        })
    }
}
