//! What is right, with a few bytes changed; and what the fuzzers have found.

use proptest::prelude::*;
use testkit::edits::{Edit, edited};

use super::*;

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(any::<Edit>(), 0..8)
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"},"finalizers":["x/y"],
"ownerReferences":[{"uid":"1","controller":true}]},"spec":{"containers":[{"name":"c","image":"i","args":["1",2.5,null,true],
"ports":[{"containerPort":80}]}],"nodeSelector":{"k":"v"},"tolerations":[]},"status":{"phase":"Running"}}"#;

const YAML: &str = "apiVersion: v1\nkind: &k ConfigMap\nmetadata: {name: a, labels: {<<: &m {x: \"1\"}, y: 'n'}}\n\
data:\n  a: |\n    text\n  b: >-\n    more\n  c: *k\n  ? d\n  : ~\nlist: [1, 0x1f, 1e3, .5, yes, !!str 2]\n";

/// An object, and patches of all forms for it.
const PATCHES: [(u8, &str); 5] = [
    (
        0,
        r#"[{"op":"copy","from":"/spec","path":"/spec/x"},{"op":"move","from":"/a/0","path":"/a/-"},{"op":"test","path":"/b","value":null},
        {"op":"remove","path":"/a/1"},{"op":"add","path":"/spec/x/y","value":{"z":[]}},{"op":"replace","path":"/b","value":1}]"#,
    ),
    (1, r#"{"spec":{"x":null,"containers":[{"name":"d"}]},"b":{"c":{"d":1}}}"#),
    (
        2,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/y"],"finalizers":["z/z"],"$setElementOrder/finalizers":["z/z"]},
        "spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"d","ports":[{"containerPort":1}]},
        {"name":"c","$patch":"delete"}],"nodeSelector":{"$patch":"replace","n":"w"},"$retainKeys":["containers"]}}"#,
    ),
    (2, r#"{"spec":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"UDP"}],"args":["3"]}]}}"#),
    (
        2,
        r#"{"$patch":"merge","spec":{"tolerations":[{"key":"a","$patch":"delete"}],"volumes":[{"name":"v","$patch":"replace"}]}}"#,
    ),
];

const SELECTORS: [&str; 4] =
    ["a in (b, c),!d,e.example.com/f notin (g)", "a==b,c!=d,e", "n > 1,m<2", "metadata.name=a\\,b,spec.nodeName!=c"];

const PATHS: [&str; 6] = [
    "/apis/apps/v1/namespaces/a/deployments/b/status",
    "/api/v1/watch/namespaces/a/pods/b%2Fc",
    "limit=500&dryRun=All&fieldValidation=Strict&labelSelector=a%3Db+c",
    "{.a[?(@.b=='x')].a}",
    ".a[0:1]['b']..a[*].b\\.c[-1]",
    ".a[?(@.a[?(@.b)])]",
];

/// A client's certificate, made once: keys take their time.
fn certificate_of_a_client() -> &'static [u8] {
    static CERTIFICATE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "somebody");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "some group");
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    })
}

/// A pod in protobuf: `kubectl run p --image=i` sends about this.
fn pod_in_protobuf() -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[(number << 3) | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }
    let labels = field(11, &[field(1, b"a"), field(2, b"b")].concat());
    let metadata = field(1, &[field(1, b"p"), labels].concat());
    let port = field(6, &[0x18, 80]);
    let container = field(2, &[field(1, b"c"), field(2, b"i"), port].concat());
    let pod = [metadata, field(2, &[container, vec![0x20, 30]].concat())].concat();
    [b"k8s\0".to_vec(), field(1, &[field(1, b"v1"), field(2, b"Pod")].concat()), field(2, &pod)].concat()
}

fn patch_of(form: u8, object: &str, patch: &str) -> Vec<u8> {
    [&[form], object.replace('\n', "").as_bytes(), b"\n", patch.as_bytes()].concat()
}

proptest! {
    #[test]
    fn bodies_are_read_or_refused(edits in edits()) {
        json_body(&edited(POD.as_bytes(), &edits));
        yaml_body(&edited(YAML.as_bytes(), &edits));
        yaml_body(&edited(POD.as_bytes(), &edits));
        protobuf_body(&edited(&pod_in_protobuf(), &edits));
    }

    #[test]
    fn patches_are_applied_or_refused(one in prop::sample::select(PATCHES.to_vec()), edits in edits(), of_object in edits()) {
        let (form, text) = one;
        let object = String::from_utf8_lossy(&edited(POD.as_bytes(), &of_object)).into_owned();
        let text = String::from_utf8_lossy(&edited(text.as_bytes(), &edits)).into_owned();
        patch(&patch_of(form, &object, &text));
        patch(&patch_of(form, POD, &text));
        patch(&patch_of(form, r#"{"a":[1,{"a":[2]}],"b":{"c":3},"spec":{"containers":5,"x":{}}}"#, &text));
    }

    #[test]
    fn selectors_and_paths_are_read_or_refused(
        selector in prop::sample::select(SELECTORS.to_vec()),
        path in prop::sample::select(PATHS.to_vec()),
        edits in edits(),
    ) {
        selectors(&edited(selector.as_bytes(), &edits));
        paths(&edited(path.as_bytes(), &edits));
    }

    #[test]
    fn certificates_are_read_or_refused(edits in edits()) {
        certificate(&edited(certificate_of_a_client(), &edits));
    }
}

/// Without a change they are what they are meant to be: else nothing above would be tried.
#[test]
fn what_is_changed_is_right() {
    assert!(json::parse(POD.as_bytes()).is_ok());
    assert_eq!(json::parse_yaml(YAML.as_bytes()).unwrap().value["data"]["c"], "ConfigMap");
    assert_eq!(protobuf::decode(&pod_in_protobuf()).unwrap()["spec"]["containers"][0]["ports"][0]["containerPort"], 80);
    for (form, text) in PATCHES {
        let media_type =
            ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];
        let read = Patch::of(media_type[usize::from(form)], facts().named("core.v1.Pod"), text.as_bytes());
        assert!(read.is_ok(), "{text}");
    }
    assert!(SELECTORS[..3].iter().all(|text| LabelSelector::parse(text).is_ok()));
    assert!(FieldSelector::parse(SELECTORS[3]).is_ok());
    assert!(PATHS[..2].iter().all(|text| Target::parse(text).is_some()));
    assert!(PATHS[3..].iter().all(|text| Path::parse(text).is_ok()));
    let who = crate::serve::identify(&CertificateDer::from(certificate_of_a_client())).unwrap();
    assert_eq!((who.user.as_str(), who.groups[0].as_str()), ("somebody", "some group"));
}
