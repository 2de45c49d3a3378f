//! A limit on a client's requests that can be changed while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

/// Requests per second, and how many may come at once after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// In the long run; zero or less is no limit.
    pub qps: f64,
    /// At once.
    pub burst: u32,
}

/// A token bucket. Clones share it.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    bucket: Arc<Mutex<Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    limit: Limit,
    /// May be negative: requests that wait have taken theirs in advance.
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        self.tokens = passed.mul_add(self.limit.qps, self.tokens).min(f64::from(self.limit.burst));
    }

    /// Takes a token, and tells how long to wait for it.
    fn take(&mut self, now: Instant) -> Duration {
        if self.limit.qps <= 0.0 {
            return Duration::ZERO;
        }
        self.fill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.tokens / self.limit.qps) }
    }
}

impl RateLimiter {
    /// A full bucket.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        let bucket = Bucket { limit, tokens: f64::from(limit.burst), filled: Instant::now() };
        Self { bucket: Arc::new(Mutex::new(bucket)) }
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limit that holds now.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.bucket().limit
    }

    /// Changes the limit for all requests from now on.
    pub fn set(&self, limit: Limit) {
        let mut bucket = self.bucket();
        bucket.fill(Instant::now());
        bucket.limit = limit;
        bucket.tokens = bucket.tokens.min(f64::from(limit.burst));
    }

    /// Waits for its turn.
    pub async fn acquire(&self) {
        let wait = self.bucket().take(Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }
}

/// Puts a limit before a service.
#[derive(Clone, Debug)]
pub struct RateLimitLayer(pub RateLimiter);

impl<S> tower::Layer<S> for RateLimitLayer {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { inner, limiter: self.0.clone(), turn: Turn::NotAsked }
    }
}

/// A service behind a limit: it is ready when its turn has come.
pub struct RateLimited<S> {
    inner: S,
    limiter: RateLimiter,
    turn: Turn,
}

enum Turn {
    NotAsked,
    Waiting(BoxFuture<'static, ()>),
    Come,
}

impl<S: tower::Service<R>, R> tower::Service<R> for RateLimited<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        loop {
            match &mut self.turn {
                Turn::NotAsked => {
                    let limiter = self.limiter.clone();
                    self.turn = Turn::Waiting(Box::pin(async move { limiter.acquire().await }));
                }
                Turn::Waiting(waiting) => {
                    ready!(waiting.as_mut().poll(context));
                    self.turn = Turn::Come;
                }
                Turn::Come => return self.inner.poll_ready(context),
            }
        }
    }

    fn call(&mut self, request: R) -> S::Future {
        self.turn = Turn::NotAsked;
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn time_of(limiter: &RateLimiter, requests: usize) -> Duration {
        let started = Instant::now();
        for _ in 0..requests {
            limiter.acquire().await;
        }
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_by_the_rate() {
        let limiter = RateLimiter::new(Limit { qps: 10.0, burst: 5 });
        assert_eq!(time_of(&limiter, 5).await, Duration::ZERO);
        assert_eq!(time_of(&limiter, 10).await.as_millis(), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_limit_counts_at_once() {
        let limiter = RateLimiter::new(Limit { qps: 1.0, burst: 1 });
        limiter.acquire().await;
        limiter.set(Limit { qps: 100.0, burst: 1 });
        assert!(time_of(&limiter, 10).await <= Duration::from_millis(110));
        limiter.set(Limit { qps: 0.0, burst: 0 });
        assert_eq!(time_of(&limiter, 1000).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_together_are_spread() {
        let limiter = RateLimiter::new(Limit { qps: 10.0, burst: 1 });
        let started = Instant::now();
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    limiter.acquire().await;
                    Instant::now()
                })
            })
            .collect();
        let mut times = Vec::new();
        for one in waiting {
            times.push((one.await.unwrap() - started).as_millis());
        }
        times.sort_unstable();
        assert_eq!(times, [0, 100, 200, 300, 400]);
    }
}
