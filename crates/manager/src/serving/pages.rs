//! What is shown, and under which path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::answer::{Answer, JSON, TEXT, answer, missing};
use super::health::{self, Asked, Report};
use crate::context::{Debugging, HealthCheck};

const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is shown. Clones share it; controllers are added as they start.
#[derive(Clone)]
pub struct Pages {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    registry: Mutex<Registry>,
    configurations: Mutex<BTreeMap<String, Value>>,
    /// In the order in which they came, as Kubernetes tells them.
    checks: Mutex<Vec<(String, HealthCheck)>>,
    controllers: Mutex<BTreeMap<String, Debugging>>,
    is_ready: Arc<AtomicBool>,
    ready: Gauge,
    leading: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: String,
}

impl Pages {
    /// Pages of a manager of this name, such as `kube-controller-manager`. It is not ready and does not lead.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut registry = Registry::default();
        let mut gauge = |metric: &str, help: &str| {
            let family = Family::<Name, Gauge>::default();
            registry.register(metric, help, family.clone());
            family.get_or_create_owned(&Name { name: name.to_owned() })
        };
        let ready = gauge("controller_manager_ready", "1 if everything has started");
        let leading = gauge("leader_election_master_status", "1 if this process is the leader");
        let ping: HealthCheck = Arc::new(|| Ok(()));
        Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                registry: Mutex::new(registry),
                configurations: Mutex::default(),
                checks: Mutex::new(vec![("ping".to_owned(), ping)]),
                controllers: Mutex::default(),
                is_ready: Arc::default(),
                ready,
                leading,
            }),
        }
    }

    /// Shows metrics. What is called must not come back to these pages.
    pub fn registry(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut lock(&self.inner.registry));
    }

    /// Shows a configuration under `/configz`. It must hold no secrets.
    pub fn configz(&self, name: &str, value: Value) {
        lock(&self.inner.configurations).insert(name.to_owned(), value);
    }

    /// Asks a check for `/healthz`, `/livez` and `/readyz`; it takes the place of an earlier one of that name. A check
    /// does not wait: it tells what is known.
    pub fn check(&self, name: &str, check: HealthCheck) {
        let mut checks = lock(&self.inner.checks);
        match checks.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = check,
            None => checks.push((name.to_owned(), check)),
        }
    }

    /// Shows what a controller tells of itself under `/debug/controllers/NAME`. It is asked with what follows the slash
    /// after its name; with nothing for itself.
    pub fn debug(&self, controller: &str, show: Debugging) {
        lock(&self.inner.controllers).insert(controller.to_owned(), show);
    }

    /// Shows whether it is ready and leads under other names as well, which dashboards know.
    pub fn also_known_as(&self, ready: &str, leading: &str) {
        self.registry(|registry| {
            registry.register(ready, "1 if everything has started", self.inner.ready.clone());
            registry.register(leading, "1 if this process is the leader", self.inner.leading.clone());
        });
    }

    /// Whether everything that was to start has started. Until then `/readyz` fails.
    pub fn set_ready(&self, ready: bool) {
        self.inner.is_ready.store(ready, Ordering::Release);
        self.inner.ready.set(ready.into());
    }

    /// Whether this process leads.
    pub fn set_leading(&self, leading: bool) {
        self.inner.leading.set(leading.into());
    }

    /// What is wrong, by the name of the check; nothing if all is well and has started.
    #[must_use]
    pub fn troubles(&self) -> BTreeMap<String, String> {
        let checks = self.checks("readyz");
        checks.into_iter().filter_map(|(name, check)| check().err().map(|trouble| (name, trouble))).collect()
    }

    /// Whose pages these are.
    pub(super) fn name(&self) -> &str {
        &self.inner.name
    }

    /// Shows the page at a path, to someone who may see it.
    pub(super) fn show(&self, path: &str, query: &str) -> Answer {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
        match (first, rest) {
            ("healthz" | "livez" | "readyz", None) => told(first, self.all_checks(first, query)),
            ("healthz" | "livez" | "readyz", Some(name)) => {
                let checks = self.checks(first);
                let found = checks.iter().find(|(known, _)| known == name);
                found.map_or_else(missing, |(name, check)| told(first, health::one(name, check)))
            }
            ("metrics", None) => answer(StatusCode::OK, METRICS, self.metrics()),
            ("configz", None) => {
                let all: serde_json::Map<_, _> = lock(&self.inner.configurations).clone().into_iter().collect();
                answer(StatusCode::OK, JSON, Value::Object(all).to_string())
            }
            ("debug", Some(rest)) => {
                let shown = rest.strip_prefix("controllers/").and_then(|rest| self.of_controller(rest));
                shown.map_or_else(missing, |text| answer(StatusCode::OK, TEXT, text))
            }
            _ => missing(),
        }
    }

    fn of_controller(&self, path: &str) -> Option<String> {
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        let show = lock(&self.inner.controllers).get(name).cloned()?;
        show(rest)
    }

    fn all_checks(&self, endpoint: &str, query: &str) -> Report {
        health::all(endpoint, &self.checks(endpoint), &Asked::parse(query))
    }

    /// Readiness is for `/readyz` only: a process that still starts must not be killed for it.
    fn checks(&self, endpoint: &str) -> Vec<(String, HealthCheck)> {
        let mut checks = lock(&self.inner.checks).clone();
        if endpoint == "readyz" {
            let ready = self.inner.is_ready.clone();
            let check: HealthCheck =
                Arc::new(
                    move || if ready.load(Ordering::Acquire) { Ok(()) } else { Err("not started yet".to_owned()) },
                );
            checks.push(("started".to_owned(), check));
        }
        checks
    }

    /// The page of metrics.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &lock(&self.inner.registry)).is_err() {
            // Writing into a string cannot fail; an empty page says that it did.
            text.clear();
        }
        text
    }
}

