//! Guests that change while they run, that start again, and that move.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use e2e::console::PATIENCE;
use hypervisor::accelerator::Accelerator;
use hypervisor::guest::build::{Before, build};
use hypervisor::guest::{Guest, Place};
use hypervisor::qmp::commands::{Migrate, SetMigrationCapabilities};
use hypervisor::render;
use hypervisor::wiring::Wiring;
use launcher_api::Outcome;
use launcher_api::client;
use launcher_api::names::MEMORY_SOCKET;
use launcher_api::rpc::{Empty, State};
use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::{Value, json};
use virt_launcher::domain::{self, End};
use virt_launcher::driver::{self, Handle, Launch, Origin};
use virt_launcher::grant::Grant;
use virt_launcher::lifecycle::Request;

use crate::{Launcher, READY, demo, in_guest, instance, qemus};

/// The demo guest with one more disk.
fn with_a_disk(vmi: &Value, name: &str) -> Result<Value> {
    let mut vmi = vmi.clone();
    let disks = vmi["spec"]["domain"]["devices"]["disks"].as_array_mut().context("disks")?;
    disks.insert(0, json!({ "name": name, "disk": { "bus": "virtio" }, "serial": name }));
    let volumes = vmi["spec"]["volumes"].as_array_mut().context("volumes")?;
    volumes.insert(0, json!({ "name": name, "emptyDisk": { "capacity": "64Mi" } }));
    Ok(vmi)
}

async fn model(launcher: &mut Launcher) -> Result<Guest> {
    let told = launcher.client.get_guest(Empty {}).await?.into_inner();
    Ok(Guest::from_stored(&told.guest)?)
}

fn place_of<'a>(guest: &'a Guest, name: &str) -> Option<&'a Place> {
    guest.devices.values().find(|device| device.of.as_deref() == Some(name)).map(|device| &device.place)
}

