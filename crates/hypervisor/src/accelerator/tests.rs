use std::os::unix::fs::PermissionsExt as _;

use super::*;

const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// Speaks as much of QEMU's monitor as the probe needs: greets, takes the capabilities, lets the guest run.
const GREET: &str = r#"echo '{"QMP":{"version":{},"capabilities":[]}}'; read x; echo '{"return":{},"id":1}'; read x; echo '{"return":{},"id":2}'"#;

/// A machine whose KVM is a file, and whose QEMU is a script: `$@` are its arguments, each run is counted.
struct TestHost {
    folder: tempfile::TempDir,
    probe: Probe,
}

impl TestHost {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (qemu, device) = (folder.path().join("qemu"), folder.path().join("kvm"));
        let count = folder.path().join("count");
        testkit::scripts::program(&qemu, &format!("#!/bin/bash\necho run >> {}\n{script}\n", count.display()));
        std::fs::write(&device, "").unwrap();
        // Emulation beside a load takes its time.
        let limit = Duration::from_secs(120);
        let probe = Probe { device, limit, ..Probe::new(None, &qemu, folder.path()) };
        Self { folder, probe }
    }

    /// As on a machine with a good KVM: emulation stands in for it.
    fn good() -> Self {
        Self::new(&format!(r#"args="${{*/kvm/tcg}}"; args="${{args/-cpu host/-cpu max}}"; exec {QEMU} $args"#))
    }

    async fn find(&self) -> Finding {
        find(Choice::Auto, &self.probe).await.unwrap()
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.folder.path().join("count")).unwrap_or_default().lines().count()
    }
}

fn emulated(reason: Reason) -> Finding {
    Finding { accelerator: Accelerator::Tcg, reason }
}

#[tokio::test]
#[ignore = "needs QEMU: make test"]
async fn a_machine_that_runs_a_kernel_has_kvm() {
    let machine = TestHost::good();
    assert_eq!(machine.find().await, Finding { accelerator: Accelerator::Kvm, reason: Reason::Works });
    assert_eq!(machine.find().await.remedy(), None);
    assert_eq!(machine.runs(), 1);
    let left: Vec<_> =
        std::fs::read_dir(machine.folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".rom")), "{left:?}");
}

#[tokio::test]
async fn a_qemu_that_aborts_under_kvm_is_told_with_its_words() {
    let machine = TestHost::new("echo 'qemu-system-x86_64: error: failed to set MSR 0x10a' >&2; kill -ABRT $$");
    let found = machine.find().await;
    assert_eq!(found, emulated(Reason::Ended("error: failed to set MSR 0x10a".into())));
    assert_eq!(found.to_string(), "emulation: QEMU exited under KVM: error: failed to set MSR 0x10a");
    assert!(found.remedy().unwrap().contains("--accelerator tcg"));
}

