//! Reads the tables. They are part of the program: a line that cannot be read is a bug that any test shows.

use std::collections::HashMap;

use serde_json::Value;

use super::{Facts, Field, Gvk, ListType, Patch, ResourceFact, Shape, Type, TypeId};

pub(super) fn read(types: &'static str, defaults: &'static str, resources: &'static str) -> Facts {
    let mut facts =
        Facts { types: Vec::new(), names: names(types), kinds: HashMap::new(), resources: resource_facts(resources) };
    for line in lines(types) {
        if let Some(rest) = line.strip_prefix("type ") {
            let kind = facts.types.len();
            let new = type_line(rest);
            if let (Some(Gvk { group, version, kind: name }), Ok(index)) = (new.kind, u16::try_from(kind)) {
                facts.kinds.insert(format!("{group}/{version}/{name}"), TypeId(index));
            }
            facts.types.push(new);
        } else if let Some(field) = field_line(line.trim_start(), &facts.names)
            && let Some(last) = facts.types.last_mut()
        {
            last.fields.push(field);
        }
    }
    for new in &mut facts.types {
        new.fields.sort_by_key(|field| field.name);
    }
    add_defaults(&mut facts, defaults);
    facts
}

/// What holds text, for `#` may be part of a value: only whole lines are comments.
fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn names(types: &'static str) -> HashMap<&'static str, TypeId> {
    let headers = lines(types).filter_map(|line| line.strip_prefix("type ")?.split(' ').next());
    headers.zip(0..).map(|(name, index)| (name, TypeId(index))).collect()
}

fn type_line(rest: &'static str) -> Type {
    let mut new = Type { name: "", kind: None, atomic: false, fields: Vec::new() };
    for (index, word) in rest.split(' ').enumerate() {
        match word.strip_prefix("kind=").map(|kind| kind.splitn(3, '/').collect::<Vec<_>>()).as_deref() {
            Some([group, version, kind]) => new.kind = Some(Gvk { group, version, kind }),
            _ if word == "atomic" => new.atomic = true,
            _ if index == 0 => new.name = word,
            _ => {}
        }
    }
    new
}

fn field_line(line: &'static str, names: &HashMap<&'static str, TypeId>) -> Option<Field> {
    // A default may hold spaces, so it is the last.
    let (line, default) = match line.split_once(" default=") {
        Some((line, default)) => (line, serde_json::from_str(default).ok()),
        None => (line, None),
    };
    let mut words = line.split(' ');
    let mut field = Field {
        name: words.next()?,
        numbers: words.next()?.split('.').filter_map(|number| number.parse().ok()).collect(),
        shape: shape(words.next()?, names)?,
        required: false,
        atomic: false,
        list: None,
        patch: None,
        default,
    };
    for word in words {
        match word.split_once('=') {
            None if word == "required" => field.required = true,
            None if word == "atomic" => field.atomic = true,
            Some(("list", "set")) => field.list = Some(ListType::Set),
            Some(("list", "atomic")) => field.list = Some(ListType::Atomic),
            Some(("list", map)) => {
                field.list = Some(ListType::Map(map.trim_start_matches("map:").split(',').collect()));
            }
            Some(("patch", patch)) => {
                let (strategies, key) = patch.split_once(':').map_or((patch, None), |(one, key)| (one, Some(key)));
                field.patch = Some(Patch { strategies: strategies.split(',').collect(), key });
            }
            _ => {}
        }
    }
    Some(field)
}

fn shape(text: &'static str, names: &HashMap<&'static str, TypeId>) -> Option<Shape> {
    if let Some(inner) = text.strip_prefix('[') {
        return Some(Shape::List(Box::new(shape(inner.strip_suffix(']')?, names)?)));
    }
    if let Some(inner) = text.strip_prefix('{') {
        return Some(Shape::Map(Box::new(shape(inner.strip_suffix('}')?, names)?)));
    }
    Some(match text {
        "string" => Shape::String,
        "boolean" => Shape::Boolean,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "number" => Shape::Number,
        "bytes" => Shape::Bytes,
        "object" | "RawExtension" | "meta.v1.FieldsV1" => Shape::Object,
        "IntOrString" => Shape::IntOrString,
        "Quantity" => Shape::Quantity,
        "meta.v1.Time" => Shape::Time,
        "meta.v1.MicroTime" => Shape::MicroTime,
        name if name.starts_with("apiextensions.v1.JSON") && name != "apiextensions.v1.JSONSchemaProps" => Shape::Any,
        name => Shape::Struct(*names.get(name)?),
    })
}

/// `core.v1.PodSpec restartPolicy "Always"`
fn add_defaults(facts: &mut Facts, text: &'static str) {
    for line in lines(text) {
        let mut words = line.splitn(3, ' ');
        let (Some(name), Some(field), Some(value)) = (words.next(), words.next(), words.next()) else { continue };
        let found = facts.names.get(name).and_then(|id| facts.types.get_mut(usize::from(id.0)));
        if let Some(field) = found.and_then(|found| found.fields.iter_mut().find(|one| one.name == field)) {
            field.default = serde_json::from_str::<Value>(value).ok();
        }
    }
}

fn resource_facts(text: &'static str) -> Vec<ResourceFact> {
    let (mut group, mut version) = ("", "");
    let mut all = Vec::new();
    for line in lines(text) {
        if let Some((new_group, new_version)) = line.strip_prefix("group ").and_then(|rest| rest.split_once('/')) {
            (group, version) = (new_group, new_version);
        } else {
            all.extend(resource_line(line, group, version));
        }
    }
    all
}

fn resource_line(line: &'static str, group: &'static str, version: &'static str) -> Option<ResourceFact> {
    let mut words = line.split(' ');
    let (name, kind, scope) = (words.next()?, words.next()?, words.next()?);
    let mut fact = ResourceFact {
        group,
        version,
        name,
        kind,
        namespaced: scope == "namespaced",
        singular: "",
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        of: None,
    };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key {
            "verbs" => fact.verbs = value.split(',').collect(),
            "singular" => fact.singular = value,
            "short" => fact.short_names = value.split(',').collect(),
            "in" => fact.categories = value.split(',').collect(),
            "of" => fact.of = value.split_once('/'),
            _ => {}
        }
    }
    Some(fact)
}

