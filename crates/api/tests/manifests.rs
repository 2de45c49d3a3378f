//! Sample manifests, and instances that KubeVirt's own controllers wrote: each decodes without unknown fields, encodes
//! to the same JSON, and is valid by the generated schema.
//!
//! The samples (`../shared`) are not part of the project. Where they are absent, these tests report as ignored.
#![expect(clippy::expect_used, reason = "a test fails on the terminal")]

#[expect(dead_code, reason = "samples have no subresource bodies")]
mod support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Harness, Need, Test, needs};

use support::{Kind, kinds};

fn main() -> std::process::ExitCode {
    let mut tests = Vec::new();
    for (label, folder) in [("manifests", "manifests"), ("golden", "reference/golden")] {
        let need = Need::Shared(folder);
        let found = match need.missing() {
            None => documents(label, &needs::shared(folder)).expect("the samples are readable"),
            Some(_) => vec![Test::new(format!("{label}::all"), || ())],
        };
        tests.extend(found.into_iter().map(|test| test.needing(&[need])));
    }
    Harness::default().run(tests)
}

/// One test per document of a kubevirt.io kind; golden files also hold the pod that was made for the VM.
fn documents(label: &str, folder: &Path) -> std::io::Result<Vec<Test>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty(), "{} holds no samples", folder.display());
    let mut tests = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("the samples are YAML");
        let mut ours = 0;
        for (index, document) in documents.into_iter().enumerate() {
            if document["apiVersion"].as_str().is_some_and(|version| version.contains("kubevirt.io/")) {
                ours += 1;
                tests.push(Test::new(format!("{label}::{stem}::{index}"), move || check(&document)));
            }
        }
        assert!(ours > 0, "{stem} holds no object of ours");
    }
    Ok(tests)
}

fn check(document: &Value) -> Result<(), Box<dyn std::error::Error>> {
    let name = document["kind"].as_str().unwrap_or_default();
    let Kind { round_trip, schema, .. } =
        kinds().into_iter().find(|kind| kind.name == name).ok_or_else(|| format!("unknown kind {name}"))?;

    let (again, unknown) = round_trip(document.clone())?;
    if !unknown.is_empty() {
        return Err(format!("unknown fields: {}", unknown.join(", ")).into());
    }
    if again != *document {
        return Err(format!("sent {document}\n got {again}").into());
    }
    let problems = support::validate(&schema(), document);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}
