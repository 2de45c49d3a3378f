//! Bodies of answers: whole, or made piece by piece while they are sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

/// An answer that ended before it was whole. Whoever sends it breaks the connection off, so that no client takes it for the whole.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub struct BrokenOff(#[source] Box<dyn std::error::Error + Send + Sync>);

/// The body of an answer.
pub struct Body {
    kind: Kind,
    /// Let go of when the answer has ended, however it does.
    kept: Vec<Box<dyn Send>>,
}

enum Kind {
    Whole(Option<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    Passed(UnsyncBoxBody<Bytes, BrokenOff>),
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { kind: Kind::Whole(Some(bytes.into())), kept: Vec::new() }
    }

    pub(crate) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { kind: Kind::Stream(Box::pin(stream)), kept: Vec::new() }
    }

    /// What another server answers, as it comes.
    pub fn passed<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let body = body.map_err(|error| BrokenOff(error.into())).boxed_unsync();
        Self { kind: Kind::Passed(body), kept: Vec::new() }
    }

    /// Keeps something until the answer has ended.
    pub(crate) fn keep(&mut self, kept: impl Send + 'static) {
        self.kept.push(Box::new(kept));
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::whole(bytes)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match &mut self.kind {
            Kind::Whole(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Stream(stream) => {
                stream.as_mut().poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Passed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Stream(_) => SizeHint::default(),
            Kind::Passed(body) => body.size_hint(),
        }
    }
}
