//! Figures of an API server, taken from outside: the same requests for every server, over TLS, one connection per
//! simulated client.

mod load;
mod objects;
mod watch;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::http::Server;
use e2e::kubeconfig::Kubeconfig;
use serde_json::json;
use tokio::time::Instant;

use crate::resident_kib;
use load::{Load, Timings};
use objects::Kind;

/// How much is done; everything is bounded by one of these.
#[derive(Debug, Clone)]
pub struct Scale {
    /// How many objects the largest list has.
    pub objects: usize,
    /// How many requests one figure takes.
    pub requests: usize,
    /// How many clients there are at once.
    pub clients: usize,
    /// How many events one figure of watches takes.
    pub events: usize,
    /// How long the mixed load takes.
    pub duration: Duration,
}

/// A server to measure.
pub struct Target {
    /// What its figures are named with.
    pub name: String,
    pub server: Server,
    /// The processes that it consists of, for their memory; none when they are not ours.
    pub processes: Vec<u32>,
    /// How long its start took, when it was ours to start.
    pub started: Option<Duration>,
    /// How it was built.
    pub profile: String,
}

/// One figure.
#[derive(Debug, Clone)]
pub struct Figure {
    pub figure: String,
    pub value: f64,
    pub unit: &'static str,
    pub server: String,
    /// How the server was built, if that is known.
    pub profile: String,
}

impl Figure {
    /// As one line of JSON.
    #[must_use]
    pub fn line(&self) -> String {
        let value = (self.value * 1000.0).round() / 1000.0;
        let Self { figure, unit, server, profile, .. } = self;
        json!({ "figure": figure, "value": value, "unit": unit, "server": server, "profile": profile }).to_string()
    }
}

/// Takes all figures of a server, and hands each on as soon as it is there.
///
/// # Errors
/// When the server refuses what it should take.
pub async fn measure(target: &Target, scale: &Scale, tell: &mut dyn FnMut(Figure)) -> Result<()> {
    let mut bench = Bench { target, scale, load: Load::new(&target.server), tell };
    if let Some(started) = target.started {
        bench.tell("start-up to ready", millis(started), "ms");
    }
    bench.memory("resident memory, empty");
    objects::prepare(&target.server).await?;
    bench.memory("resident memory, all CRDs");
    bench.single().await?;
    bench.lists().await?;
    for watchers in [1, 10, 100] {
        let seen = watch::fan_out(&target.server, watchers, scale.events).await?;
        let name = format!("watch fan-out to {watchers}");
        bench.tell(&format!("{name}, delivered"), seen.rate, "events/s");
        bench.latencies(&name, &seen.latencies);
    }
    let mixed = bench.load.mixed(scale.clients, scale.duration).await?;
    bench.requests(&format!("mixed load, {} clients", scale.clients), &mixed);
    Ok(())
}

struct Bench<'a> {
    target: &'a Target,
    scale: &'a Scale,
    load: Load,
    tell: &'a mut dyn FnMut(Figure),
}

impl Bench<'_> {
    /// One request at a time and many, on small and on large objects.
    async fn single(&mut self) -> Result<()> {
        let (requests, clients) = (self.scale.requests, self.scale.clients);
        for kind in [Kind::ConfigMap, Kind::Instance] {
            let name = kind.name();
            let one = self.load.create(kind, 1, requests / 4).await?;
            self.requests(&format!("create {name}, 1 client"), &one);
            let many = self.load.create(kind, clients, requests).await?;
            self.requests(&format!("create {name}, {clients} clients"), &many);
            let get = self.load.get(kind, clients, requests).await?;
            self.requests(&format!("get {name}, {clients} clients"), &get);
            let one = self.load.get(kind, 1, requests / 4).await?;
            self.requests(&format!("get {name}, 1 client"), &one);
            let update = self.load.update(kind, clients, requests).await?;
            self.requests(&format!("update {name}, {clients} clients"), &update);
        }
        Ok(())
    }

    /// Lists of a tenth and of all objects.
    async fn lists(&mut self) -> Result<()> {
        for count in [self.scale.objects / 10, self.scale.objects] {
            let namespace = format!("bench-list-{count}");
            self.load.fill(&namespace, Kind::Instance, count, self.scale.clients).await?;
            let (times, bytes) = self.load.list(&namespace, Kind::Instance, count).await?;
            let median = times.percentile(50);
            // Who sends less for the same objects is faster for that alone.
            #[expect(clippy::cast_precision_loss, reason = "sizes of lists are small")]
            self.tell(&format!("list {count} instances, size"), bytes as f64, "bytes");
            self.tell(&format!("list {count} instances"), millis(median), "ms");
            #[expect(clippy::cast_precision_loss, reason = "counts are small")]
            self.tell(&format!("list {count} instances, rate"), count as f64 / median.as_secs_f64(), "objects/s");
        }
        self.memory(&format!("resident memory, {} instances more", self.scale.objects + self.scale.objects / 10));
        Ok(())
    }

    fn requests(&mut self, name: &str, timings: &Timings) {
        self.tell(name, timings.rate(), "requests/s");
        self.latencies(name, timings);
    }

    fn latencies(&mut self, name: &str, timings: &Timings) {
        for percentile in [50, 99] {
            self.tell(&format!("{name}, P{percentile}"), millis(timings.percentile(percentile)), "ms");
        }
    }

    fn memory(&mut self, name: &str) {
        let kib: u64 = self.target.processes.iter().map(|process| resident_kib(*process)).sum();
        if kib > 0 {
            #[expect(clippy::cast_precision_loss, reason = "memory sizes fit")]
            self.tell(name, kib as f64 / 1024.0, "MiB");
        }
    }

    fn tell(&mut self, name: &str, value: f64, unit: &'static str) {
        let (server, profile) = (self.target.name.clone(), self.target.profile.clone());
        (self.tell)(Figure { figure: name.to_owned(), value, unit, server, profile });
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Waits until the server of a kubeconfig says that it is ready, and gives it with the time since `start`. Every server is
/// asked in the same way, from its very start: the file, or what it names, may still be missing.
///
/// # Errors
/// When it never is.
pub async fn ready(kubeconfig: &Path, start: Instant) -> Result<(Server, Duration)> {
    let ask = async {
        loop {
            if let Ok(server) = Kubeconfig::read(kubeconfig).and_then(|config| Server::new(&config))
                && load::ask(&server, http::Method::GET, "/readyz").await.is_ok_and(|status| status == 200)
            {
                return (server, start.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(testkit::NEVER, ask).await.context("the server does not get ready")
}
