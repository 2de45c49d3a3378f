//! The API of guests, with guests that are recorded.

mod roles;
mod stopping;

use std::sync::Mutex;

use apiserver::{ApiServer, Place};
use manager::context::Chance;
use serde_json::{Value, json};
use virt_api::subresources::{Answering, Connection, GuestError, GuestName, Question, Reply, Way};

use crate::{OPERATORS, Settings};

use super::*;

/// A node that writes down what it is asked.
#[derive(Default)]
struct Recorded {
    asked: Mutex<Vec<(String, Question)>>,
    opened: Mutex<Vec<Way>>,
}

impl Guests for Recorded {
    fn ask(&self, guest: GuestName, question: Question) -> Answering<Reply> {
        self.asked.lock().unwrap().push((guest.name, question));
        let reply = match question {
            Question::Info => Ok(Reply::Object(json!({ "hostname": "anna" }))),
            Question::Screenshot | Question::MovedScreenshot => Ok(Reply::Picture("PNG".into())),
            Question::Unfreeze | Question::Users => Err(GuestError::Failed("the agent is silent".to_owned())),
            _ => Ok(Reply::Done),
        };
        Box::pin(async move { reply })
    }

    fn open(&self, _: GuestName, way: Way) -> Answering<Connection> {
        self.opened.lock().unwrap().push(way);
        Box::pin(async move { Err(GuestError::Failed("dialing VM: port 80: refused".to_owned())) })
    }
}

/// The spec of an instance.
fn guest() -> Value {
    let devices = json!({ "interfaces": [{ "name": "default", "masquerade": {} }] });
    json!({
        "domain": { "devices": devices, "memory": { "guest": "64Mi" } },
        "networks": [{ "name": "default", "pod": {} }],
    })
}

struct Bench {
    server: ApiServer,
    guests: Arc<Recorded>,
    admin: Client,
}

const VMS: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/subresources.kubevirt.io/v1alpha3/namespaces/default/virtualmachineinstances";

impl Bench {
    async fn new() -> Self {
        let guests = Arc::new(Recorded::default());
        let mut settings = Settings::new(Chance::seeded(1)).unwrap();
        settings.guests = Some(guests.clone());
        let server = crate::start(ApiServer::builder(Place::Memory).seed(1), settings).await.unwrap();
        let admin = Client::new(server.for_identity(Identity::admin()), "default");
        Self { server, guests, admin }
    }

    async fn send(&self, who: Identity, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let client = Client::new(self.server.for_identity(who), "default");
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = client.send(request.body(kube::client::Body::from(body)).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = || String::from_utf8_lossy(&bytes).into_owned().into();
        (parts.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
    }

    async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Identity::admin(), "PUT", path, body).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Identity::admin(), "GET", path, &Value::Null).await
    }

    /// Creates an object of ours.
    async fn create(&self, plural: &str, object: &Value) {
        let path = format!("/apis/kubevirt.io/v1/namespaces/default/{plural}");
        let (code, answer) = self.send(Identity::admin(), "POST", &path, object).await;
        assert_eq!(code, 201, "{answer}");
    }

    async fn vm(&self, name: &str, strategy: &str) {
        let spec = json!({ "runStrategy": strategy, "template": { "spec": guest() } });
        let metadata = json!({ "name": name });
        let vm =
            json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec });
        self.create("virtualmachines", &vm).await;
    }

    /// An instance in some phase, with these conditions.
    async fn instance(&self, name: &str, phase: &str, conditions: &[&str]) {
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": name },
            "spec": guest(),
        });
        self.create("virtualmachineinstances", &vmi).await;
        let conditions: Vec<Value> = conditions.iter().map(|one| json!({ "type": one, "status": "True" })).collect();
        let interfaces = json!([{ "name": "default", "ipAddress": "10.0.0.1" }]);
        let status = json!({ "phase": phase, "nodeName": "here", "conditions": conditions, "interfaces": interfaces });
        let handler = Client::new(self.server.for_identity(crate::Component::VirtHandler.identity()), "default");
        let api: kube::Api<api::vmi::VirtualMachineInstance> = kube::Api::default_namespaced(handler);
        let patch = kube::api::Patch::Merge(json!({ "status": status }));
        api.patch(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    }

    async fn strategy(&self, name: &str) -> Value {
        let api: kube::Api<api::vm::VirtualMachine> = kube::Api::default_namespaced(self.admin.clone());
        json!(api.get(name).await.unwrap().spec.run_strategy)
    }
}

