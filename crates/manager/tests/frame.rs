//! Programs of controllers on the embedded API server, on a clock that the tests step.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{ApiServer, Clock, Identity, Place};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use manager::cache::{Cache, Key};
use manager::caches::Caches;
use manager::clients::Clients;
use manager::context::{Chance, Context, Now, Started};
use manager::descriptor::{Descriptor, Selection};
use manager::frame::{FrameError, Leading, Program};
use manager::gates::{Gate, Gates};
use manager::leader::Durations;
use manager::migration::Migration;
use manager::serving::Pages;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// What happened, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Settings of the test's controllers: who they are in, and where they note what they do.
struct Settings {
    process: &'static str,
    diary: Diary,
    broken: bool,
    /// Where the first of them leaves its cache of leases, if it is to have one.
    leases: Option<Arc<Mutex<Vec<Cache<Lease>>>>>,
}

fn note(context: &Context, settings: &Settings, name: &str) -> Started {
    settings.diary.note(format!("{} starts {name}", settings.process));
    if let Some(leases) = settings.leases.as_ref().filter(|_| name == "one") {
        leases.lock().unwrap().push(context.caches.of(&[]));
    }
    let (stopping, diary) = (context.stopping.clone(), settings.diary.clone());
    let ends = format!("{} ends {name}", settings.process);
    Started::new(async move {
        stopping.asked().await;
        // What is under way is finished.
        sleep(Duration::from_secs(1)).await;
        diary.note(ends);
    })
}

static TABLE: &[Descriptor<Settings>] = &[
    Descriptor::new("one-controller", &["one"], |context, settings| Ok(note(context, settings, "one"))),
    Descriptor {
        special_handling: true,
        ..Descriptor::new("token-controller", &["token"], |context, settings| {
            if settings.broken {
                return Err("no key".into());
            }
            Ok(note(context, settings, "token"))
        })
    },
    Descriptor {
        required_gates: &["New"],
        ..Descriptor::new("new-controller", &[], |context, settings| Ok(note(context, settings, "new")))
    },
    Descriptor {
        off_by_default: true,
        ..Descriptor::new("off-controller", &[], |context, settings| Ok(note(context, settings, "off")))
    },
    Descriptor::new("two-controller", &["two"], |context, settings| Ok(note(context, settings, "two"))),
];

async fn server() -> ApiServer {
    ApiServer::builder(Place::Memory).clock(Clock::starting_at(Timestamp::UNIX_EPOCH)).seed(1).start().await.unwrap()
}

fn program(server: &ApiServer, process: &'static str, diary: &Diary) -> Program<Settings> {
    let (server, started) = (server.clone(), Instant::now());
    let now: Now = Arc::new(move || Timestamp::UNIX_EPOCH + started.elapsed());
    Program {
        name: "test-manager",
        descriptors: TABLE,
        settings: Settings { process, diary: diary.clone(), broken: false, leases: None },
        selection: Selection::all(),
        gates: Gates::parse([], &[Gate { name: "New", on: false }]).unwrap(),
        clients: Clients::given(move |_, fence| {
            Client::new(tower::Layer::layer(fence, server.for_identity(Identity::admin())), "default")
        }),
        caches: None,
        leading: None,
        start_interval: Duration::from_secs(1),
        pages: Pages::new("test-manager"),
        now,
        chance: Chance::seeded(1),
    }
}

fn leading(identity: &str, migration: Option<Migration>) -> Option<Leading> {
    Some(Leading {
        namespace: "kube-system".to_owned(),
        lease: "test-manager".to_owned(),
        identity: identity.to_owned(),
        durations: Durations::default(),
        migration,
    })
}

/// Starts a program; what comes back ends it.
fn start(program: Program<Settings>) -> (oneshot::Sender<()>, JoinHandle<Result<(), FrameError>>) {
    let (stop, stopped) = oneshot::channel();
    (stop, tokio::spawn(async move { program.run(async move { drop(stopped.await) }).await }))
}

