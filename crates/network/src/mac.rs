//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

/// Text that is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid Ethernet address; use six bytes in hexadecimal")]
pub struct MacError(String);

impl Mac {
    /// From its six bytes.
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Always the same for an interface of an owner: unicast, locally administered, and else as good as random.
    pub fn stable(owner_uid: &str, interface: &str) -> Self {
        let hash = Sha256::digest(format!("{owner_uid}\n{interface}"));
        let mut bytes = [0; 6];
        bytes.iter_mut().zip(hash).for_each(|(byte, hashed)| *byte = hashed);
        bytes[0] = bytes[0] & !1 | 2;
        Self(bytes)
    }

    /// Its six bytes.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl FromStr for Mac {
    type Err = MacError;

    /// Six bytes of two digits, all separated by colons or all by dashes.
    fn from_str(text: &str) -> Result<Self, MacError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let byte = |part: &str| match part.len() {
            2 if part.bytes().all(|digit| digit.is_ascii_hexdigit()) => u8::from_str_radix(part, 16).ok(),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.split(separator).map(byte).collect();
        let bytes = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        bytes.map(Self).ok_or_else(|| MacError(text.to_owned()))
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: [u8; 6]) {
            let mac = Mac::new(bytes);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(mac.to_string().replace(':', "-").to_uppercase().parse(), Ok(mac));
            let json = serde_json::to_string(&mac).unwrap();
            prop_assert_eq!(serde_json::from_str::<Mac>(&json).unwrap(), mac);
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text in "[0-9a-fA-F:+-]{0,20}") {
            if let Ok(mac) = text.parse::<Mac>() {
                prop_assert_eq!(mac.to_string().replace(':', ""), text.replace([':', '-'], "").to_lowercase());
            }
        }

        #[test]
        fn a_stable_address_is_local_unicast_and_stays(owner in "\\PC{0,40}", interface in "\\PC{0,20}") {
            let mac = Mac::stable(&owner, &interface);
            prop_assert_eq!(mac.octets()[0] & 3, 2);
            prop_assert_eq!(mac, Mac::stable(&owner, &interface));
            prop_assert_ne!(mac, Mac::stable(&owner, &format!("{interface}2")));
        }
    }

    #[test]
    fn a_stable_address_does_not_change_between_releases() {
        assert_eq!(Mac::stable("uid", "default").to_string(), "ee:e6:0b:e8:ac:0e");
    }
}
