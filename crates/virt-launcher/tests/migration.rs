//! Real guests that move from one launcher process to another, and what is left of them when something goes wrong on the way.
//!
//! This program is also the launcher, and what becomes QEMU, so that both can be killed like real ones.

#[path = "migration/bench.rs"]
mod bench;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use hypervisor::guest::Guest;
use launcher_api::Outcome;
use launcher_api::rpc::{Course, Empty, End, MigrationLimits, MigrationName, Paused, State, TakeRequest};
use testkit::{Harness, Need, tests};

use bench::{Answers, Launcher, Pair, Room, SLOW, UID, disk_with_a_guest, launcher_program};

fn main() -> ExitCode {
    if let Some(code) = launcher_program() {
        return code;
    }
    let all = tests![
        async a_guest_moves_while_it_works_and_goes_on_where_it_was,
        async a_paused_guest_arrives_paused,
        async a_cancelled_guest_runs_on,
        async who_is_killed_under_way_takes_nothing_along,
        async a_source_that_is_killed_after_everything_arrived_lets_the_target_go_on,
        async a_broken_connection_leaves_the_guest_where_it_can_go_on,
        async a_guest_that_was_given_comes_back_only_when_it_was_refused,
        async a_target_of_another_guest_is_sent_nothing,
        async a_target_with_another_cpu_refuses_the_guest,
        async nothing_is_promised_that_the_disk_does_not_take,
    ];
    let mounting = tests![async a_target_without_room_leaves_the_source_untouched];
    let mounting = mounting.into_iter().map(|test| test.needing(&[Need::Root]));
    // On a busy machine their guest was seen to wait for its disk without an end. Until the cause is found, `make soak` alone has them.
    let disks = tests![async disks_of_the_pod_alone_come_along].into_iter().chain(mounting);
    let disks = disks.map(|test| test.needing(&[Need::Soak]));
    let all = all.into_iter().chain(disks).map(|test| test.needing(&[Need::Qemu, Need::Guest])).collect();
    Harness::default().one_by_one().run(all)
}

/// The agent is up before the guest has mounted its disk.
const READY: &str = "until grep -q ' /data ' /proc/mounts; do sleep 0.2; done";

fn name() -> MigrationName {
    MigrationName { uid: UID.to_owned() }
}

fn take(paused: Paused) -> TakeRequest {
    TakeRequest { uid: UID.to_owned(), paused: paused.into() }
}

/// Lets the target go on with what the source has given.
async fn hand_over(pair: &mut Pair) -> Result<()> {
    let given = pair.source.reaches("it is given", |domain| bench::course(domain) == Course::Given).await?;
    let paused = given.migration.map_or(Paused::Not, |migration| migration.paused());
    bench::done(pair.target.client.take(take(paused)).await)?;
    Ok(())
}

async fn a_guest_moves_while_it_works_and_goes_on_where_it_was() -> Result<()> {
    let disk = disk_with_a_guest()?;
    let mut pair = Pair::start(&bench::shared(disk.path())).await?;
    pair.source.in_guest(READY).await?;
    let boot = pair.source.in_guest("cat /proc/sys/kernel/random/boot_id").await?;
    // Memory that changes all the time, and a disk that is written to.
    let work = "(i=0; while :; do i=$((i+1)); echo $i > /tmp/count; dd if=/dev/urandom of=/tmp/load bs=64k count=32 2>/dev/null; \
                done) </dev/null >/dev/null 2>&1 & echo before > /data/note; sync; \
                dd if=/dev/urandom of=/data/data bs=1M count=4 2>/dev/null; sync; sha256sum < /data/data";
    let sum = pair.source.in_guest(work).await?;
    let before: u64 = pair.source.in_guest("cat /tmp/count").await?.trim().parse()?;

    let carrying = pair.leave(MigrationLimits::default(), Answers::Pass).await?;
    hand_over(&mut pair).await?;
    pair.target.reaches("it runs", |domain| domain.state() == State::Running).await?;
    ensure!(pair.source.client.unpause(Empty {}).await.is_err(), "it was given away");
    ensure!(pair.target.in_guest("cat /proc/sys/kernel/random/boot_id").await? == boot, "it has booted");
    ensure!(pair.target.in_guest("sha256sum < /data/data; cat /data/note").await? == format!("{sum}before\n"));
    let after: u64 = pair.target.in_guest("cat /tmp/count").await?.trim().parse()?;
    ensure!(after >= before, "{after} after {before}");
    // Its clock stood still on the way.
    pair.target.clock_is_right().await?;
    pair.source.client.kill(Empty {}).await?;
    ensure!(pair.source.ends().await? == End::Moved);
    ensure!(pair.target.in_guest("echo after > /data/note; sync; cat /data/note").await? == "after\n");
    drop(carrying);
    Ok(())
}

