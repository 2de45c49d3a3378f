//! Real clients against a server: each does what its users do, and says what it did not get.
//!
//! Every check takes a kubeconfig; what it needs it makes itself, in a namespace of its own.

pub mod kube;
pub mod kubectl;
pub mod python;

use anyhow::{Result, ensure};

/// What one check found.
pub(crate) type Outcome = (&'static str, Result<()>);

/// Fails with every check that failed.
pub(crate) fn all(outcomes: Vec<Outcome>) -> Result<()> {
    let failed: Vec<String> = outcomes
        .into_iter()
        .filter_map(|(name, result)| result.err().map(|error| format!("{name}: {error:#}")))
        .collect();
    ensure!(failed.is_empty(), "{} checks failed\n{}", failed.len(), failed.join("\n"));
    Ok(())
}
