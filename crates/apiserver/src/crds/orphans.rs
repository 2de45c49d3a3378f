//! Objects whose definition is gone. The writer lets none come, but a definition whose clean-up was taken away, a crash or
//! an older program may leave some; under a definition of the same name they would come back from the dead.

use futures_util::future::join_all;

use crate::server::Inner;
use crate::store::{DEFINITIONS, Expect, Key, Snapshot, Table, Write, WriteError};

/// Deletions that are asked for at once; they share commits.
const AT_ONCE: usize = 256;

/// Deletes them. Finalizers do not hold them: nobody can see them any more to take those away.
pub(crate) async fn remove(server: &Inner) -> Result<(), WriteError> {
    let found = find(&server.store.snapshot());
    for some in found.chunks(AT_ONCE) {
        let writes = some.iter().map(|(table, key, revision)| {
            server.store.write(Write {
                table: table.clone(),
                key: key.clone(),
                expect: Expect::Revision(*revision),
                put: None,
                in_living_namespace: false,
                of_definition: None,
            })
        });
        for result in join_all(writes).await {
            match result {
                // Someone else was faster.
                Ok(_) | Err(WriteError::Gone | WriteError::Changed) => {}
                Err(error) => return Err(error),
            }
        }
    }
    if !found.is_empty() {
        tracing::info!(count = found.len(), "deleted objects without a definition");
    }
    Ok(())
}

fn find(snapshot: &Snapshot) -> Vec<(Table, Key, u64)> {
    let tables = snapshot.tables().map(|(table, _)| table);
    let orphaned = tables.filter(|table| is_custom(table) && snapshot.get(DEFINITIONS, &Key::new("", table)).is_none());
    let objects = |table: &Table| {
        let table = table.clone();
        snapshot.objects(&table).into_iter().map(move |(key, object)| (table.clone(), key, object.revision))
    };
    orphaned.flat_map(objects).collect()
}

/// Whether a table can only be that of a custom resource. Kinds of Kubernetes itself are in groups without a dot or below
/// `k8s.io`: another version of this program may have kinds built in that this one does not know, and they must stay.
fn is_custom(table: &str) -> bool {
    table.split_once('.').is_some_and(|(_, group)| group.contains('.') && !group.ends_with(".k8s.io"))
}

#[cfg(test)]
mod tests {
    use super::is_custom;

    #[test]
    fn what_may_be_built_in_is_not_custom() {
        for table in ["widgets.example.com", "virtualmachines.kubevirt.io"] {
            assert!(is_custom(table), "{table}");
        }
        for table in ["pods", "deployments.apps", "news.storage.k8s.io", "gateways.gateway.networking.k8s.io"] {
            assert!(!is_custom(table), "{table}");
        }
    }
}
