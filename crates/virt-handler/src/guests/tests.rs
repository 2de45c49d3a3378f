use launcher_api::rpc::{Filesystem, Filesystems, GuestInfo, OperatingSystem, User, Users};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn guest(node: &str) -> GuestName {
    GuestName { namespace: "n".into(), name: "v".into(), uid: "u".into(), node: node.into() }
}

#[tokio::test]
async fn guests_of_other_nodes_and_unknown_ones_are_told_as_such() {
    let guests = NodeGuests::default();
    let early = guests.ask(guest("here"), Question::Pause).await.unwrap_err();
    assert_eq!(early.to_string(), "virt-handler has not started yet");
    guests.are_below("here", "/nowhere".into());
    let elsewhere = guests.ask(guest("there"), Question::Pause).await.unwrap_err();
    assert_eq!(elsewhere.to_string(), "VMI n/v is on node \"there\", which cannot be reached");
    let unknown = guests.open(guest("here"), Way::Console { replay: false }).await.map(drop).unwrap_err();
    assert_eq!(unknown.to_string(), "the launcher of VMI n/v cannot be reached");
}

#[test]
fn what_an_agent_tells_has_kubevirts_form() {
    let os = OperatingSystem { name: "Debian GNU/Linux".into(), id: "debian".into(), ..Default::default() };
    let said = GuestInfo {
        agent_version: "7.2.0".into(),
        hostname: "anna\n".into(),
        os: Some(os),
        freeze_status: "thawed".into(),
        ..Default::default()
    };
    let users = Users { users: vec![User { name: "root".into(), domain: String::new(), login_time: 1.5 }] };
    let large = 1 << 40;
    let one = Filesystem {
        device: "vda1".into(),
        mount_point: "/".into(),
        r#type: "ext4".into(),
        used_bytes: 7,
        total_bytes: large,
    };
    let mounted = Filesystems { filesystems: vec![one] };
    let disk = json!({
        "diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4", "usedBytes": 7, "totalBytes": large,
    });
    let user = json!({ "userName": "root", "loginTime": 1.5 });
    assert_eq!(
        told::info(said, users.clone(), mounted.clone()),
        json!({
            "guestAgentVersion": "7.2.0", "hostname": "anna", "fsFreezeStatus": "thawed",
            "os": { "name": "Debian GNU/Linux", "id": "debian" },
            "userList": [user], "fsInfo": { "disks": [disk] },
        })
    );
    assert_eq!(told::list(&told::users(users)), json!({ "metadata": {}, "items": [user] }));
    assert_eq!(told::list(&told::filesystems(mounted)), json!({ "metadata": {}, "items": [disk] }));
}

#[test]
fn a_guest_that_tells_too_much_is_cut_short() {
    let users = Users { users: vec![User { name: "x\n".repeat(5000), ..Default::default() }; 5000] };
    let told = told::users(users);
    assert_eq!((told.len(), told[0]["userName"].as_str().unwrap().len()), (1024, 1024));
}

#[tokio::test]
async fn a_second_screen_takes_over_unless_it_asks_not_to() {
    let screens = Screens::default();
    let (mut there, here) = tokio::io::duplex(64);
    let mut first = screens.open("u", false, async { Ok(here) }).await.unwrap();
    there.write_all(b"RFB").await.unwrap();
    let mut hello = [0; 3];
    first.read_exact(&mut hello).await.unwrap();
    let look = async |uid: &str, preserve| screens.open(uid, preserve, async { Ok(tokio::io::empty()) }).await;
    let denied = look("u", true).await.map(drop).unwrap_err();
    assert_eq!(denied, GuestError::Refused("Active VNC connection. Request denied.".to_owned()));
    let other = look("other", true).await.unwrap();
    let second = look("u", false).await.unwrap();
    let cut = first.read_u8().await.unwrap_err();
    assert_eq!(cut.to_string(), "another VNC connection took over");
    // Nobody is in the way of whoever comes after the last has gone.
    drop((first, second, other));
    assert!(look("u", true).await.is_ok());
}

#[tokio::test]
async fn who_looks_at_a_screen_keeps_it_when_it_cannot_be_opened_for_the_next() {
    let screens = Screens::default();
    let (mut there, here) = tokio::io::duplex(64);
    let mut first = screens.open("u", false, async { Ok(here) }).await.unwrap();
    let gone = || GuestError::Failed("the guest's screen cannot be opened".to_owned());
    let refused = screens.open("u", false, async { Err::<tokio::io::Empty, _>(gone()) }).await;
    assert_eq!(refused.map(drop).unwrap_err(), gone());
    there.write_all(b"x").await.unwrap();
    assert_eq!(first.read_u8().await.unwrap(), b'x');
}
