//! The part of a life that a guest spends on the way from one launcher to another.

use super::{Action, Denied, Lifecycle};
use crate::domain::{Course, Migration, Pause, Progress, State};

impl Lifecycle {
    pub(super) fn course(&self) -> Option<&Course> {
        self.domain.migration.as_ref().map(|migration| &migration.course)
    }

    /// Whether the guest was stopped for the last of it to be sent, and nobody has said yet where it goes on.
    pub(super) fn has_parted(&self) -> bool {
        matches!(self.course(), Some(Course::Parted | Course::Cut))
    }

    /// The migration of this name, if the guest is still here with it.
    pub(super) fn under_way(&mut self, to: &str) -> Result<&mut Migration, Denied> {
        let migration = self.domain.migration.as_mut();
        let same = migration.filter(|migration| migration.to == to && migration.course == Course::UnderWay);
        same.ok_or_else(|| Denied::OtherMigration(to.to_owned()))
    }

    pub(super) fn leave(&mut self, to: &str) -> Result<Vec<Action>, Denied> {
        match self.domain.migration.as_ref() {
            Some(Migration { to: known, course: Course::UnderWay, .. }) if known == to => return Ok(vec![]),
            // One that has failed is over: whoever tries again does so under another name.
            Some(Migration { to: known, course: Course::UnderWay, .. }) => {
                return Err(Denied::OtherMigration(known.clone()));
            }
            Some(Migration { to: known, .. }) if known == to => return Err(Denied::OtherMigration(to.to_owned())),
            _ => {}
        }
        self.grant.may_be_given()?;
        // That QEMU holds a guest which powers off is not known where it arrives.
        if self.rebooting.is_some() {
            return Err(Denied::Rebooting);
        }
        self.aborting = false;
        self.has_decided = false;
        let (to, progress) = (to.to_owned(), Progress::default());
        self.domain.migration = Some(Migration { to, course: Course::UnderWay, paused: None, progress });
        Ok(self.publish())
    }

    pub(super) fn part(&mut self, to: &str) -> Result<Vec<Action>, Denied> {
        let paused = match self.domain.state {
            State::Paused(Pause::ForMigration) => None,
            State::Paused(pause) => Some(pause),
            _ => None,
        };
        let is_given_up = self.aborting;
        let migration = self.under_way(to)?;
        if is_given_up {
            return Err(Denied::Here);
        }
        migration.course = Course::Parted;
        migration.paused = paused;
        Ok(self.enter(State::Left))
    }

    /// QEMU has stopped the guest to send the last of it. Somebody may have wanted to stop it at the same moment.
    pub(super) fn stopped_to_part(&mut self) -> Vec<Action> {
        if !std::mem::take(&mut self.pausing) {
            return vec![];
        }
        match (&self.domain.state, self.domain.migration.as_mut()) {
            (State::Running, _) => self.enter(State::Paused(Pause::ByUser)),
            (State::Left, Some(migration)) if migration.course == Course::Parted => {
                migration.paused = Some(Pause::ByUser);
                self.publish()
            }
            _ => vec![],
        }
    }

    pub(super) fn cut(&mut self, to: &str) -> Result<Vec<Action>, Denied> {
        match self.domain.migration.as_mut().filter(|migration| migration.to == to) {
            Some(migration) if migration.course == Course::Parted => {
                migration.course = Course::Cut;
                Ok(self.publish())
            }
            // It had arrived before.
            Some(Migration { course: Course::Cut | Course::Given, .. }) => Ok(vec![]),
            _ => Err(Denied::OtherMigration(to.to_owned())),
        }
    }

    pub(super) fn stay(&mut self, to: &str, why: &str) -> Result<Vec<Action>, Denied> {
        let migration = self.domain.migration.as_mut().filter(|migration| migration.to == to);
        let migration = migration.ok_or_else(|| Denied::OtherMigration(to.to_owned()))?;
        match &mut migration.course {
            Course::UnderWay => {
                migration.course = Course::Stayed { why: why.to_owned() };
                let mut actions = self.publish();
                if self.domain.state == State::Paused(Pause::ForMigration) {
                    actions.push(Action::Continue);
                }
                Ok(actions)
            }
            // QEMU told that, not why.
            Course::Stayed { why: unknown } if unknown.is_empty() && !why.is_empty() => {
                why.clone_into(unknown);
                Ok(self.publish())
            }
            Course::Stayed { .. } => Ok(vec![]),
            Course::Parted | Course::Cut | Course::Given => Err(Denied::Away),
        }
    }

