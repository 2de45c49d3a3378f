//! Stops that meet other changes.

use super::*;

#[tokio::test]
async fn a_stop_that_meets_another_change_is_decided_anew_and_one_that_fails_leaves_the_instance_as_it_was() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::ServiceExt as _;

    let bench = Bench::new().await;
    for (name, strategy) in [("halted", "Halted"), ("manual", "Manual")] {
        bench.vm(name, strategy).await;
        bench.instance(name, "Running", &[]).await;
    }
    let (server, conflicts) =
        (bench.server.for_identity(crate::Component::VirtApi.identity()), Arc::new(AtomicUsize::new(0)));
    let left = conflicts.clone();
    let client = Client::new(
        tower::service_fn(move |request: Request<kube::client::Body>| {
            let is_write =
                request.method() == http::Method::PATCH && request.uri().path().contains("/virtualmachines/");
            let is_refused =
                is_write && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
            let server = server.clone();
            async move {
                if is_refused {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409,
                        "reason": "Conflict", "message": "the object has been modified",
                    });
                    let mut response = Response::new(Body::from(status.to_string()));
                    *response.status_mut() = StatusCode::CONFLICT;
                    return Ok(response);
                }
                server.oneshot(request).await
            }
        }),
        "default",
    );
    let service = Subresources::new(client, bench.guests.clone());
    let put = async |path: &str, body: Value| {
        let mut request =
            Request::put(format!("{VMS}/{path}")).body(http_body_util::Full::from(body.to_string())).unwrap();
        let groups = vec!["system:masters".to_owned()];
        request.extensions_mut().insert(Caller { user: "admin".to_owned(), groups, ..Caller::default() });
        service.answer(request).await.status().as_u16()
    };
    let api: kube::Api<api::vmi::VirtualMachineInstance> = kube::Api::default_namespaced(bench.admin.clone());
    let grace = async |name: &str| api.get(name).await.unwrap().spec.termination_grace_period_seconds;
    let before = grace("halted").await;
    assert_eq!(before, grace("manual").await);
    for (path, body) in
        [("halted/stop", json!({ "gracePeriod": 5 })), ("manual/restart", json!({ "gracePeriodSeconds": 0 }))]
    {
        let name = path.split('/').next().unwrap();
        // It never comes to it.
        conflicts.store(usize::MAX, Ordering::SeqCst);
        assert_eq!((put(path, body.clone()).await, grace(name).await), (409, before), "{path}");
        conflicts.store(2, Ordering::SeqCst);
        assert_eq!(put(path, body).await, 202, "{path}");
    }
    assert_eq!((grace("halted").await, grace("manual").await), (Some(5), Some(1)));
}
