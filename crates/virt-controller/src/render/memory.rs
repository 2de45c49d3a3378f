//! Memory of the compute container: the guest's, and what running it costs.

use api::domain::Memory;
use api::quantity::{Amount, Quantity};

use super::{Input, RenderError};
use crate::render::overhead::whole_bytes;

/// On a namespace: automatic memory limits as a multiple of the request.
const LIMIT_RATIO_LABEL: &str = "alpha.kubevirt.io/auto-memory-limits-ratio";

/// Beyond this, sums and doublings would leave the range of quantities.
const MOST: u64 = 1 << 60;

/// What the guest's memory asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sizes {
    pub(super) request: Amount,
    pub(super) limit: Option<Amount>,
    /// The resource of the huge pages that hold the guest, and how much of it.
    pub(super) hugepages: Option<(String, Amount)>,
}

/// Requests and limits of memory.
pub(super) fn memory(input: &Input<'_>, overhead: Amount) -> Result<Sizes, RenderError> {
    let resources = input.vmi.spec.domain.resources.as_ref();
    let request = read(resources.and_then(|resources| resources.requests.as_ref()), "requests")?;
    let limit = read(resources.and_then(|resources| resources.limits.as_ref()), "limits")?;
    let memory = input.vmi.spec.domain.memory.as_ref();
    let guest = guest(memory)?;
    let overcommitted = guest.map(|guest| overcommit(guest, input.config.memory_overcommit()));
    let Some(request) = request.or(overcommitted).or(limit) else {
        let problem = "is required; set the guest's memory, such as 1Gi";
        return Err(RenderError::invalid("spec.domain.memory.guest", problem));
    };
    if request + overhead > Amount::bytes(MOST) || limit.is_some_and(|limit| limit > Amount::bytes(MOST)) {
        return Err(RenderError::invalid("spec.domain.memory", "asks for more than 1Ei, which no node has"));
    }
    if let Some(size) = page_size(memory) {
        return Ok(on_hugepages(size, request, guest, limit, overhead));
    }
    let overcommit_overhead = resources.is_some_and(|resources| resources.overcommit_guest_overhead == Some(true));
    let request = if overcommit_overhead { request } else { request + overhead };
    let limit = match limit {
        Some(limit) if request > limit + overhead => {
            let problem = "is above spec.domain.resources.limits.memory; lower it or raise the limit";
            return Err(RenderError::invalid("spec.domain.memory.guest", problem));
        }
        Some(limit) => Some(limit + overhead),
        None => input.namespace.quota_on_memory_limits.then(|| automatic_limit(input, request)),
    };
    Ok(Sizes { request, limit, hugepages: None })
}

/// The page size of a guest on huge pages.
pub(super) fn page_size(memory: Option<&Memory>) -> Option<&str> {
    let size = memory?.hugepages.as_ref()?.page_size.as_deref();
    size.filter(|size| !size.is_empty())
}

/// The guest is in huge pages; what is left in usual memory is the overhead, and what was asked for beyond the guest.
fn on_hugepages(size: &str, request: Amount, guest: Option<Amount>, limit: Option<Amount>, overhead: Amount) -> Sizes {
    let pages = guest.map_or(request, |guest| guest.min(request));
    let beyond = |amount: Amount, base: Amount| (amount - base).max(Amount::default());
    let usual = overhead + beyond(request, pages);
    let limit = limit.map(|limit| usual + beyond(limit, request));
    Sizes { request: usual, limit, hugepages: Some((format!("hugepages-{size}"), pages)) }
}

/// Where a quota wants limits, twice the request, or as often as the namespace says.
fn automatic_limit(input: &Input<'_>, request: Amount) -> Amount {
    let label = input.namespace.labels.get(LIMIT_RATIO_LABEL);
    let ratio = label.and_then(|text| text.parse::<virt_rules::config::Ratio>().ok());
    let doubled = || request + request;
    whole_bytes(ratio.map_or_else(doubled, |ratio| ratio.of(request)))
}