#[tokio::test]
async fn a_vm_is_started_and_what_is_wrong_is_told_in_kubevirts_words() {
    let bench = Bench::new().await;
    bench.vm("v", "Halted").await;
    // Nothing is stored of what only asks.
    let dry = json!({ "dryRun": ["All"] });
    assert_eq!(bench.put(&format!("{VMS}/v/start"), &dry).await.0, 202);
    assert_eq!(bench.strategy("v").await, "Halted");
    assert_eq!(bench.put(&format!("{VMS}/v/start"), &Value::Null).await.0, 202);
    assert_eq!(bench.strategy("v").await, "Always");
    let (code, status) = bench.put(&format!("{VMS}/v/start"), &json!({})).await;
    let message = "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"v\": Always does not support manual start requests";
    let details = json!({ "name": "v", "group": "kubevirt.io", "kind": "virtualmachine" });
    assert_eq!(
        (code, status),
        (
            409,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409,
                "reason": "Conflict", "message": message, "details": details,
            })
        )
    );
    assert_eq!(bench.put(&format!("{VMS}/v/stop"), &json!({})).await.0, 202);
    assert_eq!(bench.strategy("v").await, "Halted");
    let (code, status) = bench.put(&format!("{VMS}/v/restart"), &json!({})).await;
    assert_eq!(code, 409);
    assert!(
        status["message"].as_str().unwrap().ends_with("RunStategy Halted does not support manual restart requests")
    );
    for (path, body, code, message) in [
        ("missing/start", json!({}), 404, "virtualmachine.kubevirt.io \"missing\" not found"),
        ("v/start", json!("x"), 400, "Can not unmarshal Request body to struct, error: "),
        ("v/start", json!({ "dryRun": ["Some"] }), 400, "dryRun: Unsupported value: \"Some\""),
        (
            "v/restart",
            json!({ "gracePeriodSeconds": 3 }),
            400,
            "For force restart, only gracePeriod=0 is supported for now",
        ),
        ("v/migrate", json!({}), 404, "virtualmachineinstance.kubevirt.io \"v\" not found"),
        ("v/addvolume", json!({}), 501, "adding and removing volumes of a running VM is not supported yet; "),
    ] {
        let (answered, status) = bench.put(&format!("{VMS}/{path}"), &body).await;
        assert_eq!(answered, code, "{path}: {status}");
        assert!(status["message"].as_str().unwrap().starts_with(message), "{path}: {status}");
    }
}

