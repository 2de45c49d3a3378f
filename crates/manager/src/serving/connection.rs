//! One connection, from its first byte to its last: slow and silent clients are cut.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use k8s_openapi::api::authentication::v1::UserInfo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::answer::{self, Answer};
use super::guard::subject;
use crate::accepting::SLOWEST_END;

/// Handshake, and then the first request, have this long each.
const SLOWEST_START: Duration = Duration::from_secs(10);
/// The next request has this long to come, and the last answer to be read. Longer than the pause between two scrapes.
const LONGEST_PAUSE: Duration = Duration::from_secs(90);
/// Head of a request.
const MOST_HEAD: usize = 16 * 1024;
/// Requests at once over one HTTP/2 connection.
const MOST_STREAMS: u32 = 32;

/// Serves a connection until either side ends it.
pub(super) async fn serve<S>(stream: S, shared: Arc<Shared>, stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let acceptor = TlsAcceptor::from(shared.certificates.config());
    let Ok(Ok(stream)) = timeout(SLOWEST_START, acceptor.accept(stream)).await else { return };
    let (_, session) = stream.get_ref();
    let proven = session.peer_certificates().and_then(|chain| chain.first()).and_then(|first| subject(first));
    let http2 = session.alpn_protocol() == Some(b"h2");
    let activity = Arc::new(Activity::new());
    let counted = activity.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, proven, running) = (shared.clone(), proven.clone(), counted.start());
        async move {
            let answer = respond(&shared, proven.as_ref(), &request).await;
            drop(running);
            Ok::<_, Infallible>(answer)
        }
    });
    // By ALPN, not by the first bytes: who waits for those may wait for ever.
    if http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(u32::try_from(MOST_HEAD).unwrap_or(u32::MAX))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(30));
        drive(builder.serve_connection(TokioIo::new(stream), service), &activity, stopped).await;
    } else {
        let mut builder = http1::Builder::new();
        // Hyper's limit on heads would also run in the pause between two requests; the one on pauses covers both.
        builder.header_read_timeout(None).max_buf_size(MOST_HEAD);
        drive(builder.serve_connection(TokioIo::new(stream), service), &activity, stopped).await;
    }
}

/// Runs a connection until it ends, must end, or was quiet for too long.
async fn drive<C>(connection: C, activity: &Activity, mut stopped: watch::Receiver<bool>)
where
    C: GracefulConnection,
    C::Error: Display,
{
    let mut connection = std::pin::pin!(connection);
    // What the connection itself has to say comes first.
    tokio::select! {
        biased;
        ended = connection.as_mut() => return told(ended),
        _ = stopped.wait_for(|stopped| *stopped) => {
            // Who has not asked for anything is owed no answer, and an HTTP/2 client may never even say hello.
            if !activity.spoke() {
                return;
            }
        }
        () = activity.quiet() => {
            if !activity.spoke() {
                return;
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    if let Ok(ended) = timeout(SLOWEST_END, connection).await {
        told(ended);
    }
}

fn told<E: Display>(ended: Result<(), E>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn respond<B>(shared: &Shared, proven: Option<&Arc<UserInfo>>, request: &Request<B>) -> Answer {
    let verb = match *request.method() {
        Method::GET => "get",
        Method::HEAD => "head",
        _ => return answer::wrong_method(),
    };
    let path = request.uri().path();
    let answer = match shared.guard.pass(proven, verb, path, request.headers()).await {
        Ok(()) => shared.pages.show(path, request.uri().query().unwrap_or_default()),
        Err(refusal) => refusal,
    };
    answer::for_method(answer, request.method())
}

/// When something was last asked on a connection.
struct Activity(Mutex<Asked>);

struct Asked {
    running: usize,
    spoke: bool,
    last: Instant,
}

impl Activity {
    fn new() -> Self {
        Self(Mutex::new(Asked { running: 0, spoke: false, last: Instant::now() }))
    }

    /// A request runs for as long as what this gives is kept.
    fn start(self: &Arc<Self>) -> Running {
        self.with(|asked| {
            asked.running += 1;
            asked.spoke = true;
        });
        Running(self.clone())
    }

    fn spoke(&self) -> bool {
        self.with(|asked| asked.spoke)
    }

    /// Resolves when nothing was asked for too long. A running request has limits of its own.
    async fn quiet(&self) {
        loop {
            let until = self.with(|asked| match asked {
                Asked { running: 0, spoke: false, last } => *last + SLOWEST_START,
                Asked { running: 0, spoke: true, last } => *last + LONGEST_PAUSE,
                _ => Instant::now() + LONGEST_PAUSE,
            });
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Asked) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Running(Arc<Activity>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.with(|asked| {
            asked.running -= 1;
            asked.last = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests;
