//! The generated CRDs against the contract, path by path.
//!
//! The contract (`../shared/api`) is not part of the project. Where it is absent, these tests report as ignored.
#![expect(clippy::expect_used, reason = "a test fails on the terminal")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};
use testkit::{Harness, Need, Test, needs};

/// Where a CRD deliberately differs: its name, a path, and why. Everything else must be equal.
const DEVIATIONS: &[(&str, &str, &str)] = &[
    (
        "virtualmachines.kubevirt.io",
        "/versions/v1/schema/properties/spec/properties/dataVolumeTemplates/items/properties/spec/properties/source/properties/http/properties/checksum/type",
        CHECKSUM,
    ),
    (
        "virtualmachines.kubevirt.io",
        "/versions/v1alpha3/schema/properties/spec/properties/dataVolumeTemplates/items/properties/spec/properties/source/properties/http/properties/checksum/type",
        CHECKSUM,
    ),
    (
        "virtualmachinepools.pool.kubevirt.io",
        "/versions/v1alpha1/schema/properties/spec/properties/virtualMachineTemplate/properties/spec/properties/dataVolumeTemplates/items/properties/spec/properties/source/properties/http/properties/checksum/type",
        CHECKSUM,
    ),
    (
        "virtualmachinepools.pool.kubevirt.io",
        "/versions/v1beta1/schema/properties/spec/properties/virtualMachineTemplate/properties/spec/properties/dataVolumeTemplates/items/properties/spec/properties/source/properties/http/properties/checksum/type",
        CHECKSUM,
    ),
    (
        "virtualmachinesnapshotcontents.snapshot.kubevirt.io",
        "/versions/v1alpha1/schema/properties/spec/properties/source/properties/virtualMachine/properties/spec/properties/dataVolumeTemplates/items/properties/spec/properties/source/properties/http/properties/checksum/type",
        CHECKSUM,
    ),
    (
        "virtualmachinesnapshotcontents.snapshot.kubevirt.io",
        "/versions/v1beta1/schema/properties/spec/properties/source/properties/virtualMachine/properties/spec/properties/dataVolumeTemplates/items/properties/spec/properties/source/properties/http/properties/checksum/type",
        CHECKSUM,
    ),
];
/// A checksum that is named must not be lost on its way from the VM to its DataVolume.
const CHECKSUM: &str =
    "CDI has checksums of files of web servers; the release of KubeVirt that is compared with embeds an older one";

fn main() -> std::process::ExitCode {
    let definitions = api::crd::all().expect("schemas are valid");
    let mut tests: Vec<Test> = definitions
        .into_iter()
        .map(|definition| {
            let name = definition.metadata.name.clone().unwrap_or_default();
            let file = needs::shared("api").join(format!("{name}.json"));
            Test::new(name, move || compare(&definition, &file))
        })
        .collect();
    tests.push(Test::new("every_contract_file_has_a_crd", || every_file_has_a_crd(&needs::shared("api"))));
    Harness::default().needing(&[Need::Shared("api")]).run(tests)
}

fn every_file_has_a_crd(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let known: Vec<String> =
        api::crd::all().map_err(|error| error.to_string())?.into_iter().filter_map(|crd| crd.metadata.name).collect();
    let mut files = 0;
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(crd) = name.strip_suffix(".json").filter(|name| name.ends_with(".kubevirt.io")) else { continue };
        files += 1;
        if !known.iter().any(|known| known == crd) {
            return Err(format!("the contract has {crd}, the types do not").into());
        }
    }
    if files == known.len() { Ok(()) } else { Err(format!("{files} contract files, {} CRDs", known.len()).into()) }
}

fn compare(definition: &CustomResourceDefinition, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let contract: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let name = definition.metadata.name.as_deref().unwrap_or_default();
    let expected = flatten(&from_contract(&contract));
    let actual = flatten(&from_definition(&serde_json::to_value(definition)?));

    let mut report = String::new();
    let mut unused: Vec<&str> =
        DEVIATIONS.iter().filter(|(crd, _, _)| *crd == name).map(|(_, path, _)| *path).collect();
    let paths: std::collections::BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
    for path in paths {
        let (want, have) = (expected.get(path), actual.get(path));
        if want == have {
            continue;
        }
        if let Some(index) = unused.iter().position(|known| known == path) {
            unused.remove(index);
            continue;
        }
        let show = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        writeln!(report, "{path}: the contract has {}, the CRD has {}", show(want), show(have))?;
    }
    for path in unused {
        writeln!(report, "{path}: listed as a deviation, but equal")?;
    }
    if report.is_empty() { Ok(()) } else { Err(report.into()) }
}

/// The contract's own form of a CRD: `sameAs` resolved, and the list kind that Kubernetes would fill in.
fn from_contract(contract: &Value) -> Value {
    let mut contract = contract.clone();
    let versions = contract["versions"].clone();
    for version in contract["versions"].as_array_mut().into_iter().flatten() {
        if let Some(other) = version["schema"].get("sameAs") {
            let same = versions.as_array().into_iter().flatten().find(|candidate| candidate["name"] == *other);
            version["schema"] = same.map_or(Value::Null, |same| same["schema"].clone());
        }
    }
    let list_kind = format!("{}List", contract["names"]["kind"].as_str().unwrap_or_default());
    if let Value::Object(names) = &mut contract["names"] {
        names.entry("listKind").or_insert_with(|| list_kind.into());
    }
    contract
}

/// A CRD in the contract's form.
fn from_definition(definition: &Value) -> Value {
    let spec = &definition["spec"];
    let versions: Vec<Value> = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|version| {
            let mut version = version.clone();
            let schema = version["schema"]["openAPIV3Schema"].take();
            version["schema"] = schema;
            if let Value::Object(fields) = &mut version
                && let Some(columns) = fields.remove("additionalPrinterColumns")
            {
                fields.insert("printerColumns".to_owned(), columns);
            }
            version
        })
        .collect();
    json!({
        "group": spec["group"],
        "name": definition["metadata"]["name"],
        "names": spec["names"],
        "scope": spec["scope"],
        "versions": versions,
    })
}

/// Every leaf by its path. Lists of named things are keyed by name, sets are sorted, prose is left out.
fn flatten(value: &Value) -> BTreeMap<String, Value> {
    fn walk(path: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (key, inner) in prose_removed(fields) {
                    walk(&format!("{path}/{key}"), inner, leaves);
                }
            }
            Value::Array(list) if list.iter().all(|item| item.get("name").is_some()) && !list.is_empty() => {
                for (index, item) in list.iter().enumerate() {
                    let name = item["name"].as_str().unwrap_or_default();
                    walk(&format!("{path}/{name}"), item, leaves);
                    leaves.insert(format!("{path}/{name}#"), index.into());
                }
            }
            Value::Array(list) if path.ends_with("/required") => {
                let mut sorted: Vec<String> = list.iter().map(Value::to_string).collect();
                sorted.sort();
                leaves.insert(path.to_owned(), sorted.into());
            }
            // Kubernetes' own type for schemas reads bounds as floats.
            Value::Number(number) => {
                leaves.insert(path.to_owned(), number.as_f64().into());
            }
            leaf => {
                leaves.insert(path.to_owned(), leaf.clone());
            }
        }
    }

    /// A description is prose, unless it is a field of that name: then it is a schema.
    fn prose_removed(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
        fields.iter().filter(|(key, value)| *key != "description" || value.is_object())
    }

    let mut leaves = BTreeMap::new();
    walk("", value, &mut leaves);
    leaves
}
