//! How many requests a server had, by its own count: ours and a real one count under the same names.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::PATIENCE;

const COUNTER: &str = "apiserver_request_total{";
/// From one look at the server's count to the next.
const LOOK: Duration = Duration::from_millis(20);

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
        Ok(Self::read(&client.request_text(request).await?))
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

    fn read(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(COUNTER)) {
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
        let before = Requests::read("apiserver_request_total{verb=\"GET\",resource=\"pods\"} 2\n");
        let counted = Requests::read(text).since(&before);
        assert_eq!(counted.per(4), "2.00 POST pods/binding, 0.50 GET pods");
        assert_eq!(counted.without("POST pods/binding", 8).per(4), "0.50 GET pods");
        assert_eq!(before.since(&before).per(4), "none");
    }
}