#[tokio::test]
async fn a_guest_is_asked_when_it_is_in_a_state_for_that() {
    let bench = Bench::new().await;
    bench.instance("on", "Running", &[]).await;
    bench.instance("agent", "Running", &["AgentConnected"]).await;
    bench.instance("held", "Running", &["Paused"]).await;
    bench.instance("off", "Scheduling", &[]).await;
    for path in ["on/pause", "held/unpause", "on/reset", "on/softreboot", "agent/freeze"] {
        let (code, answer) = bench.put(&format!("{VMIS}/{path}"), &Value::Null).await;
        assert_eq!((code, answer), (200, json!("")), "{path}");
    }
    let expected = [
        ("on", Question::Pause),
        ("held", Question::Unpause),
        ("on", Question::Reset),
        ("on", Question::SoftReboot),
        ("agent", Question::Freeze { thaw_after: None }),
    ];
    let expected = expected.map(|(name, question)| (name.to_owned(), question));
    assert_eq!(std::mem::take(&mut *bench.guests.asked.lock().unwrap()), expected);
    bench.put(&format!("{VMIS}/agent/freeze"), &json!({ "unfreezeTimeout": "1m30s" })).await;
    let asked = bench.guests.asked.lock().unwrap().pop().unwrap().1;
    assert_eq!(asked, Question::Freeze { thaw_after: Some(std::time::Duration::from_secs(90)) });
    assert_eq!(bench.get(&format!("{VMIS}/agent/guestosinfo")).await, (200, json!({ "hostname": "anna" })));
    for (query, question) in [
        ("", Question::Screenshot),
        ("?moveCursor=false", Question::Screenshot),
        ("?moveCursor=true", Question::MovedScreenshot),
    ] {
        bench.guests.asked.lock().unwrap().clear();
        assert_eq!(bench.get(&format!("{VMIS}/on/vnc/screenshot{query}")).await, (200, json!("PNG")));
        assert_eq!(*bench.guests.asked.lock().unwrap(), [("on".to_owned(), question)]);
    }
    bench.guests.asked.lock().unwrap().clear();
    let conflict = |name: &str, why: &str| {
        format!("Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"{name}\": {why}")
    };
    for (method, path, code, message) in [
        ("PUT", "off/pause", 409, conflict("off", "VM is not running")),
        ("PUT", "held/pause", 409, conflict("held", "VMI is already paused")),
        ("PUT", "on/unpause", 409, conflict("on", "VMI is not paused")),
        ("PUT", "off/unpause", 409, conflict("off", "VMI is not running")),
        ("PUT", "held/softreboot", 409, conflict("held", "VMI is paused")),
        ("PUT", "off/freeze", 409, conflict("off", "VM is not running")),
        (
            "PUT",
            "off/reset",
            400,
            "Failed to reset non-running VMI with phase Scheduling: Unable to connect to VirtualMachineInstance because phase is Scheduling instead of Running or Scheduled".to_owned(),
        ),
        ("GET", "off/console", 400, "VMI is not running".to_owned()),
        ("GET", "held/portforward/22", 409, conflict("held", "VMI is paused")),
        ("GET", "on/portforward/0", 400, "\"0\" is not a port".to_owned()),
        ("GET", "on/portforward/22/sctp", 400, "\"sctp\" is not a protocol; use tcp or udp".to_owned()),
        ("GET", "on/console", 400, "this is a stream: open it as a WebSocket".to_owned()),
        ("GET", "on/usbredir", 501, "USB redirection is not supported yet; attach the device in the VM's spec".to_owned()),
    ] {
        let (answered, status) = bench.send(Identity::admin(), method, &format!("{VMIS}/{path}"), &Value::Null).await;
        assert_eq!((answered, status["message"].as_str()), (code, Some(message.as_str())), "{path}: {status}");
    }
    // What only reads is refused as KubeVirt does: one code, and words that are no Status.
    for (path, words) in [
        ("on/guestosinfo", conflict("on", "VMI does not have guest agent connected")),
        ("off/userlist", conflict("off", "VMI is not running")),
        ("gone/filesystemlist", "virtualmachineinstance.kubevirt.io \"gone\" not found".to_owned()),
        ("off/vnc/screenshot", "VMI is not running".to_owned()),
    ] {
        assert_eq!(bench.get(&format!("{VMIS}/{path}")).await, (500, json!(words)), "{path}");
    }
    assert!(bench.guests.asked.lock().unwrap().is_empty(), "a guest was asked all the same");
}

