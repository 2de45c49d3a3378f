//! What the user does, what happens to the processes meanwhile, and the calm after it.

use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, Clock, Place};
use jiff::Timestamp;
use kube::Client;
use manager::context::Chance as AnyChance;
use tokio::time::sleep;
use virt_handler::hollow::Machines;
use virt_server::Settings;

use crate::chance::Chance;
use crate::process::{self, LAUNCHER, Process};
use crate::settled::Wrong;
use crate::witness::Witness;
use crate::world::{LONGEST_CUT, World};
use crate::{Options, Progress, Scene, SimulationError, kinds, machines, settled, wire};

mod user;

use user::User;

/// Nobody writes for this long, nor waits for a time: then it has settled.
const REST: Duration = Duration::from_secs(90);
/// Whoever waits for what its cache never shows gives up after five minutes, and nobody can see it wait. What is wrong after
/// that will stay so.
const LONGEST_PATIENCE: Duration = Duration::from_secs(330);
/// Longer than any timeout and any back-off that a controller has.
const LATEST_REST: Duration = Duration::from_secs(45 * 60);

pub(crate) async fn play(options: &Options, world: &Arc<World>) -> Result<Progress, SimulationError> {
    world.now();
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let builder = ApiServer::builder(Place::Memory).clock(clock).seed(options.seed);
    let rights = world.clone();
    let builder = builder.on_decision(move |who, what, decision| rights.decided(who, what, decision));
    let settings = Settings {
        kinds: kinds::of(options.scene)?,
        chance: AnyChance::seeded(options.seed),
        machine_image: Some(LAUNCHER.to_owned()),
        guests: None,
    };
    let server = virt_server::start(builder, settings).await?;
    let client = wire::direct(&server);
    let witness = Witness::new(options.scene);
    let machines = machines::of(world);
    let user = User::new(client.clone(), witness.clone(), machines.clone(), world, options);
    witness.start(&client, world);
    if options.scene.guests().is_some() {
        machines::start(&machines, &client);
    }
    let mut play = Play {
        options,
        world,
        machines,
        processes: process::of(options.scene),
        user,
        client,
        server,
        witness,
        chance: Chance::new(options.seed, 2),
        judged: None,
    };
    play.storm().await?;
    if !world.is_violated() {
        play.calm().await?;
    }
    Ok(play.witness.progress())
}

struct Play<'a> {
    options: &'a Options,
    world: &'a Arc<World>,
    /// What outlives the processes.
    machines: Machines,
    server: ApiServer,
    processes: Vec<Process>,
    user: User,
    /// The user's.
    client: Client,
    witness: Witness,
    chance: Chance,
    /// After how many writes was last looked whether all is as it must be, and what was wrong.
    judged: Option<(u64, Wrong)>,
}

