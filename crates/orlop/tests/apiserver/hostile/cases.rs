//! The requests, in the order of the table above. A function of this module is a test of its own.

use serde_json::{Value, json};

use super::Case;
use super::scene::{Ask, DEFINITIONS, TREES, any, definition, tree};
use crate::process::map;

const MAPS: &str = "/api/v1/namespaces/hostile/configmaps";
const PODS: &str = "/api/v1/namespaces/hostile/pods";
const TEMPLATES: &str = "/api/v1/namespaces/hostile/podtemplates";
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/hostile/virtualmachines";

fn many(count: usize, make: impl FnMut(usize) -> Value) -> Value {
    (0..count).map(make).collect()
}

/// `a` within `a`, so many times.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
}

/// A virtual machine, and a patch that copies a part of it into its own deepest place, again and again.
fn doubling(times: u32) -> Case {
    let domain = json!({ "devices": {}, "memory": { "guest": "64Mi" } });
    let template = json!({ "metadata": { "annotations": {} }, "spec": { "domain": domain } });
    let machine = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": { "name": "m" },
        "spec": { "runStrategy": "Halted", "template": template },
    });
    let start = json!([{ "op": "add", "path": "/spec/template/metadata/a", "value": nested(1) }]);
    let copies = (0..times).map(|turn| {
        let path = format!("/spec/template/metadata/a{}", "/a".repeat(1 << turn));
        json!({ "op": "copy", "from": "/spec/template/metadata/a", "path": path })
    });
    let patch = start.as_array().unwrap().iter().cloned().chain(copies).collect();
    Case::new([Ask::patch("json", format!("{MACHINES}/m"), &patch).answered(&[400, 413, 422])])
        .flags(&["--virtual-machines"])
        .before([Ask::post(MACHINES, &machine)])
}

/// 130 KB that ended the process.
pub(super) fn copies_that_double_the_depth() -> Case {
    doubling(16)
}

/// Fewer, and the object could not be deleted any more.
pub(super) fn copies_that_double_the_depth_less_often() -> Case {
    doubling(10)
}

/// Each was told about all others: 15 GB.
pub(super) fn owners_that_all_control() -> Case {
    let mut owned = map("owned", "1");
    owned["metadata"]["ownerReferences"] = many(5000, |turn| {
        let (name, uid) = (format!("owner-{turn}"), format!("uid-{turn}"));
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true })
    });
    Case::new([Ask::post(MAPS, &owned).answered(&[422])])
}

/// Each was looked for among all others; so it was with an order, with removals, and with an update of what is being deleted.
pub(super) fn a_list_of_many_finalizers() -> Case {
    let held = format!("{MAPS}/held");
    let finalizers = |count: usize| many(count, |turn| format!("a/{turn}").into());
    let turned: Value = finalizers(130_000).as_array().unwrap().iter().rev().cloned().collect();
    let strategic = |metadata: Value| Ask::patch("strategic-merge", &held, &json!({ "metadata": metadata }));
    let more = json!({ "metadata": { "finalizers": finalizers(130_001) } });
    Case::new([
        strategic(json!({ "finalizers": finalizers(130_000) })),
        strategic(json!({ "$setElementOrder/finalizers": turned })),
        Ask::new("DELETE", &held, "application/json", ""),
        Ask::patch("merge", &held, &more).answered(&[422]),
        strategic(json!({ "$deleteFromPrimitiveList/finalizers": finalizers(130_000) })),
    ])
    .before([Ask::post(MAPS, &map("held", "1"))])
}

/// The same with items that have a key.
pub(super) fn a_list_of_many_items_with_a_key() -> Case {
    let container = |turn: usize| json!({ "name": format!("c{turn}"), "image": "i" });
    let template = json!({ "metadata": { "name": "t" }, "template": { "spec": { "containers": [container(0)] } } });
    let patch = |items: Value| {
        let patch = json!({ "template": { "spec": { "containers": items } } });
        Ask::patch("strategic-merge", format!("{TEMPLATES}/t"), &patch).answered(&[200, 413, 422])
    };
    let gone = many(60_000, |turn| json!({ "name": format!("c{turn}"), "$patch": "delete" }));
    Case::new([patch(many(20_000, container)), patch(gone)]).before([Ask::post(TEMPLATES, &template)])
}

