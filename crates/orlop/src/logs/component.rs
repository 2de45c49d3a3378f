//! The log of `orlop up`, by component: one file for all of them, and the few that it was before.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde::Deserialize;

use super::Part;
use crate::rotating::older;

/// Whose log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Component {
    /// The API server.
    Apiserver,
    /// The controllers of virtual machines.
    VirtController,
    /// The built-in controllers.
    KubeControllers,
    /// The scheduler.
    Scheduler,
    /// The node agent: pods, their networks and volumes.
    Node,
    /// The controller that runs virtual machines on the node.
    VirtHandler,
    /// The controllers of data volumes.
    DataVolumes,
    /// The launcher of one VM, which must be named.
    #[value(alias = "launcher")]
    VirtLauncher,
    /// `orlop up` itself.
    Orlop,
    /// All but the launchers.
    All,
}

impl Component {
    fn has(self, line: &str) -> bool {
        let name = match self {
            Self::All => return true,
            Self::Apiserver => "apiserver",
            Self::VirtController => "virt-controller",
            Self::KubeControllers => "kube-controllers",
            Self::Scheduler => "scheduler",
            Self::Node => "node",
            Self::VirtHandler => "virt-handler",
            Self::DataVolumes => "data-volumes",
            Self::VirtLauncher => "virt-launcher",
            Self::Orlop => "orlop",
        };
        component_of(line).is_some_and(|component| component == name)
    }
}

/// Shows the lines of a component, the oldest first.
pub(super) fn show(component: Component, path: &Path, part: &Part, out: &mut impl Write) -> anyhow::Result<()> {
    let Part { follow, tail } = part;
    // Before the first look, so that nothing is missed in between.
    let changes = if *follow { Some(Changes::beside(path)?) } else { None };
    let mut current = open(path)?;
    let mut last = VecDeque::new();
    let mut keep = |line: String, out: &mut dyn Write| -> io::Result<()> {
        let Some(most) = *tail else { return out.write_all(line.as_bytes()) };
        last.push_back(line);
        if last.len() > most {
            last.pop_front();
        }
        Ok(())
    };
    for number in (1..).take_while(|number| older(path, *number).exists()).collect::<Vec<_>>().into_iter().rev() {
        // One that went meanwhile was the oldest.
        let Ok(file) = File::open(older(path, number)) else { continue };
        each_line(&mut BufReader::new(file), component, |line| keep(line, out))?;
    }
    each_line(&mut current, component, |line| keep(line, out))?;
    last.iter().try_for_each(|line| out.write_all(line.as_bytes()))?;
    out.flush()?;
    let Some(changes) = changes else { return Ok(()) };
    loop {
        changes.wait().context("wait for new lines")?;
        each_line(&mut current, component, |line| out.write_all(line.as_bytes()))?;
        if let Ok(newer) = File::open(path)
            && newer.metadata()?.ino() != current.get_ref().metadata()?.ino()
        {
            each_line(&mut current, component, |line| out.write_all(line.as_bytes()))?;
            current = BufReader::new(newer);
            each_line(&mut current, component, |line| out.write_all(line.as_bytes()))?;
        }
        out.flush()?;
    }
}

fn open(path: &Path) -> anyhow::Result<BufReader<File>> {
    match File::open(path) {
        Ok(file) => Ok(BufReader::new(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{} does not exist; did `orlop up` run with this --data-dir?", path.display())
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("only its owner can read {}; use sudo", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("open {}", path.display())),
    }
}

/// Gives the lines of a component, up to where the file ends now. Lines are written whole.
fn each_line(
    file: &mut impl io::BufRead,
    component: Component,
    mut give: impl FnMut(String) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if file.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        if component.has(&line) {
            give(line)?;
        }
    }
}

/// What a line says it comes from, whatever its form.
fn component_of(line: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        component: String,
    }
    if line.starts_with('{') {
        return serde_json::from_str(line).ok().map(|Head { component }| component);
    }
    let word = line.split_ascii_whitespace().nth(2)?;
    word.split(['/', ':']).next().map(str::to_owned)
}

/// Changes in the directory of a file.
struct Changes(File);

impl Changes {
    fn beside(path: &Path) -> anyhow::Result<Self> {
        let folder = path.parent().unwrap_or(path);
        let events = inotify::init(CreateFlags::CLOEXEC).context("wait for new lines")?;
        let wanted = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&events, folder, wanted).with_context(|| format!("look at {}", folder.display()))?;
        Ok(Self(File::from(events)))
    }

    /// Returns after the next change, or after several at once.
    fn wait(&self) -> io::Result<()> {
        let mut room = [0; 4096];
        (&self.0).read(&mut room).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "2026-01-01T00:00:00.000000Z INFO  apiserver: created name=a\n";
    const VM: &str = "2026-01-01T00:00:01.000000Z WARN  virt-controller/vm: cannot reconcile error=\" apiserver: \"\n";
    const JSON: &str =
        "{\"time\":\"t\",\"level\":\"info\",\"component\":\"apiserver\",\"part\":\"apiserver\",\"message\":\"x\"}\n";

    fn shown(component: Component, tail: Option<usize>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orlop.log");
        std::fs::write(&path, format!("{VM}{JSON}")).unwrap();
        std::fs::write(older(&path, 1), OLD).unwrap();
        let mut out = Vec::new();
        show(component, &path, &Part { follow: false, tail }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_component_has_its_lines_in_either_form_the_oldest_first() {
        assert_eq!(shown(Component::Apiserver, None), format!("{OLD}{JSON}"));
        assert_eq!(shown(Component::VirtController, None), VM);
        assert_eq!(shown(Component::All, None), format!("{OLD}{VM}{JSON}"));
        assert_eq!(shown(Component::Node, None), "");
    }

    #[test]
    fn only_the_last_lines_are_shown_if_that_is_asked_for() {
        assert_eq!(shown(Component::Apiserver, Some(1)), JSON);
        assert_eq!(shown(Component::All, Some(2)), format!("{VM}{JSON}"));
        assert_eq!(shown(Component::All, Some(0)), "");
    }

    #[test]
    fn a_log_that_is_not_there_is_told_with_what_to_do() {
        let part = Part { follow: false, tail: None };
        let error = show(Component::All, Path::new("/no/such/log"), &part, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("--data-dir"), "{error}");
    }

    /// A reader that hands on what it reads, and leaves after the last word.
    struct Reader(std::sync::mpsc::Sender<String>);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let is_last = text.contains("last");
            self.0.send(text).unwrap();
            if is_last { Err(ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn following_goes_on_across_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orlop.log");
        let line = |word: &str| format!("2026-01-01T00:00:00.000000Z INFO  node: {word}\n");
        // Two lines fit.
        let limits = crate::rotating::Limits { bytes: line("first").len() as u64 * 2, older: 1 };
        let mut log = crate::rotating::Rotating::open(&path, limits).unwrap();
        log.write_all(line("first").as_bytes()).unwrap();
        let (send, read) = std::sync::mpsc::channel();
        let following = std::thread::spawn(move || {
            show(Component::Node, &path, &Part { follow: true, tail: None }, &mut Reader(send)).unwrap_err()
        });
        for word in ["first", "a", "b", "c", "d", "last"] {
            if word != "first" {
                log.write_all(line(word).as_bytes()).unwrap();
            }
            assert_eq!(read.recv_timeout(std::time::Duration::from_secs(60)).unwrap(), line(word));
        }
        let error = following.join().unwrap();
        assert_eq!(error.downcast_ref::<io::Error>().map(io::Error::kind), Some(ErrorKind::BrokenPipe));
    }
}