impl Play<'_> {
    /// The user works while everything goes wrong.
    async fn storm(&mut self) -> Result<(), SimulationError> {
        self.user.begin().await?;
        self.keep_up(1000);
        let steps = 15 + self.chance.below(25);
        for _ in 0..steps {
            let pause = self.pause();
            self.pass(pause).await;
            if self.world.is_violated() {
                return Ok(());
            }
            match self.chance.below(10) {
                0 | 1 => self.crash(),
                2 => self.cut_off(),
                _ => {
                    let what = self.user.act().await?;
                    self.world.note(format!("the user: {what}"));
                }
            }
            self.keep_up(500);
        }
        Ok(())
    }

    /// What changes while a VM is still on its way finds more than what changes at rest: every second step comes at once.
    fn pause(&mut self) -> Duration {
        let hurries = match self.options.scene {
            Scene::Deployments => false,
            Scene::Services | Scene::VirtualMachines(_) | Scene::Pools(_) => self.chance.permille(500),
        };
        let most = if hurries { Duration::from_millis(300) } else { Duration::from_secs(6) };
        self.chance.between(Duration::from_millis(1), most)
    }

    /// Nothing goes wrong any more: all comes to rest.
    async fn calm(&mut self) -> Result<(), SimulationError> {
        self.world.calm();
        self.user.let_go().await?;
        self.world.note("calm".to_owned());
        self.world.written("the user".to_owned());
        let (mut waited, mut rested_since) = (Duration::ZERO, Duration::ZERO);
        loop {
            self.keep_up(1000);
            let step = Duration::from_secs(5);
            // Where nobody has written there is nothing to do.
            if self.world.last_write().0 <= 2 * step
                && let Some(what) = self.user.tend().await?
            {
                self.world.written(format!("the user: {what}"));
            }
            self.pass(step).await;
            waited += step;
            let (ago, what) = self.world.last_write();
            // Whoever is still away has not had its say.
            let all_there = self.processes.iter().all(Process::is_running);
            if !all_there {
                rested_since = waited;
            }
            let rested = ago.min(waited - rested_since);
            if self.world.is_violated() {
                return Ok(());
            }
            if rested >= REST && self.is_over(rested).await? {
                match self.user.change_at_rest().await? {
                    Some(what) if !self.world.is_violated() => self.world.written(format!("the user: {what}")),
                    _ => return Ok(()),
                }
            }
            if waited > LATEST_REST {
                self.world.violated(None, format!("somebody writes for ever; last {what}"));
                return Ok(());
            }
        }
    }

    /// Nobody has written for so long: whether all is as it must be, or will never be.
    async fn is_over(&mut self, rested: Duration) -> Result<bool, SimulationError> {
        if self.user.sees_patience(self.world.time()).await? {
            return Ok(false);
        }
        let writes = self.world.writes();
        // What nobody has written to is as it was: no need to list everything again.
        let known = self.judged.take().filter(|(after, _)| *after == writes);
        let wrong = match known {
            Some((_, wrong)) => wrong,
            None => self.judge().await?,
        };
        if !wrong.0.is_empty() && rested < LONGEST_PATIENCE {
            self.judged = Some((writes, wrong));
            return Ok(false);
        }
        for (about, what) in wrong.0 {
            self.world.violated(about, what);
        }
        Ok(true)
    }

    async fn judge(&self) -> Result<Wrong, SimulationError> {
        let mut wrong = settled::check(self.options.scene, &self.client, &self.world.ledger).await?;
        let progress = self.witness.progress();
        if progress.ran == 0 {
            wrong.add(None, format!("nothing ever ran: {progress}"));
        }
        Ok(wrong)
    }

    /// Time passes, and the witness looks at every second of it.
    async fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(Duration::from_secs(1));
            sleep(step).await;
            left -= step;
            self.witness.look(self.world);
        }
    }

    /// Starts again what has ended, at once or later.
    fn keep_up(&mut self, permille: u32) {
        for process in &mut self.processes {
            if process.may_start() && self.chance.permille(permille) {
                process.start(self.options, &self.server, self.world, &self.machines);
            }
        }
    }

    fn crash(&mut self) {
        let index = self.chance.below(self.processes.len().try_into().unwrap_or(u32::MAX));
        let mut index = usize::try_from(index).unwrap_or(0);
        // A write that outlives its sender is rare: whoever has one on its way goes rather than others.
        if let Some(sender) = self.processes.iter().position(|process| self.world.has_departed(&process.identity()))
            && self.chance.permille(500)
        {
            index = sender;
        }
        if let Some(process) = self.processes.get_mut(index) {
            // Mostly it is back soon; now and then so late that its nodes count as lost and its lease is another's.
            let most = if self.chance.permille(150) { 400 } else { 3 };
            let away = self.chance.between(Duration::ZERO, Duration::from_secs(most));
            process.crash(self.world, away);
        }
    }

    fn cut_off(&mut self) {
        let lasts = self.chance.between(Duration::from_secs(1), LONGEST_CUT);
        if let Some(process) = self.chance.one_of(&self.processes) {
            self.world.note(format!("{} reaches nobody for {} s", process.identity(), lasts.as_secs()));
            self.world.cut_off(&process.identity(), lasts);
        }
    }
}
