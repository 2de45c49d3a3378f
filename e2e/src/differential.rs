//! Two API servers get the same requests, and every answer is compared.
//!
//! ```text
//! e2e/differential/*.yaml ─┐
//!                          ├─> script ─> run (on both) ─> normalize ─> compare ─> deviations ─> report
//! a seed ─> random ────────┘
//! ```
//!
//! The reference is a real kube-apiserver. What is compared with it is our server, or, as a control, a second real one: then
//! every difference is a fault of the scripts or of the normalization. The control runs some scripts and seeds with every
//! change, and all with `ORLOP_CONTROL=full`.
//! `ORLOP_SCRIPTS` and `ORLOP_SEEDS` choose what is run; `ORLOP_ANSWERS` names a directory that gets all answers to read.

pub mod compare;
pub mod deviations;
pub mod normalize;
pub mod random;
pub mod run;
pub mod script;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::differential::compare::{Difference, differences};
use crate::differential::deviations::Deviations;
use crate::differential::normalize::normalize;
use crate::differential::run::Runner;
use crate::differential::script::{Script, Step};
use crate::embedded::Embedded;
use crate::http::Server;
use crate::kubeconfig::Kubeconfig;
use crate::root;

/// How many random sequences are run when nobody says otherwise.
const SEEDS: usize = 30;
/// What the control runs with every change: each part of the normalization has work in one of them.
const CONTROL: [&str; 7] = ["crud", "delete", "generate-name", "list", "metadata", "patch", "watch"];
const CONTROL_SEEDS: usize = 3;

/// What the reference is compared with.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// Our server: this program.
    Ours(&'a Path),
    /// A second server of the reference's own.
    Control,
}

impl Subject<'_> {
    /// The deviations that hold between the two: none between a server and itself.
    fn deviations(self) -> Result<Deviations> {
        match self {
            Self::Control => Ok(Deviations::default()),
            Self::Ours(_) => Deviations::read(&directory().join("deviations.yaml")),
        }
    }
}

/// Runs the scripts of `e2e/differential` on both servers.
///
/// # Errors
/// With every difference that no deviation explains, and every deviation that explains nothing.
pub async fn scripts(subject: Subject<'_>) -> Result<()> {
    let chosen = std::env::var("ORLOP_SCRIPTS").unwrap_or_default();
    let names: Vec<&str> = match subject {
        _ if !chosen.is_empty() => chosen.split(',').collect(),
        Subject::Control if !is_full() => CONTROL.into(),
        _ => Vec::new(),
    };
    let wanted = choose(Script::all(&directory())?, &names)?;
    let sides = Sides::start(subject).await?;
    let deviations = subject.deviations()?;
    let (mut summary, mut report) = (String::new(), String::new());
    for script in wanted {
        let answers = match sides.run(&script).await {
            Ok(answers) => answers,
            Err(error) => {
                writeln!(report, "{}: {error:#}", script.name)?;
                continue;
            }
        };
        answers.save(&script)?;
        let found = answers.differences(&script, &deviations);
        if !found.is_empty() {
            let worse = found.iter().filter(|(_, found)| found.iter().any(|one| one.path == "/status")).count();
            let (name, steps) = (&script.name, script.steps.len());
            writeln!(summary, "{name}: {} of {steps} steps differ, {worse} in their status", found.len())?;
        }
        for (step, found) in found {
            report_step(&mut report, &script.name, step, &found)?;
        }
    }
    if names.is_empty() {
        report_unused(&mut report, &deviations, |script| !is_random(script))?;
    }
    ensure!(report.is_empty(), "the servers differ\n{report}\n{summary}");
    Ok(())
}

/// The scripts of these names, or all where none is named.
fn choose(mut scripts: Vec<Script>, names: &[&str]) -> Result<Vec<Script>> {
    for name in names {
        ensure!(scripts.iter().any(|script| script.name == *name), "there is no script {name:?}");
    }
    scripts.retain(|script| names.is_empty() || names.contains(&script.name.as_str()));
    Ok(scripts)
}

/// Runs random sequences on both servers.
///
/// # Errors
/// With the first differences of a seed, and the steps that lead there; and with every deviation of random sequences that
/// explains nothing.
pub async fn random_sequences(subject: Subject<'_>) -> Result<()> {
    let chosen = std::env::var("ORLOP_SEEDS").ok();
    let usual = match subject {
        Subject::Control if !is_full() => CONTROL_SEEDS,
        _ => SEEDS,
    };
    let seeds: Vec<u64> = match &chosen {
        Some(seeds) => seeds.split(',').map(str::parse).collect::<Result<_, _>>().context("ORLOP_SEEDS")?,
        None => testkit::soak::seeds("ORLOP_SEED", usual).map(|seed| seed + 1).collect(),
    };
    let sides = Sides::start(subject).await?;
    let deviations = subject.deviations()?;
    random::prepare(&sides).await?;
    let mut report = String::new();
    for seed in &seeds {
        if let Some(found) = random::judge(&sides, *seed, &deviations).await? {
            report.push_str(&found);
        }
    }
    // Fewer sequences than usual may not meet them all.
    if seeds.len() >= SEEDS {
        report_unused(&mut report, &deviations, is_random)?;
    }
    ensure!(report.is_empty(), "the servers differ\n{report}");
    Ok(())
}

