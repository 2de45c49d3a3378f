//! Guests that are frozen or paused, and do nothing meanwhile.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::console::PATIENCE;
use launcher_api::rpc::{self, Empty, FreezeRequest, State};

use crate::{Launcher, in_guest};

/// Keeps a guest busy and writing, until it is enough.
const BUSY: &str = "(until [ -e /run/enough ]; do date >> /data/ticks; sync; done) </dev/null >/dev/null 2>&1 &";
/// Nothing can be awaited that must not happen: it has this long to happen.
const A_WHILE: Duration = Duration::from_millis(300);

/// A guest that writes all the time has its writes held while it is frozen, and goes on when it is thawed or nobody thaws it.
pub(crate) async fn a_frozen_guest_writes_nothing(launcher: &mut Launcher) -> Result<()> {
    in_guest(launcher, BUSY).await?;
    let written = |stats: &rpc::Stats| stats.disks.iter().map(|disk| disk.written_bytes).sum();
    grows(launcher, "what the guest writes", written).await?;
    for unfreeze_ms in [None, Some(1000)] {
        let before = launcher.client.get_guest_info(Empty {}).await?.into_inner();
        launcher.client.freeze(FreezeRequest { unfreeze_ms }).await?;
        if unfreeze_ms.is_none() {
            launcher.client.freeze(FreezeRequest { unfreeze_ms }).await.context("freeze a frozen guest")?;
            let frozen = launcher.client.get_guest_info(Empty {}).await?.into_inner();
            ensure!(frozen.freeze_status == "frozen" && frozen.os == before.os, "{frozen:?}");
            stands_still(launcher, "what a frozen guest writes", written).await?;
            launcher.client.unfreeze(Empty {}).await?;
            ensure!(launcher.client.get_guest_info(Empty {}).await?.into_inner().freeze_status == "thawed");
        }
        grows(launcher, "what a thawed guest writes", written).await?;
    }
    Ok(())
}

/// The vCPU of a busy guest takes time; a paused one takes none, once its thread sleeps.
pub(crate) async fn a_paused_guest_takes_no_time(launcher: &mut Launcher) -> Result<()> {
    let taken = |stats: &rpc::Stats| stats.vcpus.iter().map(|vcpu| vcpu.time_ns).sum();
    grows(launcher, "the time of a vCPU", taken).await?;
    launcher.client.pause(Empty {}).await?;
    launcher.reaches(|domain| domain.state() == State::PausedByUser).await?;
    let resting = async { while stands_still(launcher, "the time of a paused vCPU", taken).await.is_err() {} };
    tokio::time::timeout(PATIENCE, resting).await.context("a paused vCPU runs")?;
    let stats = launcher.client.get_stats(Empty {}).await?.into_inner();
    ensure!(
        stats.resident_bytes > 1 << 20 && stats.disks.iter().any(|disk| disk.name == "root" && disk.read_bytes > 0),
        "{stats:?}"
    );
    let paused = launcher.events.borrow().len();
    launcher.client.unpause(Empty {}).await?;
    launcher.events.wait_for(|events| events.len() > paused).await?;
    grows(launcher, "the time of a vCPU that goes on", taken).await?;
    in_guest(launcher, "touch /run/enough").await
}

async fn grows(launcher: &mut Launcher, what: &str, number: impl Fn(&rpc::Stats) -> u64) -> Result<()> {
    let before = number(launcher.client.get_stats(Empty {}).await?.get_ref());
    let growing = async {
        while number(launcher.client.get_stats(Empty {}).await?.get_ref()) <= before {}
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, growing).await.with_context(|| format!("{what} does not grow"))?
}

async fn stands_still(launcher: &mut Launcher, what: &str, number: impl Fn(&rpc::Stats) -> u64) -> Result<()> {
    let before = number(launcher.client.get_stats(Empty {}).await?.get_ref());
    tokio::time::sleep(A_WHILE).await;
    let after = number(launcher.client.get_stats(Empty {}).await?.get_ref());
    ensure!(before == after, "{what} grows from {before} to {after}");
    Ok(())
}
