//! `--store-quota`: how large the API server's objects may become.

use api::quantity::Amount;

/// The quota of the store.
#[derive(Clone, Copy, clap::Args)]
#[group(id = "quota")]
pub(crate) struct Arguments {
    /// How many bytes all objects may have together, as JSON. At the quota what makes the store larger is refused with the
    /// status 507; deletes go on.
    #[arg(long, value_name = "SIZE", default_value = "2Gi", value_parser = size, env = "ORLOP_STORE_QUOTA")]
    pub(crate) store_quota: u64,
}

fn size(text: &str) -> Result<u64, String> {
    let amount: Amount = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(amount.units()).ok().filter(|bytes| *bytes > 0).ok_or_else(|| "nothing would fit into it".to_owned())
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
