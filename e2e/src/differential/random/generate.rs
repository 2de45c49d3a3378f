//! From a seed to requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kinds::{KINDS, Kind};
use crate::differential::script::{Step, Stop};

const NAMES: [&str; 3] = ["a", "b", "c"];
const SELECTORS: [&str; 6] = ["app=x", "app!=x", "app in (x,y)", "!app", "tier", "app=x,tier=front"];
const POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];

/// The requests of a seed: always the same for one seed and length.
pub(super) fn steps(seed: u64, length: usize) -> Vec<Step> {
    let mut generator = Generator { state: seed, steps: Vec::new(), kinds: Vec::new(), listed: BTreeMap::new() };
    // Few kinds per sequence: then most requests meet an object.
    generator.kinds = (0..3).map(|_| generator.next(6)).collect();
    while generator.steps.len() < length {
        generator.one();
    }
    generator.steps
}

struct Generator {
    state: u64,
    steps: Vec<Step>,
    kinds: Vec<u64>,
    /// How many collections of a kind were listed: their versions are variables.
    listed: BTreeMap<&'static str, u64>,
}

impl Generator {
    /// Splitmix64: a number that depends on nothing but the seed.
    fn next(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        let index = self.next(u64::try_from(among.len()).unwrap_or(1));
        among[usize::try_from(index).unwrap_or_default()]
    }

    fn one(&mut self) {
        let index = self.pick(&self.kinds.clone());
        let kind = &KINDS[usize::try_from(index).unwrap_or_default()];
        let name = self.pick(&NAMES);
        match self.next(24) {
            0..=5 => self.create(kind, name),
            6 | 7 => self.push(kind, name, "get", "GET", &object(kind, name), |_| {}),
            8 | 9 => self.list(kind),
            10..=12 => self.update(kind, name),
            13 | 14 => self.json_patch(kind, name),
            15 | 16 => self.merge_patch(kind, name),
            17 => self.finalizers(kind, name),
            18 if kind.status => self.status(kind, name),
            19 | 20 if kind.deletable => self.delete(kind, name),
            21 if kind.deletable => self.delete_collection(kind),
            22 => self.watch(kind),
            _ => self.merge_patch(kind, name),
        }
    }

    fn push(&mut self, kind: &Kind, name: &str, what: &str, method: &str, path: &str, change: impl FnOnce(&mut Step)) {
        let number = self.steps.len();
        let mut step = Step {
            name: format!("{number} {what} {} {name}", kind.name),
            request: Some(format!("{method} {path}")),
            ..Step::default()
        };
        if !name.is_empty() {
            let variable = |what: &str| format!("{what}-{}-{name}", kind.name);
            step.capture.insert(variable("rv"), "/metadata/resourceVersion".into());
            step.capture.insert(variable("uid"), "/metadata/uid".into());
        }
        change(&mut step);
        self.steps.push(step);
    }

    fn create(&mut self, kind: &Kind, name: &str) {
        let mut body = (kind.body)(self.next(3));
        body["metadata"] = self.metadata(kind, name);
        let dry = self.next(10) == 0;
        self.push(kind, name, "create", "POST", kind.path, |step| {
            step.body = Some(body);
            if dry {
                step.query.insert("dryRun".into(), "All".into());
                step.capture.clear();
            }
        });
    }

    fn metadata(&mut self, kind: &Kind, name: &str) -> Value {
        let mut labels = serde_json::Map::new();
        for (key, values) in [("app", ["x", "y"]), ("tier", ["front", "back"])] {
            if self.next(3) > 0 {
                labels.insert(key.to_owned(), self.pick(&values).into());
            }
        }
        json!({ "name": in_cluster(kind, name), "labels": labels })
    }

    fn list(&mut self, kind: &'static Kind) {
        let selector = self.next(8);
        let limit = self.next(3);
        let number = self.listed.entry(kind.name).and_modify(|count| *count += 1).or_insert(0);
        let variable = format!("list-{}-{number}", kind.name);
        let field = self.pick(&["metadata.name=a", "metadata.name!=a", "metadata.namespace=${ns}"]);
        let label = SELECTORS.get(usize::try_from(selector).unwrap_or_default()).copied();
        self.push(kind, "", "list", "GET", kind.path, |step| {
            step.capture.insert(variable, "/metadata/resourceVersion".into());
            match label {
                Some(label) => drop(step.query.insert("labelSelector".into(), label.into())),
                None if selector == 6 => drop(step.query.insert("fieldSelector".into(), field.into())),
                None => {}
            }
            if kind.name == "namespace" {
                // Those of other sequences are there too.
                step.query.remove("labelSelector");
                step.query.insert("fieldSelector".into(), format!("metadata.name={}", in_cluster(kind, "a")));
            } else if limit == 0 {
                step.query.insert("limit".into(), "2".into());
            }
        });
    }

    fn update(&mut self, kind: &Kind, name: &str) {
        let mut body = (kind.body)(self.next(3));
        body["metadata"] = self.metadata(kind, name);
        match self.next(4) {
            0 => body["metadata"]["resourceVersion"] = "1".into(),
            1 => {}
            _ => body["metadata"]["resourceVersion"] = format!("${{rv-{}-{name}}}", kind.name).into(),
        }
        if self.next(8) == 0 {
            body["metadata"]["uid"] = format!("${{uid-{}-{name}}}", kind.name).into();
        }
        self.push(kind, name, "update", "PUT", &object(kind, name), |step| step.body = Some(body));
    }

