use std::sync::Mutex;

use launcher_api::Outcome;
use launcher_api::rpc::Accelerator;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::host::{Speaker as _, Wanted};

fn vmi(annotations: &Value, strategy: Option<&str>) -> VirtualMachineInstance {
    let spec = json!({ "domain": { "devices": {} }, "startStrategy": strategy, "terminationGracePeriodSeconds": 20 });
    serde_json::from_value(json!({ "metadata": { "uid": "u", "annotations": annotations }, "spec": spec })).unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What a launcher has said of itself.
#[derive(Default)]
struct Said(Mutex<Vec<Standing>>);

impl Ledger for Said {
    fn note(&self, _: &Who, standing: Standing) {
        self.0.lock().unwrap().push(standing);
    }
}

fn launcher(behaviour: Behaviour, ledger: &Arc<Said>) -> Spoken<impl Fn() + Send + Sync + use<>> {
    let text = |text: &str| text.to_owned();
    let who = Who { namespace: text("n"), name: text("a"), instance: text("u"), pod: text("p") };
    let launcher = Arc::new(Simulated::new(who, Arc::new(behaviour), 1, Some(ledger.clone())));
    Spoken { launcher, let_go: || {} }
}

async fn sync<F: Fn() + Send + Sync>(spoken: &Spoken<F>, vmi: &VirtualMachineInstance) -> Outcome {
    spoken.sync(Wanted { vmi, accelerator: Accelerator::Unspecified, incoming: None, mark: 7 }).await.1
}

#[tokio::test(start_paused = true)]
async fn a_guest_starts_in_its_time_and_ends_by_its_fate() {
    let behaviour = Behaviour { start_delay: seconds(3), ..Behaviour::default() };
    for (annotations, end) in [
        (json!({ "orlop.io/hollow-run-for": "5s" }), End::PoweredOff),
        (json!({ "orlop.io/hollow-fate": "crash", "orlop.io/hollow-run-for": "5s" }), End::Crashed),
        (json!({ "orlop.io/hollow-fate": "fail-to-start" }), End::FailedToStart),
    ] {
        let spoken = launcher(behaviour.clone(), &Arc::default());
        spoken.launcher.appear(Vec::new(), None);
        let began = tokio::time::Instant::now();
        assert_eq!(sync(&spoken, &vmi(&annotations, None)).await, Outcome::Done);
        assert_eq!(began.elapsed(), seconds(3));
        sleep(seconds(6)).await;
        let domain = spoken.launcher.answer().unwrap();
        assert_eq!((domain.state(), domain.end(), domain.mark), (State::Ended, end, 7));
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_paused_does_not_end_by_itself() {
    let spoken = launcher(Behaviour::default(), &Arc::default());
    spoken.launcher.appear(Vec::new(), None);
    sync(&spoken, &vmi(&json!({ "orlop.io/hollow-run-for": "5s" }), Some("Paused"))).await;
    sleep(seconds(60)).await;
    assert_eq!(spoken.launcher.answer().unwrap().state(), State::PausedByUser);
    spoken.unpause().await.unwrap();
    sleep(seconds(6)).await;
    assert_eq!(spoken.launcher.answer().unwrap().end(), End::PoweredOff);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_hangs_is_killed_when_its_time_is_over() {
    for (annotations, takes, end) in [
        (json!({}), 20, End::PoweredOff),
        (json!({}), 21, End::Killed),
        (json!({ "orlop.io/hollow-fate": "hang" }), 0, End::Killed),
    ] {
        let spoken = launcher(Behaviour { stop_delay: seconds(takes), ..Behaviour::default() }, &Arc::default());
        spoken.launcher.appear(Vec::new(), None);
        sync(&spoken, &vmi(&annotations, None)).await;
        // Its pod is to go; asked again, it does not take longer.
        spoken.launcher.terminate();
        sleep(seconds(10)).await;
        spoken.shut_down(seconds(20)).await.unwrap();
        assert!(spoken.delete().await.is_err(), "its guest has not ended");
        sleep(seconds(11)).await;
        assert_eq!(spoken.launcher.answer().unwrap().end(), end, "{annotations} {takes}");
        spoken.delete().await.unwrap();
        assert_eq!(spoken.launcher.stage(), Stage::Exited);
    }
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_is_known_by_its_instance_alone_goes_on() {
    let mut ran = vmi(&json!({ "orlop.io/hollow-run-for": "50s" }), None);
    for (phase, state) in [("Running", State::Running), ("Failed", State::Ended)] {
        ran.status = serde_json::from_value(json!({ "phase": phase })).unwrap();
        let spoken = launcher(Behaviour::default(), &Arc::default());
        spoken.launcher.appear(vec!["10.0.0.1".to_owned()], Some((&ran, seconds(40), 9)));
        let domain = spoken.launcher.answer().unwrap();
        assert_eq!((domain.state(), domain.mark), (state, 9));
        sleep(seconds(11)).await;
        assert_eq!(spoken.launcher.answer().unwrap().state(), State::Ended, "it has run for its time");
    }
}

/// What somebody does to a launcher.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Appear,
    Sync,
    Unpause,
    ShutDown,
    Kill,
    Delete,
    Terminate,
    Vanish,
    Wait(u64),
}

fn any_deed() -> impl Strategy<Value = Deed> {
    use Deed::{Appear, Delete, Kill, ShutDown, Sync, Terminate, Unpause, Vanish, Wait};
    prop_oneof![
        4 => prop::sample::select(vec![Appear, Sync, Sync, Unpause, ShutDown, Kill, Delete, Terminate, Vanish]),
        2 => (0..30_u64).prop_map(Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(64), ..ProptestConfig::default() })]

    /// A guest lives once, and its launcher says that it may write exactly while it does.
    #[test]
    fn a_guest_lives_once_and_the_ledger_knows_when(
        deeds in prop::collection::vec(any_deed(), 1..30),
        fate in prop::sample::select(vec!["", "crash", "hang", "fail-to-start", "succeed"]),
        delays in (0..5_u64, 0..30_u64),
        paused in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let said = Arc::new(Said::default());
        let behaviour = Behaviour { start_delay: seconds(delays.0), stop_delay: seconds(delays.1), ..Behaviour::default() };
        let annotations = if fate.is_empty() { json!({}) } else { json!({ "orlop.io/hollow-fate": fate }) };
        let wanted = vmi(&annotations, paused.then_some("Paused"));
        let spoken = launcher(behaviour, &said);
        runtime.block_on(async {
            for deed in deeds {
                let before = spoken.launcher.watch().borrow().clone();
                match deed {
                    Deed::Appear => spoken.launcher.appear(Vec::new(), None),
                    Deed::Sync => drop(sync(&spoken, &wanted).await),
                    Deed::Unpause => drop(spoken.unpause().await),
                    Deed::ShutDown => drop(spoken.shut_down(seconds(20)).await),
                    Deed::Kill => drop(spoken.kill().await),
                    Deed::Delete => drop(spoken.delete().await),
                    Deed::Terminate => spoken.launcher.terminate(),
                    Deed::Vanish => spoken.launcher.vanish(),
                    Deed::Wait(time) => sleep(seconds(time)).await,
                }
                let now = spoken.launcher.watch().borrow().clone();
                prop_assert!(now.domain.sequence >= before.domain.sequence);
                let had_ended = before.domain.state() == State::Ended || matches!(before.stage, Stage::Exited | Stage::Gone);
                let may_write = matches!(said.0.lock().unwrap().last(), Some(Standing::Holds { .. }));
                prop_assert!(!(had_ended && may_write), "{deed:?}: a guest that has ended never runs again");
                prop_assert_eq!(may_write, now.stage == Stage::Up && is_alive(now.domain.state()), "{:?}", deed);
            }
            Ok(())
        })?;
    }
}
