//! The commands that are sent to the guest agent, with only the fields that are read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DEADLINE;
use crate::qmp::Command;
use crate::qmp::commands::Empty;

/// Freezing waits for every file system to be written back.
const FREEZE_DEADLINE: Duration = Duration::from_secs(60);

/// Declares questions: name on the wire, answer, deadline.
macro_rules! questions {
    ($($(#[$meta:meta])* $name:ident = $text:literal -> $answer:ty, $deadline:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Serialize)]
        pub struct $name {}

        impl Command for $name {
            const NAME: &'static str = $text;
            type Answer = $answer;

            fn deadline(&self) -> Duration {
                $deadline
            }
        }
    )*};
}

questions! {
    /// Is anyone there?
    Ping = "guest-ping" -> Empty, DEADLINE;
    /// Which agent is it?
    Info = "guest-info" -> AgentInfo, DEADLINE;
    /// Which operating system is it?
    OsInfo = "guest-get-osinfo" -> OsInfoAnswer, DEADLINE;
    /// What does the guest call itself?
    HostName = "guest-get-host-name" -> HostNameAnswer, DEADLINE;
    /// In which zone is its clock?
    TimeZone = "guest-get-timezone" -> TimeZoneAnswer, DEADLINE;
    /// Who is logged in?
    Users = "guest-get-users" -> Vec<User>, DEADLINE;
    /// What is mounted?
    FileSystems = "guest-get-fsinfo" -> Vec<FileSystem>, DEADLINE;
    /// Which addresses does it have?
    Interfaces = "guest-network-get-interfaces" -> Vec<Interface>, DEADLINE;
    /// Hold all writes; answers how many file systems are frozen.
    Freeze = "guest-fsfreeze-freeze" -> u32, FREEZE_DEADLINE;
    /// Let writes through again; answers how many file systems were thawed.
    Thaw = "guest-fsfreeze-thaw" -> u32, FREEZE_DEADLINE;
    /// Are writes held?
    FreezeStatus = "guest-fsfreeze-status" -> String, DEADLINE;
}

/// Sets the guest's clock.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SetTime {
    /// Nanoseconds since 1970, in UTC.
    pub time: i64,
}

impl Command for SetTime {
    const NAME: &'static str = "guest-set-time";
    type Answer = Empty;

    fn deadline(&self) -> Duration {
        DEADLINE
    }
}

/// Shuts the guest down; an agent that does so does not answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shutdown {
    /// `powerdown`, `halt` or `reboot`.
    pub mode: &'static str,
}

impl Command for Shutdown {
    const NAME: &'static str = "guest-shutdown";
    type Answer = Empty;

    fn deadline(&self) -> Duration {
        DEADLINE
    }
}

/// Runs a program in the guest.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Exec {
    /// The program.
    pub path: String,
    /// Its arguments.
    pub arg: Vec<String>,
    /// Whether its output is wanted.
    pub capture_output: bool,
}

/// A program that was started.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Pid {
    /// Its process id in the guest.
    pub pid: i64,
}

impl Command for Exec {
    const NAME: &'static str = "guest-exec";
    type Answer = Pid;

    fn deadline(&self) -> Duration {
        DEADLINE
    }
}

/// Asks what became of a program.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ExecStatus {
    /// Its process id in the guest.
    pub pid: i64,
}

/// What became of a program.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ExecState {
    /// It has ended.
    pub exited: bool,
    /// With this code.
    pub exitcode: Option<i32>,
    /// Or by this signal.
    pub signal: Option<i32>,
    /// What it wrote, in base64.
    #[serde(default)]
    pub out_data: String,
    /// What it wrote to standard error, in base64.
    #[serde(default)]
    pub err_data: String,
}

impl Command for ExecStatus {
    const NAME: &'static str = "guest-exec-status";
    type Answer = ExecState;

    fn deadline(&self) -> Duration {
        DEADLINE
    }
}

/// Which agent it is.
#[derive(Clone, Debug, Deserialize)]
pub struct AgentInfo {
    pub version: String,
    /// What it can do.
    #[serde(default)]
    pub supported_commands: Vec<SupportedCommand>,
}

/// One thing an agent can do.
#[derive(Clone, Debug, Deserialize)]
pub struct SupportedCommand {
    pub name: String,
    /// Whether it is allowed to.
    pub enabled: bool,
}

/// Which operating system it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct OsInfoAnswer {
    /// A short name, such as `debian`.
    pub id: String,
    pub name: String,
    /// A name for people.
    pub pretty_name: String,
    pub version: String,
    /// Its version, for programs.
    pub version_id: String,
    pub kernel_release: String,
    /// The kernel's build.
    pub kernel_version: String,
    /// The architecture.
    pub machine: String,
}

/// What the guest calls itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostNameAnswer {
    pub host_name: String,
}

/// The zone of the guest's clock.
#[derive(Clone, Debug, Deserialize)]
pub struct TimeZoneAnswer {
    /// Its name, if it has one.
    #[serde(default)]
    pub zone: String,
    /// Seconds from UTC.
    pub offset: i64,
}

/// Someone who is logged in.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct User {
    /// Their name.
    pub user: String,
    /// Their domain, on Windows.
    #[serde(default)]
    pub domain: String,
    /// Since when, in seconds since 1970.
    pub login_time: f64,
}

/// Something that is mounted.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FileSystem {
    /// The device.
    pub name: String,
    pub mountpoint: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes in use.
    #[serde(default)]
    pub used_bytes: u64,
    /// Bytes in all.
    #[serde(default)]
    pub total_bytes: u64,
}

/// A network interface as the guest sees it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Interface {
    /// Its name in the guest.
    pub name: String,
    #[serde(default)]
    pub hardware_address: String,
    #[serde(default)]
    pub ip_addresses: Vec<IpAddress>,
}

/// An address of an interface.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct IpAddress {
    pub ip_address: String,
    /// `ipv4` or `ipv6`.
    pub ip_address_type: String,
    /// Bits of the network.
    pub prefix: u32,
}
