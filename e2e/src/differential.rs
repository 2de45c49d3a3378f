//! Two API servers get the same requests, and every answer is compared.
//!
//! ```text
//! e2e/differential/*.yaml ─┐
//!                          ├─> script ─> run (on both) ─> normalize ─> compare ─> deviations ─> report
//! a seed ─> random ────────┘
//! ```
//!
//! The reference is a real kube-apiserver. What is compared with it is our server, or, when `ORLOP_DIFFERENTIAL` is
//! `self`, a second real one: then every difference is a fault of the scripts or of the normalization.
//! `ORLOP_SCRIPTS` and `ORLOP_SEEDS` choose what is run; `ORLOP_ANSWERS` names a folder that gets all answers to read.

pub mod compare;
pub mod deviations;
pub mod normalize;
pub mod random;
pub mod run;
pub mod script;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
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

/// Runs every script of `e2e/differential` on both servers.
///
/// # Errors
/// With every difference that no deviation explains, and every deviation that explains nothing.
pub async fn scripts(program: &Path) -> Result<()> {
    let sides = Sides::start(program).await?;
    let wanted = std::env::var("ORLOP_SCRIPTS").unwrap_or_default();
    let deviations = sides.deviations()?;
    let (mut summary, mut report) = (String::new(), String::new());
    let mut count = 0;
    for script in Script::all(&folder())? {
        if !wanted.is_empty() && !wanted.split(',').any(|name| name == script.name) {
            continue;
        }
        count += 1;
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
    ensure!(count > 0, "there is no script {wanted:?}");
    if wanted.is_empty() && !sides.same() {
        for unused in deviations.unused(|script| !script.starts_with("random")) {
            writeln!(report, "deviations.yaml: no longer needed: {unused}")?;
        }
    }
    ensure!(report.is_empty(), "the servers differ\n{report}\n{summary}");
    Ok(())
}

/// Runs random sequences on both servers.
///
/// # Errors
/// With the first differences of a seed, and the steps that lead there.
pub async fn random_sequences(program: &Path) -> Result<()> {
    let sides = Sides::start(program).await?;
    let deviations = sides.deviations()?;
    random::prepare(&sides).await?;
    let seeds: Vec<u64> = match std::env::var("ORLOP_SEEDS") {
        Ok(seeds) => seeds.split(',').map(str::parse).collect::<Result<_, _>>().context("ORLOP_SEEDS")?,
        Err(_) => testkit::soak::seeds("ORLOP_SEED", SEEDS).map(|seed| seed + 1).collect(),
    };
    let mut report = String::new();
    for seed in seeds {
        if let Some(found) = random::judge(&sides, seed, &deviations).await? {
            report.push_str(&found);
        }
    }
    ensure!(report.is_empty(), "the servers differ\n{report}");
    Ok(())
}

/// Where the scripts are.
#[must_use]
pub fn folder() -> PathBuf {
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
    pub async fn start(program: &Path) -> Result<Self> {
        let ours = match std::env::var("ORLOP_DIFFERENTIAL").as_deref() {
            Ok("self") => Side::Real(ControlPlane::start_plain()?),
            Ok(other) => bail!("ORLOP_DIFFERENTIAL is {other:?}; it may be \"self\""),
            Err(_) => Side::Embedded(Embedded::start(program).await?),
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

    /// The deviations that hold between the two: none between a server and itself.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn deviations(&self) -> Result<Deviations> {
        if self.same() { Ok(Deviations::default()) } else { Deviations::read(&folder().join("deviations.yaml")) }
    }

    fn same(&self) -> bool {
        matches!((&self.ours, &self.theirs), (Side::Real(_), Side::Real(_)))
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
            here.retain(|difference| !known.explains(&script.name, &step.name, &difference.path));
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