async fn disks_of_the_pod_alone_come_along() -> Result<()> {
    let mut pair = Pair::start(&bench::local()?).await?;
    pair.source.in_guest(READY).await?;
    let write = "dd if=/dev/urandom of=/data/data bs=1M count=4 2>/dev/null; sync; \
                 dd if=/dev/urandom of=/dev/vdb bs=1M count=8 2>/dev/null; sync; sha256sum < /data/data; sha256sum < /dev/vdb";
    let sums = pair.source.in_guest(write).await?;
    let carrying = pair.leave(MigrationLimits::default(), Answers::Pass).await?;
    hand_over(&mut pair).await?;
    pair.target.reaches("it runs", |domain| domain.state() == State::Running).await?;
    pair.source.client.kill(Empty {}).await?;
    ensure!(pair.source.ends().await? == End::Moved);
    // Not from the guest's memory.
    let read = "echo 3 > /proc/sys/vm/drop_caches; sha256sum < /data/data; sha256sum < /dev/vdb";
    ensure!(pair.target.in_guest(read).await? == sums);
    pair.target.in_guest("echo more > /data/more; sync").await?;
    drop(carrying);
    Ok(())
}

async fn a_target_without_room_leaves_the_source_untouched() -> Result<()> {
    let mut pair = Pair::start_with(&bench::local()?, Room::Little).await?;
    pair.source.in_guest(READY).await?;
    let write = "dd if=/dev/urandom of=/dev/vdb bs=1M count=32 2>/dev/null; sync; sha256sum < /dev/vdb";
    let sum = pair.source.in_guest(write).await?;
    let _carrying = pair.leave(MigrationLimits::default(), Answers::Pass).await?;
    let stayed = pair.source.reaches("it stays", |domain| bench::course(domain) == Course::Stayed).await?;
    ensure!(bench::why(&stayed).contains("No space left"), "{stayed:?}");
    ensure!(stayed.state() == State::Running, "{stayed:?}");
    let read = "echo 3 > /proc/sys/vm/drop_caches; sha256sum < /dev/vdb";
    ensure!(pair.source.in_guest(read).await? == sum);
    // Nothing is left of the copies: it can be tried again.
    pair.source.in_guest("echo more > /data/more; dd if=/dev/zero of=/dev/vdb bs=1M count=1 2>/dev/null; sync").await?;
    Ok(())
}

async fn a_paused_guest_arrives_paused() -> Result<()> {
    let mut pair = Pair::start(&bench::bare()).await?;
    pair.source.client.pause(Empty {}).await?;
    pair.source.reaches("it is paused", |domain| domain.state() == State::PausedByUser).await?;
    let _carrying = pair.leave(MigrationLimits::default(), Answers::Pass).await?;
    hand_over(&mut pair).await?;
    pair.target.reaches("it is paused", |domain| domain.state() == State::PausedByUser).await?;
    pair.target.client.unpause(Empty {}).await?;
    pair.target.reaches("it runs", |domain| domain.state() == State::Running).await?;
    Ok(())
}

