//! kubectl, as users run it.

mod change;
mod read;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use testkit::NEVER;

use super::{Outcome, all};
use crate::peer;

type Check = fn(&Kubectl) -> Result<()>;

/// The checks in the order they run; the first makes what the others use.
const CHECKS: [(&str, Check); 18] = [
    ("crds_of_the_product_are_applied_and_established", change::crds),
    ("create_takes_files_of_several_objects", change::create),
    ("get_prints_in_every_form", read::forms),
    ("get_watches", read::watch),
    ("get_raw_and_discovery", read::raw),
    ("categories_and_short_names_are_known", read::categories),
    ("describe_shows_a_custom_object_and_its_events", read::describe),
    ("apply_creates_changes_and_leaves_custom_objects", change::apply_custom),
    ("apply_creates_changes_and_leaves_config_maps", change::apply_config_map),
    ("replace_takes_the_whole_object", change::replace),
    ("patch_takes_both_forms", change::patch),
    ("label_and_annotate", change::label),
    ("scale_changes_replicas", change::scale),
    ("edit_conflicts_are_told", change::conflict),
    ("unknown_fields_are_refused", change::strict),
    ("wait_for_conditions_values_and_deletion", read::wait),
    ("delete_with_every_cascade", change::delete),
    ("delete_by_label_and_all", change::delete_many),
];

/// Runs every check that is not left out.
///
/// # Errors
/// With each that failed.
pub fn run(kubeconfig: &Path, without: &[&str]) -> Result<()> {
    let kubectl = Kubectl::new(kubeconfig)?;
    for name in without {
        ensure!(CHECKS.iter().any(|(known, _)| known == name), "there is no check {name}");
    }
    let checks = CHECKS.iter().filter(|(name, _)| !without.contains(name));
    all(checks.map(|(name, check)| -> Outcome { (name, check(&kubectl)) }).collect())
}

/// kubectl with a kubeconfig, a home and a namespace of its own.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: TempDir,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Result<Self> {
        Ok(Self { program: peer("kubectl")?, kubeconfig: kubeconfig.to_owned(), home: tempfile::tempdir()? })
    }

    /// Bounded in time, by more than what `--timeout` says anywhere: a client that waits for ever is a failure like others.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("360").arg(&self.program).arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(arguments).env("HOME", self.home.path()).stdin(Stdio::null());
        command
    }

    /// What it prints when it succeeds.
    pub(crate) fn ok(&self, arguments: &[&str]) -> Result<String> {
        crate::output(&mut self.command(arguments))
    }

    /// What it says when it fails, as it must.
    pub(crate) fn refused(&self, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.feed(arguments, input)?;
        ensure!(
            !output.status.success(),
            "kubectl {arguments:?} succeeded:\n{}",
            String::from_utf8_lossy(&output.stdout)
        );
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// With a manifest on standard input.
    pub(crate) fn given(&self, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.feed(arguments, input)?;
        if !output.status.success() {
            bail!("kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Asks again and again until the answer is as wanted, for what no `kubectl wait` can tell; gives that answer.
    #[expect(clippy::disallowed_methods, reason = "other programs work in real time")]
    pub(crate) fn until(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> Result<String> {
        let since = Instant::now();
        loop {
            let last = self.ok(arguments)?;
            if wanted(&last) {
                return Ok(last);
            }
            ensure!(since.elapsed() < NEVER, "kubectl {arguments:?} still says {last:?}");
        }
    }

    fn feed(&self, arguments: &[&str], input: &str) -> Result<std::process::Output> {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // Manifests are shorter than a pipe holds; a program that reads nothing may close it.
        let _ = child.stdin.take().context("no standard input")?.write_all(input.as_bytes());
        Ok(child.wait_with_output()?)
    }
}

/// Fails unless a text has a part.
pub(crate) fn has(text: &str, part: &str) -> Result<()> {
    ensure!(text.contains(part), "no {part:?} in\n{text}");
    Ok(())
}
