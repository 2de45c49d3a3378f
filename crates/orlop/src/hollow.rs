//! Names of hollow nodes.

/// The names of so many nodes: those of one prefix are the same in every simulation.
pub(crate) fn names(prefix: &str, count: u32) -> Vec<String> {
    (0..count).map(|index| format!("{prefix}-{index}")).collect()
}
