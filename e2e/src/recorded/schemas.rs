//! Schemas of custom resources and objects of them: `crates/structural/tests/recorded`.

use anyhow::{Context, Result, bail};
use futures_util::{StreamExt as _, stream};
use http::Method;
use serde_json::{Value, json};

use super::{Recording, ask, judge, spaced};
use crate::control_plane::ControlPlane;
use crate::http::{Connection, Server};
use crate::kubeconfig::Kubeconfig;

const FILES: [&str; 2] = ["schemas", "objects"];
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How many cases are tried at the same time: each waits for its definition to be served.
const AT_ONCE: usize = 8;
/// A field that shows which schema a server uses: it appears, by default, in all objects that are read.
const MARK: &str = "orlopMark";
/// What of a case is an answer.
const ANSWERS: [&str; 4] = ["crd", "errors", "result", "dropped"];

/// Gives every recorded schema and object to a real server, and compares its answers with the recorded ones.
///
/// # Errors
/// With every answer that is another today.
pub async fn schemas() -> Result<()> {
    let plane = ControlPlane::start_plain()?;
    let server = Server::new(&Kubeconfig::read(&plane.kubeconfig())?)?;
    let mut stale = Vec::new();
    for name in FILES {
        let mut recording = Recording::read(&format!("crates/structural/tests/recorded/{name}.json"))?;
        let cases = recording.cases()?;
        let tried = cases.into_iter().map(|(number, case)| {
            let server = server.clone();
            async move {
                let group = format!("{name}-{number}.example.com");
                let answers = Trial { connection: server.connect().await?, group }.run(&case).await;
                anyhow::Ok((number, answers.with_context(|| case["name"].to_string())?, case))
            }
        });
        let mut tried = stream::iter(tried).buffered(AT_ONCE);
        while let Some(answered) = tried.next().await {
            let (number, answers, mut case) = answered?;
            let Some(why) = difference(&case, &answers) else { continue };
            if let Some(case) = case.as_object_mut() {
                case.retain(|key, _| !ANSWERS.contains(&key.as_str()));
                case.extend(answers.as_object().cloned().unwrap_or_default());
            }
            recording.replace(number, &spaced(&case), &why);
        }
        stale.extend(recording.finish()?);
    }
    judge(&stale)
}

/// Where a case's answers are others than the recorded ones. Kubernetes walks its maps in random order: so errors have none.
fn difference(case: &Value, answers: &Value) -> Option<String> {
    let sorted = |value: &Value| {
        let mut value = value.clone();
        value.as_array_mut().into_iter().for_each(|list| list.sort_by_key(Value::to_string));
        value
    };
    let other = ANSWERS.into_iter().find(|key| sorted(&case[*key]) != sorted(&answers[*key]))?;
    Some(format!("{}: {other} is {} and not {}", case["name"], answers[other], case[other]))
}

/// A case, in a group of its own.
struct Trial {
    connection: Connection,
    group: String,
}

impl Trial {
    async fn run(mut self, case: &Value) -> Result<Value> {
        let definition = self.definition(&case["schema"]);
        let made = ask(&mut self.connection, (Method::POST, CRDS), &[], &definition).await?;
        let mut answers = json!({ "crd": causes(&made.body, made.status)? });
        if made.status == 201 {
            if case.get("object").is_some() {
                self.objects(case, &mut answers).await?;
            }
            let at = format!("{CRDS}/cases.{}", self.group);
            ask(&mut self.connection, (Method::DELETE, &at), &[], &Value::Null).await?.good()?;
        }
        Ok(answers)
    }

