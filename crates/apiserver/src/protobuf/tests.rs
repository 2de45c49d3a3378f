//! A writer of the same form, by the same table, and what comes back through the reader.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::facts::Field;

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

fn wrapped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, bytes);
    out
}

fn put(out: &mut Vec<u8>, number: u32, shape: &Shape, value: &Value) {
    match (shape, value) {
        (Shape::List(inner), Value::Array(items)) => items.iter().for_each(|item| put(out, number, inner, item)),
        (Shape::Map(inner), Value::Object(map)) => {
            for (key, value) in map {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                match &**inner {
                    Shape::List(_) => {
                        let mut items = Vec::new();
                        put(&mut items, 1, inner, value);
                        put_bytes(&mut entry, 2, &items);
                    }
                    inner => put(&mut entry, 2, inner, value),
                }
                put_bytes(out, number, &entry);
            }
        }
        (Shape::String, Value::String(text)) => put_bytes(out, number, text.as_bytes()),
        (Shape::Boolean, Value::Bool(value)) => put_number(out, number, u64::from(*value)),
        (Shape::Int32 | Shape::Int64, value) => put_number(out, number, value.as_i64().unwrap().cast_unsigned()),
        (Shape::Number, value) => {
            put_varint(out, u64::from(number) << 3 | 1);
            out.extend_from_slice(&value.as_f64().unwrap().to_bits().to_le_bytes());
        }
        (Shape::Bytes, Value::String(text)) => put_bytes(out, number, &STANDARD.decode(text).unwrap()),
        (Shape::Time | Shape::MicroTime, Value::String(text)) if text.is_empty() => put_bytes(out, number, &[]),
        (Shape::Time | Shape::MicroTime, Value::String(text)) => {
            let moment: Timestamp = text.parse().unwrap();
            let mut time = Vec::new();
            put_number(&mut time, 1, moment.as_second().cast_unsigned());
            put_number(&mut time, 2, u64::try_from(moment.subsec_nanosecond()).unwrap());
            put_bytes(out, number, &time);
        }
        (Shape::Quantity, Value::String(text)) => put_bytes(out, number, &wrapped(text.as_bytes())),
        (Shape::IntOrString, value) => {
            let mut either = Vec::new();
            match value {
                Value::String(text) => {
                    put_number(&mut either, 1, 1);
                    put_bytes(&mut either, 3, text.as_bytes());
                }
                value => put_number(&mut either, 2, value.as_i64().unwrap().cast_unsigned()),
            }
            put_bytes(out, number, &either);
        }
        (Shape::Object | Shape::Any, value) => put_bytes(out, number, &wrapped(value.to_string().as_bytes())),
        (Shape::Struct(id), Value::Object(map)) => {
            let mut message = Vec::new();
            write(&mut message, facts().get(*id), map);
            put_bytes(out, number, &message);
        }
        (shape, value) => panic!("{value} is no {shape:?}"),
    }
}

/// A schema, or what may be there instead.
fn either(schema: &Type, other: Other, value: &Value) -> Vec<u8> {
    let whole = |value: &Value| {
        let mut message = Vec::new();
        write(&mut message, schema, value.as_object().unwrap());
        message
    };
    let mut out = Vec::new();
    match (other, value) {
        (Other::Flag, Value::Bool(flag)) => put_number(&mut out, 1, u64::from(*flag)),
        (Other::Flag, value) => {
            put_number(&mut out, 1, 1);
            put_bytes(&mut out, 2, &whole(value));
        }
        (_, Value::Array(several)) => {
            for one in several {
                let bytes = one.as_str().map_or_else(|| whole(one), |name| name.as_bytes().to_vec());
                put_bytes(&mut out, 2, &bytes);
            }
        }
        (_, value) => put_bytes(&mut out, 1, &whole(value)),
    }
    out
}

fn write(out: &mut Vec<u8>, of: &Type, map: &Map<String, Value>) {
    for (name, value) in map {
        // A kind's own type is in the envelope, not in the message.
        if of.kind.is_some() && matches!(name.as_str(), "apiVersion" | "kind") {
            continue;
        }
        let Some(field) = of.field(name).filter(|field| !field.numbers.is_empty()) else { continue };
        // What JSON inlines is a message within: repeated, it is merged.
        let (last, outer) = field.numbers.split_last().unwrap();
        let mut bytes = Vec::new();
        match Other::of(name).filter(|_| of.name == SCHEMA) {
            None => put(&mut bytes, *last, &field.shape, value),
            Some(Other::Names) => {
                for (key, value) in value.as_object().unwrap() {
                    let mut pair = Vec::new();
                    put_bytes(&mut pair, 1, key.as_bytes());
                    put_bytes(&mut pair, 2, &either(of, Other::Names, value));
                    put_bytes(&mut bytes, *last, &pair);
                }
            }
            Some(other) => put_bytes(&mut bytes, *last, &either(of, other, value)),
        }
        for number in outer.iter().rev() {
            let inner = std::mem::take(&mut bytes);
            put_bytes(&mut bytes, *number, &inner);
        }
        out.extend(bytes);
    }
}

