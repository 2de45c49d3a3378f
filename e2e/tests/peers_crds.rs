//! The CRDs on a real kube-apiserver: taken by plain `kubectl apply`, established, structural, and good enough for
//! every sample manifest under strict validation.
#![expect(clippy::print_stderr, reason = "a test speaks on the terminal")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::control_plane::ControlPlane;
use e2e::{output, root};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if !(arguments.ignored || arguments.include_ignored) || arguments.list {
        // Only the names: nothing is started for a run that leaves these tests out.
        return libtest_mimic::run(&arguments, trials(None)).exit_code();
    }
    match ControlPlane::start().and_then(|plane| prepare(&plane).map(|()| plane)) {
        Ok(plane) => libtest_mimic::run(&arguments, trials(Some(&Arc::new(plane)))).exit_code(),
        Err(error) => {
            eprintln!("the control plane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

type Check = fn(&ControlPlane) -> Result<()>;

fn trials(plane: Option<&Arc<ControlPlane>>) -> Vec<Trial> {
    let checks: [(&str, Check); 4] = [
        ("every_crd_is_established_and_structural", established),
        ("applying_again_changes_nothing", unchanged),
        ("kubectl_explains_fields_in_our_words", explained),
        ("a_wrong_field_is_refused_by_the_schema", refused),
    ];
    let mut trials: Vec<Trial> = checks.into_iter().map(|(name, check)| trial(name, plane, check)).collect();
    let samples = root().join("../shared/manifests");
    if samples.is_dir() {
        trials.push(trial("every_sample_manifest_is_taken_strictly", plane, samples_taken));
    } else {
        eprintln!("the sample manifests are not here; their test is left out");
    }
    trials
}

fn trial(name: &str, plane: Option<&Arc<ControlPlane>>, check: Check) -> Trial {
    let plane = plane.cloned();
    let run = move || match plane {
        Some(plane) => check(&plane).map_err(|error| format!("{error:#}").into()),
        None => Err("needs the real peers: make test-peers".into()),
    };
    Trial::test(name, run).with_ignored_flag(true)
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
    let samples = root().join("../shared/manifests");
    let printed = apply(plane, &samples)?;
    let created = printed.lines().filter(|line| line.ends_with(" created")).count();
    ensure!(created >= files(&samples)?, "not every sample was created:\n{printed}");
    Ok(())
}
