//! When the change happened that leads to the next write: what people measure the way from a pod to its clients by.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};

use crate::writing::pod_condition;

/// The times that were known at the last look at one service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    service: Option<Timestamp>,
    pods: BTreeMap<String, Timestamp>,
}

impl Times {
    pub(crate) fn of(service: &Service, selected: &[&Pod]) -> Self {
        let time = |pod: &&Pod| Some((pod.metadata.name.clone()?, ready_change(pod)?));
        Self {
            service: service.metadata.creation_timestamp.as_ref().map(|time| time.0),
            pods: selected.iter().filter_map(time).collect(),
        }
    }

    /// The earliest of the times that are later than they were at the last look; for a service that nobody has looked at, when
    /// it was made.
    pub(crate) fn since(&self, last: Option<&Self>) -> Option<Timestamp> {
        let Some(last) = last else { return self.service };
        let of_pods = self.pods.iter().filter(|(name, time)| last.pods.get(*name).is_none_or(|before| *time > before));
        let of_service = self.service.filter(|time| last.service.is_none_or(|before| *time > before));
        of_pods.map(|(_, time)| *time).chain(of_service).min()
    }
}

fn ready_change(pod: &Pod) -> Option<Timestamp> {
    pod_condition(pod, "Ready")?.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn times(service: i64, pods: &[(&str, i64)]) -> Times {
        let made = json!({ "metadata": { "creationTimestamp": at(service).to_string() } });
        let service: Service = serde_json::from_value(made).unwrap();
        let ready = |(name, second): &(&str, i64)| {
            let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": at(*second).to_string() });
            serde_json::from_value(json!({ "metadata": { "name": name }, "status": { "conditions": [ready] } }))
                .unwrap()
        };
        let pods: Vec<Pod> = pods.iter().map(ready).collect();
        Times::of(&service, &pods.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_new_service_counts_from_its_making_and_a_known_one_from_the_first_change() {
        let first = times(1, &[("a", 5)]);
        assert_eq!(first.since(None), Some(at(1)));
        assert_eq!(first.since(Some(&first)), None);
        assert_eq!(times(1, &[("a", 9), ("b", 7)]).since(Some(&first)), Some(at(7)));
        assert_eq!(times(1, &[]).since(Some(&first)), None);
        // Another service of the same name.
        assert_eq!(times(6, &[("a", 5)]).since(Some(&first)), Some(at(6)));
    }
}