#[cfg(test)]
mod tests {
    use super::super::{Shape, facts};

    const TYPES: &str = include_str!("../../facts/types.txt");
    const DEFAULTS: &str = include_str!("../../facts/defaults.txt");

    #[test]
    fn every_line_of_the_tables_is_read() {
        let types = super::lines(TYPES).filter(|line| line.starts_with("type ")).count();
        let fields = super::lines(TYPES).filter(|line| line.starts_with("  ")).count();
        assert_eq!(facts().types().len(), types);
        assert_eq!(facts().types().iter().map(|one| one.fields.len()).sum::<usize>(), fields);
        for line in super::lines(DEFAULTS) {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let id = facts().named(words[0]).unwrap_or_else(|| panic!("{line}: no such type"));
            let field = facts().get(id).field(words[1]).unwrap_or_else(|| panic!("{line}: no such field"));
            assert!(field.default.is_some(), "{line}: no JSON");
        }
    }

    #[test]
    fn every_resource_has_a_type() {
        for fact in &facts().resources {
            let (group, version) = fact.of.unwrap_or((fact.group, fact.version));
            let options = fact.kind.ends_with("Options");
            assert!(options || facts().of_kind(group, version, fact.kind).is_some(), "{fact:?}");
        }
    }

    #[test]
    fn inlined_fields_know_the_way_to_them() {
        let volume = facts().get(facts().named("core.v1.Volume").unwrap());
        assert_eq!(volume.field("emptyDir").unwrap().numbers, [2, 2]);
        let pod = facts().get(facts().named("core.v1.PodSpec").unwrap());
        let Shape::List(item) = &pod.field("containers").unwrap().shape else { panic!("containers are a list") };
        assert_eq!(**item, Shape::Struct(facts().named("core.v1.Container").unwrap()));
    }
}
