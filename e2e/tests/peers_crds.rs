//! The CRDs on a real kube-apiserver: taken by plain `kubectl apply`, established, structural, and good enough for
//! every sample manifest under strict validation.
#![expect(clippy::print_stderr, reason = "a test speaks on the terminal")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::control_plane::ControlPlane;
use e2e::{output, root};
use serde_json::Value;
use testkit::{Harness, Need, Test, needs};

fn main() -> ExitCode {
    // Nothing is started for a run that leaves these tests out.
    let is_wanted = Need::Peers.missing().is_none() && !std::env::args().any(|argument| argument == "--list");
    let start = || ControlPlane::start().and_then(|plane| prepare(&plane).map(|()| Arc::new(plane)));
    match is_wanted.then(start).transpose() {
        Ok(plane) => Harness::default().needing(&[Need::Peers]).run(tests(plane.as_ref())),
        Err(error) => {
            eprintln!("the control plane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

type Check = fn(&ControlPlane) -> Result<()>;

fn tests(plane: Option<&Arc<ControlPlane>>) -> Vec<Test> {
    let checks: [(&str, Check); 4] = [
        ("every_crd_is_established_and_structural", established),
        ("applying_again_changes_nothing", unchanged),
        ("kubectl_explains_fields_in_our_words", explained),
        ("a_wrong_field_is_refused_by_the_schema", refused),
    ];
    let mut tests: Vec<Test> = checks.into_iter().map(|(name, check)| test(name, plane, check)).collect();
    let samples = test("every_sample_manifest_is_taken_strictly", plane, samples_taken);
    tests.push(samples.needing(&[Need::Shared("manifests")]));
    tests
}

fn test(name: &str, plane: Option<&Arc<ControlPlane>>, check: Check) -> Test {
    let plane = plane.cloned();
    Test::new(name, move || check(plane.as_ref().context("there is no control plane")?))
}

/// Plain client-side apply, with the annotation that holds the whole object.
fn prepare(plane: &ControlPlane) -> Result<()> {
    let printed = apply(plane, &root().join("deploy/crds"))?;
    let created = printed.lines().filter(|line| line.ends_with(" created")).count();
    ensure!(created == files(&root().join("deploy/crds"))?, "not every CRD was created:\n{printed}");
    output(plane.kubectl().args(["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"]))?;
    // Discovery and OpenAPI follow a moment after; then kubectl must forget what it knew before.
    plane.wait_for("/openapi/v3/apis/kubevirt.io/v1")?;
    output(plane.kubectl().args(["api-resources", "--cached=false"])).map(|_| ())
}

fn apply(plane: &ControlPlane, path: &Path) -> Result<String> {
    output(plane.kubectl().args(["apply", "--validate=strict", "-f"]).arg(path))
}

fn files(folder: &Path) -> Result<usize> {
    Ok(std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?.count())
}

fn established(plane: &ControlPlane) -> Result<()> {
    let crds: Value = serde_json::from_str(&output(plane.kubectl().args(["get", "crd", "-o", "json"]))?)?;
    let items = crds["items"].as_array().context("kubectl printed no list")?;
    ensure!(items.len() == files(&root().join("deploy/crds"))?, "{} CRDs are there", items.len());
    for crd in items {
        let name = &crd["metadata"]["name"];
        let conditions = crd["status"]["conditions"].as_array().with_context(|| format!("{name} has no conditions"))?;
        for condition in conditions {
            let (kind, status) = (condition["type"].as_str(), condition["status"].as_str());
            ensure!(kind != Some("NonStructuralSchema"), "{name}: {condition}");
            if matches!(kind, Some("Established" | "NamesAccepted")) {
                ensure!(status == Some("True"), "{name}: {condition}");
            }
        }
    }
    Ok(())
}

fn unchanged(plane: &ControlPlane) -> Result<()> {
    let printed = apply(plane, &root().join("deploy/crds"))?;
    ensure!(printed.lines().all(|line| line.ends_with(" unchanged")), "{printed}");
    Ok(())
}

fn explained(plane: &ControlPlane) -> Result<()> {
    let printed = output(plane.kubectl().args(["explain", "vmi.spec.domain.cpu.cores"]))?;
    ensure!(printed.contains("Cores per socket"), "{printed}");
    Ok(())
}

fn refused(plane: &ControlPlane) -> Result<()> {
    let manifest = r#"{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"wrong"},
        "spec":{"domain":{"devices":{},"rebootPolicy":"Maybe"}}}"#;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), manifest)?;
    let error = apply(plane, file.path()).err().context("a wrong value was taken")?;
    ensure!(error.to_string().contains("spec.domain.rebootPolicy"), "{error}");
    Ok(())
}

fn samples_taken(plane: &ControlPlane) -> Result<()> {
    let samples = needs::shared("manifests");
    let printed = apply(plane, &samples)?;
    let created = printed.lines().filter(|line| line.ends_with(" created")).count();
    ensure!(created >= files(&samples)?, "not every sample was created:\n{printed}");
    Ok(())
}
