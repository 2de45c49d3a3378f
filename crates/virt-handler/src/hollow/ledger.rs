//! Who runs and who may write, told by simulated launchers themselves. What the API says of them may be late, or wrong.

/// A launcher.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The namespace of its instance.
    pub namespace: String,
    /// The name of its instance: those of one name have the same disks.
    pub name: String,
    /// The UID of its instance.
    pub instance: String,
    /// The UID of its pod.
    pub pod: String,
}

/// What a launcher could do to a guest's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is there, and has no guest.
    Empty,
    /// It waits for a guest, and writes nothing.
    Waits,
    /// It may write: its guest runs, or could go on.
    Holds {
        /// The guest has run.
        runs: bool,
    },
    /// It is not there any more.
    Gone,
}

/// Is told of every change, at the moment that it happens.
pub trait Ledger: Send + Sync {
    /// A launcher stands like this now.
    fn note(&self, who: &Who, standing: Standing);
}
