//! Two launchers, two QEMUs, a connection that breaks and somebody who carries words between them, late or never: whatever
//! happens in whatever order, the guest goes on in one place at most, never from a state that it has left behind, and if it could
//! go on anywhere, it does.

use super::*;

const TO: &str = "migration";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sending {
    No,
    Active,
    /// The last of it is on the way; whether the guest ran before QEMU stopped it.
    Last {
        ran: bool,
    },
    Over,
}

struct Side {
    life: Lifecycle,
    on_disk: Grant,
    /// The process is there.
    alive: bool,
    /// The vCPUs run.
    runs: bool,
}

struct World {
    source: Side,
    target: Side,
    sending: Sending,
    is_cut: bool,
    /// The target has everything.
    loaded: bool,
    /// The source's guest ran after it had parted.
    ran_on: bool,
    /// The migration was written down as failed, before anybody acts on that.
    on_record_as_failed: bool,
    now: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Leave,
    Converge,
    Load,
    Acknowledge,
    Cut,
    FailLocally,
    Cancel,
    Pause,
    Unpause,
    DiskError,
    Shutdown,
    PowerOff,
    KillSource,
    KillTarget,
    /// Somebody carries a word from one to the other.
    Carry,
    /// Nobody waits for the target any more: that is written down, then the source is told.
    GiveUpOnTarget,
    Halt,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Leave),
        4 => Just(Step::Converge),
        4 => Just(Step::Load),
        3 => Just(Step::Acknowledge),
        2 => Just(Step::Cut),
        1 => Just(Step::FailLocally),
        1 => Just(Step::Cancel),
        1 => Just(Step::Pause),
        1 => Just(Step::Unpause),
        1 => Just(Step::DiskError),
        1 => Just(Step::Shutdown),
        1 => Just(Step::PowerOff),
        1 => Just(Step::KillSource),
        1 => Just(Step::KillTarget),
        4 => Just(Step::Carry),
        1 => Just(Step::GiveUpOnTarget),
        1 => Just(Step::Halt),
    ];
    prop::collection::vec(step, 0..30)
}

impl World {
    fn new() -> Self {
        let side = |mut life: Lifecycle| {
            let on_disk = life.grant().clone();
            life.up();
            Side { life, on_disk, alive: true, runs: false }
        };
        let mut world = Self {
            source: side(Lifecycle::boot(false)),
            target: side(Lifecycle::arrival(TO)),
            sending: Sending::No,
            is_cut: false,
            loaded: false,
            ran_on: false,
            on_record_as_failed: false,
            now: Instant::now(),
        };
        world.run_source();
        world
    }

    fn has_parted(&self) -> bool {
        matches!(self.sending, Sending::Last { .. } | Sending::Over)
    }

    fn run_source(&mut self) {
        self.source.runs = true;
        self.ran_on |= self.loaded || (self.has_parted() && self.sending != Sending::Over);
        let actions = self.source.life.told(Told::Resumed);
        self.act_on_source(actions);
    }