/// A path was told for each, and the key is in all of them: 0.4 GB.
pub(super) fn a_long_key_above_fields_given_twice() -> Case {
    let twice: Vec<String> = (0..110).map(|turn| format!("\"f{turn}\":1,\"f{turn}\":2")).collect();
    let body = format!("{{\"metadata\":{{\"name\":\"a\"}},\"{}\":{{{}}}}}", "k".repeat(2_900_000), twice.join(","));
    let path = format!("{MAPS}?fieldValidation=Strict");
    Case::new([Ask::new("POST", path, "application/json", body).answered(&[400])])
}

/// Files were written there, as root.
pub(super) fn a_volume_named_as_a_folder_of_the_machine() -> Case {
    let pod = |name: &str, source: Value| {
        let mut volume = source;
        volume["name"] = "/any/host/folder".into();
        let container = json!({ "name": "c", "image": "i" });
        let spec = json!({ "containers": [container], "volumes": [volume] });
        Ask::post(PODS, &json!({ "metadata": { "name": name }, "spec": spec })).answered(&[422])
    };
    Case::new([pod("a", json!({ "configMap": { "name": "m" } })), pod("b", json!({ "emptyDir": {} }))])
}

/// In every form in which values come: none is stored that cannot be read again.
pub(super) fn values_that_are_too_deep() -> Case {
    let path = format!("{TREES}/t");
    let deep = tree("u", &nested(100));
    let spec = json!({ "spec": nested(100) });
    let add = json!([{ "op": "add", "path": format!("/spec{}", "/a".repeat(61)), "value": nested(60) }]);
    Case::new([
        Ask::post(TREES, &deep).answered(&[400]),
        Ask::new("POST", TREES, "application/yaml", deep.to_string()).answered(&[400]),
        Ask::new("PUT", &path, "application/json", deep.to_string()).answered(&[400]),
        Ask::patch("merge", &path, &spec).answered(&[400]),
        Ask::patch("json", &path, &add).answered(&[400]),
        Ask::new("POST", TREES, "application/json", "{\"a\":".repeat(500_000)).answered(&[400]),
        Ask::new("POST", TREES, "application/yaml", "[".repeat(2_000_000)).answered(&[400]),
    ])
    .before([Ask::post(TREES, &tree("t", &json!({ "a": nested(60) })))])
}

/// A revision's data is JSON within protobuf, and was read by a parser of its own.
pub(super) fn values_that_are_too_deep_within_protobuf() -> Case {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![(number << 3) | 2];
        let mut left = bytes.len();
        while left > 127 {
            out.push(u8::try_from(left & 127).unwrap() | 128);
            left >>= 7;
        }
        out.push(u8::try_from(left).unwrap());
        out.extend(bytes);
        out
    }
    let revisions = "/apis/apps/v1/namespaces/hostile/controllerrevisions";
    let body = |levels: usize| {
        let text = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let data = field(2, &field(1, text.as_bytes()));
        let object = [field(1, &field(1, b"r")), data, vec![0x18, 1]].concat();
        let kind = field(1, &[field(1, b"apps/v1"), field(2, b"ControllerRevision")].concat());
        Ask::new(
            "POST",
            revisions,
            "application/vnd.kubernetes.protobuf",
            [b"k8s\0".to_vec(), kind, field(2, &object)].concat(),
        )
    };
    Case::new([body(100).answered(&[400]), body(120).answered(&[400]), body(100_000).answered(&[400]), body(90)])
}

/// Every removal moves all that follows: 200 GB.
pub(super) fn removals_from_the_front_of_a_long_list() -> Case {
    let removals = many(10_000, |_| json!({ "op": "remove", "path": "/spec/list/0" }));
    Case::new([Ask::patch("json", format!("{TREES}/t"), &removals).answered(&[413])])
        .before([Ask::post(TREES, &tree("t", &json!({ "list": many(700_000, |_| 0.into()) })))])
}

