//! Clients that send one request after the other.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use e2e::http::{Connection, Server};
use futures_util::future::try_join_all;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::Instant;

use super::objects::{Kind, NAMESPACE, namespace};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];
/// How often a list is repeated.
const LISTS: usize = 7;
/// How many bytes two lists of the same objects may differ by.
const VERSION_DIGITS: usize = 4;

/// How long each of many requests took.
#[derive(Debug, Default)]
pub(super) struct Timings {
    times: Vec<Duration>,
    whole: Duration,
}

impl Timings {
    pub(super) fn new(mut times: Vec<Duration>, whole: Duration) -> Self {
        times.sort();
        Self { times, whole }
    }

    pub(super) fn percentile(&self, percentile: usize) -> Duration {
        let index = (self.times.len() * percentile / 100).min(self.times.len().saturating_sub(1));
        self.times.get(index).copied().unwrap_or_default()
    }

    /// Requests per second.
    pub(super) fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let count = self.times.len() as f64;
        count / self.whole.as_secs_f64()
    }
}

/// The clients of one server, and what they made so far.
pub(super) struct Load {
    server: Server,
    made: [usize; 2],
}

impl Load {
    pub(super) fn new(server: &Server) -> Self {
        Self { server: server.clone(), made: [0; 2] }
    }

    pub(super) async fn create(&mut self, kind: Kind, clients: usize, count: usize) -> Result<Timings> {
        let first = self.made[index(kind)];
        self.made[index(kind)] += count;
        self.create_in(NAMESPACE, kind, first, clients, count).await
    }

    /// Puts objects into a namespace of their own.
    pub(super) async fn fill(&mut self, place: &str, kind: Kind, count: usize, clients: usize) -> Result<()> {
        namespace(&mut self.server.connect().await?, place).await?;
        self.create_in(place, kind, 0, clients, count).await.map(|_| ())
    }

    async fn create_in(&self, place: &str, kind: Kind, first: usize, clients: usize, count: usize) -> Result<Timings> {
        let path = kind.path(place);
        self.each(clients, count, async |connection, number| {
            let body = kind.body(&format!("o{}", first + number), number, None);
            expect(connection, Method::POST, &path, &JSON, body, StatusCode::CREATED).await
        })
        .await
    }

    pub(super) async fn get(&self, kind: Kind, clients: usize, count: usize) -> Result<Timings> {
        let (path, made) = (kind.path(NAMESPACE), self.made[index(kind)]);
        self.each(clients, count, async |connection, number| {
            let path = format!("{path}/o{}", number % made);
            expect(connection, Method::GET, &path, &[], Bytes::new(), StatusCode::OK).await
        })
        .await
    }

    /// Whole objects, each with the version that was read just before; only the writing is measured.
    pub(super) async fn update(&self, kind: Kind, clients: usize, count: usize) -> Result<Timings> {
        let path = kind.path(NAMESPACE);
        let count = count.min(self.made[index(kind)]);
        let start = Instant::now();
        let next = Cell::new(0);
        let work = (0..clients).map(|_| async {
            let mut connection = self.server.connect().await?;
            let mut times = Vec::new();
            while next.get() < count {
                let number = next.replace(next.get() + 1);
                let path = format!("{path}/o{number}");
                let old = connection.ask(Method::GET, &path, &[], Bytes::new()).await?;
                let version = version(old.body()).context("an object without a version")?;
                let body = kind.body(&format!("o{number}"), number + 1, Some(&version));
                let begin = Instant::now();
                expect(&mut connection, Method::PUT, &path, &JSON, body, StatusCode::OK).await?;
                times.push(begin.elapsed());
            }
            anyhow::Ok(times)
        });
        let times: Vec<Duration> = try_join_all(work).await?.concat();
        // The reads take their part of the time; what remains is told by the share of the writes.
        let writing: Duration = times.iter().sum();
        let busy = writing.div_f64(f64::from(u32::try_from(clients)?)).min(start.elapsed());
        Ok(Timings::new(times, busy))
    }

    /// Lists so many objects, and gives the size of the list. A first list, which is not measured, is understood; of the others
    /// the bytes are counted: each is as long.
    pub(super) async fn list(&self, place: &str, kind: Kind, count: usize) -> Result<(Timings, usize)> {
        let mut connection = self.server.connect().await?;
        let path = kind.path(place);
        let whole = connection.ask(Method::GET, &path, &[], Bytes::new()).await?;
        let size = checked_list(whole.body(), count).with_context(|| format!("{path}: {}", whole.status()))?;
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..LISTS {
            let begin = Instant::now();
            let answer = connection.send(Method::GET, &path, &[], Bytes::new()).await?;
            ensure!(answer.status() == StatusCode::OK, "list: {}", answer.status());
            let (mut body, mut bytes) = (answer.into_body(), 0);
            while let Some(frame) = body.frame().await {
                bytes += frame?.data_ref().map_or(0, Bytes::len);
            }
            times.push(begin.elapsed());
            // Other writers move the list's own version on, which may then be longer by a digit.
            ensure!(bytes.abs_diff(size) <= VERSION_DIGITS, "a list of {size} bytes has {bytes}");
        }
        Ok((Timings::new(times, start.elapsed()), size))
    }