async fn holder(server: &ApiServer, lease: &str) -> String {
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    let lease = Api::<Lease>::namespaced(client, "kube-system").get_opt(lease).await.unwrap();
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn the_token_controller_is_first_and_the_others_follow_one_by_one() {
    let (server, diary) = (server().await, Diary::default());
    let (_stop, _running) = start(program(&server, "a", &diary));
    sleep(Duration::from_millis(500)).await;
    assert_eq!(diary.take(), ["a starts token"]);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(diary.take(), ["a starts one", "a starts two"], "one by gate and one by default do not run");
}

/// How many watches and lists of leases a server was asked for, through a client that counts them.
fn counting(server: &ApiServer, asked: &Arc<AtomicUsize>) -> Client {
    let asked = asked.clone();
    let counted = tower::ServiceBuilder::new()
        .map_request(move |request: http::Request<kube::client::Body>| {
            if request.method() == http::Method::GET && request.uri().path().ends_with("/leases") {
                asked.fetch_add(1, Ordering::Relaxed);
            }
            request
        })
        .service(server.for_identity(Identity::admin()));
    Client::new(counted, "default")
}

#[tokio::test(start_paused = true)]
async fn programs_of_one_process_share_their_caches() {
    let (server, diary, asked) = (server().await, Diary::default(), Arc::new(AtomicUsize::new(0)));
    let caches = Caches::new(counting(&server, &asked), Chance::seeded(2));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let with_cache = |process| {
        let mut program = Program { caches: Some(caches.clone()), ..program(&server, process, &diary) };
        program.settings.leases = Some(seen.clone());
        program
    };
    let (_stop_one, _one) = start(with_cache("a"));
    let (_stop_two, _two) = start(with_cache("b"));
    sleep(Duration::from_secs(10)).await;
    let of_both = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(of_both.len(), 2, "each program has asked for the cache");
    for cache in &of_both {
        timeout(Duration::from_secs(60), cache.synced()).await.unwrap();
    }
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    let made: Lease = serde_json::from_value(json!({ "metadata": { "name": "made" } })).unwrap();
    let made = Api::<Lease>::namespaced(client, "default").create(&PostParams::default(), &made).await.unwrap();
    let made = Key::of(&made);
    sleep(Duration::from_secs(1)).await;
    for cache in &of_both {
        assert!(cache.get(&made).is_some(), "both see what one watch tells");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "one watch serves both");
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_without_the_token_controller() {
    let (server, diary) = (server().await, Diary::default());
    let mut program = program(&server, "a", &diary);
    program.settings.broken = true;
    let error = program.run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, FrameError::Start { name: "token-controller", .. }), "{error}");
    assert_eq!(diary.take(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_gate_and_a_flag_switch_controllers_on() {
    let (server, diary) = (server().await, Diary::default());
    let mut program = program(&server, "a", &diary);
    program.gates = Gates::parse(["New=true"], &[Gate { name: "New", on: false }]).unwrap();
    program.selection = Selection::parse(["*", "off-controller", "-one"], TABLE, &[]).unwrap();
    let (_stop, _running) = start(program);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(diary.take(), ["a starts token", "a starts new", "a starts off", "a starts two"]);
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_lets_controllers_finish_and_hands_over_at_once() {
    let (server, diary) = (server().await, Diary::default());
    let (mut first, mut second) = (program(&server, "a", &diary), program(&server, "b", &diary));
    (first.leading, second.leading) = (leading("a", None), leading("b", None));
    let (stop, running) = start(first);
    sleep(Duration::from_secs(10)).await;
    let (_other_stop, _other) = start(second);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(diary.take(), ["a starts token", "a starts one", "a starts two"], "the second waits");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(diary.take(), ["a ends token", "a ends one", "a ends two"]);
    assert_eq!(holder(&server, "test-manager").await, "", "the lease was given back");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(holder(&server, "test-manager").await, "b");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_lease_ends_when_it_is_told_to() {
    let (server, diary) = (server().await, Diary::default());
    let (mut first, mut second) = (program(&server, "a", &diary), program(&server, "b", &diary));
    (first.leading, second.leading) = (leading("a", None), leading("b", None));
    let (_stop, _running) = start(first);
    sleep(Duration::from_secs(10)).await;
    let (stop, running) = start(second);
    sleep(Duration::from_secs(10)).await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

static ENDING: &[Descriptor<Settings>] =
    &[Descriptor::new("ending-controller", &[], |_, _| Ok(Started::new(sleep(Duration::from_secs(5)))))];

#[tokio::test(start_paused = true)]
async fn a_controller_that_ends_takes_the_program_with_it() {
    let (server, diary) = (server().await, Diary::default());
    let mut program = program(&server, "a", &diary);
    program.descriptors = ENDING;
    let error = program.run(std::future::pending()).await.unwrap_err();
    assert_eq!(error.to_string(), "ending-controller has ended");
}

fn migration(component: &str) -> Option<Migration> {
    serde_json::from_value(json!({
        "leaderName": "moving",
        "controllerLeaders": [{ "name": "two", "component": component }],
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_moves_runs_under_the_second_lease_and_only_after_the_first() {
    let (server, diary) = (server().await, Diary::default());
    let mut first = program(&server, "a", &diary);
    first.leading = leading("a", migration("test-manager"));
    // Another program, which still has the second lease.
    let mut other = program(&server, "old", &diary);
    other.leading = leading("old", None);
    other.leading.as_mut().unwrap().lease = "moving".to_owned();
    other.selection = Selection::parse(["two"], TABLE, &[]).unwrap();
    let (other_stop, other_running) = start(other);
    sleep(Duration::from_secs(10)).await;
    let (_stop, _running) = start(first);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(diary.take(), ["old starts two", "a starts token", "a starts one"], "two is still the other's");
    assert_eq!(
        (holder(&server, "test-manager").await.as_str(), holder(&server, "moving").await.as_str()),
        ("a", "old")
    );
    other_stop.send(()).unwrap();
    other_running.await.unwrap().unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(diary.take(), ["old ends two", "a starts two"]);
    assert_eq!(holder(&server, "moving").await, "a");
}

#[tokio::test(start_paused = true)]
async fn what_moved_away_does_not_run_at_all() {
    let (server, diary) = (server().await, Diary::default());
    let mut program = program(&server, "a", &diary);
    program.leading = leading("a", migration("another-manager"));
    let (_stop, _running) = start(program);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(diary.take(), ["a starts token", "a starts one"]);
}

/// Watches start after all controllers have said what they read, and one watch serves all.
#[tokio::test(start_paused = true)]
async fn one_watch_serves_all_controllers() {
    static READERS: &[Descriptor<Settings>] = &[
        Descriptor::new("reader-one", &[], |context, settings| Ok(read(context, settings, "one"))),
        Descriptor::new("reader-two", &[], |context, settings| Ok(read(context, settings, "two"))),
    ];
    fn read(context: &Context, settings: &Settings, name: &'static str) -> Started {
        let (maps, diary) = (context.caches.of::<ConfigMap>(&[]), settings.diary.clone());
        Started::new(async move {
            maps.synced().await;
            let mut changes = maps.subscribe();
            loop {
                let change = changes.next().await;
                diary.note(format!("{name} sees {}", change.key.name));
            }
        })
    }
    let (server, diary) = (server().await, Diary::default());
    let watches = Arc::new(Mutex::new(0));
    let mut program = program(&server, "a", &diary);
    program.descriptors = READERS;
    program.clients = Clients::given({
        let (server, watches) = (server.clone(), watches.clone());
        move |_, _| {
            let (service, watches) = (server.for_identity(Identity::admin()), watches.clone());
            let counted = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                    *watches.lock().unwrap() += 1;
                }
                let mut service = service.clone();
                async move { tower::Service::call(&mut service, request).await }
            });
            Client::new(counted, "default")
        }
    });
    let (_stop, _running) = start(program);
    sleep(Duration::from_secs(5)).await;
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m".to_owned());
    Api::<ConfigMap>::default_namespaced(client).create(&PostParams::default(), &map).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let mut seen = diary.take();
    seen.retain(|line| line.ends_with(" m"));
    seen.sort();
    assert_eq!(seen, ["one sees m", "two sees m"]);
    assert_eq!(*watches.lock().unwrap(), 1);
}