/// What is referred to is there as often.
pub(super) fn references_to_references_in_yaml() -> Case {
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (above, below) in ('b'..'k').zip('a'..) {
        bomb.push_str(&format!("{above}: &{above} [{}]\n", vec![format!("*{below}"); 10].join(",")));
    }
    let text = "x".repeat(1_000_000);
    let long = format!("a: &a {text}\nb: [{}]\n", "*a,".repeat(100_000));
    Case::new([
        Ask::new("POST", TREES, "application/yaml", bomb).answered(&[400]),
        Ask::new("POST", TREES, "application/yaml", long).answered(&[400]),
    ])
}

/// Each ended the task that worked on it.
pub(super) fn documents_of_another_form() -> Case {
    let accounts = "/api/v1/namespaces/hostile/serviceaccounts";
    let bodies = [json!([]), json!("x"), json!(1), json!({ "spec": "x" }), json!({ "spec": [] })];
    let tokens = bodies.map(|body| Ask::post(format!("{accounts}/hostile/token"), &body).answered(&[400]));
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let bound = [json!([]), json!({ "target": 1 }), json!({ "target": [] })];
    let bindings = bound.map(|body| Ask::post(format!("{PODS}/p/binding"), &body).answered(&[400]));
    let evicted = [json!([]), json!({ "deleteOptions": { "dryRun": "x" } })];
    let evictions = evicted.map(|body| Ask::post(format!("{PODS}/p/eviction"), &body).answered(&[400]));
    let log = Ask::get(format!("{PODS}/p/log?sinceSeconds=18446744073709551615")).answered(&[400, 503]);
    Case::new(tokens.into_iter().chain(bindings).chain(evictions).chain([log])).before([Ask::post(PODS, &pod)])
}

/// Each was a series of its own in the metrics.
pub(super) fn methods_that_a_client_invents() -> Case {
    let answers = &[403, 404, 405, 501];
    Case::new((0..1000).map(|turn| Ask::new(&format!("INVENTED{turn}"), MAPS, "text/plain", "").answered(answers)))
}

/// It was renewed for each.
pub(super) fn the_large_document_of_all_kinds() -> Case {
    let document = || Ask::get("/openapi/v2");
    Case::new((0..40).map(|_| document())).before([document()])
}

/// Each is told, and there is room for some only.
pub(super) fn a_pod_with_many_problems() -> Case {
    let volumes = many(20_000, |_| json!({ "name": "/", "hostPath": { "path": ".." } }));
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }], "volumes": volumes });
    Case::new([Ask::post(PODS, &json!({ "metadata": { "name": "p" }, "spec": spec })).answered(&[422])])
}

/// A default is in the schema once, and in the object wherever it has a place for it.
pub(super) fn defaults_for_many_items() -> Case {
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": many(500_000, |_| json!({})) } });
    Case::new([Ask::post(PODS, &pod).answered(&[400, 422])])
}

fn defined(spec: &Value, columns: &Value) -> Ask {
    let mut definition = definition("shrubs", "Shrub", spec);
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = columns.clone();
    Ask::post(DEFINITIONS, &definition).answered(&[201, 413, 422])
}

/// Each was read within the one around it, as deep as the stack goes.
pub(super) fn filters_within_filters_of_a_column() -> Case {
    let path = format!("{}a{}", "[?(".repeat(250_000), ")]".repeat(250_000));
    let column = json!([{ "name": "A", "type": "string", "jsonPath": path }]);
    Case::new([defined(&any(), &column).answered(&[422])])
}

/// Replicas were put that deep, and the process ended when the object was dropped.
pub(super) fn replicas_at_a_place_that_is_too_deep() -> Case {
    let mut definition = definition("shrubs", "Shrub", &any());
    let path = format!(".spec{}", ".a".repeat(20_000));
    definition["spec"]["versions"][0]["subresources"] =
        json!({ "scale": { "specReplicasPath": path, "statusReplicasPath": ".status.n" } });
    let shrubs = "/apis/example.com/v1/namespaces/hostile/shrubs";
    let shrub = json!({ "apiVersion": "example.com/v1", "kind": "Shrub", "metadata": { "name": "s" } });
    let replicas = json!({ "spec": { "replicas": 1 } });
    Case::new([
        Ask::post(DEFINITIONS, &definition).answered(&[201, 422]),
        Ask::post(shrubs, &shrub).answered(&[201, 404]),
        Ask::patch("merge", format!("{shrubs}/s/scale"), &replicas).answered(&[400, 404]),
    ])
}

