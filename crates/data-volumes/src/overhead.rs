//! What of a claim its file system needs for itself, as the CDIConfig says; nothing if it does not say: with the machine's own
//! volumes, a claim is as large as its disk.

use api::cdi::CDIConfig;
use api::quantity::Amount;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What a share is counted in.
const WHOLE: u64 = 1_000_000;

/// A share of claims, below one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overhead(u64);

impl Overhead {
    /// The share for a class.
    pub(crate) fn of(config: Option<&CDIConfig>, class: Option<&str>) -> Self {
        Self(config.and_then(|config| parse(asked(config, class)?)).unwrap_or_default())
    }

    /// How large a claim must be for a disk of so many bytes.
    pub(crate) fn claim_for(self, disk: u64) -> u64 {
        let (disk, rest) = (u128::from(disk), u128::from(WHOLE - self.0));
        u64::try_from((disk * u128::from(WHOLE)).div_ceil(rest)).unwrap_or(u64::MAX)
    }

    /// How large a disk a claim of so many bytes has room for: whole sectors.
    pub(crate) fn disk_in(self, claim: u64) -> u64 {
        let usable = u128::from(claim) * u128::from(WHOLE - self.0) / u128::from(WHOLE);
        u64::try_from(usable).unwrap_or(u64::MAX) / 512 * 512
    }
}

/// The share for a class, or for all, that holds: `0` if what is asked for is no share.
pub(crate) fn told(config: &CDIConfig, class: Option<&str>) -> String {
    asked(config, class).filter(|text| parse(text).is_some()).unwrap_or("0").to_owned()
}

/// What an administrator asks for.
fn asked<'a>(config: &'a CDIConfig, class: Option<&str>) -> Option<&'a str> {
    let shares = config.spec.filesystem_overhead.as_ref()?;
    let own = class.and_then(|class| shares.storage_class.as_ref()?.get(class));
    own.or(shares.global.as_ref()).map(String::as_str)
}

/// A number such as 0.055, in millionths. As CDI has it: from 0 to below 1, with at most three digits; more are cut off.
fn parse(text: &str) -> Option<u64> {
    let digits = match text.trim().split_once('.') {
        Some(("0" | "", digits)) => digits,
        Some(_) => return None,
        None if text.trim() == "0" => "",
        None => return None,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let six: String = digits.chars().chain(std::iter::repeat('0')).take(6).collect();
    six.parse().ok()
}

/// How many bytes a quantity is, if it is a size.
pub(crate) fn bytes(quantity: &Quantity) -> Option<u64> {
    let amount: Amount = quantity.0.parse().ok()?;
    u64::try_from(amount.units()).ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_share_is_that_of_the_class_or_that_of_all() {
        let overhead = json!({ "global": "0.055", "storageClass": { "local": "0" } });
        let config = CDIConfig {
            spec: serde_json::from_value(json!({ "filesystemOverhead": overhead })).unwrap(),
            ..CDIConfig::default()
        };
        assert_eq!(Overhead::of(Some(&config), Some("other")), Overhead(55_000));
        assert_eq!(Overhead::of(Some(&config), Some("local")), Overhead(0));
        assert_eq!(Overhead::of(None, Some("local")), Overhead(0));
        for bad in ["1", "1.0", "-0.1", "x", "0.x", ""] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_claim_has_room_for_the_disk_that_it_was_made_for(disk in 1_u64..1 << 40, share in 0..WHOLE / 10 * 9) {
            let (overhead, disk) = (Overhead(share), disk * 512);
            prop_assert!(overhead.disk_in(overhead.claim_for(disk)) >= disk);
            prop_assert!(overhead.disk_in(disk) <= disk);
        }
    }
}
