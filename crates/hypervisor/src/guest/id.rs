//! Device ids: short, assigned once, and never a user's text.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What QEMU knows a device by.
///
/// # Guarantees
/// A letter first, then letters and digits, at most [`DeviceId::LONGEST`] bytes: with what block nodes append to it, it fits QEMU's
/// 31 bytes. A stored model that says otherwise is not read.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceId(String);

/// A text that is not an id.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a valid device id; use a letter followed by letters and digits, at most {most} bytes", most = DeviceId::LONGEST)]
pub struct NotAnId(String);

impl DeviceId {
    /// The longest beginning with the largest number; it leaves room for what block nodes append, `-base99-file` at the most.
    pub const LONGEST: usize = 18;

    /// The next id that begins like this.
    pub(crate) fn mint(prefix: &'static str, count: &mut u32) -> Self {
        let id = Self(format!("{prefix}{count}"));
        *count = count.saturating_add(1);
        id
    }

    /// As QEMU takes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for DeviceId {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<Self, NotAnId> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let begins_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
        if is_plain && begins_well && text.len() <= Self::LONGEST { Ok(Self(text)) } else { Err(NotAnId(text)) }
    }
}

impl From<DeviceId> for String {
    fn from(id: DeviceId) -> Self {
        id.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_id_cannot_be_syntax() {
        let read = |text: &str| DeviceId::try_from(text.to_owned());
        for good in ["disk0", "a", "port4294967295"] {
            assert_eq!(read(good).unwrap().as_str(), good);
        }
        for bad in ["", "0disk", "disk,id=x", "disk 0", "a-b", "dïsk", "abcdefghijklmnopqrs"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_id_is_minted_twice() {
        let mut count = 0;
        assert_ne!(DeviceId::mint("disk", &mut count), DeviceId::mint("disk", &mut count));
        // The last one is still an id.
        let last = DeviceId::mint("channels", &mut u32::MAX.clone());
        assert!(DeviceId::try_from(String::from(last)).is_ok());
    }
}