fn overcommit(guest: Amount, percent: u32) -> Amount {
    if percent == 100 {
        return guest;
    }
    guest.scaled(100, i64::from(percent)).map_or(guest, whole_bytes)
}

fn guest(memory: Option<&Memory>) -> Result<Option<Amount>, RenderError> {
    let Some(guest) = memory.and_then(|memory| memory.guest.as_ref()) else { return Ok(None) };
    positive(guest, || "spec.domain.memory.guest".to_owned()).map(Some)
}

fn read(
    list: Option<&std::collections::BTreeMap<String, Quantity>>,
    side: &str,
) -> Result<Option<Amount>, RenderError> {
    let Some(quantity) = list.and_then(|list| list.get("memory")) else { return Ok(None) };
    positive(quantity, || format!("spec.domain.resources.{side}.memory")).map(Some)
}

fn positive(quantity: &Quantity, path: impl Fn() -> String) -> Result<Amount, RenderError> {
    let amount = quantity.amount();
    if amount <= Amount::default() {
        return Err(RenderError::invalid(
            path(),
            format!("{quantity} is not a valid memory size; it must be greater than 0"),
        ));
    }
    // Fractions of bytes are legal in a quantity and nowhere else.
    Ok(if amount.milli_units() % 1000 == 0 { amount } else { whole_bytes(amount) })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::{Value, json};

    const MI: u64 = 1 << 20;

    fn sizes(bench: &Bench, domain: &Value) -> Sizes {
        memory(&bench.input(&vmi(json!({ "domain": domain }))), Amount::bytes(100 * MI)).unwrap()
    }

    #[test]
    fn a_guest_costs_its_memory_and_the_overhead() {
        let sizes = sizes(&Bench::default(), &json!({}));
        assert_eq!((sizes.request.to_string().as_str(), sizes.limit), ("1124Mi", None));
    }

    #[test]
    fn an_own_request_stands_and_may_leave_the_overhead_out() {
        let own = json!({ "resources": { "requests": { "memory": "500Mi" } } });
        assert_eq!(sizes(&Bench::default(), &own).request.to_string(), "600Mi");
        let own = json!({ "resources": { "requests": { "memory": "500Mi" }, "overcommitGuestOverhead": true } });
        assert_eq!(sizes(&Bench::default(), &own).request.to_string(), "500Mi");
    }

    #[test]
    fn the_cluster_may_overcommit() {
        let bench = Bench::configured(&json!({ "developerConfiguration": { "memoryOvercommit": 200 } }));
        assert_eq!(sizes(&bench, &json!({})).request.to_string(), "612Mi");
    }

    #[test]
    fn a_limit_covers_the_overhead_too() {
        let own = json!({ "resources": { "limits": { "memory": "2Gi" } } });
        assert_eq!(sizes(&Bench::default(), &own).limit.unwrap().to_string(), "2148Mi");
    }

    #[test]
    fn a_quota_makes_a_limit() {
        let mut bench = Bench::default();
        bench.namespace.quota_on_memory_limits = true;
        assert_eq!(sizes(&bench, &json!({})).limit.unwrap().to_string(), "2248Mi");
        bench.namespace.labels.insert(LIMIT_RATIO_LABEL.to_owned(), "1.5".to_owned());
        assert_eq!(sizes(&bench, &json!({})).limit.unwrap().to_string(), "1686Mi");
    }

    #[test]
    fn huge_pages_hold_the_guest_and_nothing_else() {
        let huge = json!({ "memory": { "hugepages": { "pageSize": "2Mi" } } });
        let sizes = sizes(&Bench::default(), &huge);
        assert_eq!(sizes.request.to_string(), "100Mi");
        assert_eq!(sizes.hugepages, Some(("hugepages-2Mi".to_owned(), Amount::bytes(1024 * MI))));
    }

    #[test]
    fn a_guest_without_memory_is_refused_by_its_field() {
        let none = vmi(json!({ "domain": { "memory": null } }));
        let error = memory(&Bench::default().input(&none), Amount::default()).unwrap_err();
        assert!(error.to_string().starts_with("spec.domain.memory.guest: "), "{error}");
    }
}
