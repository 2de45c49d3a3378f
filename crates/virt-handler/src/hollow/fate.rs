//! What becomes of a guest, and when.

use std::str::FromStr as _;
use std::time::Duration;

use api::vmi::VirtualMachineInstance;

use super::Behaviour;

/// How long a guest runs before it ends by itself.
const RUN_FOR: &str = "orlop.io/hollow-run-for";
/// What becomes of it.
const FATE: &str = "orlop.io/hollow-fate";

/// What becomes of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It runs until somebody stops it.
    Stay,
    /// It powers off by itself.
    Succeed,
    /// It runs, and fails.
    Crash,
    /// It fails without ever running.
    FailToStart,
    /// It runs, and does not react when it is to shut down.
    Hang,
}

/// A guest's fate, and how long it runs if it ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) fate: Fate,
    pub(super) run_for: Duration,
}

impl Life {
    /// As the instance's annotations say; without any, as the behaviour says, with luck deciding who crashes.
    ///
    /// # Guarantees
    /// - The same instance has the same life each time, as long as the luck is the same.
    pub(super) fn of(vmi: &VirtualMachineInstance, behaviour: &Behaviour, luck: u64) -> Self {
        let annotations = vmi.metadata.annotations.as_ref();
        let text = |name: &str| annotations.and_then(|all| all.get(name)).map(String::as_str);
        let own_time = text(RUN_FOR).and_then(duration);
        let run_for = own_time.or(behaviour.run_for);
        let ends = if run_for.is_some() { Fate::Succeed } else { Fate::Stay };
        let fate = match text(FATE) {
            Some("succeed") => Fate::Succeed,
            Some("crash") => Fate::Crash,
            Some("fail-to-start") => Fate::FailToStart,
            Some("hang") => Fate::Hang,
            Some(other) => {
                tracing::warn!(fate = other, "ignored an unknown fate of a guest");
                ends
            }
            None if own_time.is_some() => ends,
            None => {
                let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
                if draw(luck, uid, 0) < behaviour.start_failure_share {
                    Fate::FailToStart
                } else if draw(luck, uid, 1) < behaviour.crash_share {
                    Fate::Crash
                } else {
                    ends
                }
            }
        };
        Self { fate, run_for: run_for.unwrap_or_default() }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let duration = api::duration::Duration::from_str(text).ok().and_then(|duration| duration.to_std());
    if duration.is_none() {
        tracing::warn!(text, "ignored an invalid running time of a guest");
    }
    duration
}

/// From 0 up to, not including, 1: the same each time.
fn draw(luck: u64, uid: &str, what: u8) -> f64 {
    let bytes = luck.to_be_bytes().into_iter().chain([what]).chain(uid.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The last bytes of a UID reach the upper bits of such a hash only by this.
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let upper = u32::try_from(mixed >> 32).unwrap_or(u32::MAX);
    f64::from(upper) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn vmi(uid: &str, annotations: &Value) -> VirtualMachineInstance {
        let metadata = json!({ "uid": uid, "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata, "spec": { "domain": { "devices": {} } } })).unwrap()
    }

    fn fate(annotations: &Value, behaviour: &Behaviour) -> Life {
        Life::of(&vmi("u", annotations), behaviour, 7)
    }

    #[test]
    fn annotations_win_over_the_behaviour() {
        let unlucky = Behaviour { crash_share: 1.0, start_failure_share: 1.0, ..Behaviour::default() };
        let life = fate(&json!({ RUN_FOR: "5s" }), &unlucky);
        assert_eq!(life, Life { fate: Fate::Succeed, run_for: Duration::from_secs(5) });
        for (word, expected) in [
            ("succeed", Fate::Succeed),
            ("crash", Fate::Crash),
            ("fail-to-start", Fate::FailToStart),
            ("hang", Fate::Hang),
        ] {
            assert_eq!(fate(&json!({ FATE: word }), &unlucky).fate, expected);
        }
    }

    #[test]
    fn without_a_word_a_guest_stays() {
        assert_eq!(fate(&json!({}), &Behaviour::default()).fate, Fate::Stay);
        assert_eq!(fate(&json!({ RUN_FOR: "soon", FATE: "?" }), &Behaviour::default()).fate, Fate::Stay);
        let short = Behaviour { run_for: Some(Duration::from_secs(1)), ..Behaviour::default() };
        assert_eq!(fate(&json!({}), &short), Life { fate: Fate::Succeed, run_for: Duration::from_secs(1) });
    }

    #[test]
    fn about_the_given_share_crashes_and_always_the_same() {
        let behaviour = Behaviour { crash_share: 0.25, ..Behaviour::default() };
        let crashes = |luck: u64| -> Vec<u32> {
            let of = |number: &u32| {
                let uid = format!("d4f8b0c2-0000-4000-8000-{number:012}");
                Life::of(&vmi(&uid, &json!({})), &behaviour, luck).fate == Fate::Crash
            };
            (0..2000).filter(of).collect()
        };
        let some = crashes(1);
        assert!((400..600).contains(&some.len()), "{}", some.len());
        assert_eq!(some, crashes(1));
        assert_ne!(some, crashes(2));
    }
}
