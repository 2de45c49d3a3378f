//! What a guest's agent tells, as KubeVirt's API has it. A guest says what it likes: texts are bounded, and so is how many there
//! are.

use launcher_api::rpc::{Filesystem, Filesystems, GuestInfo, User, Users};
use serde_json::{Map, Value, json};

use crate::launchers::bounded;

/// The most users and file systems.
const MOST: usize = 1024;
/// The longest text, in characters.
const LONGEST: usize = 1024;

/// A `VirtualMachineInstanceGuestAgentInfo`.
pub(super) fn info(said: GuestInfo, users_said: Users, mounted: Filesystems) -> Value {
    let GuestInfo { agent_version, hostname, timezone, os, interfaces: _, freeze_status } = bounded(said);
    let os = os.unwrap_or_default();
    let os = object([
        ("name", os.name),
        ("kernelRelease", os.kernel_release),
        ("version", os.version),
        ("prettyName", os.pretty_name),
        ("versionId", os.version_id),
        ("kernelVersion", os.kernel_version),
        ("machine", os.machine),
        ("id", os.id),
    ]);
    let mut told = object([
        ("guestAgentVersion", agent_version),
        ("hostname", hostname),
        ("timezone", timezone),
        ("fsFreezeStatus", freeze_status),
    ]);
    told.insert("os".to_owned(), os.into());
    let users = users(users_said);
    if !users.is_empty() {
        told.insert("userList".to_owned(), users.into());
    }
    told.insert("fsInfo".to_owned(), json!({ "disks": filesystems(mounted) }));
    told.into()
}

/// The items of a `VirtualMachineInstanceGuestOSUserList`.
pub(super) fn users(said: Users) -> Vec<Value> {
    let one = |User { name, domain, login_time }: User| {
        let mut user = object([("domain", domain)]);
        user.insert("userName".to_owned(), text(&name).into());
        if login_time != 0.0 {
            user.insert("loginTime".to_owned(), json!(login_time));
        }
        user.into()
    };
    said.users.into_iter().take(MOST).map(one).collect()
}

/// The items of a `VirtualMachineInstanceFileSystemList`.
pub(super) fn filesystems(said: Filesystems) -> Vec<Value> {
    let one = |Filesystem { device, mount_point, r#type, used_bytes, total_bytes }: Filesystem| {
        json!({
            "diskName": text(&device), "mountPoint": text(&mount_point), "fileSystemType": text(&r#type),
            "usedBytes": used_bytes, "totalBytes": total_bytes,
        })
    };
    said.filesystems.into_iter().take(MOST).map(one).collect()
}

/// A list of them.
pub(super) fn list(items: &[Value]) -> Value {
    json!({ "metadata": {}, "items": items })
}

/// What says something.
fn object<const N: usize>(fields: [(&str, String); N]) -> Map<String, Value> {
    let said = fields.into_iter().filter(|(_, value)| !value.is_empty());
    said.map(|(key, value)| (key.to_owned(), text(&value).into())).collect()
}

fn text(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(LONGEST).collect()
}