async fn a_cancelled_guest_runs_on() -> Result<()> {
    let mut pair = Pair::start(&bench::bare()).await?;
    let _carrying = pair.leave(SLOW, Answers::Pass).await?;
    pair.source.reaches("it is under way", |domain| bench::sent(domain) > 0).await?;
    pair.source.client.cancel_migration(name()).await?;
    let stayed = pair.source.reaches("it stays", |domain| !bench::why(domain).is_empty()).await?;
    ensure!(bench::why(&stayed).contains("cancelled"), "{stayed:?}");
    ensure!(stayed.state() == State::Running, "{stayed:?}");
    ensure!(pair.target.ends().await? == End::NotTaken);
    // Whoever tries again does so under another name.
    let again = bench::done(pair.source.client.migrate(pair.request.clone()).await)?;
    ensure!(again.state() == State::Running);
    Ok(())
}

async fn who_is_killed_under_way_takes_nothing_along() -> Result<()> {
    let mut pair = Pair::start(&bench::bare()).await?;
    let _carrying = pair.leave(SLOW, Answers::Pass).await?;
    pair.source.reaches("it is under way", |domain| bench::sent(domain) > 0).await?;
    pair.target.die()?;
    let stayed = pair.source.reaches("it stays", |domain| bench::course(domain) == Course::Stayed).await?;
    ensure!(stayed.state() == State::Running, "{stayed:?}");

    let mut pair = Pair::start(&bench::bare()).await?;
    let _carrying = pair.leave(SLOW, Answers::Pass).await?;
    pair.source.reaches("it is under way", |domain| bench::sent(domain) > 0).await?;
    pair.source.die()?;
    ensure!(pair.target.ends().await? == End::NotTaken, "half a guest is of no use");
    Ok(())
}

async fn a_source_that_is_killed_after_everything_arrived_lets_the_target_go_on() -> Result<()> {
    let mut pair = Pair::start(&bench::bare()).await?;
    let _carrying = pair.leave(MigrationLimits::default(), Answers::Hold).await?;
    pair.target.reaches("everything is there", |domain| domain.state() == State::Loaded).await?;
    let parted = pair.source.reaches("it has parted", |domain| bench::course(domain) == Course::Parted).await?;
    ensure!(parted.state() == State::Left, "{parted:?}");
    ensure!(pair.source.client.unpause(Empty {}).await.is_err(), "the target has everything");
    pair.source.die()?;
    // As its handler does when it has seen that the source's containers have ended.
    bench::done(pair.target.client.take(take(Paused::Not)).await)?;
    pair.target.reaches("it runs", |domain| domain.state() == State::Running).await?;
    Ok(())
}

async fn a_broken_connection_leaves_the_guest_where_it_can_go_on() -> Result<()> {
    // The target has everything, and the source never hears of it.
    let mut pair = Pair::start(&bench::bare()).await?;
    let carrying = pair.leave(MigrationLimits::default(), Answers::Hold).await?;
    pair.target.reaches("everything is there", |domain| domain.state() == State::Loaded).await?;
    pair.source.reaches("it has parted", |domain| bench::course(domain) == Course::Parted).await?;
    drop(carrying);
    let cut = pair.source.reaches("it is cut off", |domain| bench::course(domain) == Course::Cut).await?;
    ensure!(cut.state() == State::Left, "{cut:?}");
    bench::done(pair.source.client.give(name()).await)?;
    hand_over(&mut pair).await?;
    pair.target.reaches("it runs", |domain| domain.state() == State::Running).await?;
    pair.source.client.kill(Empty {}).await?;
    ensure!(pair.source.ends().await? == End::Moved);

    // The target is gone: the source goes on when somebody has said so.
    let mut pair = Pair::start(&bench::bare()).await?;
    let carrying = pair.leave(MigrationLimits::default(), Answers::Hold).await?;
    pair.target.reaches("everything is there", |domain| domain.state() == State::Loaded).await?;
    bench::done(pair.target.client.renounce(Empty {}).await)?;
    ensure!(pair.target.ends().await? == End::NotTaken);
    drop(carrying);
    pair.source.reaches("it is cut off", |domain| bench::course(domain) == Course::Cut).await?;
    bench::done(pair.source.client.returned(name()).await)?;
    pair.source.reaches("it runs on", |domain| domain.state() == State::Running).await?;
    Ok(())
}

