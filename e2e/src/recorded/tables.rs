//! Tables of the built-in kinds: `crates/apiserver/tests/tables`.

use std::sync::LazyLock;

use anyhow::{Context, Result};
use http::Method;
use regex::Regex;
use serde_json::{Value, json};

use super::{Recording, ask, judge, spaced};
use crate::control_plane::ControlPlane;
use crate::http::{Connection, Server};
use crate::kubeconfig::Kubeconfig;

const FOLDER: &str = "crates/apiserver/tests/tables";
/// Quotas and limits, which others have to heed from then on, are in the last.
const FILES: [&str; 7] = ["pods", "apps", "batch", "storage", "networking", "control", "core"];
const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");

static AGE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\b([0-9]+[smhdy]){1,2}\b").ok());
static DATE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^20[0-9-]{8}T[0-9:]{8}Z$").ok());

/// Makes every recorded object on a real server, and compares its table with the recorded one.
///
/// # Errors
/// With every table that is another today, and when an object cannot be made.
pub async fn tables() -> Result<()> {
    let plane = ControlPlane::start_plain()?;
    let mut connection = Server::new(&Kubeconfig::read(&plane.kubeconfig())?)?.connect().await?;
    let mut stale = Vec::new();
    for name in FILES {
        let mut recording = Recording::read(&format!("{FOLDER}/{name}.json"))?;
        let mut columns = recording.entries(|line| line.starts_with("\"/"), ["{", "}"])?;
        for (number, mut case) in recording.cases()? {
            let at = make(&mut connection, &case).await.with_context(|| case.to_string())?;
            let table = ask(&mut connection, (Method::GET, &at), &[TABLE], &Value::Null).await?.good()?;
            let resource = at.rsplit_once('/').map_or(at.as_str(), |(resource, _)| resource);
            compare_columns(&mut recording, &mut columns, resource, &table)?;
            let cells: Vec<Value> = table["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
            let recorded = case["cells"].as_array().cloned().unwrap_or_default();
            // Where it is the same to the letter it does not hang on the clock.
            let now = |(at, cell): (usize, &Value)| {
                if recorded.get(at) == Some(cell) { cell.clone() } else { timeless(cell) }
            };
            let now: Vec<Value> = cells.iter().enumerate().map(now).collect();
            if now != recorded {
                case["cells"] = now.into();
                let why = format!("{at} has {} and not {}", case["cells"], json!(recorded));
                recording.replace(number, &spaced(&case), &why);
            }
        }
        stale.extend(recording.finish()?);
    }
    judge(&stale)
}

/// Makes a case's object as it is; gives the path where its table is read.
async fn make(connection: &mut Connection, case: &Value) -> Result<String> {
    let text = |key: &str| case[key].as_str();
    let path = text("path").context("a case without a path")?;
    let name = case["object"]["metadata"]["name"].as_str().context("an object without a name")?;
    ask(connection, (Method::POST, path), &[], &case["object"]).await?.good()?;
    let at = format!("{path}/{name}");
    if let Some(part) = text("subresource") {
        let status = json!({ "status": case["status"] });
        ask(connection, (Method::PATCH, &format!("{at}/{part}")), &[MERGE], &status).await?.good()?;
    }
    if case["deleted"] == true {
        ask(connection, (Method::DELETE, &at), &[], &json!({})).await?.good()?;
    }
    Ok(text("seen_at").map_or(at, |seen| format!("{seen}/{name}")))
}

fn compare_columns(
    recording: &mut Recording,
    columns: &mut [(usize, Value)],
    resource: &str,
    table: &Value,
) -> Result<()> {
    let mut now = table["columnDefinitions"].clone();
    for column in now.as_array_mut().into_iter().flatten() {
        column.as_object_mut().and_then(|column| column.remove("description"));
    }
    let entry = columns.iter_mut().find(|(_, entry)| entry.get(resource).is_some());
    let (number, entry) = entry.with_context(|| format!("{} has no columns of {resource}", recording.path))?;
    if entry[resource] != now {
        entry[resource] = now;
        let text = spaced(entry);
        let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(&text);
        recording.replace(*number, text, &format!("{resource} has other columns"));
    }
    Ok(())
}

/// A cell without what the clock makes of it.
fn timeless(cell: &Value) -> Value {
    let (Some(text), Some(age), Some(date)) = (cell.as_str(), AGE.as_ref(), DATE.as_ref()) else { return cell.clone() };
    if date.is_match(text) {
        return "<date>".into();
    }
    age.replace(text, "<age>").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_dates_are_not_recorded() {
        let cells = [json!("2m5s"), json!("7 (12s ago)"), json!("2031-01-02T03:04:05Z"), json!("web-1"), json!(3)];
        let now: Vec<Value> = cells.iter().map(timeless).collect();
        assert_eq!(now, [json!("<age>"), json!("7 (<age> ago)"), json!("<date>"), json!("web-1"), json!(3)]);
    }
}
