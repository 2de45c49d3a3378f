//! Objects as rows and cells: what `kubectl get` shows.

mod builtin;
mod duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::bounds::{LONGEST_TOLD, cut_at, shown_at};
use crate::jsonpath::Path;
use crate::registry::{Column, Content};
use crate::render::Renderer;
use crate::status::Status;
use crate::store::Object;

pub(crate) use builtin::Cell;
pub(crate) use duration::since;

/// What of the object comes with its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Status> {
        match text.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::Nothing),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Makes tables of one resource.
pub(crate) struct Tables {
    renderer: Renderer,
    include: Include,
    now: Timestamp,
    columns: Columns,
    shows_columns: bool,
}

enum Columns {
    /// Name, then those of the definition.
    Custom(Vec<(Column, Option<Path>)>),
    /// Name, then those of the kind.
    BuiltIn(&'static [Cell]),
}

impl Tables {
    pub(crate) fn new(renderer: Renderer, include: Include, now: Timestamp) -> Self {
        let resource = &renderer.resource;
        let columns = match resource.version(&renderer.version).map(|version| &version.content) {
            Some(Content::Custom(custom)) if custom.columns.is_empty() => Columns::Custom(vec![with_path(age())]),
            Some(Content::Custom(custom)) => Columns::Custom(custom.columns.iter().cloned().map(with_path).collect()),
            _ => Columns::BuiltIn(builtin::of(&resource.group, &resource.plural)),
        };
        Self { renderer, include, now, columns, shows_columns: true }
    }

    /// Later tables of a watch leave out what the first has told.
    pub(crate) fn omit_columns(&mut self) {
        self.shows_columns = false;
    }

    /// The table of some objects.
    pub(crate) fn document(&self, objects: &[&Object], revision: &str) -> Result<Value, Status> {
        let rows = objects.iter().map(|object| self.row(object)).collect::<Result<Vec<_>, _>>()?;
        let columns = if self.shows_columns { self.definitions().into() } else { Value::Null };
        let mut metadata = json!({});
        if !revision.is_empty() {
            metadata["resourceVersion"] = revision.into();
        }
        Ok(json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        }))
    }

    fn definitions(&self) -> Vec<Value> {
        let definition = |name: &str, kind: &str, format: &str, description: &str, priority: i32| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority });
        match &self.columns {
            Columns::Custom(columns) => {
                let name = definition("Name", "string", "name", "Name of the object.", 0);
                let others = columns.iter().map(|(column, _)| {
                    let Column { name, kind, format, description, priority, json_path } = column;
                    let described = if description.is_empty() {
                        format!("Custom resource definition column (in JSONPath format): {json_path}")
                    } else {
                        description.clone()
                    };
                    definition(name, kind, format, &described, *priority)
                });
                std::iter::once(name).chain(others).collect()
            }
            Columns::BuiltIn(cells) => cells
                .iter()
                .map(|cell| definition(cell.name, cell.kind, cell.format, cell.description, cell.priority))
                .collect(),
        }
    }

    fn row(&self, object: &Object) -> Result<Value, Status> {
        let value = self.renderer.value(object)?;
        let cells: Vec<Value> = match &self.columns {
            Columns::Custom(columns) => {
                // A few columns that each lead to the same large value would multiply it.
                let mut left = object.draft.text().len().max(LONGEST_TOLD);
                let others = columns
                    .iter()
                    .map(|(column, path)| custom_cell(column, path.as_ref(), &value, self.now, &mut left));
                std::iter::once(value["metadata"]["name"].clone()).chain(others).collect()
            }
            Columns::BuiltIn(cells) => cells.iter().map(|cell| (cell.value)(&value, self.now)).collect(),
        };
        let mut row = json!({ "cells": cells });
        match self.include {
            Include::Nothing => row["object"] = Value::Null,
            Include::Object => row["object"] = value,
            Include::Metadata => {
                row["object"] = json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": value["metadata"],
                });
            }
        }
        Ok(row)
    }
}

fn with_path(column: Column) -> (Column, Option<Path>) {
    let path = Path::parse(&column.json_path).ok();
    (column, path)
}

fn age() -> Column {
    Column {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        format: String::new(),
        description: "Time when the object was created.".to_owned(),
        priority: 0,
        json_path: ".metadata.creationTimestamp".to_owned(),
    }
}

/// A cell, with so many bytes left for it and those after it.
fn custom_cell(column: &Column, path: Option<&Path>, object: &Value, now: Timestamp, left: &mut usize) -> Value {
    let found = path.map(|path| path.find(object)).unwrap_or_default();
    let Some(first) = found.first() else { return Value::Null };
    match column.kind.as_str() {
        "integer" => first.as_i64().or_else(|| first.as_str()?.parse().ok()).map_or(Value::Null, Value::from),
        "number" => first.as_f64().or_else(|| first.as_str()?.parse().ok()).map_or(Value::Null, Value::from),
        "boolean" => first.as_bool().map_or(Value::Null, Value::from),
        "date" => first.as_str().map_or(Value::Null, |text| since(text, now).into()),
        _ => text(&found, left).into(),
    }
}

/// The values as one text, as far as there are bytes left.
fn text(found: &[&Value], left: &mut usize) -> String {
    let mut text = String::new();
    for (index, value) in found.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let most = left.saturating_sub(text.len());
        match value {
            Value::String(whole) => text.push_str(&cut_at(whole, most)),
            other => text.push_str(&shown_at(other, most)),
        }
        if text.len() > *left {
            break;
        }
    }
    *left = left.saturating_sub(text.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_repeats_no_more_of_an_object_than_there_is() {
        let (one, two) = (json!("one"), json!({ "two": 2 }));
        let mut left = 20;
        assert_eq!(text(&[&one, &two, &one], &mut left), "one,{\"two\":2},one");
        assert_eq!(left, 3);
        assert_eq!(text(&[&one], &mut left), "one");
        assert_eq!((text(&[&one, &one], &mut left), text(&[], &mut left)), ("...".to_owned(), String::new()));
        let large = json!(vec!["x"; 100_000]);
        let mut left = 1000;
        let cells: usize = (0..100).map(|_| text(&[&large, &large, &large], &mut left).len()).sum();
        assert!(cells < 1000 + 100 * 4, "{cells}");
    }
}
