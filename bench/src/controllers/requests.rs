//! How many requests a server had, or a program made, by their own counts: ours and a real one count under the same names.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::PATIENCE;

/// What a server counts.
const SERVED: &str = "apiserver_request_total{";
/// What a program counts.
const ASKED: &str = "rest_client_requests_total{";
/// Written to say that somebody is there, however little there is to do.
const SIGNS_OF_LIFE: [&str; 2] = ["leases", "nodes"];
/// From one look at the server's count to the next.
const LOOK: Duration = Duration::from_millis(20);
/// The same, where the looks themselves should cost nothing.
const RARE_LOOK: Duration = Duration::from_millis(250);

/// Requests by verb and resource, such as `POST pods/binding`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// All so far.
    ///
    /// # Errors
    /// When the server does not tell.
    pub async fn so_far(client: &Client) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(Self::read(&client.request_text(request).await?, SERVED))
    }

    /// What a program's page of metrics tells.
    #[must_use]
    pub fn of_program(metrics: &str) -> Self {
        Self::read(metrics, ASKED)
    }

    /// All so far, once nobody has written anything but signs of life for so long.
    ///
    /// # Errors
    /// When the server does not tell, or somebody goes on writing.
    pub async fn at_rest(client: &Client, quiet: Duration) -> Result<Self> {
        let rest = async {
            let (mut last, mut since) = (Self::so_far(client).await?, Instant::now());
            while since.elapsed() < quiet {
                sleep(RARE_LOOK).await;
                let now = Self::so_far(client).await?;
                if now.writes() != last.writes() {
                    since = Instant::now();
                }
                last = now;
            }
            Ok(last)
        };
        timeout(PATIENCE, rest).await.context("writes do not end")?
    }

    /// Those since an earlier look, once so many of one sort are among them. A server counts a request when it has answered
    /// it, which may be after a watch has told what it did.
    ///
    /// # Errors
    /// When the server does not tell, or they do not come.
    pub async fn answered(client: &Client, earlier: &Self, what: &str, count: usize) -> Result<Self> {
        let counted = async {
            loop {
                let requests = Self::so_far(client).await?.since(earlier);
                if requests.0.get(what).is_some_and(|known| *known >= count as u64) {
                    return Ok(requests);
                }
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, counted).await.with_context(|| format!("the server did not count {count} {what}"))?
    }

    fn read(text: &str, counter: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(counter)) {
            let Some((labels, count)) = line.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let labels = labels.split(',').filter_map(|label| label.split_once('='));
                let found = labels.into_iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| value.trim_matches('"')).unwrap_or_default()
            };
            // Ours counts by what a request does, a real one by its method.
            let verb = match label("verb") {
                "CREATE" => "POST",
                "UPDATE" => "PUT",
                verb => verb,
            };
            let what = match label("subresource") {
                "" => format!("{verb} {}", label("resource")),
                part => format!("{verb} {}/{part}", label("resource")),
            };
            *counts.entry(what).or_default() += count.parse().unwrap_or(0_u64);
        }
        Self(counts)
    }

    /// Those since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |what: &String| earlier.0.get(what).copied().unwrap_or_default();
        let rest = self.0.iter().map(|(what, count)| (what.clone(), count.saturating_sub(before(what))));
        Self(rest.filter(|(_, count)| *count > 0).collect())
    }

    /// Without so many that the load itself made.
    #[must_use]
    pub fn without(mut self, what: &str, count: usize) -> Self {
        if let Some(known) = self.0.get_mut(what) {
            *known = known.saturating_sub(count as u64);
        }
        self.0.retain(|_, count| *count > 0);
        self
    }

    /// Those about objects, without signs of life and without discovery and metrics.
    #[must_use]
    pub fn of_work(&self) -> Self {
        self.filtered(|_, resource| !resource.is_empty() && !SIGNS_OF_LIFE.contains(&resource))
    }

    /// Those of [`Self::of_work`] that change something.
    #[must_use]
    pub fn writes(&self) -> Self {
        self.of_work()
            .filtered(|verb, _| matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION"))
    }

    /// How many changes there are, and how many events about them.
    #[must_use]
    pub fn writes_and_events(&self) -> (f64, f64) {
        let (writes, is_event) = (self.writes(), |resource: &str| resource == "events");
        (writes.filtered(|_, one| !is_event(one)).total(), writes.filtered(|_, one| is_event(one)).total())
    }

    fn filtered(&self, keep: impl Fn(&str, &str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(what, _)| {
            let (verb, resource) = what.split_once(' ').unwrap_or((what, ""));
            keep(verb, resource.split('/').next().unwrap_or_default())
        });
        Self(kept.map(|(what, count)| (what.clone(), *count)).collect())
    }

    /// All of them: two programs are compared fairly only where this is about the same.
    #[must_use]
    pub fn total(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let total = self.0.values().sum::<u64>() as f64;
        total
    }

    /// Per object, the most frequent first; what is rarer than one in a hundred is left out.
    #[must_use]
    pub fn per(&self, objects: usize) -> String {
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let share = |count: u64| count as f64 / objects.max(1) as f64;
        let mut all: Vec<_> = self.0.iter().map(|(what, count)| (share(*count), what)).collect();
        all.retain(|(share, _)| *share >= 0.01);
        all.sort_by(|one, other| other.0.total_cmp(&one.0));
        let texts: Vec<_> = all.iter().map(|(share, what)| format!("{share:.2} {what}")).collect();
        if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let text = "# HELP\napiserver_request_total{code=\"200\",resource=\"pods\",subresource=\"\",verb=\"GET\"} 3\n\
            apiserver_request_total{code=\"404\",resource=\"pods\",subresource=\"\",verb=\"GET\"} 1\n\
            apiserver_request_total{code=\"201\",resource=\"pods\",subresource=\"binding\",verb=\"POST\"} 8\n\
            apiserver_request_duration_seconds_count{verb=\"GET\"} 9\n";
        let before = Requests::read("apiserver_request_total{verb=\"GET\",resource=\"pods\"} 2\n", SERVED);
        let counted = Requests::read(text, SERVED).since(&before);
        assert_eq!(counted.per(4), "2.00 POST pods/binding, 0.50 GET pods");
        assert_eq!(counted.without("POST pods/binding", 8).per(4), "0.50 GET pods");
        assert_eq!(before.since(&before).per(4), "none");
    }
    #[test]
    fn leases_heartbeats_and_pages_are_no_work() {
        let lines = [("PATCH", "leases"), ("PATCH", "nodes"), ("GET", ""), ("WATCH", "pods"), ("POST", "pods")];
        let text: String = lines
            .iter()
            .map(|(verb, resource)| {
                format!("rest_client_requests_total{{verb=\"{verb}\",resource=\"{resource}\"}} 2\n")
            })
            .collect();
        let requests = Requests::of_program(&text);
        assert_eq!(requests.of_work().per(1), "2.00 POST pods, 2.00 WATCH pods");
        assert_eq!(requests.writes().per(1), "2.00 POST pods");
        assert_eq!(requests.writes_and_events(), (2.0, 0.0));
    }
}
