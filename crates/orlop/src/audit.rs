//! `--audit-log`: the log of all requests to the API server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use apiserver::AuditLog;

use crate::rotating::{Limits, Rotating};

/// About a million requests, and ten times as many before them.
const KEPT: Limits = Limits { bytes: 100 << 20, older: 10 };
/// How long the end of a process may take to write what is left.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The audit log.
#[derive(clap::Args)]
#[group(id = "audit")]
pub(crate) struct Arguments {
    /// Log every API request to this file, in the format of the Kubernetes audit log at the level Metadata; - means standard
    /// output. Only the owner can read the file. It is rotated at 100 MiB, and ten older files are kept.
    #[arg(long, value_name = "FILE", env = "ORLOP_AUDIT_LOG")]
    audit_log: Option<PathBuf>,
}

impl Arguments {
    /// Opens the log, if there is to be one.
    pub(crate) fn open(&self) -> anyhow::Result<Audit> {
        let Some(path) = &self.audit_log else { return Ok(Audit(None)) };
        let out: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(std::io::stdout())
        } else {
            Box::new(Rotating::open(path, KEPT).with_context(|| format!("open the audit log {}", path.display()))?)
        };
        Ok(Audit(Some(AuditLog::new(out).context("start the audit log")?)))
    }
}

/// The audit log of a process; what was said is written when it is dropped.
pub(crate) struct Audit(Option<AuditLog>);

impl Audit {
    /// A server that writes to it.
    pub(crate) fn of(&self, builder: apiserver::Builder) -> apiserver::Builder {
        match &self.0 {
            Some(log) => builder.audit(log.clone()),
            None => builder,
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if let Some(log) = &self.0 {
            log.flush(LAST_WORDS);
        }
    }
}