#[tokio::test]
async fn an_agent_that_is_missing_or_silent_is_told_in_words_that_clients_compare() {
    let bench = Bench::new().await;
    bench.instance("on", "Running", &[]).await;
    bench.instance("agent", "Running", &["AgentConnected"]).await;
    let words = "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"on\": VMI does not have guest agent connected";
    for question in ["guestosinfo", "userlist", "filesystemlist"] {
        assert_eq!(bench.get(&format!("{VMIS}/on/{question}")).await, (500, json!(words)), "{question}");
    }
    let silent = bench.get(&format!("{VMIS}/agent/userlist")).await;
    assert_eq!(silent, (500, json!("the agent is silent")));
    bench.guests.asked.lock().unwrap().clear();
    let (code, status) = bench.put(&format!("{VMIS}/on/unfreeze"), &Value::Null).await;
    assert_eq!((code, status["message"].as_str()), (500, Some("Internal error occurred: the agent is silent")));
    let dry = bench.put(&format!("{VMIS}/on/pause"), &json!({ "dryRun": ["All"] })).await;
    assert_eq!((dry.0, bench.guests.asked.lock().unwrap().len()), (200, 1));
}

#[tokio::test]
async fn both_stages_ask_whether_somebody_may() {
    let bench = Bench::new().await;
    bench.vm("v", "Halted").await;
    bench.instance("i", "Running", &[]).await;
    let edit = json!({
        "metadata": { "name": "edit" }, "subjects": [{ "kind": "User", "name": "editor" }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubevirt.io:edit" },
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(bench.send(Identity::admin(), "POST", path, &edit).await.0, 201);
    let (nobody, editor) = (Identity::new("nobody", []), Identity::new("editor", []));
    let operator = Identity::new("operator", [OPERATORS.to_owned()]);
    // The first stage, by the first segment.
    let (code, status) = bench.send(nobody.clone(), "PUT", &format!("{VMS}/v/start"), &json!({})).await;
    let expected = "virtualmachines.subresources.kubevirt.io \"v\" is forbidden: User \"nobody\" cannot update resource \"virtualmachines/start\" in API group \"subresources.kubevirt.io\" in the namespace \"default\"";
    assert_eq!((code, status["message"].as_str()), (403, Some(expected)));
    // The second, by the whole path: whoever may see the screen may not have a picture of it.
    let (code, status) = bench.send(editor.clone(), "GET", &format!("{VMIS}/i/vnc/screenshot"), &Value::Null).await;
    let expected = "virtualmachineinstances.subresources.kubevirt.io \"i\" is forbidden: User \"editor\" cannot get resource \"virtualmachineinstances/vnc/screenshot\" in API group \"subresources.kubevirt.io\" in the namespace \"default\"";
    assert_eq!((code, status["message"].as_str()), (403, Some(expected)));
    assert_eq!(bench.send(editor, "PUT", &format!("{VMS}/v/start"), &json!({})).await.0, 202);
    assert_eq!(bench.send(operator, "GET", &format!("{VMIS}/i/vnc/screenshot"), &Value::Null).await.0, 200);
    let version = "/apis/subresources.kubevirt.io/v1/version";
    let (code, answer) = bench.send(nobody, "GET", version, &Value::Null).await;
    assert_eq!(code, 200);
    assert!(answer["gitVersion"].as_str().unwrap().starts_with("v1."));
}

#[tokio::test]
async fn a_vm_is_written_out_with_its_instancetype() {
    let bench = Bench::new().await;
    let size = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype",
        "metadata": { "name": "small" }, "spec": { "cpu": { "guest": 2 }, "memory": { "guest": "128Mi" } },
    });
    let path = "/apis/instancetype.kubevirt.io/v1beta1/namespaces/default/virtualmachineinstancetypes";
    let (code, answer) = bench.send(Identity::admin(), "POST", path, &size).await;
    assert_eq!(code, 201, "{answer}");
    let mut template = guest();
    template["domain"].as_object_mut().unwrap().remove("memory");
    let spec = json!({
        "runStrategy": "Halted", "instancetype": { "name": "small", "kind": "VirtualMachineInstancetype" },
        "template": { "spec": template },
    });
    let vm =
        json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "v" }, "spec": spec });
    bench.create("virtualmachines", &vm).await;
    let (code, expanded) = bench.get(&format!("{VMS}/v/expand-spec")).await;
    let domain = &expanded["spec"]["template"]["spec"]["domain"];
    assert_eq!((code, &domain["memory"]["guest"]), (200, &json!("128Mi")), "{expanded}");
    assert_eq!((&expanded["kind"], &expanded["spec"]["instancetype"]), (&json!("VirtualMachine"), &Value::Null));
    let given = "/apis/subresources.kubevirt.io/v1/namespaces/default/expand-vm-spec";
    let (code, again) = bench.put(given, &vm).await;
    assert_eq!(
        (code, &again["spec"]["template"]["spec"]["domain"]["memory"]["guest"]),
        (200, &json!("128Mi")),
        "{again}"
    );
    for (change, message) in [
        (json!({ "metadata": { "namespace": "other", "name": "v" } }), "VM namespace must be empty or default"),
        (json!({ "spec": { "template": 7 } }), "Object is not a valid VirtualMachine"),
    ] {
        let mut wrong = vm.clone();
        for (key, value) in change.as_object().unwrap() {
            wrong[key] = value.clone();
        }
        let (code, status) = bench.put(given, &wrong).await;
        assert_eq!((code, status["message"].as_str()), (400, Some(message)), "{status}");
    }
    let (code, status) = bench.put(given, &Value::Null).await;
    assert_eq!((code, status["message"].as_str()), (400, Some("empty request body")));
}

