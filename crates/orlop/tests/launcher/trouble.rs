//! Guests that do not start.

use anyhow::{Context as _, Result, ensure};
use launcher_api::Outcome;
use launcher_api::rpc::{Empty, End, State};
use serde_json::json;

use crate::{Launcher, demo, qemus, request};

pub(crate) async fn a_qemu_that_does_not_start_is_told_in_its_own_words() -> Result<()> {
    let mut launcher = Launcher::start("failed").await?;
    let vmi = demo("failed", &json!({ "cpu": { "model": "NoSuchModel" } }))?;
    let domain = launcher.client.sync(request(&vmi)).await?.into_inner();
    ensure!(domain.end() == End::FailedToStart && domain.reason.contains("NoSuchModel"), "{domain:?}");
    ensure!(qemus("failed").is_empty());

    // What can be known before QEMU is asked is refused, and the launcher is as free as before.
    let mut launcher = Launcher::start("refused").await?;
    let vmi = demo("refused", &json!({ "launchSecurity": { "sev": {} } }))?;
    let refused = launcher.outcome(&vmi).await?;
    ensure!(matches!(&refused, Outcome::Never(_)), "{refused}");
    ensure!(refused.to_string().contains("spec.domain.launchSecurity"), "{refused}");
    ensure!(launcher.client.get_domain(Empty {}).await?.into_inner().state() != State::Running);
    Ok(())
}

pub(crate) async fn an_attempt_that_failed_is_in_nobodys_way() -> Result<()> {
    let mut launcher = Launcher::start("again").await?;
    let whole = demo("again", &json!({}))?;
    let mut vmi = whole.clone();
    let volumes = vmi["spec"]["volumes"].as_array_mut().context("volumes")?;
    volumes.insert(0, json!({ "name": "made", "emptyDisk": { "capacity": "1Mi" } }));
    volumes.push(json!({ "name": "lost", "containerDisk": { "image": "oci:/no/such/folder:x" } }));
    // The reason stays the same: what the first attempt has made is not what the second one stumbles over.
    for _ in 0..2 {
        let outcome = launcher.outcome(&vmi).await?;
        ensure!(outcome.to_string().contains("spec.volumes[2].containerDisk"), "{outcome}");
        ensure!(matches!(&outcome, Outcome::Retry { .. }), "an image may come: {outcome}");
    }
    // What nobody makes a disk of is no use to try again.
    let volumes = vmi["spec"]["volumes"].as_array_mut().context("volumes")?;
    volumes[2] = json!({ "name": "lost", "serviceAccount": { "serviceAccountName": "x" } });
    let outcome = launcher.outcome(&vmi).await?;
    ensure!(matches!(&outcome, Outcome::Never(_)), "{outcome}");
    ensure!(outcome.to_string().contains("spec.volumes[2].serviceAccount"), "{outcome}");
    // A disk that is full is not the end of the guest, even when QEMU is up already.
    for file in ["guest.json.new", "grant.json.new"] {
        let obstacle = launcher.folder.path().join("run").join(file);
        std::fs::create_dir(&obstacle)?;
        let outcome = launcher.outcome(&whole).await?;
        ensure!(matches!(&outcome, Outcome::Retry { .. }), "{outcome}");
        ensure!(qemus("again").is_empty());
        std::fs::remove_dir(&obstacle)?;
    }
    // And the guest starts once it can.
    launcher.boot(&whole).await
}