fn encode(api_version: &str, kind: &str, object: &Value) -> Vec<u8> {
    let mut meta = Vec::new();
    put_bytes(&mut meta, 1, api_version.as_bytes());
    put_bytes(&mut meta, 2, kind.as_bytes());
    let mut message = Vec::new();
    write(&mut message, facts().get(type_of(api_version, kind).unwrap()), object.as_object().unwrap());
    let mut unknown = Vec::new();
    put_bytes(&mut unknown, 1, &meta);
    put_bytes(&mut unknown, 2, &message);
    [MAGIC, &unknown].concat()
}

#[test]
fn a_deployment_comes_through_whole() {
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web", "labels": { "app": "web" }, "creationTimestamp": "2026-01-02T03:04:05Z" },
        "spec": {
            "replicas": 3,
            "strategy": { "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 1 } },
            "template": { "spec": {
                "containers": [{
                    "name": "c",
                    "resources": { "limits": { "memory": "1Gi" } },
                    "env": [{ "name": "E", "value": "x" }],
                }],
                "volumes": [{ "name": "v", "configMap": { "name": "m", "items": [{ "key": "k", "path": "p", "mode": -1 }] } }],
            } },
        },
    });
    assert_eq!(decode(&encode("apps/v1", "Deployment", &object)), Ok(object));
}

/// As Go writes it: what is no pointer is there, set or not.
#[test]
fn what_is_not_set_is_left_out() {
    let probe = json!({ "timeoutSeconds": 0, "periodSeconds": 5, "terminationGracePeriodSeconds": 0 });
    let written = json!({
        "metadata": { "name": "web", "generateName": "", "uid": "", "generation": 0, "creationTimestamp": "" },
        "spec": {
            "replicas": 0,
            "strategy": { "type": "" },
            "minReadySeconds": 0,
            "paused": false,
            "template": { "spec": {
                "containers": [{ "name": "", "image": "", "livenessProbe": probe, "stdin": false, "tty": true }],
                "hostNetwork": false,
                "enableServiceLinks": false,
                "volumes": [{ "name": "v", "csi": { "driver": "d", "readOnly": false } }],
            } },
        },
        "status": { "replicas": 0 },
    });
    let probe = json!({ "periodSeconds": 5, "terminationGracePeriodSeconds": 0 });
    let read = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 0,
            "strategy": {},
            "template": { "spec": {
                "containers": [{ "name": "", "livenessProbe": probe, "tty": true }],
                "enableServiceLinks": false,
                "volumes": [{ "name": "v", "csi": { "driver": "d", "readOnly": false } }],
            } },
        },
        "status": {},
    });
    assert_eq!(decode(&encode("apps/v1", "Deployment", &written)), Ok(read));
}

#[test]
fn secrets_events_leases_and_options_come_through() {
    for object in [
        json!({ "apiVersion": "v1", "kind": "Secret", "data": { "k": "AAEC", "empty": "" } }),
        json!({ "apiVersion": "v1", "kind": "Event", "count": 2, "eventTime": "2026-01-02T03:04:05.000006Z" }),
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "spec": { "holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.123456Z" },
        }),
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": { "extra": { "scopes": ["a", "b"] }, "user": "u" },
        }),
        json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": { "uid": "u" } }),
    ] {
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        assert_eq!(decode(&encode(api_version, kind, &object)), Ok(object));
    }
}