/// Tells it until it has done so: a guest takes its time to let go of a disk.
async fn done(launcher: &mut Launcher, vmi: &Value) -> Result<()> {
    let telling = async {
        loop {
            match launcher.outcome(vmi).await? {
                Outcome::Done => return anyhow::Ok(()),
                Outcome::Retry { .. } => {}
                other => anyhow::bail!("{other}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, telling).await.context("it is never done")?
}

pub(crate) async fn a_guest_that_runs_becomes_what_it_is_told_to_be() -> Result<()> {
    let mut launcher = Launcher::start("changed").await?;
    let vmi = demo("changed", &json!({}))?;
    launcher.boot(&vmi).await?;
    in_guest(&mut launcher, READY).await?;
    let before = model(&mut launcher).await?;
    ensure!(client::greet(&mut launcher.client).await?.models == Some(1..=1));
    ensure!(launcher.outcome(&vmi).await? == Outcome::Done && model(&mut launcher).await? == before);

    // It comes into a free port, whatever its place in the list, and the one that is there stays.
    let more = with_a_disk(&vmi, "extra")?;
    ensure!(launcher.outcome(&more).await? == Outcome::Done);
    in_guest(&mut launcher, "until grep -q extra /sys/block/vdb/serial; do sleep 0.2; done; echo x > /dev/vdb").await?;
    let grown = model(&mut launcher).await?;
    ensure!(matches!(place_of(&grown, "extra"), Some(Place::Port { .. })), "{grown:?}");
    ensure!(place_of(&grown, "root") == place_of(&before, "root"));
    ensure!(launcher.outcome(&more).await? == Outcome::Done && model(&mut launcher).await? == grown);

    // What cannot be done now is in nobody's way, and what cannot be done at all changes nothing.
    let mut other = more.clone();
    other["spec"]["domain"]["cpu"] = json!({ "sockets": 2 });
    let waits = launcher.outcome(&other).await?;
    ensure!(waits == Outcome::NeedsRestart(vec!["spec.domain.cpu".into()]), "{waits}");
    other["spec"]["domain"]["launchSecurity"] = json!({ "sev": {} });
    ensure!(matches!(launcher.outcome(&other).await?, Outcome::Never(_)));
    let mut other = more.clone();
    other["spec"]["volumes"][0]["emptyDisk"]["capacity"] = "65Mi".into();
    let waits = launcher.outcome(&other).await?;
    ensure!(waits == Outcome::NeedsRestart(vec!["spec.volumes[name=extra]".into()]), "{waits}");
    ensure!(model(&mut launcher).await? == grown);

    done(&mut launcher, &vmi).await?;
    in_guest(&mut launcher, "while [ -e /sys/block/vdb ]; do sleep 0.2; done").await?;
    let shrunk = model(&mut launcher).await?;
    ensure!(shrunk.devices == before.devices, "{shrunk:?}");
    // Its name is free again, its id is not.
    done(&mut launcher, &more).await?;
    let ids = |guest: &Guest| guest.devices.keys().cloned().collect::<Vec<_>>();
    ensure!(ids(&model(&mut launcher).await?) != ids(&grown));
    ensure!(launcher.client.get_domain(Empty {}).await?.into_inner().state() == State::Running);
    Ok(())
}

/// A guest that has not booted lets go of nothing.
pub(crate) async fn a_step_that_fails_is_repeated_and_is_in_no_others_way() -> Result<()> {
    let mut launcher = Launcher::start("steps").await?;
    let vmi = instance("steps", &json!({ "devices": { "disks": [] } }), &json!([]));
    launcher.boot(&vmi).await?;

    // Somebody else has locked it: it can be opened, and not be attached.
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(1 << 20)?;
    let mut held = vmi.clone();
    held["spec"]["domain"]["devices"]["disks"] = json!([{ "name": "held", "disk": { "bus": "virtio" } }]);
    held["spec"]["volumes"] = json!([{ "name": "held", "hostDisk": { "path": file.path(), "type": "Disk" } }]);
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
    for _ in 0..2 {
        let outcome = launcher.outcome(&held).await?;
        ensure!(matches!(&outcome, Outcome::Retry { why } if why.contains("lock")), "{outcome}");
        ensure!(place_of(&model(&mut launcher).await?, "held").is_none());
    }
    fcntl_lock(&file, FlockOperation::Unlock)?;
    ensure!(launcher.outcome(&held).await? == Outcome::Done);
    ensure!(place_of(&model(&mut launcher).await?, "held").is_some());

    let outcome = launcher.outcome(&with_a_disk(&vmi, "other")?).await?;
    ensure!(matches!(&outcome, Outcome::Retry { why } if why.contains("held")), "{outcome}");
    let guest = model(&mut launcher).await?;
    ensure!(place_of(&guest, "other").is_some() && place_of(&guest, "held").is_some(), "{guest:?}");
    Ok(())
}

pub(crate) async fn a_guest_that_starts_again_finds_everything_where_it_was() -> Result<()> {
    let mut launcher = Launcher::start("first").await?;
    let vmi = instance("first", &json!({ "devices": { "disks": [] } }), &json!([]));
    let two = with_a_disk(&with_a_disk(&vmi, "one")?, "two")?;
    launcher.boot(&two).await?;
    let before = model(&mut launcher).await?;
    drop(launcher);

    // As virt-controller makes the next instance: with what the last one's guest has seen. One disk is gone, its place stays free.
    let mut launcher = Launcher::start("first").await?;
    let mut next = with_a_disk(&vmi, "one")?;
    next["metadata"]["annotations"] = json!({ "orlop.dev/guest": before.to_stored()? });
    launcher.boot(&next).await?;
    let after = model(&mut launcher).await?;
    ensure!(place_of(&after, "one") == place_of(&before, "one") && place_of(&after, "one").is_some(), "{after:?}");
    ensure!(place_of(&after, "two").is_none() && after.board == before.board);
    drop(launcher);

    // What nobody can read is not guessed at.
    let mut launcher = Launcher::start("first").await?;
    next["metadata"]["annotations"]["orlop.dev/guest"] = r#"{"version":99}"#.into();
    let refused = launcher.outcome(&next).await?;
    ensure!(matches!(&refused, Outcome::Never(_)) && refused.to_string().contains("99"), "{refused}");
    Ok(())
}

/// A guest without disks, in a directory of its own.
async fn launch(folder: &Path, guest: &Guest, origin: Origin) -> Result<Handle> {
    let wiring = Wiring {
        accelerator: Accelerator::Tcg,
        runtime: folder.to_owned(),
        volumes: Default::default(),
        interfaces: Default::default(),
        kernel: None,
        efi: None,
        incoming: matches!(origin, Origin::Arrival { .. }),
    };
    let line = render::command_line(guest, &wiring).ok().context("it is wired")?;
    let launch = Launch {
        this: env!("CARGO_BIN_EXE_orlop").into(),
        qemu: "qemu-system-x86_64".into(),
        guest: guest.clone(),
        line,
        accelerator: Accelerator::Tcg,
        runtime: folder.to_owned(),
        origin,
    };
    Ok(driver::launch(&launch).await?)
}

async fn reaches(handle: &Handle, state: &domain::State) -> Result<()> {
    let mut domain = handle.domain();
    let reached = tokio::time::timeout(PATIENCE, domain.wait_for(|domain| domain.state == *state)).await;
    reached.with_context(|| format!("it does not come to {state:?} but is {:?}", handle.domain().borrow()))??;
    Ok(())
}

pub(crate) async fn a_guest_moves_from_one_launcher_to_another() -> Result<()> {
    let (here, there) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let vmi = instance("moving", &json!({}), &json!([]));
    let vmi = api::decode::object::<api::vmi::VirtualMachineInstance>(vmi)?.object;
    let guest = build(&vmi, Accelerator::Tcg, Before::Nothing).ok().context("it is supported")?;
    let source = launch(here.path(), &guest, Origin::Boot { paused: false }).await?;
    reaches(&source, &domain::State::Running).await?;
    // The target is given the guest as the source knows it.
    let guest = source.guest.borrow().clone();
    let origin = Origin::Arrival { from: "here".into(), exports: vec![] };
    let target = launch(there.path(), &guest, origin).await?;
    reaches(&target, &domain::State::Awaiting).await?;
    ensure!(Grant::stored(there.path())? == Some(Grant::Awaiting { from: "here".into() }));
    ensure!(target.request(Request::Unpause).await.is_err(), "nothing has come yet");

    // As somebody at the monitor would do it, past everything that the launcher does for a guest that leaves.
    let uri = format!("unix:{}", there.path().join(MEMORY_SOCKET).display());
    source.qmp.execute(SetMigrationCapabilities::on(&["events"])).await?;
    source.qmp.execute(Migrate { uri }).await?;
    reaches(&source, &domain::State::Left).await?;
    reaches(&target, &domain::State::Loaded).await?;
    // Between the two it runs nowhere, until one of them may.
    ensure!(target.request(Request::Take { from: "elsewhere".into(), paused: None }).await.is_err());
    source.request(Request::Give { to: "there".into() }).await?;
    ensure!(Grant::stored(here.path())? == Some(Grant::Given { to: "there".into() }));
    ensure!(source.request(Request::Unpause).await.is_err(), "it was given away");
    target.request(Request::Take { from: "here".into(), paused: None }).await?;
    reaches(&target, &domain::State::Running).await?;
    ensure!(Grant::stored(there.path())? == Some(Grant::Holder));
    source.request(Request::Kill).await?;
    ensure!(source.ended().await == End::Moved);
    ensure!(qemus("moving").len() == 1);
    target.request(Request::Kill).await?;
    ensure!(target.ended().await == End::Killed);
    Ok(())
}
