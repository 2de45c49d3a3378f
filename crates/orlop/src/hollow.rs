//! What simulations of nodes share: their names.

/// The names of so many nodes: those of one prefix are the same in every simulation.
pub(crate) fn names(prefix: &str, count: u32) -> Vec<String> {
    (0..count).map(|index| format!("{prefix}-{index}")).collect()
}
