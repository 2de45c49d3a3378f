//! Events are forgotten an hour after they last happened: nobody deletes them, and they must not pile up.

use std::sync::Weak;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::server::Inner;
use crate::store::{Expect, Write};

const TABLE: &str = "events";
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// How often is looked; an event may live that much longer.
const INTERVAL: Duration = Duration::from_secs(120);

/// Runs until the server is gone.
pub(crate) async fn run(server: Weak<Inner>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(server) = server.upgrade() else { return };
        let now = server.clock.now();
        for (key, object) in &server.store.snapshot().objects(TABLE) {
            let Ok(event) = object.value() else { continue };
            if !is_over(&event, now) {
                continue;
            }
            let write = Write {
                table: TABLE.into(),
                key: key.clone(),
                expect: Expect::Revision(object.revision),
                put: None,
                in_living_namespace: false,
                of_definition: None,
            };
            // One that just happened again stays.
            drop(server.store.write(write).await);
        }
    }
}

fn is_over(event: &Value, now: Timestamp) -> bool {
    let times = ["/lastTimestamp", "/series/lastObservedTime", "/eventTime", "/metadata/creationTimestamp"];
    let times = times.iter().filter_map(|path| event.pointer(path)?.as_str()?.parse::<Timestamp>().ok());
    times.max().is_some_and(|last| now.duration_since(last) > LIFETIME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_counts_is_the_last_time_it_happened() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let event =
            |last: &str| json!({ "metadata": { "creationTimestamp": "2026-01-01T10:00:00Z" }, "lastTimestamp": last });
        assert!(is_over(&event("2026-01-01T10:30:00Z"), now));
        assert!(!is_over(&event("2026-01-01T11:30:00Z"), now));
        assert!(!is_over(&json!({}), now));
    }
}
