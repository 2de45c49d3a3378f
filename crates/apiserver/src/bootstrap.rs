//! What every cluster has from its first moment: its namespaces, and who may do what.

use futures_util::future::join_all;
use serde_json::json;

use crate::clock;
use crate::rbac;
use crate::server::Inner;
use crate::store::{Draft, Expect, Key, OpenError, Write, WriteError};
use crate::strategy;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub(crate) async fn run(server: &Inner) -> Result<(), OpenError> {
    let mut writes = Vec::new();
    for name in NAMESPACES {
        writes.extend(namespace(server, name)?);
    }
    writes.extend(rbac::bootstrap(server)?);
    // All at once, so that they share a commit.
    for written in join_all(writes.into_iter().map(|write| server.store.write(write))).await {
        match written {
            Ok(_) | Err(WriteError::Exists) => {}
            Err(error) => return Err(OpenError::Write(error.to_string())),
        }
    }
    Ok(())
}

/// A namespace; none, if it is there.
fn namespace(server: &Inner, name: &str) -> Result<Option<Write>, OpenError> {
    let key = Key::new("", name);
    if server.store.snapshot().get("namespaces", &key).is_some() {
        return Ok(None);
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
    Ok(Some(Write {
        table: "namespaces".into(),
        key,
        expect: Expect::Absent,
        put: Some(draft),
        in_living_namespace: false,
        of_definition: None,
    }))
}
