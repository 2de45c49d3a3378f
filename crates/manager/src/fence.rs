//! A fence around a leader's requests.
//!
//! A leader whose machine slept, or whose process was stopped and goes on, believes for a moment that it still leads. The
//! lease tells it otherwise only with the next renewal; until then the fence holds its requests back: none leaves later than
//! the lease is certain to be ours.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Either, Ready, ready};
use tokio::time::Instant;

/// What any request may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Until when requests may leave. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    until: Arc<Mutex<Until>>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Until {
    /// Nobody is elected: there is nothing to lose.
    #[default]
    Always,
    At(Instant),
    /// It was lost, or given back.
    Never,
}

/// A request that came too late.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this process is no longer the leader")]
pub struct NotLeading;

impl Fence {
    fn until(&self) -> MutexGuard<'_, Until> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open_until(&self, at: Instant) {
        *self.until() = Until::At(at);
    }

    pub(crate) fn close(&self) {
        *self.until() = Until::Never;
    }

    /// Whether requests may leave now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match *self.until() {
            Until::Always => true,
            Until::At(at) => Instant::now() < at,
            Until::Never => false,
        }
    }
}

impl<S> tower::Layer<S> for Fence {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { inner, fence: self.clone() }
    }
}

/// A service within a fence.
#[derive(Clone)]
pub struct Fenced<S> {
    inner: S,
    fence: Fence,
}

impl<S, R> tower::Service<R> for Fenced<S>
where
    S: tower::Service<R>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<BoxFuture<'static, Result<S::Response, BoxError>>, Ready<Result<S::Response, BoxError>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        if !self.fence.is_open() {
            return Either::Right(ready(Err(NotLeading.into())));
        }
        let answer = self.inner.call(request);
        Either::Left(Box::pin(async move { answer.await.map_err(Into::into) }))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use tower::{Layer as _, ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_leaves_after_the_lease_may_be_anothers() {
        let fence = Fence::default();
        let service = fence.layer(service_fn(async |request: u32| Ok::<_, Infallible>(request)));
        assert_eq!(service.clone().oneshot(1).await.unwrap(), 1);
        fence.open_until(Instant::now() + Duration::from_secs(10));
        assert_eq!(service.clone().oneshot(2).await.unwrap(), 2);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(service.clone().oneshot(3).await.unwrap_err().is::<NotLeading>());
        fence.close();
        assert!(service.oneshot(4).await.is_err());
    }
}