async fn a_guest_that_was_given_comes_back_only_when_it_was_refused() -> Result<()> {
    let mut pair = Pair::start(&bench::bare()).await?;
    let _carrying = pair.leave(MigrationLimits::default(), Answers::Pass).await?;
    pair.source.reaches("it is given", |domain| bench::course(domain) == Course::Given).await?;
    pair.target.reaches("everything is there", |domain| domain.state() == State::Loaded).await?;
    ensure!(pair.source.client.unpause(Empty {}).await.is_err());
    let stranger = MigrationName { uid: "another".to_owned() };
    ensure!(bench::done(pair.source.client.returned(stranger).await).is_err());
    bench::done(pair.target.client.renounce(Empty {}).await)?;
    ensure!(bench::done(pair.target.client.take(take(Paused::Not)).await).is_err(), "it has refused for good");
    bench::done(pair.source.client.returned(name()).await)?;
    pair.source.reaches("it runs on", |domain| domain.state() == State::Running).await?;
    Ok(())
}

async fn a_target_of_another_guest_is_sent_nothing() -> Result<()> {
    let pair = Pair::start(&bench::bare()).await?;
    let Pair { mut source, mut target, mut request, .. } = pair;
    request.model_digest = "another".to_owned();
    let refused = bench::outcome(&source.client.migrate(request.clone()).await);
    ensure!(matches!(&refused, Outcome::Never(_)) && refused.to_string().contains("digest"), "{refused}");
    ensure!(source.client.get_domain(Empty {}).await?.into_inner().migration.is_none());
    // An instance that the target cannot have been prepared for.
    let model = source.client.get_guest(Empty {}).await?.into_inner();
    ensure!(model.guest == target.client.get_guest(Empty {}).await?.into_inner().guest, "both see the same");
    Launcher::check_runs(&mut source).await
}

async fn a_target_with_another_cpu_refuses_the_guest() -> Result<()> {
    // Of the same CPU, it comes.
    let mut pair = Pair::start(&bench::bare()).await?;
    let model = pair.source.client.get_guest(Empty {}).await?.into_inner().guest;
    let mut guest = Guest::from_stored(&model)?;
    ensure!(guest.cpu.found.is_some(), "{:?}", guest.cpu);
    // As if its model stood for something else on this node.
    guest.cpu.model = "qemu64".to_owned();
    let refused = bench::offer(&guest).await?;
    ensure!(matches!(&refused, Outcome::Never(_)) && refused.to_string().contains("CPU"), "{refused}");
    // The launcher of an earlier release did not look.
    guest.cpu.found = None;
    let taken = bench::offer(&guest).await?;
    ensure!(taken == Outcome::Done, "{taken}");
    Launcher::check_runs(&mut pair.source).await
}

async fn nothing_is_promised_that_the_disk_does_not_take() -> Result<()> {
    let mut pair = Pair::start(&bench::bare()).await?;
    // As good as a full disk.
    let full = [pair.source.path("grant.json.new"), pair.target.path("grant.json.new")];
    full.iter().try_for_each(std::fs::create_dir)?;
    ensure!(bench::done(pair.target.client.renounce(Empty {}).await).is_err());
    let _carrying = pair.leave(MigrationLimits::default(), Answers::Pass).await?;
    pair.target.reaches("everything is there", |domain| domain.state() == State::Loaded).await?;
    for paused in [Paused::Not, Paused::ByUser] {
        ensure!(bench::done(pair.target.client.take(take(paused)).await).is_err());
    }
    let away = pair.source.reaches("it has parted", |domain| bench::course(domain) == Course::Parted).await?;
    ensure!(away.state() == State::Left, "{away:?}");
    ensure!(bench::done(pair.source.client.give(name()).await).is_err());
    std::fs::remove_dir(&full[0])?;
    pair.source.reaches("it is given", |domain| bench::course(domain) == Course::Given).await?;
    // It has neither been renounced nor taken.
    ensure!(pair.target.client.get_domain(Empty {}).await?.into_inner().state() == State::Loaded);
    pair.target.client.kill(Empty {}).await?;
    ensure!(pair.target.ends().await? == End::NotTaken);
    Ok(())
}
