//! Every route of the group, in one table: what is not in it is not there, and discovery, OpenAPI and rights are told from it.

use std::borrow::Cow;

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

use super::answer::Problem;
use super::guests::Question;
use super::says::{GROUP, VERSIONS};

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Version,
    Health,
    ExpandGiven,
    Expand,
    Start,
    Stop,
    Restart,
    Migrate,
    CancelEvacuation,
    Pause,
    Unpause,
    Freeze,
    Unfreeze,
    Reset,
    SoftReboot,
    /// Asks the guest's agent.
    Guest(Question),
    Screenshot,
    Console,
    Vnc,
    PortForward,
    /// What is not built yet, and what to do instead.
    Later {
        feature: &'static str,
        instead: &'static str,
    },
}

/// What a route is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The version itself. Everybody may ask.
    Version,
    Namespace,
    Vm,
    Instance,
}

/// One route.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) scope: Scope,
    pub(super) method: Method,
    /// What follows; what is in braces stands for any segment.
    pub(super) path: &'static str,
    pub(super) action: Action,
}

const fn get(scope: Scope, path: &'static str, action: Action) -> Route {
    Route { scope, method: Method::GET, path, action }
}

const fn put(scope: Scope, path: &'static str, action: Action) -> Route {
    Route { scope, method: Method::PUT, path, action }
}

const fn later(feature: &'static str, instead: &'static str) -> Action {
    Action::Later { feature, instead }
}

const PROFILER: Action = later("the cluster profiler", "look at the metrics page");
const GUESTFS: Action = later("virtctl guestfs", "mount the claim in a pod of your own while the VM is stopped");
const HOTPLUG: Action =
    later("adding and removing volumes of a running VM", "change the VM's template and restart the VM");
const DUMP: Action = later("dumping a guest's memory", "take the dump inside the guest");
const BACKUP: Action = later("incremental backup", "back up the disks with the storage's own means");
const SEV: Action = later("AMD SEV", "run the VM without launchSecurity");
const USB: Action = later("USB redirection", "attach the device in the VM's spec");
const VSOCK: Action = later("vsock", "use port-forward");
const GRAPH: Action = later("the object graph", "follow the references in the VM's spec");

/// All of them.
pub(super) static ROUTES: [Route; 46] = [
    get(Scope::Version, "version", Action::Version),
    get(Scope::Version, "healthz", Action::Health),
    get(Scope::Version, "guestfs", GUESTFS),
    get(Scope::Version, "start-cluster-profiler", PROFILER),
    get(Scope::Version, "stop-cluster-profiler", PROFILER),
    get(Scope::Version, "dump-cluster-profiler", PROFILER),
    put(Scope::Namespace, "expand-vm-spec", Action::ExpandGiven),
    put(Scope::Vm, "start", Action::Start),
    put(Scope::Vm, "stop", Action::Stop),
    put(Scope::Vm, "restart", Action::Restart),
    put(Scope::Vm, "migrate", Action::Migrate),
    put(Scope::Vm, "addvolume", HOTPLUG),
    put(Scope::Vm, "removevolume", HOTPLUG),
    put(Scope::Vm, "memorydump", DUMP),
    put(Scope::Vm, "removememorydump", DUMP),
    put(Scope::Vm, "evacuate/cancel", Action::CancelEvacuation),
    get(Scope::Vm, "expand-spec", Action::Expand),
    get(Scope::Vm, "objectgraph", GRAPH),
    get(Scope::Vm, "portforward/{port}", Action::PortForward),
    get(Scope::Vm, "portforward/{port}/{protocol}", Action::PortForward),
    put(Scope::Instance, "pause", Action::Pause),
    put(Scope::Instance, "unpause", Action::Unpause),
    put(Scope::Instance, "freeze", Action::Freeze),
    put(Scope::Instance, "unfreeze", Action::Unfreeze),
    put(Scope::Instance, "reset", Action::Reset),
    put(Scope::Instance, "softreboot", Action::SoftReboot),
    put(Scope::Instance, "addvolume", HOTPLUG),
    put(Scope::Instance, "removevolume", HOTPLUG),
    put(Scope::Instance, "backup", BACKUP),
    put(Scope::Instance, "redefine-checkpoint", BACKUP),
    put(Scope::Instance, "evacuate/cancel", Action::CancelEvacuation),
    put(Scope::Instance, "sev/setupsession", SEV),
    put(Scope::Instance, "sev/injectlaunchsecret", SEV),
    get(Scope::Instance, "console", Action::Console),
    get(Scope::Instance, "vnc", Action::Vnc),
    get(Scope::Instance, "vnc/screenshot", Action::Screenshot),
    get(Scope::Instance, "usbredir", USB),
    get(Scope::Instance, "vsock", VSOCK),
    get(Scope::Instance, "portforward/{port}", Action::PortForward),
    get(Scope::Instance, "portforward/{port}/{protocol}", Action::PortForward),
    get(Scope::Instance, "guestosinfo", Action::Guest(Question::Info)),
    get(Scope::Instance, "userlist", Action::Guest(Question::Users)),
    get(Scope::Instance, "filesystemlist", Action::Guest(Question::Filesystems)),
    get(Scope::Instance, "objectgraph", GRAPH),
    get(Scope::Instance, "sev/fetchcertchain", SEV),
    get(Scope::Instance, "sev/querylaunchmeasurement", SEV),
];