#[tokio::test]
async fn a_way_that_is_closed_is_told_before_anything_is_upgraded() {
    let bench = Bench::new().await;
    bench.instance("i", "Running", &[]).await;
    let request = Request::get(format!("{VMIS}/i/portforward/80"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let answer = bench.admin.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 500);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["message"], "Internal error occurred: dialing VM: port 80: refused");
    assert_eq!(*bench.guests.opened.lock().unwrap(), [Way::Port { port: 80 }]);
}

#[tokio::test]
async fn an_evacuation_is_cancelled_whoever_names_the_node_or_does_not() {
    let bench = Bench::new().await;
    bench.instance("i", "Running", &[]).await;
    let handler = Client::new(bench.server.for_identity(crate::Component::VirtController.identity()), "default");
    let api: kube::Api<api::vmi::VirtualMachineInstance> = kube::Api::default_namespaced(handler);
    let mark = async || {
        let patch = kube::api::Patch::Merge(json!({ "status": { "evacuationNodeName": "here" } }));
        api.patch("i", &kube::api::PatchParams::default(), &patch).await.unwrap();
    };
    let marked = async || api.get("i").await.unwrap().status.unwrap().evacuation_node_name;
    let path = format!("{VMIS}/i/evacuate/cancel");
    // Nothing to cancel is no error.
    assert_eq!(bench.put(&path, &json!({})).await.0, 200);
    mark().await;
    let (code, status) = bench.put(&path, &json!({ "evacuationNodeName": "there" })).await;
    let message = "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"i\": it is evacuated from \"here\", not from \"there\"";
    assert_eq!((code, status["message"].as_str()), (409, Some(message)), "{status}");
    assert_eq!(bench.put(&path, &Value::Null).await.0, 400);
    assert_eq!(bench.put(&path, &json!({ "evacuationNodeName": "here", "dryRun": ["All"] })).await.0, 200);
    assert_eq!(marked().await.as_deref(), Some("here"));
    // The last is what virtctl sends.
    for body in [json!({ "evacuationNodeName": "here" }), json!({}), json!({ "evacuationNodeName": "" })] {
        mark().await;
        assert_eq!(bench.put(&path, &body).await, (200, json!("")), "{body}");
        assert_eq!(marked().await, None, "{body}");
    }
}