    fn json_patch(&mut self, kind: &Kind, name: &str) {
        let value = self.pick(&["x", "y", "z"]);
        let patch = match self.next(7) {
            0 => json!([{ "op": "add", "path": "/metadata/labels", "value": { "app": value } }]),
            1 => json!([{ "op": "replace", "path": "/metadata/labels/app", "value": value }]),
            2 => json!([{ "op": "test", "path": "/metadata/name", "value": value }]),
            3 => json!([{ "op": "remove", "path": "/metadata/annotations/none" }]),
            4 => json!([{ "op": "add", "path": "/metadata/annotations", "value": { "note": value } }]),
            5 => json!([{ "op": "remove", "path": "/metadata/labels/tier" }]),
            _ => json!([
                { "op": "test", "path": "/metadata/labels/app", "value": "x" },
                { "op": "add", "path": "/metadata/labels/tier", "value": "front" },
            ]),
        };
        self.push(kind, name, "json patch", "PATCH", &object(kind, name), |step| {
            step.media = Some("json".into());
            step.body = Some(patch);
        });
    }

    fn merge_patch(&mut self, kind: &Kind, name: &str) {
        let value = self.pick(&["x", "y"]);
        let version = format!("${{rv-{}-{name}}}", kind.name);
        let patch = match self.next(7) {
            0 => json!({ "metadata": { "labels": { "app": value } } }),
            1 => json!({ "metadata": { "labels": { "app": null } } }),
            2 => json!({ "metadata": { "annotations": { "note": value } } }),
            3 => json!({ "metadata": { "resourceVersion": version, "labels": { "tier": value } } }),
            4 => json!({ "metadata": { "resourceVersion": "1", "labels": { "tier": value } } }),
            5 => json!({ "metadata": { "name": "other" } }),
            _ => json!({ "metadata": { "labels": null } }),
        };
        self.push(kind, name, "merge patch", "PATCH", &object(kind, name), |step| {
            step.media = Some("merge".into());
            step.body = Some(patch);
        });
    }

    fn finalizers(&mut self, kind: &Kind, name: &str) {
        let finalizers: &[&str] = if self.next(2) == 0 { &[] } else { &["orlop.example/hold"] };
        self.push(kind, name, "finalizers", "PATCH", &object(kind, name), |step| {
            step.media = Some("merge".into());
            step.body = Some(json!({ "metadata": { "finalizers": finalizers } }));
        });
    }

    fn status(&mut self, kind: &Kind, name: &str) {
        // A namespace's phase follows from its deletion; a label shows what a status update takes.
        let status = if kind.name == "namespace" { json!({}) } else { json!({ "phase": "Running" }) };
        let mut body = (kind.body)(self.next(3));
        body["metadata"] = self.metadata(kind, name);
        body["status"] = status.clone();
        let path = format!("{}/status", object(kind, name));
        if self.next(2) == 0 {
            self.push(kind, name, "update status", "PUT", &path, |step| step.body = Some(body));
        } else {
            self.push(kind, name, "patch status", "PATCH", &path, |step| {
                step.media = Some("merge".into());
                step.body = Some(json!({ "status": status, "metadata": { "annotations": { "by": "status" } } }));
            });
        }
    }

    fn delete(&mut self, kind: &Kind, name: &str) {
        let variable = |what: &str| format!("${{{what}-{}-{name}}}", kind.name);
        let policy = self.pick(&POLICIES);
        let options = match self.next(8) {
            0 | 1 => json!({}),
            2 => json!({ "preconditions": { "uid": variable("uid") } }),
            3 => json!({ "preconditions": { "uid": "00000000-0000-0000-0000-000000000000" } }),
            4 => json!({ "preconditions": { "resourceVersion": variable("rv") } }),
            5 => json!({ "gracePeriodSeconds": 0 }),
            6 => json!({ "dryRun": ["All"] }),
            _ => json!({ "propagationPolicy": policy }),
        };
        self.push(kind, name, "delete", "DELETE", &object(kind, name), |step| {
            step.capture.clear();
            step.body = Some(options);
        });
    }

    fn delete_collection(&mut self, kind: &Kind) {
        let selector = self.pick(&SELECTORS);
        self.push(kind, "", "delete collection", "DELETE", kind.path, |step| {
            step.query.insert("labelSelector".into(), selector.into());
        });
    }

    /// Watches from the moment of an earlier list, up to an object that is made now.
    fn watch(&mut self, kind: &'static Kind) {
        let Some(count) = self.listed.get(kind.name).copied() else { return self.list(kind) };
        if kind.name == "namespace" {
            return self.list(kind);
        }
        let number = self.next(count + 1);
        let version = format!("${{list-{}-{number}}}", kind.name);
        let selector = self.pick(&["", "app=x"]);
        let (marker, watch) = (format!("marker-{}", self.steps.len()), format!("watch-{}", self.steps.len()));
        let kept = watch.clone();
        self.push(kind, "", "watch", "GET", kind.path, |step| {
            step.query = [("watch", "true"), ("resourceVersion", version.as_str()), ("labelSelector", selector)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
            step.watch = Some(kept);
        });
        let mut body = (kind.body)(0);
        body["metadata"] = json!({ "name": marker, "labels": { "app": "x" } });
        self.push(kind, &marker, "mark", "POST", kind.path, |step| step.body = Some(body));
        let number = self.steps.len();
        self.steps.push(Step {
            name: format!("{number} read {}", kind.name),
            read: Some(watch),
            stop: Some(Stop::Name(marker)),
            ..Step::default()
        });
    }
}

fn object(kind: &Kind, name: &str) -> String {
    format!("{}/{}", kind.path, in_cluster(kind, name))
}

/// Names in no namespace are made the script's own by a prefix.
fn in_cluster(kind: &Kind, name: &str) -> String {
    if kind.name == "namespace" { format!("${{ns}}-{name}") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let text = |seed| serde_json::to_string(&steps(seed, 50)).unwrap();
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}
