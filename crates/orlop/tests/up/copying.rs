//! Snapshots, restores and clones of VMs whose guests write to their disks.

use anyhow::{Context as _, Result, ensure};
use api::data_volume::{DataVolume, DataVolumePhase};
use api::restore::VirtualMachineRestore;
use api::snapshot::VirtualMachineSnapshot;
use api::vm::VirtualMachine;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::Test;
use super::guests::{Terminal, add_volume, linux};
use super::storing::{claim, volumes_in};
use super::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("a_vm_is_set_back_to_a_snapshot_and_cloned", a_vm_is_set_back_to_a_snapshot_and_cloned),
    (
        "a_data_volume_is_set_back_in_its_place_and_goes_with_its_vm",
        a_data_volume_is_set_back_in_its_place_and_goes_with_its_vm,
    ),
];

/// Writes numbered records past the page cache, each with a checksum, until it is stopped.
const WRITER: &str = "i=0; while true; do i=$((i + 1)); printf '%09d ' $i > /tmp/r; \
                      printf '%09d' $i | md5sum | head -c 32 >> /tmp/r; \
                      dd if=/tmp/r of=/dev/vda bs=512 seek=$((i % 1000)) conv=sync,notrunc,fsync 2> /dev/null; \
                      echo $i > /tmp/next; mv /tmp/next /tmp/written; done";
/// Says the highest record, if every record on the disk is whole.
const READER: &str = "highest=0; n=0; while [ $n -lt 1000 ]; do r=$(dd if=/dev/vda bs=512 skip=$n count=1 2> /dev/null | tr -d '\\000'); \
                      n=$((n + 1)); [ -n \"$r\" ] || continue; number=${r%% *}; \
                      [ \"$(printf %s $number | md5sum | head -c 32)\" = \"${r#* }\" ] || { echo torn $n; highest=torn; break; }; \
                      number=$(printf %s $number | sed 's/^0*//'); [ $number -le $highest ] || highest=$number; done; echo highest $highest";

fn highest(terminal: &mut Terminal) -> Result<u64> {
    let said = terminal.run(READER)?;
    let number = said.lines().find_map(|line| line.strip_prefix("highest "));
    number.and_then(|number| number.trim().parse().ok()).with_context(|| format!("no whole records: {said}"))
}

fn a_vm_is_set_back_to_a_snapshot_and_cloned() -> Result<()> {
    let machine = TestHost::up()?;
    machine.create::<PersistentVolumeClaim>(claim("data", "64Mi"))?;
    let mut vm = linux("v", "Manual")?;
    add_volume(&mut vm, "data", "persistentVolumeClaim", json!({ "claimName": "data" }))?;
    machine.create::<VirtualMachine>(vm)?;
    e2e::output(&mut machine.orlop(&["start", "v", "--wait"]))?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    terminal.run(&format!("({WRITER}) > /dev/null 2>&1 &"))?;
    terminal.run("until [ -s /tmp/written ]; do sleep 0.1; done")?;
    let before: u64 = terminal.run("cat /tmp/written")?.trim().parse()?;

    // While the guest writes: its agent holds all writes for the moment of the copy, and lets them go on.
    e2e::output(&mut machine.orlop(&["snapshot", "v", "--name", "s", "--wait"]))?;
    let after: u64 = terminal.run("cat /tmp/written")?.trim().parse()?;
    terminal.run(&format!("until [ $(cat /tmp/written) -gt {} ]; do sleep 0.1; done", after + 20))?;
    let snapshot = machine.get::<VirtualMachineSnapshot>("s")?.context("the snapshot is gone")?;
    let indications = snapshot.status.and_then(|status| status.indications).unwrap_or_default();
    ensure!(
        indications.contains(&"Online".to_owned()) && indications.contains(&"GuestAgent".to_owned()),
        "{indications:?}"
    );
    drop(terminal);

    // Back to that moment.
    let first = machine.phase("v", Phase::Running, None)?;
    e2e::output(&mut machine.orlop(&["restore", "s", "--stop", "--wait"]))?;
    e2e::output(&mut machine.orlop(&["start", "v", "--wait"]))?;
    machine.phase("v", Phase::Running, first.metadata.uid.as_deref())?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    let found = highest(&mut terminal)?;
    ensure!(
        (before..=after).contains(&found),
        "record {found} is on the disk; {before} to {after} were written meanwhile"
    );
    terminal.run("printf only-here | dd of=/dev/vda bs=512 seek=2000 conv=notrunc,fsync 2> /dev/null")?;

    // A second VM, with disks of its own. The first one's console stays open: whoever is logged in there stays so.
    e2e::output(&mut machine.orlop(&["clone", "v", "w", "--wait"]))?;
    e2e::output(&mut machine.orlop(&["start", "w", "--wait"]))?;
    let mut clone = Terminal::log_in(&machine, "w")?;
    ensure!(highest(&mut clone)? == found, "the clone has other records");
    clone.run("printf and-there | dd of=/dev/vda bs=512 seek=2000 conv=notrunc,fsync 2> /dev/null")?;
    ensure!(terminal.run("dd if=/dev/vda bs=512 skip=2000 count=1 2> /dev/null | head -c 9")? == "only-here");
    Ok(())
}

