//! What is counted.

use http::StatusCode;
use manager::serving::Pages;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::webhooks::Webhook;

/// Counts. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    reviews: Family<Reviewed, Counter>,
    requests: Family<Answered, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reviewed {
    webhook: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    code: u16,
}

impl Metrics {
    pub(crate) fn register(&self, pages: &Pages, streams: Gauge) {
        pages.registry(|registry| {
            registry.register("virt_api_reviews", "Admission reviews that were answered", self.reviews.clone());
            registry.register("virt_api_requests", "Requests to the aggregated API", self.requests.clone());
            registry.register("virt_api_streams", "Streams to guests that are open", streams);
        });
    }

    /// A review, and whether the object was allowed; none, if there was no answer.
    pub(crate) fn reviewed(&self, webhook: Webhook, allowed: Option<bool>) {
        let outcome = match allowed {
            Some(true) => "allowed",
            Some(false) => "denied",
            None => "failed",
        };
        self.reviews.get_or_create_owned(&Reviewed { webhook: webhook.verb(), outcome }).inc();
    }

    pub(crate) fn answered(&self, code: StatusCode) {
        self.requests.get_or_create_owned(&Answered { code: code.as_u16() }).inc();
    }
}