    async fn objects(&mut self, case: &Value, answers: &mut Value) -> Result<()> {
        let path = format!("/apis/{}/v1/cases", self.group);
        self.until((Method::GET, &path), |status, _| status == 200).await?;
        let mut object = self.object(&case["object"]);
        let answer = match case.get("old") {
            None => {
                let path = format!("{path}?fieldValidation=Warn");
                ask(&mut self.connection, (Method::POST, &path), &[], &object).await?
            }
            Some(old) => {
                let old = self.object(old);
                let mut version = ask(&mut self.connection, (Method::POST, &path), &[], &old).await?.good()?;
                if let Some(after) = case.get("after") {
                    version = self.change_schema(after, &path).await?;
                }
                object["metadata"]["resourceVersion"] = version["metadata"]["resourceVersion"].clone();
                let path = format!("{path}/x?fieldValidation=Warn");
                ask(&mut self.connection, (Method::PUT, &path), &[], &object).await?
            }
        };
        answers["errors"] = causes(&answer.body, answer.status)?;
        if answer.status < 300 {
            answers["dropped"] = answer.warnings.iter().filter_map(|warning| unknown_field(warning)).collect();
            let mut result = answer.body;
            for head in ["apiVersion", "kind", "metadata", MARK] {
                result.as_object_mut().and_then(|result| result.remove(head));
            }
            answers["result"] = result;
        }
        Ok(())
    }

    /// Gives the definition another schema, and waits until the server uses it; gives the object as it is read then.
    async fn change_schema(&mut self, after: &Value, path: &str) -> Result<Value> {
        let at = format!("{CRDS}/cases.{}", self.group);
        let mut after = after.clone();
        after["properties"][MARK] = json!({ "type": "string", "default": MARK });
        let patch = json!([{ "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": after }]);
        let media = ("content-type", "application/json-patch+json");
        ask(&mut self.connection, (Method::PATCH, &at), &[media], &patch).await?.good()?;
        self.until((Method::GET, &format!("{path}/x")), |_, object| object[MARK] == MARK).await
    }

    /// Asks until the answer is as wanted.
    async fn until(&mut self, request: (Method, &str), wanted: impl Fn(u16, &Value) -> bool) -> Result<Value> {
        let asking = async {
            loop {
                // What is not served yet may be answered by plain text.
                let Ok(answer) = ask(&mut self.connection, request.clone(), &[], &Value::Null).await else { continue };
                if wanted(answer.status, &answer.body) {
                    return answer.body;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(testkit::NEVER, asking).await.with_context(|| format!("{} never is as wanted", request.1))
    }

    fn definition(&self, schema: &Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("cases.{}", self.group) },
            "spec": {
                "group": self.group,
                "scope": "Cluster",
                "names": { "plural": "cases", "singular": "case", "kind": "Case", "listKind": "CaseList" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
            },
        })
    }

    fn object(&self, object: &Value) -> Value {
        let mut object = object.clone();
        object["apiVersion"] = format!("{}/v1", self.group).into();
        object["kind"] = "Case".into();
        object["metadata"] = json!({ "name": "x" });
        object
    }
}

/// The errors of an answer: field, reason and message of each.
fn causes(answer: &Value, status: u16) -> Result<Value> {
    if status < 300 {
        return Ok(json!([]));
    }
    let Some(causes) = answer["details"]["causes"].as_array() else { bail!("{status} without causes: {answer}") };
    Ok(causes.iter().map(|cause| json!([cause["field"], cause["reason"], cause["message"]])).collect())
}

/// The path in a warning about a field that was dropped.
fn unknown_field(warning: &str) -> Option<Value> {
    let path = warning.split("unknown field \\\"").nth(1)?;
    path.strip_suffix("\\\"\"").map(Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_another_order_are_the_same_and_others_are_told() {
        let case = json!({ "name": "n", "schema": {}, "crd": [], "errors": [["a", "b", "c"], ["d", "e", "f"]] });
        assert_eq!(difference(&case, &json!({ "crd": [], "errors": [["d", "e", "f"], ["a", "b", "c"]] })), None);
        let said = difference(&case, &json!({ "crd": [], "errors": [], "result": {} })).unwrap();
        assert!(said.starts_with("\"n\": errors is []"), "{said}");
        assert!(difference(&case, &json!({ "crd": [], "errors": case["errors"], "result": {} })).is_some());
    }

    #[test]
    fn a_warning_names_the_field_that_was_dropped() {
        let warning = r#"299 - "unknown field \"spec.f[0].b\"""#;
        assert_eq!(unknown_field(warning), Some(json!("spec.f[0].b")));
        assert_eq!(unknown_field(r#"299 - "something else""#), None);
    }
}
