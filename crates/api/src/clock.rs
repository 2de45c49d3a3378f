//! Guest time: offset, zone and timers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::enums::open_enum;
use crate::schema;

/// The guest's time base and timers; UTC if empty.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Clock {
    /// Timer devices and how they treat lost ticks.
    pub timer: Option<Timer>,
    /// Starts the clock in this zone, e.g. Europe/Berlin.
    pub timezone: Option<String>,
    /// Starts the clock in UTC, optionally shifted.
    pub utc: Option<ClockOffsetUTC>,
}

/// Where guest time starts; set one of the two.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ClockOffset {
    /// Zone whose local time is used, e.g. America/New_York.
    pub timezone: Option<String>,
    /// UTC with an optional shift.
    pub utc: Option<ClockOffsetUTC>,
}

/// A fixed distance from UTC.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockOffsetUTC {
    /// Seconds added to UTC at each boot; guest changes persist if unset.
    #[schemars(with = "Option<schema::Integer>")]
    pub offset_seconds: Option<i64>,
}

/// Time sources the guest may use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Timer {
    /// High Precision Event Timer; Windows does better without.
    pub hpet: Option<HPETTimer>,
    /// Hyper-V reference TSC clock for Windows.
    pub hyperv: Option<HypervTimer>,
    /// The kvmclock time source for Linux.
    pub kvm: Option<KVMTimer>,
    /// Legacy 8254 interval timer.
    pub pit: Option<PITTimer>,
    /// Battery-backed CMOS clock.
    pub rtc: Option<RTCTimer>,
}

/// Settings of the HPET.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HPETTimer {
    /// False hides it; true if unset.
    pub present: Option<bool>,
    /// Lost ticks: delay, catchup, merge or discard.
    pub tick_policy: Option<TickPolicy>,
}

/// Settings of kvmclock.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct KVMTimer {
    /// False hides kvmclock; true if unset.
    pub present: Option<bool>,
}

/// Settings of the 8254 timer.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PITTimer {
    /// False removes the timer; true if unset.
    pub present: Option<bool>,
    /// Lost ticks: delay, catchup or discard.
    pub tick_policy: Option<TickPolicy>,
}

/// Settings of the CMOS clock.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RTCTimer {
    /// False removes the clock; true if unset.
    pub present: Option<bool>,
    /// Lost ticks: delay or catchup.
    pub tick_policy: Option<TickPolicy>,
    /// Time it follows: guest or wall.
    pub track: Option<RTCTrack>,
}

/// Settings of the Hyper-V clock.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HypervTimer {
    /// False hides the clock; true if unset.
    pub present: Option<bool>,
}

open_enum! {
    /// What happens to ticks the guest missed.
    pub enum TickPolicy {
        Delay = "delay",
        Catchup = "catchup",
        Merge = "merge",
        Discard = "discard",
    }
}

open_enum! {
    /// What the real-time clock follows.
    pub enum RTCTrack {
        Guest = "guest",
        Wall = "wall",
    }
}
