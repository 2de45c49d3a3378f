//! The graph as Graphviz reads it.

use std::fmt::{self, Write as _};

use super::graph::{Graph, Identity, Kind, Stage};

/// All objects that own or are owned, and an arrow from each to its owners.
pub(super) fn dot(graph: &Graph) -> String {
    let mut text = String::from("strict digraph full {\n");
    // A string takes all that is written to it.
    let _: fmt::Result = write(graph, &mut text);
    text.push_str("}\n");
    text
}

fn write(graph: &Graph, text: &mut String) -> fmt::Result {
    for (uid, seen, stage, owners) in graph.nodes() {
        let claims = if seen.is_none() { graph.claims(uid) } else { Default::default() };
        let Some(identity) = seen.as_ref().or_else(|| claims.keys().next()) else { continue };
        if owners.is_empty() && !graph.has_dependents(uid) {
            continue;
        }
        let Identity { kind, namespace, name, uid } = identity;
        let Kind { api_version, kind } = &**kind;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Stage { deleting, foreground, .. } = stage;
        let is_virtual = seen.is_none();
        let label = format!("uid={uid}\nnamespace={namespace}\n{kind}.{api_version}/{name}\n");
        writeln!(text, "  {uid:?} [")?;
        for (key, value) in [("label", label.as_str()), ("group", group), ("version", version), ("kind", kind)] {
            writeln!(text, "    {key}={value:?}")?;
        }
        for (key, value) in [("namespace", &**namespace), ("name", name), ("uid", uid)] {
            writeln!(text, "    {key}={value:?}")?;
        }
        for (key, value) in [("beingDeleted", deleting), ("deletingDependents", foreground), ("virtual", is_virtual)] {
            writeln!(text, "    {key}=\"{value}\"")?;
        }
        writeln!(text, "  ];")?;
    }
    for (uid, _, _, owners) in graph.nodes() {
        for owner in owners {
            writeln!(text, "  {uid:?} -> {:?};", owner.uid)?;
        }
    }
    Ok(())
}