/// A path that was recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) scope: Scope,
    pub(super) action: Action,
    pub(super) method: Method,
    pub(super) version: String,
    pub(super) namespace: String,
    /// Of the VM or the instance.
    pub(super) name: String,
    /// What follows the name, without what varies.
    pub(super) subresource: String,
    /// What stands where the table has braces.
    pub(super) values: Vec<String>,
}

/// Finds the route of a request.
pub(super) fn find(method: &Method, path: &str) -> Result<Matched, Problem> {
    let missing = || {
        let message = "the server could not find the requested resource";
        Problem::new(StatusCode::NOT_FOUND, "NotFound", message)
    };
    let parts: Option<Vec<Cow<'_, str>>> = path.trim_matches('/').split('/').map(decoded).collect();
    let parts = parts.ok_or_else(missing)?;
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let ["apis", GROUP, version, rest @ ..] = parts.as_slice() else { return Err(missing()) };
    if !VERSIONS.contains(version) || rest.iter().any(|part| part.is_empty()) {
        return Err(missing());
    }
    let (scope, namespace, name, rest) = match rest {
        ["namespaces", namespace, "virtualmachines", name, rest @ ..] => (Scope::Vm, *namespace, *name, rest),
        ["namespaces", namespace, "virtualmachineinstances", name, rest @ ..] => {
            (Scope::Instance, *namespace, *name, rest)
        }
        ["namespaces", namespace, rest @ ..] => (Scope::Namespace, *namespace, "", rest),
        rest => (Scope::Version, "", "", rest),
    };
    let routes = ROUTES.iter().filter(|route| route.scope == scope);
    let mut found = routes.filter_map(|route| Some((route, route.values(rest)?))).peekable();
    let is_there = found.peek().is_some();
    let Some((route, values)) = found.find(|(route, _)| route.method == *method) else {
        let message = "the server does not allow this method on the requested resource";
        let wrong_method = || Problem::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        return Err(if is_there { wrong_method() } else { missing() });
    };
    Ok(Matched {
        scope,
        action: route.action,
        method: route.method.clone(),
        version: (*version).to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: route.subresource(),
        values,
    })
}

fn decoded(part: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(part).decode_utf8().ok()
}

impl Route {
    /// What stands where the path has braces, if these segments are such a path.
    fn values(&self, segments: &[&str]) -> Option<Vec<String>> {
        let own: Vec<&str> = self.path.split('/').collect();
        if own.len() != segments.len() {
            return None;
        }
        let mut values = Vec::new();
        for (own, segment) in own.into_iter().zip(segments) {
            if own.starts_with('{') {
                values.push((*segment).to_owned());
            } else if own != *segment {
                return None;
            }
        }
        Some(values)
    }

    /// As roles name it: without what varies.
    pub(super) fn subresource(&self) -> String {
        let fixed: Vec<&str> = self.path.split('/').filter(|part| !part.starts_with('{')).collect();
        fixed.join("/")
    }
}

#[cfg(test)]
mod tests;
