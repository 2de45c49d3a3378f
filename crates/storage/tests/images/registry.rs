//! Pulls from registries.

use std::sync::Mutex;

use serde_json::Value;
use storage::image::Reference;
use storage::pull::{self, Credentials, Limits, Progress, PullError, Pulled, Registries, RegistryError, Wanted};

use super::build::{Compression, Layer, Layout, chain};
use super::server::{Registry, Scripted, answer, from_layout};

async fn pull(reference: &Reference, registries: &Registries) -> Result<(Pulled, Vec<u8>), PullError> {
    let target = tempfile::NamedTempFile::new().unwrap();
    let image = pull::open(reference, registries).await?;
    let pulled = image.fetch(&Wanted::Disk(None), &Limits::default(), target.as_file(), &()).await?;
    Ok((pulled, std::fs::read(target.path()).unwrap()))
}

fn layout(content: &[u8]) -> Layout {
    Layout::new().image("v1", Compression::Gzip, vec![Layer::new().file("disk/disk.img", content)])
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn a_pushed_image_is_pulled_by_tag_and_by_digest() {
    let registry = Registry::start().await;
    registry.push(&layout(b"content"), "v1", "disks/test:v1");
    let registries = registry.registries();
    assert_eq!(pull(&registry.reference("disks/test:v1"), &registries).await.unwrap().1, b"content");

    let image = pull::open(&registry.reference("disks/test:v1"), &registries).await.unwrap();
    let by_digest = registry.reference(&format!("disks/test@{}", image.digest()));
    assert_eq!(pull(&by_digest, &registries).await.unwrap().1, b"content");

    for (name, missing) in [("disks/test:v2", "no such image"), ("disks/other", "no such image")] {
        let error = pull(&registry.reference(name), &registries).await.unwrap_err();
        assert!(chain(&error).contains(missing), "{}", chain(&error));
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn layers_of_all_kinds_come_through_a_registry() {
    let registry = Registry::start().await;
    for (tag, compression) in [("none", Compression::None), ("gzip", Compression::Gzip), ("zstd", Compression::Zstd)] {
        let layers = vec![Layer::new().file("disk/a", &[1; 100_000]), Layer::new().file("etc/motd", b"hello")];
        registry.push(&Layout::new().image(tag, compression, layers), tag, &format!("disk:{tag}"));
        let (pulled, bytes) = pull(&registry.reference(&format!("disk:{tag}")), &registry.registries()).await.unwrap();
        assert!(pulled.bytes == 100_000 && bytes.iter().all(|byte| *byte == 1));
    }
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn plain_http_is_for_listed_hosts_only() {
    let registry = Registry::start().await;
    registry.push(&layout(b"x"), "v1", "disk:v1");
    let error = pull(&registry.reference("disk:v1"), &Registries::default()).await.unwrap_err();
    assert!(matches!(error, PullError::Registry { source: RegistryError::Http { .. }, .. }), "{}", chain(&error));
    assert_eq!(registry.requests(&[]).await, 0, "not even a request in the clear");
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn tls_needs_a_certificate_that_is_trusted() {
    let (registry, certificate) = Registry::start_with_tls().await;
    registry.push(&layout(b"encrypted"), "v1", "disk:v1");
    let mut registries = Registries::default();
    let error = pull(&registry.reference("disk:v1"), &registries).await.unwrap_err();
    assert!(chain(&error).contains("certificate"), "{}", chain(&error));
    registries.add_root_certificates(&certificate).unwrap();
    assert_eq!(pull(&registry.reference("disk:v1"), &registries).await.unwrap().1, b"encrypted");
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn a_registry_with_passwords_wants_the_right_one() {
    let registry = Registry::start_with_password().await;
    registry.push(&layout(b"private"), "v1", "disk:v1");
    let reference = registry.reference("disk:v1");
    let anonymous = pull(&reference, &registry.registries()).await.unwrap_err();
    assert!(matches!(anonymous, PullError::Registry { source: RegistryError::Denied { .. }, .. }));

    let mut wrong = registry.registries();
    let credentials = Credentials { user: "user".to_owned(), password: "swordfish".to_owned() };
    wrong.set_credentials(&registry.host(), credentials).unwrap();
    let error = pull(&reference, &wrong).await.unwrap_err();
    assert!(matches!(error, PullError::Registry { source: RegistryError::Denied { .. }, .. }));
    assert!(!chain(&error).contains("swordfish") && !error.is_retryable());

    let mut right = registry.registries();
    let config = format!(r#"{{"auths": {{"{}": {{"auth": "dXNlcjpjb3JyZWN0IGhvcnNl"}}}}}}"#, registry.host());
    right.add_docker_config(config.as_bytes()).unwrap();
    assert_eq!(pull(&reference, &right).await.unwrap().1, b"private");
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn mirrors_are_tried_in_order_before_the_registry() {
    let registry = Registry::start().await;
    registry.push(&layout(b"mirrored"), "v1", "hub/library/disk:v1");
    let mut registries = registry.registries();
    let empty = Scripted::start(|_, _| answer("404 Not Found", "", b""));
    registries.set_insecure(&empty.address.to_string()).unwrap();
    let mirrors = vec![empty.address.to_string(), format!("{}/hub", registry.host())];
    registries.set_mirrors("docker.io", mirrors).unwrap();
    assert_eq!(pull(&"disk:v1".parse().unwrap(), &registries).await.unwrap().1, b"mirrored");
}

#[derive(Default)]
struct Seen(Mutex<Vec<(String, u64, u64)>>);

impl Progress for Seen {
    fn update(&self, image: &Reference, done: u64, total: u64) {
        self.0.lock().unwrap().push((image.to_string(), done, total));
    }
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn progress_grows_to_the_total() {
    let registry = Registry::start().await;
    let content: Vec<u8> =
        (0..200_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    registry.push(&layout(&content), "v1", "disk:v1");
    let reference = registry.reference("disk:v1");
    let image = pull::open(&reference, &registry.registries()).await.unwrap();
    let (seen, target) = (Seen::default(), tempfile::tempfile().unwrap());
    image.fetch(&Wanted::Disk(None), &Limits::default(), &target, &seen).await.unwrap();
    let seen = seen.0.into_inner().unwrap();
    assert!(seen.len() > 3 && seen.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{seen:?}");
    let (name, done, total) = seen.last().unwrap();
    assert!(*name == reference.to_string() && done == total && *total > 600_000, "{done} of {total}");
}

#[tokio::test]
async fn a_token_is_fetched_with_the_password_and_used_without_it() {
    let layout = layout(b"behind a token");
    let folder = layout.path().to_owned();
    let server = Scripted::start(move |request, address| {
        let authorization = request.authorization.as_deref();
        if request.path.starts_with("/token?service=s&scope=repository%3Adisk%3Apull") {
            // "user:pass"
            return match authorization {
                Some("Basic dXNlcjpwYXNz") => answer("200 OK", "", br#"{"token": "abc"}"#),
                _ => answer("401 Unauthorized", "", b""),
            };
        }
        if authorization == Some("Bearer abc") {
            return from_layout(&folder, &request.path);
        }
        let challenge = format!(
            "WWW-Authenticate: Bearer realm=\"http://{address}/token\",service=\"s\",scope=\"repository:disk:pull\"\r\n"
        );
        answer("401 Unauthorized", &challenge, b"")
    });
    let reference = server.reference("disk:v1");
    let mut registries = server.registries();
    assert!(chain(&pull(&reference, &registries).await.unwrap_err()).contains("denied access"));
    let credentials = Credentials { user: "user".to_owned(), password: "pass".to_owned() };
    registries.set_credentials(&server.address.to_string(), credentials).unwrap();
    assert_eq!(pull(&reference, &registries).await.unwrap().1, b"behind a token");
}

#[tokio::test]
async fn passwords_and_bytes_do_not_go_to_unlisted_plain_http() {
    let layout = layout(b"x");
    let elsewhere = Scripted::start(|_, _| panic!("a host that was not listed was asked"));
    let other = elsewhere.address;
    let token = Scripted::start(move |_, _| {
        answer("401 Unauthorized", &format!("WWW-Authenticate: Bearer realm=\"http://{other}/token\"\r\n"), b"")
    });
    let error = pull(&token.reference("disk:v1"), &token.registries()).await.unwrap_err();
    assert!(chain(&error).contains("a token server that does not use HTTPS"), "{}", chain(&error));

    let folder = layout.path().to_owned();
    let redirect = Scripted::start(move |request, _| {
        if request.path.contains("/blobs/") {
            return answer("307 Temporary Redirect", &format!("Location: http://{other}/blob\r\n"), b"");
        }
        from_layout(&folder, &request.path)
    });
    let error = pull(&redirect.reference("disk:v1"), &redirect.registries()).await.unwrap_err();
    assert!(chain(&error).contains("a redirect to plain HTTP"), "{}", chain(&error));
}

#[tokio::test]
async fn a_registry_cannot_swap_what_a_digest_names() {
    let layout = layout(b"good");
    let other = Layout::new().image("v1", Compression::Gzip, vec![Layer::new().file("disk/disk.img", b"evil")]);
    let digest = storage::pull::open(&layout.reference(), &Registries::default()).await.unwrap().digest();
    let index: Value = serde_json::from_slice(&std::fs::read(other.path().join("index.json")).unwrap()).unwrap();
    let manifest = other
        .path()
        .join("blobs/sha256")
        .join(index["manifests"][0]["digest"].as_str().unwrap().replace("sha256:", ""));
    let evil = std::fs::read(manifest).unwrap();
    let server = Scripted::start(move |_, _| answer("200 OK", "", &evil));
    let reference = server.reference(&format!("disk@{digest}"));
    let error = pull(&reference, &server.registries()).await.unwrap_err();
    assert!(matches!(error, PullError::Digest { expected, .. } if expected == digest), "{}", chain(&error));
}

#[tokio::test]
async fn answers_without_end_and_cut_ones_are_errors() {
    let layout = layout(&[7; 10_000]);
    let endless = Scripted::start(|_, _| answer("200 OK", "", &vec![b' '; 5 << 20]));
    let error = pull(&endless.reference("disk:v1"), &endless.registries()).await.unwrap_err();
    assert!(chain(&error).contains("more data than expected"), "{}", chain(&error));

    let folder = layout.path().to_owned();
    let cut = Scripted::start(move |request, _| {
        let mut whole = from_layout(&folder, &request.path);
        if request.path.contains("/blobs/") {
            whole.truncate(whole.len() - 20);
        }
        whole
    });
    let error = pull(&cut.reference("disk:v1"), &cut.registries()).await.unwrap_err();
    assert!(error.is_retryable(), "{}", chain(&error));

    let busy = Scripted::start(|_, _| answer("503 Service Unavailable", "", b""));
    let error = pull(&busy.reference("disk:v1"), &busy.registries()).await.unwrap_err();
    assert!(error.is_retryable() && chain(&error).contains("503"), "{}", chain(&error));
}
