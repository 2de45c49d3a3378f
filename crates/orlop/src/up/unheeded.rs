//! Warns about objects that are stored but not enforced here, such as network policies.

use apiserver::{Admission, Review, Status};
use serde_json::Value;

/// Kinds whose controllers are not part of Orlop.
const KINDS: [(&str, &str, &str); 3] = [
    ("networking.k8s.io", "networkpolicies", "pods can reach each other regardless"),
    ("", "limitranges", "containers get no defaults and no limits from them"),
    ("", "resourcequotas", "they limit nothing"),
];
/// What namespaces ask for by their labels.
const POD_SECURITY: &str = "pod-security.kubernetes.io/";

/// Warns about them.
pub(super) struct Unheeded;

impl Admission for Unheeded {
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>, warnings: &mut Vec<String>) -> Result<(), Status> {
        let attributes = &review.attributes;
        let Some(object) = object.filter(|_| attributes.subresource.is_empty()) else { return Ok(()) };
        let is = |group: &str, resource: &str| attributes.group == group && attributes.resource == resource;
        let told = KINDS.iter().find(|(group, resource, _)| is(group, resource));
        if let Some((_, resource, what)) = told {
            warnings.push(format!("{resource} are stored but not enforced: {what}"));
        }
        let labels = |object: &Value| -> Vec<(String, Value)> {
            let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
            labels
                .filter(|(key, _)| key.starts_with(POD_SECURITY))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let wanted = labels(object);
        // Said when they come, not at each change of something else.
        let is_new = review.old.is_none_or(|old| labels(old) != wanted);
        if is("", "namespaces") && !wanted.is_empty() && is_new {
            warnings.push(format!("the labels {POD_SECURITY}* are stored but not enforced: any pod is admitted"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use apiserver::{ApiServer, Identity, MASTERS, Place};
    use http::Request;
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn whoever_asks_for_protection_is_told_that_there_is_none() {
        let server = ApiServer::builder(Place::Memory).admission(Unheeded).start().await.unwrap();
        let create = async |path: &str, object: Value| {
            let body = http_body_util::Full::from(object.to_string());
            let request = Request::post(path).header("content-type", "application/json").body(body);
            let service = server.for_identity(Identity::new("somebody", [MASTERS.to_owned()]));
            let response = service.oneshot(request.unwrap()).await.unwrap();
            assert_eq!(response.status(), 201, "{path}");
            let warnings = response.headers().get_all("warning").iter();
            warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let named = |name: &str| json!({ "metadata": { "name": name } });
        let core = "/api/v1/namespaces/default";
        assert!(create(&format!("{core}/resourcequotas"), named("a")).await[0].contains("they limit nothing"));
        assert!(create(&format!("{core}/limitranges"), named("a")).await[0].contains("no defaults and no limits"));
        let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
        let mut policy = named("a");
        policy["spec"] = json!({ "podSelector": {} });
        assert!(create(policies, policy).await[0].contains("reach each other regardless"));
        let mut labelled = named("strict");
        labelled["metadata"]["labels"] = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        assert!(create("/api/v1/namespaces", labelled).await[0].contains("any pod is admitted"));
        assert_eq!(create("/api/v1/namespaces", named("plain")).await, [""; 0]);
        assert_eq!(create(&format!("{core}/configmaps"), named("a")).await, [""; 0]);
    }
}
