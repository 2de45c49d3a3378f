//! What QEMU's monitor says after its greeting.
#![no_main]

use hypervisor::qmp::commands::{QueryBlockStats, QueryCpus, QueryStatus};
use hypervisor::qmp::connect;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let mut theirs = BufReader::new(theirs);
        let (connected, ()) = tokio::join!(connect(ours), async {
            theirs.write_all(b"{\"QMP\": {}}\n").await.expect("there is room");
            asked(&mut theirs, 1).await;
            theirs.write_all(b"{\"return\": {}, \"id\": 1}\n").await.expect("there is room");
        });
        let (qmp, mut events) = connected.expect("it greets");
        let _ = tokio::join!(
            biased;
            qmp.execute(QueryStatus {}),
            qmp.execute(QueryBlockStats {}),
            qmp.execute(QueryCpus {}),
            async {
                asked(&mut theirs, 3).await;
                theirs.write_all(bytes.get(..1 << 19).unwrap_or(bytes)).await
            },
        );
        drop((theirs, qmp));
        while events.next().await.is_some() {}
    });
});

/// An answer to what nobody asked is for nobody.
async fn asked(stream: &mut BufReader<DuplexStream>, count: usize) {
    for _ in 0..count {
        stream.read_line(&mut String::new()).await.expect("a question");
    }
}