fn told(endpoint: &str, report: Report) -> Answer {
    for (check, reason) in &report.failed {
        tracing::warn!(endpoint, check, reason, "a health check failed");
    }
    let code = if report.healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    answer(code, TEXT, report.text)
}

/// What was locked is whole even if someone panicked meanwhile: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    async fn get(pages: &Pages, path: &str) -> (u16, String) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let answer = pages.show(path, query);
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_second_check_of_a_name_replaces_the_first() {
        let pages = Pages::new("test");
        pages.check("a", Arc::new(|| Err("broken".to_owned())));
        pages.check("b", Arc::new(|| Ok(())));
        assert_eq!(get(&pages, "/livez/a").await.0, 500);
        pages.check("a", Arc::new(|| Ok(())));
        let all = "[+]ping ok\n[+]a ok\n[+]b ok\nlivez check passed\n";
        assert_eq!(get(&pages, "/livez?verbose").await, (200, all.to_owned()));
        assert_eq!(get(&pages, "/livez/a").await, (200, "ok".to_owned()));
        assert_eq!(get(&pages, "/livez/c").await.0, 404);
    }

    #[tokio::test]
    async fn only_readyz_waits_for_the_start() {
        let pages = Pages::new("test");
        assert_eq!((get(&pages, "/healthz").await.0, get(&pages, "/livez").await.0), (200, 200));
        let failed = "[+]ping ok\n[-]started failed: reason withheld\nreadyz check failed\n";
        assert_eq!(get(&pages, "/readyz").await, (500, failed.to_owned()));
        pages.set_ready(true);
        assert_eq!(get(&pages, "/readyz").await, (200, "ok".to_owned()));
        assert!(get(&pages, "/metrics").await.1.contains("controller_manager_ready{name=\"test\"} 1"));
    }

    #[tokio::test]
    async fn controllers_answer_for_what_is_below_their_name() {
        let pages = Pages::new("test");
        pages.debug("gc", Arc::new(|rest| matches!(rest, "" | "graph/x").then(|| format!("<{rest}>"))));
        assert_eq!(get(&pages, "/debug/controllers/gc").await, (200, "<>".to_owned()));
        assert_eq!(get(&pages, "/debug/controllers/gc/graph/x").await, (200, "<graph/x>".to_owned()));
        for path in ["/debug/controllers/gc/y", "/debug/controllers/other", "/debug/controllers", "/debug", "/", ""] {
            assert_eq!(get(&pages, path).await, (404, "404 page not found\n".to_owned()), "{path}");
        }
    }

    #[tokio::test]
    async fn configurations_are_one_object() {
        let pages = Pages::new("test");
        assert_eq!(get(&pages, "/configz").await, (200, "{}".to_owned()));
        pages.configz("b", json!({ "x": 1 }));
        pages.configz("a", json!(null));
        assert_eq!(get(&pages, "/configz").await.1, r#"{"a":null,"b":{"x":1}}"#);
    }
}
