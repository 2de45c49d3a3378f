//! Ways into guests as WebSockets, as a browser or another program opens them.

use anyhow::{Context as _, Result, ensure};
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::Client;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::test_host::PATIENCE;

/// The path of a way into an instance in the namespace `default`.
pub(crate) fn path(version: &str, name: &str, way: &str) -> String {
    format!("/apis/subresources.kubevirt.io/{version}/namespaces/default/virtualmachineinstances/{name}/{way}")
}

/// A way that is open.
pub(crate) struct Socket {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    /// What the server has chosen of the protocols that were offered.
    pub(crate) protocol: Option<String>,
    heard: BytesMut,
}

impl Socket {
    /// Opens one with these headers; otherwise tells the code and the words of the refusal.
    pub(crate) async fn open(
        client: &Client,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Result<Self, (StatusCode, String)>> {
        let mut request = Request::get(path)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = client.send(request.body(kube::client::Body::empty())?).await?;
        let code = answer.status();
        if code != StatusCode::SWITCHING_PROTOCOLS {
            let body = answer.into_body().collect().await?.to_bytes();
            return Ok(Err((code, String::from_utf8_lossy(&body).into_owned())));
        }
        let chosen = answer.headers().get("sec-websocket-protocol").and_then(|value| value.to_str().ok());
        let protocol = chosen.map(str::to_owned);
        let upgraded = TokioIo::new(hyper::upgrade::on(answer).await?);
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await;
        Ok(Ok(Self { socket, protocol, heard: BytesMut::new() }))
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.socket.send(Message::Binary(Bytes::copy_from_slice(bytes))).await?)
    }

    async fn next(&mut self) -> Result<Message> {
        let message = timeout(PATIENCE, self.socket.next()).await.context("nothing came")?;
        Ok(message.context("the connection ended without a word")??)
    }

    async fn more(&mut self) -> Result<()> {
        match self.next().await? {
            Message::Binary(bytes) => self.heard.extend_from_slice(&bytes),
            Message::Close(frame) => anyhow::bail!("it was closed: {frame:?}"),
            _ => {}
        }
        Ok(())
    }

    /// The next so many bytes.
    pub(crate) async fn exactly(&mut self, length: usize) -> Result<Bytes> {
        while self.heard.len() < length {
            self.more().await?;
        }
        Ok(self.heard.split_to(length).freeze())
    }

    /// Waits for words.
    pub(crate) async fn until(&mut self, words: &str) -> Result<()> {
        loop {
            let found = self.heard.windows(words.len()).position(|window| window == words.as_bytes());
            if let Some(at) = found {
                drop(self.heard.split_to(at + words.len()));
                return Ok(());
            }
            self.more().await.with_context(|| {
                format!("{words:?} did not come, but {:?}", String::from_utf8_lossy(&self.heard).trim())
            })?;
        }
    }

    /// How it is closed, whatever comes before that.
    pub(crate) async fn closed(&mut self) -> Result<(u16, String)> {
        loop {
            if let Message::Close(frame) = self.next().await? {
                let frame = frame.context("it was closed without a reason")?;
                // The answer that the protocol has for it.
                while let Some(Ok(_)) = self.socket.next().await {}
                return Ok((frame.code.into(), frame.reason.to_string()));
            }
        }
    }

    /// The greeting of a VNC server.
    pub(crate) async fn greeting(&mut self) -> Result<()> {
        let greeting = self.exactly(12).await?;
        ensure!(greeting.starts_with(b"RFB 003."), "{greeting:?}");
        Ok(())
    }
}
