//! What every cluster has from its first moment.

use serde_json::json;

use crate::clock;
use crate::server::Inner;
use crate::store::{Draft, Expect, Key, OpenError, Write, WriteError};
use crate::strategy;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub(crate) async fn run(server: &Inner) -> Result<(), OpenError> {
    for name in NAMESPACES {
        let key = Key::new("", name);
        if server.store.snapshot().get("namespaces", &key).is_some() {
            continue;
        }
        let mut namespace = json!({
            "metadata": {
                "name": name,
                "uid": server.chance.uid(),
                "creationTimestamp": clock::text(server.clock.now()),
            },
            "spec": {},
        });
        strategy::of("", "namespaces").prepare_create(&mut namespace);
        let fields = server.registry.load().fields("namespaces");
        let draft = Draft::new(&namespace, &fields).map_err(|source| OpenError::Object {
            table: "namespaces".to_owned(),
            name: name.to_owned(),
            source,
        })?;
        let write = Write {
            table: "namespaces".into(),
            key,
            expect: Expect::Absent,
            put: Some(draft),
            in_living_namespace: false,
            of_definition: None,
        };
        match server.store.write(write).await {
            Ok(_) | Err(WriteError::Exists) => {}
            Err(error) => return Err(OpenError::Write(error.to_string())),
        }
    }
    Ok(())
}
