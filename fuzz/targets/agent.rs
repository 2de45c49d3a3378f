//! What a guest's agent says.
#![no_main]

use hypervisor::agent::Agent;
use hypervisor::agent::commands::{FileSystems, Info, Interfaces, OsInfo, Users};
use tokio::io::AsyncWriteExt as _;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        theirs.write_all(b"\xff{\"return\": 1}\n").await.expect("there is room");
        theirs.write_all(bytes.get(..1 << 19).unwrap_or(bytes)).await.expect("there is room");
        let mut agent = Agent::new(ours);
        drop(agent.execute(Info {}).await);
        drop(agent.execute(OsInfo {}).await);
        drop(agent.execute(Users {}).await);
        drop(agent.execute(FileSystems {}).await);
        drop(agent.execute(Interfaces {}).await);
    });
});
