//! What is wrong with a disk for which a guest was stopped, as people read it.

use hypervisor::guest::Guest;
use hypervisor::render;
use serde_json::Value;

/// The words for an event of QEMU.
pub(super) fn words(event: &Value, guest: &Guest) -> String {
    let text = |key: &str| event[key].as_str().filter(|text| !text.is_empty());
    let name = text("node-name").and_then(render::name_of_node).and_then(|id| {
        let mut devices = guest.devices.iter();
        devices.find(|(known, _)| known.as_str() == id).and_then(|(_, device)| device.of.clone())
    });
    say(name.as_deref(), event["nospace"] == true, text("reason"))
}

fn say(disk: Option<&str>, is_full: bool, reason: Option<&str>) -> String {
    let disk = disk.map_or_else(|| "a disk".to_owned(), |name| format!("disk {name}"));
    match (is_full, reason) {
        (true, _) => format!(
            "{disk}: the file system that holds its volume is full; the guest goes on by itself when there is room"
        ),
        (false, Some(reason)) => format!("{disk}: {reason}"),
        (false, None) => format!("{disk} failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        assert!(say(Some("data"), true, Some("No space left on device")).starts_with("disk data: the file system"));
        assert_eq!(say(Some("data"), false, Some("Input/output error")), "disk data: Input/output error");
        assert_eq!(say(None, false, None), "a disk failed");
    }
}
