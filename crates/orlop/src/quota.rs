//! `--store-quota`: the maximum size of the API server's objects.

use api::quantity::Amount;

/// The quota of the store.
#[derive(Clone, Copy, clap::Args)]
#[group(id = "quota")]
pub(crate) struct Arguments {
    /// Maximum total size of all objects, as JSON. When it is reached, requests that would make the store larger fail with
    /// status 507; deletes still work.
    #[arg(long, value_name = "SIZE", default_value = "2Gi", value_parser = size, env = "ORLOP_STORE_QUOTA")]
    pub(crate) store_quota: u64,
}

fn size(text: &str) -> Result<u64, String> {
    let amount: Amount = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(amount.units())
        .ok()
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "the quota must be greater than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_quantity_that_something_fits_into() {
        assert_eq!(size("2Gi"), Ok(2 << 30));
        assert_eq!(size("1000000"), Ok(1_000_000));
        for wrong in ["", "2GiB", "-1", "0"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