/// What is embedded is read by a parser of its own, which knows nothing of what is around it.
#[test]
fn embedded_objects_are_no_deeper_than_others() {
    let of = |levels: usize| {
        let data = (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
        encode("apps/v1", "ControllerRevision", &json!({ "data": data, "revision": 1 }))
    };
    assert!(decode(&of(99)).is_ok());
    assert_eq!(decode(&of(100)), Err(ProtobufError::Depth));
}

#[test]
fn a_schema_may_have_something_else_in_its_place() {
    let schema = json!({
        "type": "object",
        "additionalProperties": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] } },
        "properties": {
            "open": { "additionalProperties": true }, "closed": { "additionalProperties": false },
            "pair": { "items": [{ "type": "string" }, { "type": "integer" }] },
        },
        "dependencies": { "a": ["b", "c"], "d": { "type": "object" } },
    });
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "a.b" },
        "spec": { "group": "b", "versions": [{ "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": schema } }] },
    });
    let read = decode(&encode("apiextensions.k8s.io/v1", "CustomResourceDefinition", &object)).unwrap();
    assert_eq!(read["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema);
}

#[test]
fn what_is_no_such_body_is_refused() {
    assert_eq!(decode(b"{}"), Err(ProtobufError::NoMagic));
    assert_eq!(decode(b"k8s\0\x0a\x05x"), Err(ProtobufError::Truncated));
    let strange = decode(&[MAGIC, &wrapped(&[&wrapped(b"v9")[..], b"\x12\x01K"].concat())].concat());
    assert_eq!(strange, Err(ProtobufError::Kind { api_version: "v9".to_owned(), kind: "K".to_owned() }));
    assert_eq!(decode(&[MAGIC, &[0xff; 11]].concat()), Err(ProtobufError::Varint));
}

/// A value of a shape, not too large.
fn value_of(shape: &Shape, depth: u32) -> BoxedStrategy<Value> {
    match shape {
        Shape::String => "[a-z]{1,6}".prop_map(Value::from).boxed(),
        Shape::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Int32 => any::<i32>().prop_filter("set", |value| *value != 0).prop_map(Value::from).boxed(),
        Shape::Int64 => any::<i64>().prop_filter("set", |value| *value != 0).prop_map(Value::from).boxed(),
        Shape::Number => (-1000_i32..1000).prop_map(|value| Value::from(f64::from(value) / 4.0)).boxed(),
        Shape::Bytes => {
            prop::collection::vec(any::<u8>(), 1..9).prop_map(|bytes| STANDARD.encode(bytes).into()).boxed()
        }
        Shape::Object | Shape::Any => Just(json!({ "x": [1, "y"] })).boxed(),
        Shape::Time => (0_i64..4_000_000_000)
            .prop_map(|second| Timestamp::new(second, 0).unwrap().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into())
            .boxed(),
        Shape::MicroTime => (0_i64..4_000_000_000, 0..1_000_000)
            .prop_map(|(second, micro)| {
                let moment = Timestamp::new(second, micro * 1000).unwrap();
                moment.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into()
            })
            .boxed(),
        Shape::Quantity => "[1-9][0-9]{0,3}(Mi|Gi|m)?".prop_map(Value::from).boxed(),
        Shape::IntOrString => {
            prop_oneof![any::<i32>().prop_map(Value::from), "[0-9]{1,2}%".prop_map(Value::from)].boxed()
        }
        Shape::List(inner) => prop::collection::vec(value_of(inner, depth), 1..3).prop_map(Value::from).boxed(),
        Shape::Map(inner) => prop::collection::btree_map("[a-z]{1,3}", value_of(inner, depth), 1..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed(),
        Shape::Struct(id) => object_of(facts().get(*id), depth),
    }
}

fn object_of(of: &'static Type, depth: u32) -> BoxedStrategy<Value> {
    let fields: Vec<&'static Field> = of
        .fields
        .iter()
        .filter(|field| !field.numbers.is_empty() && !matches!(field.name, "apiVersion" | "kind"))
        .filter(|field| depth > 0 || matches!(field.shape, Shape::String | Shape::Int32 | Shape::Boolean))
        .collect();
    let most = fields.len().min(4);
    prop::sample::subsequence(fields, 0..=most)
        .prop_flat_map(move |chosen| {
            let values: Vec<_> = chosen
                .iter()
                .map(|field| {
                    let shape = &field.shape;
                    let value = match Other::of(field.name).filter(|_| of.name == SCHEMA) {
                        None => value_of(shape, depth.saturating_sub(1)),
                        Some(Other::Flag) => any::<bool>().prop_map(Value::from).boxed(),
                        Some(Other::Schemas) => Just(json!([{ "type": "string" }])).boxed(),
                        Some(Other::Names) => Just(json!({ "a": ["b"], "c": { "type": "string" } })).boxed(),
                    };
                    let value = value.prop_filter("set", |value| !is_unset(of, field, value));
                    value.prop_map(|value| (field.name.to_owned(), value))
                })
                .collect();
            values.prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
        })
        .boxed()
}

proptest! {
    /// Whatever the table can describe comes back as it was written.
    #[test]
    fn objects_come_back(
        (gvk, object) in prop::sample::select(
            facts().types().iter().filter_map(|one| one.kind.map(|gvk| (gvk, one))).collect::<Vec<_>>(),
        )
        .prop_flat_map(|(gvk, of)| (Just(gvk), object_of(of, 4))),
    ) {
        let api_version = if gvk.group.is_empty() { gvk.version.to_owned() } else { format!("{}/{}", gvk.group, gvk.version) };
        let mut wanted = object.clone();
        wanted["apiVersion"] = api_version.clone().into();
        wanted["kind"] = gvk.kind.into();
        prop_assert_eq!(decode(&encode(&api_version, gvk.kind, &object)), Ok(wanted));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(decode(&[MAGIC, &bytes].concat()));
        let typed = [&wrapped(&[&wrapped(b"v1")[..], b"\x12\x03Pod"].concat())[..], b"\x12"].concat();
        let mut message = [MAGIC, &typed].concat();
        put_varint(&mut message, bytes.len() as u64);
        message.extend(&bytes);
        drop(decode(&message));
    }
}