    /// Mostly reads, some changes, a few short lists, as controllers and users make them.
    pub(super) async fn mixed(&self, clients: usize, duration: Duration) -> Result<Timings> {
        let start = Instant::now();
        let made = self.made[index(Kind::Instance)];
        let path = Kind::Instance.path(NAMESPACE);
        let work = (0..clients).map(|client| {
            let path = &path;
            async move {
                let mut connection = self.server.connect().await?;
                let mut times = Vec::new();
                let mut round = 0;
                while start.elapsed() < duration {
                    let begin = Instant::now();
                    one(&mut connection, path, client, round, made).await?;
                    times.push(begin.elapsed());
                    round += 1;
                }
                anyhow::Ok(times)
            }
        });
        let times = try_join_all(work).await?.concat();
        Ok(Timings::new(times, start.elapsed()))
    }

    async fn each(
        &self,
        clients: usize,
        count: usize,
        request: impl AsyncFn(&mut Connection, usize) -> Result<()>,
    ) -> Result<Timings> {
        let mut connections = Vec::new();
        for _ in 0..clients {
            connections.push(self.server.connect().await?);
        }
        let (next, request) = (Cell::new(0), &request);
        let start = Instant::now();
        let work = connections.into_iter().map(|mut connection| {
            let next = &next;
            async move {
                let mut times = Vec::new();
                while next.get() < count {
                    let number = next.replace(next.get() + 1);
                    let begin = Instant::now();
                    request(&mut connection, number).await?;
                    times.push(begin.elapsed());
                }
                anyhow::Ok(times)
            }
        });
        let times = try_join_all(work).await?.concat();
        Ok(Timings::new(times, start.elapsed()))
    }
}

/// One request of the mix, chosen by its round; a client deletes what it made in the round before.
async fn one(connection: &mut Connection, path: &str, client: usize, round: usize, made: usize) -> Result<()> {
    let object = format!("{path}/o{}", (round * 31 + client) * 7 % made);
    match round % 20 {
        0..=13 => expect(connection, Method::GET, &object, &[], Bytes::new(), StatusCode::OK).await,
        14..=16 => {
            let patch = format!(r#"{{"metadata":{{"annotations":{{"bench/round":"{client}-{round}"}}}}}}"#);
            expect(connection, Method::PATCH, &object, &MERGE, patch.into(), StatusCode::OK).await
        }
        17 => {
            let body = Kind::Instance.body(&format!("m{client}"), round, None);
            expect(connection, Method::POST, path, &JSON, body, StatusCode::CREATED).await
        }
        18 => {
            let path = format!("{path}/m{client}");
            expect(connection, Method::DELETE, &path, &[], Bytes::new(), StatusCode::OK).await
        }
        _ => {
            let path = format!("{path}?limit=50");
            expect(connection, Method::GET, &path, &[], Bytes::new(), StatusCode::OK).await
        }
    }
}

/// Sends a request and drains its answer.
pub(super) async fn expect(
    connection: &mut Connection,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
    wanted: StatusCode,
) -> Result<()> {
    let answer = connection.ask(method, path, headers, body).await?;
    if answer.status() != wanted {
        bail!("{path}: {} {}", answer.status(), String::from_utf8_lossy(answer.body()));
    }
    Ok(())
}

/// One request on a connection of its own.
pub(super) async fn ask(server: &Server, method: Method, path: &str) -> Result<StatusCode> {
    Ok(server.connect().await?.ask(method, path, &[], Bytes::new()).await?.status())
}

/// The first resource version in a body, found without understanding the rest.
pub(super) fn version(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("\"resourceVersion\":")?;
    Some(rest.trim_start().strip_prefix('"')?.split_once('"')?.0.to_owned())
}

/// The size of a list that has so many whole objects.
fn checked_list(body: &[u8], count: usize) -> Result<usize> {
    let list: Value = serde_json::from_slice(body).context("the list is no JSON")?;
    let items = list["items"].as_array().context("the list has no items")?;
    ensure!(items.len() == count, "{} objects are listed, not {count}", items.len());
    ensure!(
        items.iter().all(|item| item["spec"].is_object() && item["metadata"]["uid"].is_string()),
        "a part of an object"
    );
    Ok(body.len())
}

fn index(kind: Kind) -> usize {
    usize::from(kind == Kind::Instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_sorted_times() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        let timings = Timings::new(times, Duration::from_secs(2));
        assert_eq!(timings.percentile(50), Duration::from_millis(51));
        assert_eq!(timings.percentile(99), Duration::from_millis(100));
        assert!((timings.rate() - 50.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_list_is_of_as_many_whole_objects_as_were_made() {
        let item = r#"{"metadata":{"uid":"u"},"spec":{}}"#;
        let body = format!(r#"{{"items":[{item},{item}]}}"#);
        assert_eq!(checked_list(body.as_bytes(), 2).unwrap(), body.len());
        assert!(checked_list(body.as_bytes(), 3).is_err());
        assert!(checked_list(br#"{"items":[{"metadata":{"uid":"u"}}]}"#, 1).is_err());
        assert!(checked_list(b"{}", 0).is_err());
    }

    #[test]
    fn the_version_is_found_in_either_spacing() {
        assert_eq!(version(br#"{"metadata":{"resourceVersion":"12"}}"#).as_deref(), Some("12"));
        assert_eq!(version(br#"{"resourceVersion": "7"}"#).as_deref(), Some("7"));
        assert_eq!(version(b"{}"), None);
    }
}
