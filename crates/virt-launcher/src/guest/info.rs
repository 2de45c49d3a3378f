//! What the agent knows about the system inside.

use hypervisor::agent::{Agent, AgentError, commands as ask};
use launcher_api::rpc;
use tokio::net::UnixStream;

use super::freezing::FROZEN;

/// Asks for all of it. What one agent cannot tell is left empty.
///
/// # Guarantees
/// While a guest is frozen its agent refuses most questions. What it said `before` still holds, as nothing inside moves on.
pub(super) async fn info(
    agent: &mut Agent<UnixStream>,
    before: Option<&rpc::GuestInfo>,
) -> Result<rpc::GuestInfo, AgentError> {
    let agent_version = agent.execute(ask::Info {}).await?.version;
    let freeze_status = agent.execute(ask::FreezeStatus {}).await.unwrap_or_default();
    if freeze_status == FROZEN {
        return Ok(rpc::GuestInfo { agent_version, freeze_status, ..before.cloned().unwrap_or_default() });
    }
    let os = agent.execute(ask::OsInfo {}).await.unwrap_or_default();
    let hostname = agent.execute(ask::HostName {}).await.map(|answer| answer.host_name).unwrap_or_default();
    let timezone = agent.execute(ask::TimeZone {}).await.map(|answer| answer.zone).unwrap_or_default();
    let interfaces = agent.execute(ask::Interfaces {}).await.unwrap_or_default();
    Ok(rpc::GuestInfo {
        agent_version,
        hostname,
        timezone,
        os: Some(rpc::OperatingSystem {
            id: os.id,
            name: os.name,
            pretty_name: os.pretty_name,
            version: os.version,
            version_id: os.version_id,
            kernel_release: os.kernel_release,
            kernel_version: os.kernel_version,
            machine: os.machine,
        }),
        interfaces: interfaces
            .into_iter()
            .map(|interface| rpc::Interface {
                name: interface.name,
                mac: interface.hardware_address,
                addresses: interface.ip_addresses.into_iter().map(|address| address.ip_address).collect(),
            })
            .collect(),
        freeze_status,
    })
}