    fn act_on_source(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Keep(grant) => self.source.on_disk = grant,
                Action::Continue if self.source.alive => {
                    assert_eq!(self.source.on_disk, Grant::Holder);
                    // QEMU refuses while it sends the last of it.
                    if !matches!(self.sending, Sending::Last { .. }) && !self.source.runs {
                        self.run_source();
                    }
                }
                Action::Stop if self.source.runs => {
                    self.source.runs = false;
                    let actions = self.source.life.told(Told::Stopped);
                    self.act_on_source(actions);
                }
                Action::Abort => self.give_up_sending(),
                Action::Kill => self.end_source(),
                _ => {}
            }
        }
    }

    /// QEMU gives up: it lets a guest run on that it has stopped itself.
    fn give_up_sending(&mut self) {
        let ran = match self.sending {
            Sending::No | Sending::Over => return,
            Sending::Active => false,
            Sending::Last { ran } => ran,
        };
        self.sending = Sending::No;
        if !self.loaded {
            // Half a guest is of no use; QEMU ends.
            self.end_target();
        }
        let actions = self.source.life.told(Told::NotMigrated);
        self.act_on_source(actions);
        if ran && !self.source.runs && self.source.alive {
            self.run_source();
        }
    }

    fn end_source(&mut self) {
        if std::mem::replace(&mut self.source.alive, false) {
            self.source.runs = false;
            self.source.life.exited(&exit());
            if !self.loaded && matches!(self.sending, Sending::Active | Sending::Last { .. }) {
                self.end_target();
            }
        }
    }

    fn end_target(&mut self) {
        if std::mem::replace(&mut self.target.alive, false) {
            self.target.runs = false;
            self.target.life.exited(&exit());
        }
    }

    fn ask_source(&mut self, request: &Request) -> bool {
        match self.source.life.request(request, self.now) {
            Ok(actions) => {
                self.act_on_source(actions);
                true
            }
            Err(_) => false,
        }
    }

    fn ask_target(&mut self, request: &Request) -> bool {
        let Ok(actions) = self.target.life.request(request, self.now) else { return false };
        for action in actions {
            match action {
                Action::Keep(grant) => self.target.on_disk = grant,
                Action::Continue if self.target.alive => {
                    assert_eq!(self.target.on_disk, Grant::Holder);
                    self.target.runs = true;
                    self.target.life.told(Told::Resumed);
                }
                Action::Kill => self.end_target(),
                _ => {}
            }
        }
        if self.target.on_disk == Grant::Holder {
            assert!(!self.ran_on, "it goes on from what it has left behind");
        }
        true
    }

    fn course(&self) -> Option<Course> {
        self.source.life.domain().migration.as_ref().map(|migration| migration.course.clone())
    }

    /// What a handler does when it sees both sides; one word at a time. True if there was one.
    fn carry(&mut self) -> bool {
        let paused = self.source.life.domain().migration.as_ref().and_then(|migration| migration.paused);
        let take = Request::Take { from: TO.to_owned(), paused };
        let target = self.target.life.domain().state.clone();
        let has_refused = matches!(target, State::Ended(End::NotTaken { .. }));
        let source_is_left = self.source.life.domain().state == State::Left;
        match self.course() {
            _ if !self.source.alive => target == State::Loaded && !self.on_record_as_failed && self.ask_target(&take),
            Some(Course::Given) if target == State::Loaded => self.ask_target(&take),
            Some(Course::Cut) if target == State::Loaded => self.ask_source(&Request::Give { to: TO.to_owned() }),
            Some(Course::Cut) if target == State::Awaiting => self.ask_target(&Request::Renounce),
            Some(Course::Cut | Course::Given) if has_refused && source_is_left => {
                self.ask_source(&Request::Returned { by: TO.to_owned() })
            }
            _ => false,
        }
    }

    fn step(&mut self, step: Step) {
        if !self.source.alive && !matches!(step, Step::Carry | Step::KillTarget) {
            return;
        }
        match (step, self.sending) {
            (Step::Leave, Sending::No) => {
                let new = self.course().is_none();
                if new && self.target.alive && self.ask_source(&Request::Leave { to: TO.to_owned() }) {
                    self.sending = Sending::Active;
                }
            }
            (Step::Converge, Sending::Active) => {
                let ran = std::mem::replace(&mut self.source.runs, false);
                self.source.life.told(Told::StoppedToPart);
                self.sending = Sending::Last { ran };
                if !self.ask_source(&Request::Part { to: TO.to_owned() }) {
                    self.give_up_sending();
                }
            }
            (Step::Load, Sending::Last { .. }) if self.target.alive && !self.is_cut => {
                self.loaded = true;
                self.target.life.told(Told::Migrated);
            }
            (Step::Acknowledge, Sending::Last { .. }) if self.loaded && !self.is_cut => {
                self.sending = Sending::Over;
                let actions = self.source.life.told(Told::Migrated);
                self.act_on_source(actions);
            }
            (Step::Cut, Sending::Active) => self.give_up_sending(),
            (Step::Cut, Sending::Last { .. }) if !self.is_cut => {
                self.is_cut = true;
                self.ask_source(&Request::Cut { to: TO.to_owned() });
                if !self.loaded {
                    self.end_target();
                }
            }
            (Step::FailLocally, Sending::Active | Sending::Last { .. }) if !self.loaded => self.give_up_sending(),
            (Step::Cancel, _) => drop(self.ask_source(&Request::Cancel { to: TO.to_owned() })),
            (Step::Pause, _) => drop(self.ask_source(&Request::Pause)),
            (Step::Unpause, _) => drop(self.ask_source(&Request::Unpause)),
            (Step::Halt, _) => drop(self.ask_source(&Request::Halt { to: TO.to_owned() })),
            (Step::DiskError, _) if self.source.runs => {
                self.source.runs = false;
                self.source.life.told(Told::IoError(String::new()));
                self.source.life.told(Told::Stopped);
            }
            (Step::Shutdown, _) => drop(self.ask_source(&Request::Shutdown { grace: Duration::from_secs(30) })),
            (Step::PowerOff, _) if self.source.runs => {
                self.source.life.told(Told::Shutdown("guest-shutdown".to_owned()));
                self.end_source();
            }
            (Step::KillSource, _) => self.end_source(),
            (Step::KillTarget, _) => {
                self.end_target();
                if self.sending == Sending::Active {
                    self.give_up_sending();
                } else if matches!(self.sending, Sending::Last { .. }) && !self.is_cut {
                    self.is_cut = true;
                    self.ask_source(&Request::Cut { to: TO.to_owned() });
                }
            }
            (Step::Carry, _) => drop(self.carry()),
            (Step::GiveUpOnTarget, _) if self.course() == Some(Course::Cut) && self.target.on_disk != Grant::Holder => {
                self.on_record_as_failed = true;
                // A target that is an orphan is killed, and may be late to hear of it.
                self.ask_source(&Request::Returned { by: TO.to_owned() });
            }
            _ => {}
        }
    }

    fn check(&self) {
        assert!(!(self.source.runs && self.target.runs), "two run");
        assert!(
            !(self.source.on_disk == Grant::Holder && self.source.alive && self.target.on_disk == Grant::Holder),
            "two may write"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(2048)))]

    #[test]
    fn a_guest_goes_on_in_one_place_and_never_in_none(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        // At last everybody hears what there is to hear, and a connection that says nothing is broken.
        if matches!(world.sending, Sending::Last { .. }) && world.source.alive {
            world.step(Step::Cut);
        }
        for _ in 0..8 {
            world.carry();
            world.check();
        }
        let has = |side: &Side| side.alive && matches!(side.life.domain().state, State::Running | State::Paused(_));
        let (source, target) = (has(&world.source), has(&world.target));
        prop_assert!(!(source && target), "two go on");
        let could = world.source.alive || (world.target.alive && world.loaded && !world.on_record_as_failed && !world.ran_on);
        let vanished = world.source.on_disk == Grant::Given { to: TO.to_owned() } && !world.target.alive;
        // A shutdown that was taken ends it; one that was denied on the way changes nothing.
        let is_ending = world.source.alive && world.source.life.domain().state == State::Stopping;
        if could && !is_ending && !vanished {
            prop_assert!(
                source || target,
                "it could go on: source {:?}, target {:?}, {:?}",
                world.source.life.domain(),
                world.target.life.domain(),
                world.sending,
            );
        }
    }
}
