//! A dashboard's way to a guest's screen: a browser, which cannot set headers of a WebSocket, and the old version of the API.

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::PostParams;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use super::sockets::{Socket, path};
use super::test_host::TestHost;

/// Opens the screen of `v` by a token among the protocols, and reads a picture; without the right, or without a token, it is
/// refused.
pub(crate) fn browser(machine: &TestHost) -> Result<()> {
    for account in ["dashboard", "stranger"] {
        machine.create::<ServiceAccount>(json!({ "metadata": { "name": account } }))?;
    }
    let subject = json!({ "kind": "ServiceAccount", "name": "dashboard", "namespace": "default" });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubevirt.io:edit" });
    machine.create::<RoleBinding>(
        json!({ "metadata": { "name": "dashboard" }, "roleRef": role, "subjects": [subject] }),
    )?;
    machine.runtime.block_on(async {
        let nobody = nobody(machine).await?;
        let vnc = path("v1alpha3", "v", "vnc");
        let origin = ("origin", "https://dashboard.example.org");
        let token = token(machine, "dashboard").await?;
        let protocols = protocols(&token);
        let opened = Socket::open(&nobody, &vnc, &[origin, ("sec-websocket-protocol", &protocols)]).await?;
        let mut socket = opened.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        ensure!(socket.protocol.as_deref() == Some("plain.kubevirt.io"), "{:?}", socket.protocol);
        picture(&mut socket).await?;

        let refused = async |protocols: &str, code: u16, words: &str| -> Result<()> {
            let headers = [origin, ("sec-websocket-protocol", protocols)];
            let Err((answered, told)) = Socket::open(&nobody, &vnc, &headers).await? else { bail!("it was opened") };
            ensure!(answered == code && told.contains(words), "{answered}: {told}");
            Ok(())
        };
        refused("plain.kubevirt.io", 403, "User \\\"system:anonymous\\\" cannot get resource").await?;
        refused(&self::protocols("another"), 401, "Unauthorized").await?;
        let stranger = self::protocols(&self::token(machine, "stranger").await?);
        let words = "User \\\"system:serviceaccount:default:stranger\\\" cannot get resource \\\"virtualmachineinstances/vnc\\\"";
        refused(&stranger, 403, words).await?;
        ensure!(!machine.log().contains(&token), "the token is in the log");
        Ok(())
    })
}

/// A client of the machine that shows nothing.
async fn nobody(machine: &TestHost) -> Result<Client> {
    let file = Kubeconfig::read_from(machine.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.auth_info = AuthInfo::default();
    Ok(Client::try_from(config)?)
}

async fn token(machine: &TestHost, account: &str) -> Result<String> {
    let request: TokenRequest = serde_json::from_value(json!({ "metadata": {}, "spec": { "audiences": [] } }))?;
    let accounts = machine.api::<ServiceAccount>();
    let made = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    made.status.and_then(|status| status.token).context("no token")
}

fn protocols(token: &str) -> String {
    let token = URL_SAFE_NO_PAD.encode(token);
    format!("base64url.bearer.authorization.k8s.io.{token}, plain.kubevirt.io")
}

/// What a viewer says until the first part of the screen comes.
async fn picture(socket: &mut Socket) -> Result<()> {
    socket.greeting().await?;
    socket.send(b"RFB 003.008\n").await?;
    let kinds = socket.exactly(1).await?;
    let kinds = socket.exactly(kinds[0].into()).await?;
    ensure!(kinds.contains(&1), "it wants a password: {kinds:?}");
    socket.send(&[1]).await?;
    ensure!(socket.exactly(4).await?[..] == [0; 4]);
    socket.send(&[1]).await?;
    let screen = socket.exactly(24).await?;
    let size = [screen[0], screen[1], screen[2], screen[3]];
    ensure!(size != [0; 4], "the screen has no size");
    let name = u32::from_be_bytes([screen[20], screen[21], screen[22], screen[23]]);
    socket.exactly(usize::try_from(name)?).await?;
    // All of it, whether or not it has changed.
    socket.send(&[&[3, 0, 0, 0, 0, 0][..], &size].concat()).await?;
    let update = socket.exactly(4).await?;
    ensure!(update[0] == 0 && update[2..] != [0, 0], "{update:?}");
    Ok(())
}