/// All were compared with all others for each.
pub(super) fn a_definition_with_many_columns() -> Case {
    let columns = many(18_000, |turn| json!({ "name": format!("c{turn}"), "type": "string", "jsonPath": ".a" }));
    Case::new([defined(&any(), &columns)])
}

/// Each column showed the same megabyte, again on each of its levels: gigabytes for a GET.
pub(super) fn columns_that_all_show_the_same() -> Case {
    let columns = many(100, |turn| json!({ "name": format!("c{turn}"), "type": "string", "jsonPath": "..a" }));
    let mut spec = nested(90);
    spec["a"]["a"]["text"] = "x".repeat(1_000_000).into();
    let shrub = json!({ "apiVersion": "example.com/v1", "kind": "Shrub", "metadata": { "name": "s" }, "spec": spec });
    let shrubs = "/apis/example.com/v1/namespaces/hostile/shrubs";
    Case::new((0..4).map(|_| Ask::get(shrubs).tabular())).before([
        defined(&any(), &columns).answered(&[201]),
        Ask::get(shrubs).awaited(),
        Ask::post(shrubs, &shrub),
    ])
}

/// The way through it doubled on each level.
pub(super) fn fields_that_are_required_twice() -> Case {
    let mut schema = (0..45).fold(
        json!({ "type": "string" }),
        |inner, _| json!({ "type": "object", "required": ["a", "a"], "properties": { "a": inner } }),
    );
    schema["x-kubernetes-validations"] = json!([{ "rule": "has(self.a)" }]);
    Case::new([defined(&schema, &json!([])).answered(&[201])])
}

/// The key was in the path of each problem: 21 GB.
pub(super) fn a_long_name_above_many_problems_of_a_schema() -> Case {
    let fields: serde_json::Map<String, Value> =
        (0..30_000).map(|turn| (format!("f{turn}"), json!({ "type": "foo" }))).collect();
    let schema =
        json!({ "type": "object", "properties": { "k".repeat(700_000): { "type": "object", "properties": fields } } });
    Case::new([defined(&schema, &json!([])).answered(&[422])])
}

/// The schema below was read once for each of the levels above it that has a rule or a default.
pub(super) fn rules_on_every_level_of_a_schema() -> Case {
    let fields: serde_json::Map<String, Value> =
        (0..20_000).map(|turn| (format!("f{turn}"), json!({ "type": "string" }))).collect();
    let leaf = json!({ "type": "object", "properties": fields });
    let schema = (0..40).fold(leaf, |inner, _| {
        let rules = json!([{ "rule": "has(self.a)" }]);
        json!({ "type": "object", "properties": { "a": inner }, "default": {}, "x-kubernetes-validations": rules })
    });
    Case::new([defined(&schema, &json!([]))])
}

/// The same for each of many rules on one level.
pub(super) fn many_rules_for_many_fields() -> Case {
    let names: Vec<String> = (0..10_000).map(|turn| format!("f{turn}")).collect();
    let fields: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({ "type": "string" }))).collect();
    let rules = many(10_000, |_| json!({ "rule": "has(self.f1)" }));
    let schema =
        json!({ "type": "object", "properties": fields, "required": names, "x-kubernetes-validations": rules });
    Case::new([defined(&schema, &json!([]))])
}

/// The key is in the path of each item, wrong or not.
pub(super) fn a_long_key_above_a_long_list() -> Case {
    let list = json!({ "type": "array", "items": { "type": "integer" } });
    let spec = json!({ "type": "object", "additionalProperties": list });
    let shrub = |item: Value| {
        let spec = json!({ "k".repeat(700_000): many(300_000, |_| item.clone()) });
        json!({ "apiVersion": "example.com/v1", "kind": "Shrub", "metadata": { "name": "s" }, "spec": spec })
    };
    let shrubs = "/apis/example.com/v1/namespaces/hostile/shrubs";
    Case::new([Ask::post(shrubs, &shrub(true.into())).answered(&[422]), Ask::post(shrubs, &shrub(1.into()))])
        .before([Ask::post(DEFINITIONS, &definition("shrubs", "Shrub", &spec)), Ask::get(shrubs).awaited()])
}
