//! A certificate authority that is kept in a directory, and its replacement before it expires.
//!
//! ```text
//! ca.crt         the certificates that are to be trusted, that of the one that signs first
//! ca.key         the key that signs
//! rotation.json  only while one takes over: how far it has come, and the certificate and key of the new one
//! ```
//! Each step is one write of `rotation.json`, or its removal; the other two follow from it and are put right at the next start.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::files::{self, PUBLIC, SECRET};
use crate::rotation::{Phase, Step};
use crate::{Authority, CertificateError, Leaf, Request, Terms};

/// Keeps an authority.
pub struct Keeper {
    folder: PathBuf,
    name: String,
    terms: Terms,
    phase: Mutex<Phase<Arc<Authority>>>,
    trusted: watch::Sender<String>,
}

/// `rotation.json`.
#[derive(Serialize, Deserialize)]
struct Record {
    /// Since when it is announced, or signs.
    since: Timestamp,
    /// The certificate of the one that signed before; none, as long as it does.
    went: Option<String>,
    certificate: String,
    key: String,
}

impl Keeper {
    /// Takes the authority in a directory, or makes one of this name there.
    ///
    /// # Errors
    /// When files cannot be read, written or used.
    pub fn open(folder: &Path, name: &str, terms: Terms, now: Timestamp) -> Result<Self, CertificateError> {
        let phase = match read_record(folder)? {
            // The other files may be of before: one of them, or both.
            Some(Record { since, went: Some(went), certificate, key }) => {
                Phase::Switched { signs: Arc::new(Authority::from_pem(certificate, key)?), went, since }
            }
            record => match (read_signer(folder)?, record) {
                (Some(signs), None) => Phase::Alone(Arc::new(signs)),
                (Some(signs), Some(Record { since, certificate, key, .. })) => {
                    let comes = Arc::new(Authority::from_pem(certificate, key)?);
                    Phase::Announced { signs: Arc::new(signs), comes, since }
                }
                (None, _) => {
                    files::make_folder(folder)?;
                    Phase::Alone(Arc::new(Authority::make(name, now, terms.authority)?))
                }
            },
        };
        let trusted = watch::Sender::new(phase.trusted(certificate_of).concat());
        let keeper =
            Self { folder: folder.to_owned(), name: name.to_owned(), terms, phase: Mutex::new(phase), trusted };
        keeper.follow(&keeper.phase())?;
        Ok(keeper)
    }

    fn phase(&self) -> MutexGuard<'_, Phase<Arc<Authority>>> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificates that are to be trusted, as one PEM text, now and whenever that changes.
    #[must_use]
    pub fn trusted(&self) -> watch::Receiver<String> {
        self.trusted.subscribe()
    }

    /// Who signs now, by its certificate.
    #[must_use]
    pub fn signs(&self) -> String {
        self.phase().signs().certificate().to_owned()
    }

    /// Signs a certificate.
    ///
    /// # Errors
    /// When a name in it is none, or there is no key to be had.
    pub fn issue(&self, request: &Request, now: Timestamp) -> Result<Leaf, CertificateError> {
        let signs = self.phase().signs().clone();
        signs.issue(request, now, self.terms.leaf)
    }

    /// Whether what was signed is to be replaced.
    #[must_use]
    pub fn is_old(&self, leaf: &Leaf, now: Timestamp) -> bool {
        now >= leaf.made.saturating_add(self.terms.renewed).unwrap_or(leaf.ends)
    }

    /// Begins to replace the authority, unless that is under way.
    ///
    /// # Errors
    /// When the new one cannot be made or written down.
    pub fn rotate(&self, now: Timestamp) -> Result<(), CertificateError> {
        let mut phase = self.phase();
        match &*phase {
            Phase::Alone(_) => self.step(&mut phase, Step::Announce, now),
            Phase::Announced { .. } | Phase::Switched { .. } => Ok(()),
        }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// When it cannot be written down; then nothing has changed, and the next look tries again.
    pub fn look(&self, now: Timestamp) -> Result<(), CertificateError> {
        let mut phase = self.phase();
        let ends = phase.signs().ends();
        match phase.due(&self.terms, ends, now) {
            Some(step) => self.step(&mut phase, step, now),
            None => Ok(()),
        }
    }

    fn step(&self, phase: &mut Phase<Arc<Authority>>, step: Step, now: Timestamp) -> Result<(), CertificateError> {
        let next = match step {
            Step::Announce => {
                let comes = Authority::make(&self.name, now, self.terms.authority)?;
                phase.clone().announce(Arc::new(comes), now)
            }
            Step::Switch => phase.clone().switch(certificate_of, now),
            Step::Forget => phase.clone().forget(),
        };
        // Nothing is forgotten before the file that would bring it back is gone, nor used before it is on record.
        if let Some(record) = Record::of(&next) {
            write_record(&self.folder, &record)?;
        }
        self.follow(&next)?;
        tracing::info!(authority = self.name, ?step, "replaced the certificate authority");
        *phase = next;
        self.trusted.send_replace(phase.trusted(certificate_of).concat());
        Ok(())
    }

    /// Lets the files be as a phase wants them.
    fn follow(&self, phase: &Phase<Arc<Authority>>) -> Result<(), CertificateError> {
        let (certificate, key) = (self.folder.join("ca.crt"), self.folder.join("ca.key"));
        // The key first: a certificate without its key would be taken for an authority.
        put(&key, phase.signs().key(), SECRET)?;
        put(&certificate, &phase.trusted(certificate_of).concat(), PUBLIC)?;
        match phase {
            Phase::Alone(_) => files::remove(&record_of(&self.folder)),
            Phase::Announced { .. } | Phase::Switched { .. } => Ok(()),
        }
    }
}

impl Record {
    fn of(phase: &Phase<Arc<Authority>>) -> Option<Self> {
        let (since, went, new) = match phase {
            Phase::Alone(_) => return None,
            Phase::Announced { comes, since, .. } => (*since, None, comes),
            Phase::Switched { signs, went, since } => (*since, Some(went.clone()), signs),
        };
        Some(Self { since, went, certificate: new.certificate().to_owned(), key: new.key().to_owned() })
    }
}

fn certificate_of(authority: &Arc<Authority>) -> String {
    authority.certificate().to_owned()
}

fn record_of(folder: &Path) -> PathBuf {
    folder.join("rotation.json")
}

/// The authority in a directory; none, if there is none, or a start got no further than its key.
fn read_signer(folder: &Path) -> Result<Option<Authority>, CertificateError> {
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    match (files::read_if_there(&certificate)?, files::read_if_there(&key)?) {
        (Some(certificate), Some(key)) => Authority::from_pem(first(&certificate), key).map(Some),
        (Some(_), None) => Err(CertificateError::NoKey { certificate, key }),
        (None, _) => Ok(None),
    }
}

fn read_record(folder: &Path) -> Result<Option<Record>, CertificateError> {
    let path = record_of(folder);
    let Some(text) = files::read_if_there(&path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|source| CertificateError::State { path, source })
}

fn write_record(folder: &Path, record: &Record) -> Result<(), CertificateError> {
    let path = record_of(folder);
    let text = serde_json::to_string(record);
    let text = text.map_err(|source| CertificateError::State { path: path.clone(), source })?;
    files::write(&path, &text, SECRET)
}

/// Writes a file unless it is so already.
fn put(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    if files::read_if_there(path)?.as_deref() == Some(text) {
        return Ok(());
    }
    files::write(path, text, mode)
}

/// The first certificate of a text.
fn first(text: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----\n";
    text.find(END).and_then(|at| text.get(..at + END.len())).unwrap_or(text).to_owned()
}