/// Whether the control runs everything.
fn is_full() -> bool {
    std::env::var("ORLOP_CONTROL").is_ok_and(|extent| extent == "full")
}

/// Whether a pattern of a deviation is about random sequences alone.
fn is_random(script: &str) -> bool {
    script.starts_with("random")
}

fn report_unused(report: &mut String, deviations: &Deviations, wanted: impl Fn(&str) -> bool) -> Result<()> {
    for unused in deviations.unused(wanted) {
        writeln!(report, "deviations.yaml: no longer needed: {unused}")?;
    }
    Ok(())
}

/// Where the scripts are.
#[must_use]
pub fn directory() -> PathBuf {
    root().join("e2e/differential")
}

/// The two servers.
pub struct Sides {
    ours: Side,
    theirs: Side,
}

enum Side {
    Real(ControlPlane),
    Embedded(Embedded),
}

impl Side {
    fn server(&self) -> Result<Server> {
        let path = match self {
            Self::Real(plane) => plane.kubeconfig(),
            Self::Embedded(embedded) => embedded.kubeconfig(),
        };
        Server::new(&Kubeconfig::read(&path)?)
    }
}

impl Sides {
    /// Starts what is compared and what it is compared with.
    ///
    /// # Errors
    /// When one does not come up.
    pub async fn start(subject: Subject<'_>) -> Result<Self> {
        let ours = match subject {
            Subject::Control => Side::Real(ControlPlane::start_plain()?),
            Subject::Ours(program) => Side::Embedded(Embedded::start(program).await?),
        };
        Ok(Self { ours, theirs: Side::Real(ControlPlane::start_plain()?) })
    }

    /// Runs a script on both at the same time.
    ///
    /// # Errors
    /// When a server does not answer at all.
    pub async fn run(&self, script: &Script) -> Result<Answers> {
        let ours = Runner::new(self.ours.server()?);
        let theirs = Runner::new(self.theirs.server()?);
        let (ours, theirs) = tokio::join!(ours.run(script), theirs.run(script));
        Ok(Answers { ours: ours.context("ours")?, theirs: theirs.context("theirs")? })
    }
}

/// What both answered to the steps of a script, one entry per step.
pub struct Answers {
    ours: Vec<Value>,
    theirs: Vec<Value>,
}

impl Answers {
    /// Writes what both answered, as it is compared, for a reader.
    fn save(&self, script: &Script) -> Result<()> {
        let Some(folder) = std::env::var_os("ORLOP_ANSWERS").map(PathBuf::from) else { return Ok(()) };
        for (side, answers) in [("ours", &self.ours), ("theirs", &self.theirs)] {
            let mut text = String::new();
            for (step, answer) in script.steps.iter().zip(normalize(answers)) {
                writeln!(text, "# {}\n{answer:#}", step.name)?;
            }
            std::fs::write(folder.join(format!("{}.{side}.txt", script.name)), text)?;
        }
        Ok(())
    }

    /// The steps whose answers differ beyond the deviations.
    #[must_use]
    pub fn differences<'a>(&self, script: &'a Script, known: &Deviations) -> Vec<(&'a Step, Vec<Difference>)> {
        let ours = normalize(&self.ours);
        let theirs = normalize(&self.theirs);
        let mut found = Vec::new();
        for (index, step) in script.steps.iter().enumerate() {
            let mut here = differences(step.view(&ours[index]), step.view(&theirs[index]));
            if let Some(expected) = step.expect
                && self.theirs[index]["status"] != expected
            {
                let ours = format!("the script expects {expected}");
                here.push(Difference { path: "/status".into(), ours, theirs: theirs[index].to_string() });
            }
            here.retain(|difference| !known.explains(&script.name, &step.name, difference));
            if !here.is_empty() {
                found.push((step, here));
            }
        }
        found
    }
}

fn report_step(report: &mut String, script: &str, step: &Step, found: &[Difference]) -> Result<()> {
    writeln!(report, "{script}: {}", step.name)?;
    for Difference { path, ours, theirs } in found {
        writeln!(report, "    {path}\n        ours:   {ours}\n        theirs: {theirs}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_run_and_a_name_that_is_none_is_told() {
        let scripts = || Script::all(&directory()).unwrap();
        let names = |scripts: Vec<Script>| scripts.into_iter().map(|script| script.name).collect::<Vec<_>>();
        assert_eq!(names(choose(scripts(), &CONTROL).unwrap()), CONTROL);
        assert_eq!(choose(scripts(), &[]).unwrap().len(), scripts().len());
        assert!(choose(scripts(), &["crud", "crude"]).unwrap_err().to_string().contains("crude"));
    }
}