    pub(super) fn progressed(&mut self, progress: Progress) -> Vec<Action> {
        match self.domain.migration.as_mut() {
            Some(migration) if migration.course == Course::UnderWay && migration.progress != progress => {
                migration.progress = progress;
                self.publish()
            }
            _ => vec![],
        }
    }

    pub(super) fn give(&mut self, to: &str) -> Result<Vec<Action>, Denied> {
        let given = self.grant.give(to)?;
        if let Some(migration) = self.domain.migration.as_mut() {
            if migration.to != to {
                return Err(Denied::OtherMigration(to.to_owned()));
            }
            let is_news = migration.course != Course::Given;
            migration.course = Course::Given;
            let kept = self.keep(given);
            let told = if is_news { self.publish() } else { vec![] };
            return Ok([vec![kept], told].concat());
        }
        Ok(vec![self.keep(given)])
    }

    pub(super) fn returned(&mut self, by: &str) -> Result<Vec<Action>, Denied> {
        let holder = self.grant.returned(by)?;
        let Some(migration) = self.domain.migration.as_mut() else {
            return Ok(vec![self.keep(holder), Action::Continue]);
        };
        let (course, paused) = (migration.course.clone(), migration.paused);
        match course {
            // QEMU still sends, or waits for an answer that will not come. It goes on by itself when it has given up.
            Course::Parted | Course::Cut => Ok(vec![self.keep(holder), Action::Abort]),
            // It was promised when the connection had broken, and QEMU never heard that it arrived.
            Course::Given if !self.has_decided => {
                migration.course = Course::Cut;
                Ok([vec![self.keep(holder)], self.publish(), vec![Action::Abort]].concat())
            }
            Course::UnderWay | Course::Given | Course::Stayed { .. } => {
                migration.course = Course::Stayed { why: "the other launcher has refused the guest".to_owned() };
                let mut actions = vec![self.keep(holder)];
                actions.extend(match paused {
                    Some(pause) => self.enter(State::Paused(pause)),
                    None => self.publish(),
                });
                actions.extend(paused.is_none().then_some(Action::Continue));
                Ok(actions)
            }
        }
    }

    pub(super) fn take(&mut self, from: &str, paused: Option<Pause>) -> Result<Vec<Action>, Denied> {
        let mut actions = vec![self.keep(self.grant.take(from)?), Action::StopExports];
        self.started = true;
        self.clock_is_late = true;
        match paused {
            Some(pause) => actions.extend(self.enter(State::Paused(pause))),
            None => actions.push(Action::Continue),
        }
        Ok(actions)
    }

    /// The guest's state has come or gone, whole.
    pub(super) fn migrated(&mut self) -> Vec<Action> {
        self.has_decided = true;
        match (&self.domain.state, self.domain.migration.as_ref()) {
            (State::Awaiting, _) => self.enter(State::Loaded),
            (State::Left, Some(migration)) => {
                let to = migration.to.clone();
                // It holds what it gives; if it does not any more, it has given before.
                self.give(&to).unwrap_or_default()
            }
            // Somebody at the monitor has sent it.
            (State::Running | State::Paused(_), _) => self.enter(State::Left),
            // It was not to be sent any more, and must not run on beside what has arrived.
            (State::Stopping, Some(_)) => self.kill(),
            (State::Starting | State::Loaded | State::Left | State::Stopping | State::Ended(_), _) => vec![],
        }
    }

    /// QEMU has given up sending the guest's state; not all of it can have arrived.
    pub(super) fn not_migrated(&mut self) -> Vec<Action> {
        self.has_decided = true;
        let Some(migration) = self.domain.migration.as_mut() else { return vec![] };
        let paused = migration.paused;
        let parted = match migration.course {
            Course::UnderWay => false,
            Course::Parted | Course::Cut => true,
            Course::Given | Course::Stayed { .. } => return vec![],
        };
        migration.course = Course::Stayed { why: String::new() };
        let (state, goes_on) = match (&self.domain.state, parted) {
            (State::Left, true) => match paused {
                Some(pause) => (State::Paused(pause), false),
                None => (State::Left, true),
            },
            // It waits for its end, and sees no button while it is stopped.
            (State::Stopping, _) => (State::Stopping, true),
            (state, _) => (state.clone(), *state == State::Paused(Pause::ForMigration)),
        };
        let mut actions = if self.domain.state == state { self.publish() } else { self.enter(state) };
        // QEMU lets a guest run on that it has stopped itself; one that we have stopped, we let run.
        actions.extend(goes_on.then_some(Action::Continue));
        actions
    }
}
