//! Requests and limits of the compute container, put together.

use std::collections::BTreeMap;

use api::quantity::{Amount, Quantity};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as CoreQuantity;

use super::{Input, RenderError, cpu, devices, memory};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Disk space for what every launcher writes: logs, sockets, the heads of overlays. In millions of bytes.
const SCRATCH: i64 = 50_000_000;

type Amounts = BTreeMap<String, Amount>;

/// What the compute container asks for.
///
/// # Guarantees
/// - No request is above its limit; an instance that asks for that is refused by the field.
pub(super) fn resources(input: &Input<'_>, overhead: Amount) -> Result<ResourceRequirements, RenderError> {
    let own = input.vmi.spec.domain.resources.as_ref();
    let mut requests = read(own.and_then(|own| own.requests.as_ref()), "requests")?;
    let mut limits = read(own.and_then(|own| own.limits.as_ref()), "limits")?;
    for (name, request) in &requests {
        if limits.get(name).is_some_and(|limit| request > limit) {
            let path = format!("spec.domain.resources.requests.{name}");
            return Err(RenderError::invalid(path, "is above its limit; lower the request or raise the limit"));
        }
    }
    let cpu = cpu::cpu(input)?;
    set(&mut requests, CPU, cpu.request);
    set(&mut limits, CPU, cpu.limit);
    let memory = memory::memory(input, overhead)?;
    set(&mut requests, MEMORY, Some(memory.request));
    set(&mut limits, MEMORY, memory.limit);
    if let Some((name, amount)) = memory.hugepages {
        requests.insert(name.clone(), amount);
        limits.insert(name, amount);
    }
    *requests.entry(EPHEMERAL_STORAGE.to_owned()).or_default() =
        requests.get(EPHEMERAL_STORAGE).copied().unwrap_or_default() + Amount::from(SCRATCH);
    if let Some(limit) = limits.get_mut(EPHEMERAL_STORAGE) {
        *limit = *limit + Amount::from(SCRATCH);
    }
    for (name, count) in devices::devices(input) {
        let count = Amount::from(count);
        requests.insert(name.clone(), count);
        limits.insert(name, count);
    }
    Ok(ResourceRequirements { requests: write(requests), limits: write(limits), claims: None })
}

/// What a container asks for that uses nothing. Kubernetes counts no amount of zero as a limit.
pub(super) fn least() -> ResourceRequirements {
    let all = BTreeMap::from([(CPU.to_owned(), Amount::milli(1)), (MEMORY.to_owned(), Amount::from(1 << 20))]);
    ResourceRequirements { requests: write(all.clone()), limits: write(all), claims: None }
}

fn set(amounts: &mut Amounts, name: &str, amount: Option<Amount>) {
    if let Some(amount) = amount {
        amounts.insert(name.to_owned(), amount);
    }
}

fn read(list: Option<&BTreeMap<String, Quantity>>, side: &str) -> Result<Amounts, RenderError> {
    let read = |(name, quantity): (&String, &Quantity)| {
        let amount = quantity.amount();
        if amount < Amount::default() {
            let path = format!("spec.domain.resources.{side}.{name}");
            return Err(RenderError::invalid(path, format!("{quantity} must not be negative")));
        }
        Ok((name.clone(), amount))
    };
    list.into_iter().flatten().map(read).collect()
}

/// In Kubernetes' canonical form; an empty list is left out.
pub(super) fn write(amounts: Amounts) -> Option<BTreeMap<String, CoreQuantity>> {
    let written = amounts.into_iter().map(|(name, amount)| (name, CoreQuantity(amount.to_string())));
    Some(written.collect::<BTreeMap<_, _>>()).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::json;

    fn of(spec: serde_json::Value) -> Result<ResourceRequirements, RenderError> {
        resources(&Bench::default().input(&vmi(spec)), Amount::bytes(1 << 20))
    }

    #[test]
    fn the_plain_guest_asks_for_this_and_no_more() {
        let resources = of(json!({})).unwrap();
        let requests = serde_json::to_value(resources.requests).unwrap();
        assert_eq!(
            requests,
            json!({
                "cpu": "100m", "memory": "1025Mi", "ephemeral-storage": "50M",
                "devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "1",
            })
        );
        let limits = serde_json::to_value(resources.limits).unwrap();
        assert_eq!(limits, json!({ "devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "1" }));
    }

    #[test]
    fn other_resources_are_passed_on_and_scratch_space_is_added() {
        let own = json!({ "limits": { "example.com/x": "2", "ephemeral-storage": "1G" }, "requests": { "ephemeral-storage": "1G" } });
        let resources = of(json!({ "domain": { "resources": own } })).unwrap();
        let limits = resources.limits.unwrap();
        assert_eq!((limits["example.com/x"].0.as_str(), limits[EPHEMERAL_STORAGE].0.as_str()), ("2", "1050M"));
        assert_eq!(resources.requests.unwrap()[EPHEMERAL_STORAGE].0, "1050M");
    }

    #[test]
    fn a_request_above_its_limit_is_refused_by_its_field() {
        let own = json!({ "limits": { "memory": "1Gi" }, "requests": { "memory": "2Gi" } });
        let error = of(json!({ "domain": { "resources": own } })).unwrap_err();
        assert!(error.to_string().starts_with("spec.domain.resources.requests.memory: "), "{error}");
    }
}
