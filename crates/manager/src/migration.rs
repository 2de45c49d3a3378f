//! Leader migration: controllers that move from one program to another, one lease for both.
//!
//! While two programs can run the same controller, whoever does so must hold a second lease, the migration lock. A program
//! takes it only after its own: were it the other way round, one process could hold the first and another the second, and
//! neither would ever have both.

use serde::Deserialize;

use crate::descriptor::Descriptor;

/// Which controllers move, and the lease that guards them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Migration {
    /// Always `controllermanager.config.k8s.io/v1` or an older version.
    #[serde(default)]
    pub api_version: String,
    /// Always `LeaderMigrationConfiguration`.
    #[serde(default)]
    pub kind: String,
    /// The name of the second lease.
    pub leader_name: String,
    /// What kind of lock it is; leases are the only kind.
    #[serde(default = "leases")]
    pub resource_lock: String,
    /// Who runs which controller.
    #[serde(default)]
    pub controller_leaders: Vec<ControllerLeader>,
}

fn leases() -> String {
    "leases".to_owned()
}

/// Who runs a controller.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ControllerLeader {
    /// The controller, by its name or an alias.
    pub name: String,
    /// The program; `*` is any that has it.
    pub component: String,
}

/// Under which lease a controller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The program's own.
    Main,
    /// The migration lock.
    Migration,
    /// None: it is another program's.
    Elsewhere,
}

/// A table that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MigrationError {
    /// It is not a table of leaders.
    #[error(
        "it is a {kind} of {api_version}, not a LeaderMigrationConfiguration of controllermanager.config.k8s.io/v1"
    )]
    Kind {
        /// As it says.
        kind: String,
        /// As it says.
        api_version: String,
    },
    /// It asks for another lock.
    #[error("resourceLock {lock:?} is not supported; use leases")]
    ResourceLock {
        /// As it says.
        lock: String,
    },
    /// It has no lease.
    #[error("leaderName is empty")]
    NoName,
    /// A controller is named twice.
    #[error("controllerLeaders names {name:?} more than once")]
    Twice {
        /// The controller.
        name: String,
    },
}

impl Migration {
    /// Whether the table can be used.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self) -> Result<(), MigrationError> {
        let known = self.kind.is_empty() || self.kind == "LeaderMigrationConfiguration";
        if !known || !(self.api_version.is_empty() || self.api_version.starts_with("controllermanager.config.k8s.io/"))
        {
            return Err(MigrationError::Kind { kind: self.kind.clone(), api_version: self.api_version.clone() });
        }
        if self.resource_lock != "leases" {
            return Err(MigrationError::ResourceLock { lock: self.resource_lock.clone() });
        }
        if self.leader_name.is_empty() {
            return Err(MigrationError::NoName);
        }
        let names = || self.controller_leaders.iter().map(|leader| leader.name.as_str());
        match names().enumerate().find(|(index, name)| names().take(*index).any(|other| other == *name)) {
            Some((_, name)) => Err(MigrationError::Twice { name: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// Under which lease a controller of a program runs. One that must start before all others is never moved.
    #[must_use]
    pub fn lock_of<S>(&self, descriptor: &Descriptor<S>, program: &str) -> Lock {
        if descriptor.special_handling {
            return Lock::Main;
        }
        let named = |leader: &&ControllerLeader| {
            leader.name == descriptor.name || descriptor.aliases.contains(&leader.name.as_str())
        };
        match self.controller_leaders.iter().find(named) {
            None => Lock::Main,
            Some(leader) if leader.component == "*" || leader.component == program => Lock::Migration,
            Some(_) => Lock::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Started;

    fn table() -> Migration {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "controllermanager.config.k8s.io/v1",
            "kind": "LeaderMigrationConfiguration",
            "leaderName": "migration",
            "controllerLeaders": [
                { "name": "route", "component": "new" },
                { "name": "service-controller", "component": "*" },
                { "name": "token", "component": "new" },
            ],
        }))
        .unwrap()
    }

    #[test]
    fn a_controller_runs_where_the_table_says() {
        let descriptor = |name, aliases| Descriptor::<()>::new(name, aliases, |_, ()| Ok(Started::new(async {})));
        let table = table();
        let route = descriptor("route-controller", &["route"]);
        assert_eq!(table.lock_of(&route, "old"), Lock::Elsewhere);
        assert_eq!(table.lock_of(&route, "new"), Lock::Migration);
        assert_eq!(table.lock_of(&descriptor("service-controller", &[]), "old"), Lock::Migration);
        assert_eq!(table.lock_of(&descriptor("namespace-controller", &[]), "old"), Lock::Main);
        let token = Descriptor { special_handling: true, ..descriptor("token", &[]) };
        assert_eq!(table.lock_of(&token, "old"), Lock::Main);
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused() {
        assert_eq!(table().check(), Ok(()));
        let twice = ControllerLeader { name: "route".to_owned(), component: "*".to_owned() };
        let mut bad = table();
        bad.controller_leaders.push(twice);
        assert_eq!(bad.check(), Err(MigrationError::Twice { name: "route".to_owned() }));
        let other = Migration { resource_lock: "endpoints".to_owned(), ..table() };
        assert_eq!(other.check(), Err(MigrationError::ResourceLock { lock: "endpoints".to_owned() }));
        assert_eq!(Migration { leader_name: String::new(), ..table() }.check(), Err(MigrationError::NoName));
    }
}