fn a_data_volume_is_set_back_in_its_place_and_goes_with_its_vm() -> Result<()> {
    let machine = TestHost::up()?;
    let mut vm = linux("v", "Manual")?;
    let storage = json!({ "resources": { "requests": { "storage": "64Mi" } } });
    let spec = json!({ "source": { "blank": {} }, "storage": storage });
    vm["spec"]["dataVolumeTemplates"] = json!([{ "metadata": { "name": "v-data" }, "spec": spec }]);
    add_volume(&mut vm, "data", "dataVolume", json!({ "name": "v-data" }))?;
    machine.create::<VirtualMachine>(vm)?;
    e2e::output(&mut machine.orlop(&["start", "v", "--wait"]))?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    terminal.run("printf before | dd of=/dev/vda conv=notrunc,fsync 2> /dev/null")?;
    e2e::output(&mut machine.orlop(&["snapshot", "v", "--name", "s", "--wait"]))?;
    terminal.run("printf later! | dd of=/dev/vda conv=notrunc,fsync 2> /dev/null")?;
    drop(terminal);

    let first = machine.phase("v", Phase::Running, None)?;
    let old = machine.get::<PersistentVolumeClaim>("v-data")?.context("no claim")?;
    machine.create::<VirtualMachineRestore>(json!({ "apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineRestore", "metadata": { "name": "r" }, "spec": {
        "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "v" },
        "virtualMachineSnapshotName": "s", "volumeRestorePolicy": "InPlace", "targetReadinessPolicy": "StopTarget",
    } }))?;
    let is_complete = |restore: Option<&VirtualMachineRestore>| {
        restore.is_some_and(|one| one.status.as_ref().is_some_and(|status| status.complete == Some(true)))
    };
    machine.wait::<VirtualMachineRestore>("r", "complete", is_complete)?;
    let new = machine.get::<PersistentVolumeClaim>("v-data")?.context("no claim")?;
    ensure!(new.metadata.uid != old.metadata.uid, "the claim is still the old one");
    let volume = machine.get::<DataVolume>("v-data")?.context("no DataVolume")?;
    let phase = volume.status.and_then(|status| status.phase);
    ensure!(phase == Some(DataVolumePhase::Succeeded), "{phase:?}");
    e2e::output(&mut machine.orlop(&["start", "v", "--wait"]))?;
    machine.phase("v", Phase::Running, first.metadata.uid.as_deref())?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    ensure!(terminal.run("head -c 6 /dev/vda")? == "before");
    drop(terminal);

    // What was restored is the VM's as it was before.
    machine.delete::<VirtualMachine>("v")?;
    machine.gone::<VirtualMachine>("v")?;
    machine.gone::<PersistentVolumeClaim>("v-data")?;
    let folder = machine.data().join("volumes");
    testkit::waiting::until("the disk is gone", || volumes_in(&folder) == 0);
    Ok(())
}
