//! Which devices there are, and who has which.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Offers by plugins, and what was given away.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By resource and device: whether it may be used.
    offered: BTreeMap<String, BTreeMap<String, bool>>,
    given: Given,
}

/// By pod, container and resource: devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Given {
    pods: BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<String>>>>,
}

impl Table {
    /// From what was written down.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self { offered: BTreeMap::new(), given: serde_json::from_slice(bytes).ok()? })
    }

    pub(super) fn written(&self) -> Vec<u8> {
        serde_json::to_vec(&self.given).unwrap_or_default()
    }

    /// A plugin offers these now, and no others.
    pub(super) fn offer(&mut self, resource: &str, devices: BTreeMap<String, bool>) {
        self.offered.insert(resource.to_owned(), devices);
    }

    /// A plugin is gone: its devices are there, but nobody can be given one.
    pub(super) fn withdraw(&mut self, resource: &str) {
        self.offered.entry(resource.to_owned()).or_default().values_mut().for_each(|healthy| *healthy = false);
    }

    pub(super) fn amounts(&self) -> BTreeMap<String, (usize, usize)> {
        let count =
            |devices: &BTreeMap<String, bool>| (devices.len(), devices.values().filter(|healthy| **healthy).count());
        self.offered.iter().map(|(resource, devices)| (resource.clone(), count(devices))).collect()
    }

    /// Devices for a container: those that it has, or the first that are free.
    ///
    /// # Errors
    /// How many are free, when that is not enough.
    pub(super) fn take(
        &mut self,
        pod: &str,
        container: &str,
        resource: &str,
        count: usize,
    ) -> Result<Vec<String>, usize> {
        let of_container = self.given.pods.get(pod).and_then(|pod| pod.get(container));
        if let Some(known) = of_container.and_then(|container| container.get(resource)) {
            return Ok(known.clone());
        }
        let taken = self.taken(resource);
        let offered = self.offered.get(resource).into_iter().flatten();
        let free: Vec<String> =
            offered.filter(|(id, healthy)| **healthy && !taken.contains(*id)).map(|(id, _)| id.clone()).collect();
        let chosen = free.get(..count).ok_or(free.len())?.to_vec();
        let pod = self.given.pods.entry(pod.to_owned()).or_default();
        pod.entry(container.to_owned()).or_default().insert(resource.to_owned(), chosen.clone());
        Ok(chosen)
    }

    fn taken(&self, resource: &str) -> BTreeSet<String> {
        let containers = self.given.pods.values().flat_map(BTreeMap::values);
        containers.filter_map(|container| container.get(resource)).flatten().cloned().collect()
    }

    /// Whether the pod had any.
    pub(super) fn free(&mut self, pod: &str) -> bool {
        self.given.pods.remove(pod).is_some()
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &String> {
        self.given.pods.keys()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_device_is_given_twice(
            steps in prop::collection::vec((0_u8..5, 0_u8..2, 0_usize..4, 0_u8..8), 0..60),
        ) {
            let mut table = Table::default();
            table.offer("r/r", (0..6).map(|id| (id.to_string(), id != 3)).collect());
            for (pod, container, count, step) in steps {
                let (pod, container) = (pod.to_string(), container.to_string());
                match step {
                    0 => drop(table.free(&pod)),
                    // A restart keeps what was given, and the plugin comes back.
                    1 => {
                        table = Table::read(&table.written()).unwrap();
                        table.offer("r/r", (0..6).map(|id| (id.to_string(), id != 3)).collect());
                    }
                    2 => {
                        table.withdraw("r/r");
                        prop_assert_eq!(table.amounts()["r/r"], (6, 0));
                        table.offer("r/r", (0..6).map(|id| (id.to_string(), id != 3)).collect());
                    }
                    _ => {
                        let first = table.take(&pod, &container, "r/r", count);
                        prop_assert_eq!(&table.take(&pod, &container, "r/r", count), &first, "asked again, the same");
                    }
                }
                let all: Vec<&String> = table.given.pods.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values).flatten().collect();
                let once: BTreeSet<&String> = all.iter().copied().collect();
                prop_assert_eq!(once.len(), all.len());
                prop_assert!(!once.contains(&"3".to_owned()));
            }
        }
    }
}
