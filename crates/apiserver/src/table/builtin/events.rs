//! Events, whose fields have one name in the core group and another in their own.

use jiff::Timestamp;
use serde_json::Value;

use super::Cell;
use super::parts::{ago, at, has, number, text};

pub(super) fn of(plural: &str) -> Option<&'static [Cell]> {
    (plural == "events").then_some(EVENTS)
}

pub(super) const EVENTS: &[Cell] = &[
    Cell::text("Last Seen", "Time since it last happened.", |event, now| last_seen(event, now).into()),
    Cell::text("Type", "Normal or Warning.", |event, _| text(event, "/type")),
    Cell::text("Reason", "Reason of the event.", |event, _| text(event, "/reason")),
    Cell::text("Object", "Object that the event is about.", |event, _| target(event).into()),
    Cell::text("Subobject", "Field of the object.", |event, _| regarding(event, "fieldPath").into()).wide(),
    Cell::text("Source", "Component that reported the event.", |event, _| source(event).into()).wide(),
    Cell::text("Message", "Description of the event.", |event, _| either(event, "/message", "/note").trim().into()),
    Cell::text("First Seen", "Time since it first happened.", |event, now| first_seen(event, now).into()).wide(),
    Cell::text("Count", "Number of times it happened.", |event, _| count(event).into()).wide(),
    Cell::text("Name", "Name of the object.", |event, _| text(event, "/metadata/name")).named().wide(),
];

fn either<'a>(event: &'a Value, core: &str, own: &str) -> &'a str {
    match at(event, core) {
        "" => at(event, own),
        found => found,
    }
}

fn regarding<'a>(event: &'a Value, field: &str) -> &'a str {
    either(event, &format!("/involvedObject/{field}"), &format!("/regarding/{field}"))
}

fn target(event: &Value) -> String {
    let kind = regarding(event, "kind").to_lowercase();
    match regarding(event, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value) -> String {
    let controller = either(event, "/reportingComponent", "/reportingController");
    let component = Some(either(event, "/source/component", "/deprecatedSource/component"));
    let component = component.filter(|name| !name.is_empty()).unwrap_or(controller);
    let host = Some(either(event, "/source/host", "/deprecatedSource/host"));
    match host.filter(|name| !name.is_empty()).unwrap_or_else(|| at(event, "/reportingInstance")) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    }
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    let pointers = ["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"];
    first_set(event, &pointers, now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    if has(event, "/series") {
        return ago(event, "/series/lastObservedTime", now);
    }
    let pointers = ["/lastTimestamp", "/deprecatedLastTimestamp"];
    match pointers.iter().any(|pointer| has(event, pointer)) {
        true => first_set(event, &pointers, now),
        false => first_seen(event, now),
    }
}

fn first_set(event: &Value, pointers: &[&str], now: Timestamp) -> String {
    let found = pointers.iter().find(|pointer| has(event, pointer));
    ago(event, found.unwrap_or(&""), now)
}

fn count(event: &Value) -> i64 {
    if has(event, "/series") {
        return number(event, "/series/count");
    }
    // An event that happened once need not say so.
    number(event, "/count").max(number(event, "/deprecatedCount")).max(1)
}
