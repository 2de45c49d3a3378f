//! Agents and shims that come and go.

use std::os::fd::OwnedFd;
use std::time::Duration;

use node::runtime::spec::{Container, ContainerState};
use node::runtime::{Runtime, RuntimeError, RuntimePaths};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use testkit::NEVER;

use crate::support::{TestHost, container, end_of, output, run, shell, wait};

/// The process behind a shim's network namespace.
fn process_of(shim: &node::runtime::Shim) -> Pid {
    let path = shim.netns();
    let number = path.iter().nth(2).unwrap().to_str().unwrap().parse().unwrap();
    Pid::from_raw(number).unwrap()
}

/// Whether a process has ended, buried or not.
fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).unwrap() == 1
}

pub(crate) async fn an_attempt_that_is_asked_for_again_and_again_runs_once() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    let container = shell("echo once; read line < /dev/zero; sleep 1000");
    let asked = [shim.start(&container), shim.start(&container), shim.start(&container)];
    for result in futures_util::future::join_all(asked).await {
        result.unwrap();
    }
    let same = machine.another_runtime().await.sandbox(&sandbox).await.unwrap();
    same.start(&container).await.unwrap();
    assert!(matches!(same.start(&Container { attempt: 1, ..container.clone() }).await, Err(RuntimeError::Refused(_))));
    same.signal("main", 9).await.unwrap();
    end_of(&shim, "main", 0).await;
    same.start(&container).await.unwrap();
    assert_eq!(output(&sandbox, &container), "once\n");
    assert!(shim.states().borrow().containers.values().all(ContainerState::is_over));
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn the_next_agent_finds_every_pod_and_what_happened_meanwhile() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    let (other_sandbox, other) = machine.pod().await;
    let stop = machine.path().join("stop");
    std::fs::create_dir(&stop).unwrap();
    let mount = node::runtime::spec::Mount {
        source: stop.clone(),
        target: "/stop".to_owned(),
        read_only: true,
        propagation: node::runtime::spec::Propagation::Private,
    };
    let waiting = Container { mounts: vec![mount], ..shell("while [ ! -e /stop/now ]; do sleep 0.01; done; exit 5") };
    shim.start(&waiting).await.unwrap();
    other.start(&container(&["sleep", "1000"])).await.unwrap();
    let process = pidfd_open(process_of(&shim), PidfdFlags::empty()).unwrap();
    drop((shim, other));
    std::fs::write(stop.join("now"), "").unwrap();
    let found = machine.another_runtime().await.existing().await.unwrap();
    let sandboxes: Vec<_> = found.iter().map(|(sandbox, _)| sandbox.clone()).collect();
    assert_eq!(sandboxes, [sandbox, other_sandbox]);
    assert!(!has_ended(&process), "the shim went on");
    assert_eq!(end_of(&found[0].1, "main", 0).await.exit_code, 5);
    let state = found[1].1.states().borrow().clone();
    assert!(matches!(state.containers["main"], ContainerState::Running { .. }), "{state:?}");
    for (_, shim) in found {
        shim.end().await.unwrap();
    }
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn containers_do_not_outlive_their_shim() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    assert_eq!(run(&shim, &Container { name: "first".to_owned(), ..shell("exit 4") }).await.exit_code, 4);
    shim.start(&container(&["sleep", "1000"])).await.unwrap();
    let ContainerState::Running { pid, .. } = shim.states().borrow().containers["main"] else { panic!("not running") };
    let inside = pidfd_open(Pid::from_raw(pid.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
    rustix::process::kill_process(process_of(&shim), Signal::KILL).unwrap();
    let lost = wait(&shim, |state| state.lost).await;
    assert!(matches!(lost.containers["first"], ContainerState::Exited { exit_code: 4, .. }), "{lost:?}");
    assert!(has_ended(&inside), "it was ended before that was told");
    assert!(matches!(shim.start(&container(&["true"])).await, Err(RuntimeError::Gone)));
    // The next agent, and one that asks for the same pod, hear the same.
    let found = machine.another_runtime().await.existing().await.unwrap();
    assert!(found[0].1.states().borrow().lost);
    assert!(machine.runtime.sandbox(&sandbox).await.unwrap().states().borrow().lost);
    shim.end().await.unwrap();
    found[0].1.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
    let again = machine.runtime.sandbox(&sandbox).await.unwrap();
    assert!(!again.states().borrow().lost);
    again.end().await.unwrap();
}

pub(crate) async fn a_shim_that_died_while_no_agent_was_there_leaves_nothing_running() {
    let machine = TestHost::new().await;
    let (_, shim) = machine.pod().await;
    shim.start(&container(&["sleep", "1000"])).await.unwrap();
    let ContainerState::Running { pid, .. } = shim.states().borrow().containers["main"] else { panic!("not running") };
    let inside = pidfd_open(Pid::from_raw(pid.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
    let process = process_of(&shim);
    drop(shim);
    rustix::process::kill_process(process, Signal::KILL).unwrap();
    let found = machine.another_runtime().await.existing().await.unwrap();
    assert!(found[0].1.states().borrow().lost);
    assert!(has_ended(&inside));
    found[0].1.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_shim_that_is_asked_to_end_ends_its_containers_first() {
    let machine = TestHost::new().await;
    let (_, shim) = machine.pod().await;
    shim.start(&container(&["sleep", "1000"])).await.unwrap();
    rustix::process::kill_process(process_of(&shim), Signal::TERM).unwrap();
    let lost = wait(&shim, |state| state.lost).await;
    assert!(matches!(lost.containers["main"], ContainerState::Exited { signal: Some(9), .. }), "{lost:?}");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_command_in_a_container_answers_or_runs_out_of_time() {
    let machine = TestHost::new().await;
    let (_, shim) = machine.pod().await;
    let command = |text: &str| ["sh", "-c", text].map(str::to_owned);
    let patience = NEVER;
    assert!(shim.exec("main", &command("true"), patience).await.is_err());
    shim.start(&container(&["sleep", "1000"])).await.unwrap();
    let executed = shim.exec("main", &command("echo a; echo b >&2; exit 3"), patience).await.unwrap();
    assert_eq!((executed.exit_code, executed.output.as_slice(), executed.timed_out), (3, &b"a\nb\n"[..], false));
    let long = shim.exec("main", &command("sleep 2000"), Duration::from_millis(300)).await.unwrap();
    assert_eq!((long.exit_code, long.timed_out), (137, true));
    let chatty = shim.exec("main", &command("head -c 1000000 /dev/zero"), patience).await.unwrap();
    assert_eq!((chatty.exit_code, chatty.output.len()), (0, 16 << 10));
    // What is left behind holds the output open, and is not waited for.
    let leaving = shim.exec("main", &command("sleep 2000 & echo left"), patience).await.unwrap();
    assert_eq!(leaving.output, b"left\n");
    let missing = shim.exec("main", &["/no/such/program".to_owned()], patience).await;
    assert!(matches!(&missing, Err(RuntimeError::Refused(text)) if text.contains("no/such")), "{missing:?}");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_runtime_that_cannot_run_containers_is_told_from_one_that_can() {
    let folder = tempfile::tempdir().unwrap();
    let places = RuntimePaths { state: folder.path().join("pods"), program: env!("CARGO_BIN_EXE_test-shim").into() };
    let found = Runtime::find(places.clone(), &["no-such-runtime", "/usr/bin/false", "runc"]).await.unwrap();
    assert_eq!(found.name(), "runc");
    assert!(found.version().starts_with(|it: char| it.is_ascii_digit()), "{}", found.version());
    let error = Runtime::find(places, &["no-such-runtime", "/usr/bin/false"]).await.unwrap_err().to_string();
    assert!(error.contains("no-such-runtime: not found; /usr/bin/false: "), "{error}");
    // One whose shim does not come up, either.
    let without_shim = RuntimePaths { state: folder.path().join("pods"), program: "/usr/bin/false".into() };
    let error = Runtime::find(without_shim, &["runc"]).await.unwrap_err().to_string();
    assert!(error.contains("runc: the shim did not start"), "{error}");
    let left: Vec<_> = std::fs::read_dir(folder.path().join("pods")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

pub(crate) async fn a_shim_that_dies_while_it_starts_a_container_leaves_nothing_running() {
    let machine = TestHost::new().await;
    for delay in [0, 5, 10, 15, 20, 25, 30, 35, 40, 50] {
        let (_, shim) = machine.pod().await;
        let starting = shim.clone();
        let start = tokio::spawn(async move { starting.start(&container(&["sleep", "1000"])).await });
        tokio::time::sleep(Duration::from_millis(delay)).await;
        rustix::process::kill_process(process_of(&shim), Signal::KILL).unwrap();
        wait(&shim, |state| state.lost).await;
        // Started before the end, or refused by it.
        let _ = start.await.unwrap();
        shim.end().await.unwrap();
        assert_eq!(machine.left(), [""; 0], "killed after {delay} ms");
    }
}
