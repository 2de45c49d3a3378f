//! Random requests over a few names and kinds, the same for both servers, found again by their seed.

mod generate;
mod kinds;

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::compare::Difference;
use super::deviations::Deviations;
use super::script::{Script, Step};
use super::{Sides, report_step};

/// How many requests one seed gives.
const LENGTH: usize = 200;
/// How often a failing sequence is tried with steps left out.
const ATTEMPTS: usize = 60;

/// Makes the custom resource that the sequences use.
///
/// # Errors
/// When a server does not serve it.
pub async fn prepare(sides: &Sides) -> Result<()> {
    let create = Step {
        name: "create the CRD".into(),
        request: Some("POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions".into()),
        body: Some(kinds::crd()),
        ..Step::default()
    };
    let served = Step {
        name: "it is served".into(),
        request: Some("GET /apis/random.orlop.example/v1/gadgets".into()),
        until: [("/status".to_owned(), json!(200))].into(),
        ..Step::default()
    };
    let script = script("prepare", vec![create, served]);
    let answers = sides.run(&script).await?;
    for (side, answers) in [("ours", &answers.ours), ("theirs", &answers.theirs)] {
        ensure!(answers[1]["status"] == 200, "{side} does not serve the CRD: {answers:?}");
    }
    Ok(())
}

/// Runs the sequence of a seed; when the servers differ, says where and by which few steps.
///
/// # Errors
/// When a server does not answer at all.
pub async fn judge(sides: &Sides, seed: u64, known: &Deviations) -> Result<Option<String>> {
    let steps = generate::steps(seed, LENGTH);
    let whole = script(&format!("random-{seed}"), steps.clone());
    let answers = sides.run(&whole).await.with_context(|| format!("seed {seed}"))?;
    answers.save(&whole)?;
    let Some((step, found)) = answers.differences(&whole, known).into_iter().next() else { return Ok(None) };
    let mut report = format!("seed {seed}, run alone by ORLOP_SEEDS={seed}\n");
    let end = steps.iter().position(|candidate| candidate.name == step.name).unwrap_or(steps.len() - 1);
    // Mostly the steps up to the first difference show it; one that later answers bring to light needs them all.
    let mut shorter = Shorter { sides, known, seed, attempts: 0 };
    let base = match shorter.differs(&steps[..=end]).await? {
        Some(shown) => Some((steps[..=end].to_vec(), shown)),
        None => shorter.differs(&steps).await?.map(|shown| (steps, shown)),
    };
    match base {
        None => {
            writeln!(report, "gone when repeated: it depends on timing")?;
            report_step(&mut report, &whole.name, step, &found)?;
        }
        Some((steps, shown)) => {
            let (steps, (step, found)) = shorter.shorten(steps, shown).await?;
            for step in &steps {
                writeln!(report, "  {}", serde_json::to_string(step)?)?;
            }
            report_step(&mut report, &whole.name, &step, &found)?;
        }
    }
    Ok(Some(report))
}

/// The first step that differs, and how.
type Shown = (Step, Vec<Difference>);

/// Repeats a sequence with steps left out.
struct Shorter<'a> {
    sides: &'a Sides,
    known: &'a Deviations,
    seed: u64,
    attempts: usize,
}

impl Shorter<'_> {
    /// Runs steps in a namespace that nobody used yet.
    async fn differs(&mut self, steps: &[Step]) -> Result<Option<Shown>> {
        self.attempts += 1;
        let script = script(&format!("random-{}-{}", self.seed, self.attempts), steps.to_vec());
        let found = self.sides.run(&script).await?.differences(&script, self.known).into_iter().next();
        Ok(found.map(|(step, found)| (step.clone(), found)))
    }

    /// Leaves out steps, in ever smaller groups, as long as the same step differs first and in the same way.
    async fn shorten(&mut self, mut steps: Vec<Step>, mut shown: Shown) -> Result<(Vec<Step>, Shown)> {
        let mut size = steps.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < steps.len() && self.attempts < ATTEMPTS {
                let mut fewer = steps.clone();
                fewer.drain(at..(at + size).min(steps.len()));
                match self.differs(&fewer).await? {
                    Some(found) if alike(&found, &shown) => (steps, shown) = (fewer, found),
                    _ => at += size,
                }
            }
            size /= 2;
        }
        Ok((steps, shown))
    }
}

fn alike(a: &Shown, b: &Shown) -> bool {
    let paths = |shown: &Shown| shown.1.iter().map(|difference| difference.path.clone()).collect::<Vec<_>>();
    a.0.name == b.0.name && paths(a) == paths(b)
}

fn script(name: &str, steps: Vec<Step>) -> Script {
    Script { name: name.to_owned(), subject: String::new(), variables: [].into(), steps }
}