#[tokio::test]
async fn a_qemu_that_leaves_a_process_behind_keeps_nobody_waiting() {
    let begun = tokio::time::Instant::now();
    let found = TestHost::new("sleep 60 & echo 'qemu: no such device' >&2; exit 1").find().await;
    assert_eq!(found, emulated(Reason::Ended("no such device".into())));
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_qemu_that_refuses_the_hosts_cpu_has_no_kvm() {
    let script = r#"[[ "$*" == *"-cpu host"* ]] && { echo "qemu: unable to find CPU model 'host'" >&2; exit 1; }; exec sleep 60"#;
    assert_eq!(TestHost::new(script).find().await, emulated(Reason::Ended("unable to find CPU model 'host'".into())));
}

#[tokio::test]
async fn a_kernel_that_stops_in_internal_error_means_no_kvm_at_once() {
    let stopped = r#"echo '{"event":"STOP","data":{},"timestamp":{"seconds":1,"microseconds":0}}'; read x
        echo '{"return":{"status":"internal-error","running":false},"id":3}'; exec sleep 60"#;
    let found = TestHost::new(&format!("{GREET}; {stopped}")).find().await;
    assert_eq!(found, emulated(Reason::Stopped("internal-error".into())));
    assert_eq!(found.to_string(), "emulation: a test kernel stopped under KVM (internal-error)");
}

#[tokio::test]
async fn a_kernel_that_takes_an_exception_means_no_kvm() {
    // 13, a general protection fault, on the port that ends QEMU.
    assert_eq!(TestHost::new(&format!("{GREET}; exit 27")).find().await, emulated(Reason::Exception(13)));
}

#[tokio::test]
async fn what_another_try_may_find_otherwise_means_no_kvm_for_now() {
    let mut slow = TestHost::new("exec sleep 60");
    slow.probe.limit = Duration::from_millis(200);
    is_tried_again_after_a_while(slow, Reason::Silent).await;
    let short = TestHost::new("echo 'cannot set up guest memory' >&2; exit 1");
    is_tried_again_after_a_while(short, Reason::Ended("cannot set up guest memory".into())).await;
}

async fn is_tried_again_after_a_while(machine: TestHost, reason: Reason) {
    assert_eq!(machine.find().await, emulated(reason.clone()));
    let file = machine.folder.path().join("accelerator.json");
    let written = || std::fs::metadata(&file).unwrap().modified().unwrap();
    let first = written();
    assert_eq!(machine.find().await, emulated(reason.clone()));
    assert_eq!(written(), first);
    let old = first - Duration::from_secs(3700);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
    assert_eq!(machine.find().await, emulated(reason));
    assert_ne!(written(), old);
}

#[tokio::test]
async fn without_a_device_nothing_is_tried() {
    let machine = TestHost::good();
    std::fs::remove_file(&machine.probe.device).unwrap();
    let found = machine.find().await;
    assert_eq!(found, emulated(Reason::NoDevice));
    assert!(found.remedy().unwrap().contains("modprobe kvm_intel"));
    assert_eq!(machine.runs(), 0);
}

#[tokio::test]
#[ignore = "needs QEMU: make test"]
async fn an_answer_is_remembered_until_something_changes_that_it_depends_on() {
    let machine = TestHost::good();
    let (device, qemu) = (&machine.probe.device, &machine.probe.qemu);
    machine.find().await;
    machine.find().await;
    assert_eq!(machine.runs(), 1);

    // Who may open the device; another device; another QEMU.
    std::fs::set_permissions(device, std::fs::Permissions::from_mode(0o660)).unwrap();
    machine.find().await;
    assert_eq!(machine.runs(), 2);
    std::fs::rename(device, device.with_extension("old")).unwrap();
    std::fs::write(device, "").unwrap();
    machine.find().await;
    assert_eq!(machine.runs(), 3);
    let script = std::fs::read_to_string(qemu).unwrap();
    std::fs::write(qemu, script + "\n").unwrap();
    machine.find().await;
    assert_eq!(machine.runs(), 4);

    // Taken away and given back.
    std::fs::rename(device, device.with_extension("away")).unwrap();
    assert_eq!(machine.find().await, emulated(Reason::NoDevice));
    std::fs::rename(device.with_extension("away"), device).unwrap();
    machine.find().await;
    assert_eq!(machine.runs(), 4);

    // Another boot.
    let file = machine.folder.path().join("accelerator.json");
    let mut kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    kept["circumstances"]["boot"] = "another".into();
    std::fs::write(&file, kept.to_string()).unwrap();
    machine.find().await;
    assert_eq!(machine.runs(), 5);

    // A guest has shown that the answer was wrong.
    machine.probe.forget();
    machine.find().await;
    assert_eq!(machine.runs(), 6);
}

#[tokio::test]
async fn an_operators_choice_is_not_questioned_but_must_be_there() {
    let machine = TestHost::new("exit 1");
    let chosen = |accelerator| Finding { accelerator, reason: Reason::Chosen };
    assert_eq!(find(Choice::Tcg, &machine.probe).await.unwrap(), chosen(Accelerator::Tcg));
    assert_eq!(find(Choice::Kvm, &machine.probe).await.unwrap(), chosen(Accelerator::Kvm));
    assert_eq!(machine.runs(), 0);
    assert_eq!(chosen(Accelerator::Tcg).remedy(), None);
    std::fs::remove_file(&machine.probe.device).unwrap();
    let refused = find(Choice::Kvm, &machine.probe).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "--accelerator kvm: open /dev/kvm (load the module kvm_intel or kvm_amd, or leave --accelerator out)"
    );
}

#[tokio::test]
async fn a_qemu_that_is_not_there_is_an_error() {
    let machine = TestHost::good();
    let probe = Probe { qemu: "/nowhere/qemu".into(), ..machine.probe.clone() };
    assert!(matches!(find(Choice::Auto, &probe).await, Err(ProbeError::Start { .. })));
}

/// What this machine's own KVM is like is not known; but that the answer is true is: a probe that says yes is asked twice.
#[tokio::test]
#[ignore = "needs QEMU: make test"]
async fn emulation_runs_the_probe_and_the_machines_own_answer_is_stable() {
    let folder = tempfile::tempdir().unwrap();
    let probe = Probe::new(None, Path::new(QEMU), folder.path());
    // Beside a load it takes its time.
    let patient = Probe { limit: Duration::from_secs(120), ..probe.clone() };
    assert_eq!(super::probe::run(&patient, Accelerator::Tcg).await.unwrap(), Ok(()));
    let first = find(Choice::Auto, &probe).await.unwrap();
    assert_eq!(find(Choice::Auto, &probe).await.unwrap(), first);
}

#[test]
fn choices_are_read_as_they_are_written() {
    for choice in [Choice::Auto, Choice::Kvm, Choice::Tcg] {
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
    assert!("xen".parse::<Choice>().is_err());
}
