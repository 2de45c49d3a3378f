//! One writer, many watchers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use e2e::http::Server;
use futures_util::future::try_join_all;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::load::{Timings, expect, version};
use super::objects::{Kind, namespace};

/// How long all events of one figure may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the watchers saw.
pub(super) struct Seen {
    /// Events delivered per second, over all watchers.
    pub(super) rate: f64,
    /// From the sending of a write to the arrival of its event.
    pub(super) latencies: Timings,
}

/// Opens watches, then writes as fast as one client can, and waits until every watcher has every event.
pub(super) async fn fan_out(server: &Server, watchers: usize, events: usize) -> Result<Seen> {
    let place = format!("bench-watch-{watchers}");
    let path = Kind::ConfigMap.path(&place);
    let mut writer = server.connect().await?;
    namespace(&mut writer, &place).await?;
    let list = writer.ask(Method::GET, &path, &[], Bytes::new()).await?;
    let version = version(list.body()).context("a list without a version")?;
    let mut streams = Vec::new();
    for _ in 0..watchers {
        let mut connection = server.connect().await?;
        let target = format!("{path}?watch=true&resourceVersion={version}");
        let answer = connection.send(Method::GET, &target, &[], Bytes::new()).await?;
        ensure!(answer.status() == StatusCode::OK, "watch: {}", answer.status());
        streams.push((connection, answer.into_body()));
    }
    let start = Instant::now();
    let write = async {
        let mut sent = Vec::new();
        for number in 0..events {
            sent.push(Instant::now());
            let body = Kind::ConfigMap.body(&format!("e{number}"), number, None);
            expect(
                &mut writer,
                Method::POST,
                &path,
                &[("content-type", "application/json")],
                body,
                StatusCode::CREATED,
            )
            .await?;
        }
        anyhow::Ok(sent)
    };
    let read = try_join_all(streams.iter_mut().map(|(_, body)| arrivals(body, events)));
    let (sent, arrived) = tokio::time::timeout(PATIENCE, async { tokio::try_join!(write, read) })
        .await
        .context("not every event was delivered")??;
    let whole = start.elapsed();
    let latencies: Vec<Duration> =
        arrived.iter().flat_map(|times| times.iter().zip(&sent).map(|(arrived, sent)| *arrived - *sent)).collect();
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let rate = latencies.len() as f64 / whole.as_secs_f64();
    Ok(Seen { rate, latencies: Timings::new(latencies, whole) })
}

/// When each event came; a frame ends with a line.
async fn arrivals(body: &mut Incoming, events: usize) -> Result<Vec<Instant>> {
    let mut times = Vec::with_capacity(events);
    while times.len() < events {
        let frame = body.frame().await.context("a watch ended")??;
        let now = Instant::now();
        let ends = frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
        times.extend(std::iter::repeat_n(now, ends));
    }
    Ok(times)
}
