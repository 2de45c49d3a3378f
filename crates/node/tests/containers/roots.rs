//! What containers see.

use node::runtime::spec::{Container, Device, Mount, Propagation, Root, User};
use testkit::waiting::eventually;

use crate::support::{TestHost, container, output, run, shell};

fn mount(source: &std::path::Path, target: &str, read_only: bool) -> Mount {
    Mount { source: source.to_owned(), target: target.to_owned(), read_only, propagation: Propagation::Private }
}

pub(crate) async fn the_machine_s_root_shows_its_programs_and_nothing_else() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    let program = machine.path().join("program");
    std::fs::write(&program, "#!/bin/sh\necho from the program\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let files = vec![
        (program.clone(), "/usr/bin/orlop-of-a-test".into()),
        (program.clone(), "/opt/tools/program".into()),
        (program, "/usr/bin/false".into()),
    ];
    let script = "ls -A / /etc /run; orlop-of-a-test; /opt/tools/program; /usr/bin/false; ls /usr/bin/env; \
        for it in /etc/shadow /root /home /var/lib /run/systemd /dev/kmsg; do [ ! -e $it ] || echo sees $it; done; \
        touch /usr/x /x /etc/x 2>/dev/null && echo can write; echo hi > /tmp/x && cat /tmp/x; id -un; id -u; \
        cat /proc/self/oom_score_adj";
    let container = Container { root: Root::Machine { files }, ..shell(script) };
    let end = run(&shim, &container).await;
    let seen = output(&sandbox, &container);
    assert_eq!(end.exit_code, 0, "{seen}");
    assert!(!seen.contains("sees") && !seen.contains("can write"), "{seen}");
    assert_eq!(seen.matches("from the program\n").count(), 3, "{seen}");
    assert!(seen.contains("/usr/bin/env\nhi\nuser\n1234\n"), "{seen}");
    let root: Vec<_> = seen.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    let expected = ["bin", "dev", "etc", "lib", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var"];
    let others: Vec<_> = root.iter().filter(|it| !expected.contains(it) && !it.starts_with("lib")).collect();
    assert!(others.is_empty(), "{others:?}");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn mounts_are_read_only_or_not_as_asked() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    let (kept, shown) = (machine.path().join("kept"), machine.path().join("shown"));
    std::fs::create_dir(&kept).unwrap();
    std::fs::create_dir(&shown).unwrap();
    std::fs::write(shown.join("file"), "content\n").unwrap();
    let container = Container {
        mounts: vec![mount(&shown, "/data/shown", true), mount(&kept, "/data", false)],
        user: User::default(),
        capabilities: vec!["CAP_DAC_OVERRIDE".to_owned()],
        ..shell(
            "exec 2>&1; cat /data/shown/file; echo x > /data/new; echo x > /data/shown/new; echo x > /new; echo done",
        )
    };
    assert_eq!(run(&shim, &container).await.exit_code, 0);
    let seen = output(&sandbox, &container);
    assert!(seen.starts_with("content\n") && seen.ends_with("done\n"), "{seen}");
    assert_eq!(seen.matches("Read-only file system").count(), 2, "{seen}");
    assert_eq!(std::fs::read_to_string(kept.join("new")).unwrap(), "x\n");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn a_pod_has_a_network_of_its_own_unless_it_wants_the_machine_s() {
    let machine = TestHost::new().await;
    let links =
        "cat /proc/net/dev | tail -n +3 | cut -d: -f1; cat /sys/class/net/lo/operstate; cat /proc/sys/kernel/hostname";
    let (sandbox, shim) = machine.pod().await;
    run(&shim, &shell(links)).await;
    let own = output(&sandbox, &shell(""));
    assert_eq!(own.lines().map(str::trim).collect::<Vec<_>>(), ["lo", "unknown", "a-pod"]);
    let namespace = std::fs::read_link(shim.netns()).unwrap();
    assert_ne!(namespace, std::fs::read_link("/proc/self/ns/net").unwrap());
    let mut other_sandbox = machine.sandbox();
    other_sandbox.host_network = true;
    let other = machine.runtime.sandbox(&other_sandbox).await.unwrap();
    run(&other, &shell(links)).await;
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let seen = output(&other_sandbox, &shell(""));
    assert!(seen.ends_with(&hostname), "{seen}");
    assert_eq!(std::fs::read_link(other.netns()).unwrap(), std::fs::read_link("/proc/self/ns/net").unwrap());
    shim.end().await.unwrap();
    other.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn containers_of_a_pod_share_network_and_memory_but_not_processes() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    shim.start(&shell(
        "echo shared > /dev/shm/note; readlink /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/pid; exec sleep 1000",
    ))
    .await
    .unwrap();
    let is_told = async || (output(&sandbox, &shell("")).lines().count() >= 3).then_some(());
    eventually("the container has told", is_told).await;
    let other = Container {
        name: "other".to_owned(),
        ..shell(
            "readlink /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/pid; cat /dev/shm/note; ls /proc | grep -c '^[0-9]*$'",
        )
    };
    run(&shim, &other).await;
    let (first, second) = (output(&sandbox, &shell("")), output(&sandbox, &other));
    let (first, second): (Vec<_>, Vec<_>) = (first.lines().collect(), second.lines().collect());
    assert_eq!(first[..2], second[..2]);
    assert_ne!(first[2], second[2]);
    assert_eq!(second[3], "shared");
    assert!(second[4].parse::<u32>().unwrap() <= 4, "{second:?}");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn devices_are_those_that_were_asked_for() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    let devices =
        vec![Device { path: "/dev/net/tun".into(), target: "/dev/net/tun".to_owned(), access: "rw".to_owned() }];
    let user = User::default();
    let container =
        Container { devices, user, ..shell("ls /dev /dev/net; : < /dev/null; exec 3<> /dev/net/tun && echo opened") };
    run(&shim, &container).await;
    let seen = output(&sandbox, &container);
    assert!(seen.contains("tun\nopened\n") && !seen.contains("kmsg"), "{seen}");
    let privileged = Container { attempt: 1, privileged: true, user: User::default(), ..container_of_all() };
    assert_eq!(run(&shim, &privileged).await.exit_code, 0, "{}", output(&sandbox, &privileged));
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

pub(crate) async fn system_calls_are_refused_to_a_container_that_asks_for_it() {
    let machine = TestHost::new().await;
    let (sandbox, shim) = machine.pod().await;
    // A user namespace needs no privilege; threads and processes are made by the same call.
    let script = "unshare --user true 2>&1 && echo made one; (sleep 0 & wait) && echo still forks";
    let free = shell(script);
    run(&shim, &free).await;
    assert_eq!(output(&sandbox, &free), "made one\nstill forks\n");
    let filtered = Container { attempt: 1, filtered: true, ..shell(script) };
    run(&shim, &filtered).await;
    let seen = output(&sandbox, &filtered);
    assert!(seen.contains("Operation not permitted") && seen.ends_with("\nstill forks\n"), "{seen}");
    shim.end().await.unwrap();
    assert_eq!(machine.left(), [""; 0]);
}

fn container_of_all() -> Container {
    container(&["test", "-c", "/dev/net/tun", "-a", "-w", "/sys/kernel"])
}
