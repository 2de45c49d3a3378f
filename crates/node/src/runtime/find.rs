//! Which OCI runtime works here: the one that really runs a container.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::spec::{Container, ContainerState, PodState, Resources, Root, Sandbox, User};
use super::{PATH, Runtime, RuntimeError, RuntimePaths};

/// How long a program that does nothing may take.
const TRIAL: Duration = Duration::from_secs(30);
/// The container of a trial.
const NAME: &str = "trial";

/// Tells trials of one process apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Runtime {
    /// The first candidate, such as `runc` and `crun`, that runs a container. Nothing is remembered.
    ///
    /// # Errors
    /// When none does; the error says what each one answered.
    pub async fn find(places: RuntimePaths, candidates: &[&str]) -> Result<Self, RuntimeError> {
        let mut answers = Vec::new();
        for candidate in candidates {
            match attempt(&places, candidate).await {
                Ok(runtime) => return Ok(runtime),
                Err(answer) => answers.push(format!("{candidate}: {answer}")),
            }
        }
        Err(RuntimeError::NoRuntime(answers.join("; ")))
    }
}

async fn attempt(places: &RuntimePaths, candidate: &str) -> Result<Runtime, String> {
    let binary = look_up(candidate).ok_or("not found")?;
    let asked = tokio::process::Command::new(&binary).arg("--version").output().await;
    let asked = asked.map_err(|error| error.to_string())?;
    let version = version(&String::from_utf8_lossy(&asked.stdout)).ok_or("it does not report its version")?;
    let runtime = Runtime { places: places.clone(), name: candidate.to_owned(), version, binary };
    let logs = folder_of_trial(places);
    let sandbox = sandbox(&logs);
    let shim = match runtime.sandbox(&sandbox).await {
        Ok(shim) => shim,
        Err(error) => {
            // It may have come as far as its cgroups, and nobody else knows of them.
            if let Ok(folder) = runtime.folder(&sandbox.uid) {
                let _ = super::handle::remove(folder, sandbox.uid).await;
            }
            return Err(shown(&error));
        }
    };
    let tried = trial(&shim).await;
    let ended = shim.end().await.map_err(|error| shown(&error));
    // Only the trial's own log is there.
    let _ = std::fs::remove_dir_all(&logs);
    tried.and(ended).map(|()| runtime)
}

/// A container that does nothing, from its start to its end.
async fn trial(shim: &super::Shim) -> Result<(), String> {
    shim.start(&container()).await.map_err(|error| shown(&error))?;
    let mut states = shim.states();
    let over = states.wait_for(|state| state.lost || outcome(state).is_some());
    let state = tokio::time::timeout(TRIAL, over).await.map_err(|_| "it took too long")?;
    let state = state.map_err(|_| "the shim has ended")?;
    match outcome(&state) {
        Some((0, _)) => Ok(()),
        Some((code, "")) => Err(format!("/usr/bin/true answered {code}")),
        Some((_, message)) => Err(message.to_owned()),
        None => Err("the shim has ended".to_owned()),
    }
}

fn outcome(state: &PodState) -> Option<(i32, &str)> {
    match state.containers.get(NAME) {
        Some(ContainerState::Exited { exit_code, message, .. }) => Some((*exit_code, message)),
        _ => None,
    }
}

/// Beside the pods' directories, under a name that none of them has.
fn folder_of_trial(places: &RuntimePaths) -> PathBuf {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    places.state.join(format!(".trial-{}-{number}", std::process::id()))
}

fn sandbox(logs: &Path) -> Sandbox {
    let name = logs.file_name().unwrap_or_default().to_string_lossy().trim_start_matches('.').to_owned();
    Sandbox {
        uid: name.clone(),
        namespace: String::new(),
        hostname: name.clone(),
        name,
        host_network: false,
        logs: logs.to_owned(),
        resources: Resources::default(),
    }
}

fn container() -> Container {
    Container {
        name: NAME.to_owned(),
        attempt: 0,
        root: Root::Machine { files: Vec::new() },
        args: vec!["/usr/bin/true".to_owned()],
        env: Vec::new(),
        cwd: String::new(),
        user: User { uid: 65_534, gid: 65_534, groups: Vec::new() },
        mounts: Vec::new(),
        devices: Vec::new(),
        capabilities: Vec::new(),
        no_new_privileges: true,
        read_only_root: true,
        privileged: false,
        filtered: false,
        resources: Resources { pids: Some(16), ..Resources::default() },
        oom_score: None,
        tty: false,
        termination_message: None,
        message_from_log: true,
    }
}

/// A path as it is, a name where programs are.
fn look_up(candidate: &str) -> Option<PathBuf> {
    if candidate.contains('/') {
        return Some(PathBuf::from(candidate));
    }
    PATH.split(':').map(|folder| Path::new(folder).join(candidate)).find(|path| path.is_file())
}

/// From `runc version 1.1.5` and such.
fn version(text: &str) -> Option<String> {
    text.lines().next()?.split_whitespace().last().map(str::to_owned)
}

fn shown(error: &RuntimeError) -> String {
    crate::shim::chain(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_last_word_of_the_first_line() {
        assert_eq!(version("runc version 1.1.5+ds1\ncommit: x\n").as_deref(), Some("1.1.5+ds1"));
        assert_eq!(version(""), None);
    }
}
