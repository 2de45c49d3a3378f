//! How Kubernetes is told to ask virt-api: its APIServices and its webhooks.

use api::crd::CrdError;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference as WebhookService,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceSpec, ServiceReference};
use virt_api::subresources::{GROUP, VERSIONS};

use crate::webhooks::Webhook;

/// As KubeVirt calls what it registers; whoever replaces KubeVirt replaces these.
const CONFIGURATION: &str = "virt-api";
/// Longer than a review takes, and shorter than people wait.
const TIMEOUT: i32 = 10;
/// The kind whose deletion is refused while it is needed.
const KEPT: &str = "kubevirts";

/// Where virt-api is reached in the cluster, and how it is known there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The namespace of its Service.
    pub namespace: String,
    pub service: String,
    /// The Service's port.
    pub port: u16,
    /// Who signed virt-api's certificate, as PEM. The certificate must name `SERVICE.NAMESPACE.svc`.
    pub authorities: String,
}

impl Registration {
    /// The aggregated API, one object for each version.
    #[must_use]
    pub fn api_services(&self) -> Vec<APIService> {
        let priority = |position: usize| 15 - i32::try_from(position).unwrap_or_default();
        let service = |(position, version): (usize, &&str)| APIService {
            metadata: named(&format!("{version}.{GROUP}")),
            spec: Some(APIServiceSpec {
                group: Some(GROUP.to_owned()),
                version: Some((*version).to_owned()),
                service: Some(ServiceReference {
                    name: Some(self.service.clone()),
                    namespace: Some(self.namespace.clone()),
                    port: Some(self.port.into()),
                }),
                ca_bundle: Some(self.bundle()),
                group_priority_minimum: 1000,
                version_priority: priority(position),
                ..APIServiceSpec::default()
            }),
            ..APIService::default()
        };
        VERSIONS.iter().enumerate().map(service).collect()
    }

    /// The webhook that fills objects in.
    ///
    /// # Errors
    /// When a kind has no schema.
    pub fn mutating(&self) -> Result<MutatingWebhookConfiguration, CrdError> {
        let webhook = MutatingWebhook {
            name: "mutator.virt-api.kubevirt.io".to_owned(),
            client_config: self.client(Webhook::Mutate),
            rules: Some(rules(Webhook::Mutate)?),
            admission_review_versions: vec!["v1".to_owned()],
            side_effects: "None".to_owned(),
            failure_policy: Some("Fail".to_owned()),
            timeout_seconds: Some(TIMEOUT),
            ..MutatingWebhook::default()
        };
        Ok(MutatingWebhookConfiguration { metadata: named(CONFIGURATION), webhooks: Some(vec![webhook]) })
    }

    /// The webhook that refuses them.
    ///
    /// # Errors
    /// When a kind has no schema.
    pub fn validating(&self) -> Result<ValidatingWebhookConfiguration, CrdError> {
        let webhook = ValidatingWebhook {
            name: "validator.virt-api.kubevirt.io".to_owned(),
            client_config: self.client(Webhook::Validate),
            rules: Some(rules(Webhook::Validate)?),
            admission_review_versions: vec!["v1".to_owned()],
            side_effects: "None".to_owned(),
            failure_policy: Some("Fail".to_owned()),
            timeout_seconds: Some(TIMEOUT),
            ..ValidatingWebhook::default()
        };
        let webhooks = vec![webhook, self.evictions()];
        Ok(ValidatingWebhookConfiguration { metadata: named(CONFIGURATION), webhooks: Some(webhooks) })
    }

    /// Evictions of launchers, whose guests are moved instead. Nodes can be drained of everything else while virt-api is away.
    fn evictions(&self) -> ValidatingWebhook {
        let word = |text: &str| Some(vec![text.to_owned()]);
        let rule = RuleWithOperations {
            api_groups: word(""),
            api_versions: word("v1"),
            operations: word("CREATE"),
            resources: word("pods/eviction"),
            scope: None,
        };
        ValidatingWebhook {
            name: "virt-launcher-eviction-interceptor.virt-api.kubevirt.io".to_owned(),
            client_config: self.client(Webhook::Validate),
            rules: Some(vec![rule]),
            admission_review_versions: vec!["v1".to_owned()],
            side_effects: "NoneOnDryRun".to_owned(),
            failure_policy: Some("Ignore".to_owned()),
            timeout_seconds: Some(TIMEOUT),
            ..ValidatingWebhook::default()
        }
    }

    fn client(&self, webhook: Webhook) -> WebhookClientConfig {
        let service = WebhookService {
            name: self.service.clone(),
            namespace: self.namespace.clone(),
            path: Some(webhook.path()),
            port: Some(self.port.into()),
        };
        WebhookClientConfig { ca_bundle: Some(self.bundle()), service: Some(service), url: None }
    }

    fn bundle(&self) -> ByteString {
        ByteString(self.authorities.clone().into_bytes())
    }
}

/// Every kind of ours, as the rules decide about all of them.
fn rules(webhook: Webhook) -> Result<Vec<RuleWithOperations>, CrdError> {
    let rule = |crd: CustomResourceDefinition| {
        let plural = crd.spec.names.plural;
        let mut operations = vec!["CREATE".to_owned(), "UPDATE".to_owned()];
        if webhook == Webhook::Validate && plural == KEPT {
            operations.push("DELETE".to_owned());
        }
        let served = crd.spec.versions.iter().filter(|version| version.served);
        let has_status = crd
            .spec
            .versions
            .iter()
            .any(|version| version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()));
        let status = has_status.then(|| format!("{plural}/status"));
        RuleWithOperations {
            api_groups: Some(vec![crd.spec.group]),
            api_versions: Some(served.map(|version| version.name.clone()).collect()),
            operations: Some(operations),
            resources: Some([plural].into_iter().chain(status).collect()),
            scope: None,
        }
    };
    Ok(api::crd::all()?.into_iter().map(rule).collect())
}

fn named(name: &str) -> ObjectMeta {
    let labels = [("kubevirt.io".to_owned(), "virt-api".to_owned())].into();
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration() -> Registration {
        let text = str::to_owned;
        Registration { namespace: text("kubevirt"), service: text("virt-api"), port: 443, authorities: text("PEM") }
    }

    #[test]
    fn every_kind_is_asked_about_and_only_one_before_it_is_deleted() {
        let webhooks = registration().validating().unwrap().webhooks.unwrap();
        let rules = webhooks[0].rules.clone().unwrap();
        assert_eq!(rules.len(), api::crd::all().unwrap().len());
        let deletes = |rule: &&RuleWithOperations| rule.operations.iter().flatten().any(|one| one == "DELETE");
        let kept: Vec<_> = rules.iter().filter(deletes).filter_map(|rule| rule.resources.as_ref()?.first()).collect();
        assert_eq!(kept, ["kubevirts"]);
        let mutating = registration().mutating().unwrap().webhooks.unwrap();
        assert!(!mutating[0].rules.iter().flatten().any(|rule| deletes(&rule)));
        assert_eq!(mutating[0].client_config.service.as_ref().unwrap().path.as_deref(), Some("/admission/mutate"));
    }

    #[test]
    fn the_first_version_is_the_preferred_one() {
        let services = registration().api_services();
        let priorities: Vec<(String, i32)> =
            services.into_iter().map(|one| (one.metadata.name.unwrap(), one.spec.unwrap().version_priority)).collect();
        let names = ["v1.subresources.kubevirt.io", "v1alpha3.subresources.kubevirt.io"];
        assert_eq!(priorities.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
        assert!(priorities[0].1 > priorities[1].1);
    }
}
