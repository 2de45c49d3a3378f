//! How containers end, and what is known then.

use node::runtime::spec::{Container, ContainerState, Resources};
use testkit::waiting::eventually;

use crate::support::{End, TestHost, container, end_of, output, run, shell, wait};

fn ended(exit_code: i32) -> End {
    End { attempt: 0, exit_code, signal: None, out_of_memory: false, was_started: true, message: String::new() }
}

pub(crate) async fn a_container_runs_and_its_exit_code_and_output_are_kept() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    let container = shell("echo out; echo error >&2; hostname; exit 7");
    assert_eq!(run(&shim, &container).await, ended(7));
    let log = std::fs::read_to_string(sandbox.logs.join("main/0.log")).unwrap();
    let mut lines: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["stderr F error", "stdout F a-pod", "stdout F out"]);
    shim.end().await.unwrap();
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_container_that_takes_too_much_memory_is_ended_and_that_is_told() {
    let machine = TestHost::new().await;
    let (_, shim) = machine.pod().await;
    let resources = Resources { memory: Some(32 << 20), ..Resources::default() };
    let end = run(&shim, &Container { resources, ..container(&["tail", "/dev/zero"]) }).await;
    assert_eq!(end, End { signal: Some(9), out_of_memory: true, ..ended(137) });
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_pod_has_a_limit_of_its_own() {
    let machine = TestHost::new().await;
    let mut sandbox = machine.sandbox();
    sandbox.resources = Resources { memory: Some(32 << 20), pids: Some(20), ..Resources::default() };
    let shim = machine.runtime.sandbox(&sandbox).await.unwrap();
    let end = run(&shim, &container(&["tail", "/dev/zero"])).await;
    assert_eq!((end.signal, end.out_of_memory), (Some(9), true));
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_signal_reaches_the_first_process() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    let trapping = shell("trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    shim.start(&trapping).await.unwrap();
    eventually("the container is ready", async || output(&sandbox, &trapping).contains("ready").then_some(())).await;
    shim.signal("main", 15).await.unwrap();
    assert_eq!(end_of(&shim, "main", 0).await, ended(3));
    assert!(output(&sandbox, &trapping).contains("got it"));
    // One that is gone is fine, and so is one that never was.
    shim.signal("main", 15).await.unwrap();
    shim.signal("other", 15).await.unwrap();
    let again = Container { attempt: 1, ..container(&["sleep", "1000"]) };
    shim.start(&again).await.unwrap();
    shim.signal("main", 9).await.unwrap();
    assert_eq!(end_of(&shim, "main", 1).await, End { attempt: 1, signal: Some(9), ..ended(137) });
    assert!(shim.signal("main", 1000).await.is_ok());
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_container_that_cannot_be_started_says_why() {
    let machine = TestHost::new().await;
    let (_, shim) = machine.pod().await;
    let end = run(&shim, &container(&["/no/such/program"])).await;
    assert_eq!((end.exit_code, end.was_started), (128, false));
    assert!(end.message.contains("/no/such/program"), "{}", end.message);
    let fine = Container { attempt: 2, ..container(&["true"]) };
    assert_eq!(run(&shim, &fine).await, End { attempt: 2, ..ended(0) });
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn the_last_words_are_the_file_s_or_else_the_end_of_the_log() {
    let machine = TestHost::new().await;
    let (_, shim) = machine.pod().await;
    let path = machine.path().join("message");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let mount = node::runtime::spec::Mount {
        source: path.clone(),
        target: "/dev/termination-log".to_owned(),
        read_only: false,
        propagation: node::runtime::spec::Propagation::Private,
    };
    let with_file = |attempt, script: &str| Container {
        attempt,
        mounts: vec![mount.clone()],
        termination_message: Some(path.clone()),
        message_from_log: true,
        ..shell(script)
    };
    assert_eq!(run(&shim, &with_file(0, "echo log; exit 1")).await.message, "log");
    assert_eq!(run(&shim, &with_file(1, "echo log; exit 0")).await.message, "");
    let end = run(&shim, &with_file(2, "echo log; printf 'last words' > /dev/termination-log; exit 1")).await;
    assert_eq!(end.message, "last words");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn the_end_of_a_pod_ends_all_that_runs_in_it() {
    let machine = TestHost::new().await;
    let (_, shim) = machine.pod().await;
    shim.start(&shell("trap '' TERM; sleep 1000 & sleep 1001")).await.unwrap();
    shim.start(&Container { name: "other".to_owned(), ..container(&["sleep", "1000"]) }).await.unwrap();
    let running = wait(&shim, |state| state.containers.len() == 2).await;
    assert!(running.containers.values().all(|it| matches!(it, ContainerState::Running { .. })), "{running:?}");
    shim.end().await.unwrap();
    let state = shim.states().borrow().clone();
    assert!(!state.lost && state.containers.values().all(ContainerState::is_over), "{state:?}");
    assert!(shim.start(&Container { attempt: 1, ..container(&["true"]) }).await.is_err());
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_container_that_wants_a_terminal_has_one() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    let container = Container { tty: true, ..shell("test -t 1 && echo a terminal; test -t 0; exit $?") };
    assert_eq!(run(&shim, &container).await, ended(0));
    assert_eq!(output(&sandbox, &container).trim_end(), "a terminal");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}
