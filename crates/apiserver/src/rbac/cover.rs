//! Whether some rules grant all that others do.

use std::collections::BTreeMap;

use super::rule::{ALL, Rule, has, path_covers};

/// How many comparisons [`missing`] makes, at most: a few lists of words are taken apart into very many rules.
pub(super) fn effort(held: &[Rule], wanted: &[Rule]) -> usize {
    let parts = wanted.iter().map(|rule| {
        let Rule { verbs, api_groups, resources, resource_names, paths } = rule;
        let things = api_groups.len().saturating_mul(resources.len()).saturating_mul(resource_names.len().max(1));
        verbs.len().saturating_mul(things.saturating_add(paths.len()))
    });
    parts.fold(0_usize, usize::saturating_add).saturating_mul(held.len().max(1))
}

/// What of `wanted` no single rule of `held` grants, taken apart into rules of one verb on one thing.
pub(super) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(parts);
    parts.filter(|part| !held.iter().any(|rule| covers(rule, part))).collect()
}

/// One rule for each combination of verb, group, resource and name, and for each of verb and path.
fn parts(rule: &Rule) -> Vec<Rule> {
    let mut parts = Vec::new();
    let one = |word: &String| vec![word.clone()];
    for verb in &rule.verbs {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let part =
                    Rule { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Rule::default() };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                } else {
                    let named = |name: &String| Rule { resource_names: one(name), ..part.clone() };
                    parts.extend(rule.resource_names.iter().map(named));
                }
            }
        }
        parts.extend(rule.paths.iter().map(|path| Rule { verbs: one(verb), paths: one(path), ..Rule::default() }));
    }
    parts
}

/// Whether a rule grants all that a part does.
fn covers(rule: &Rule, part: &Rule) -> bool {
    let names = match part.resource_names.as_slice() {
        [] => rule.resource_names.is_empty(),
        names => rule.resource_names.is_empty() || names.iter().all(|name| rule.resource_names.contains(name)),
    };
    names
        && part.verbs.iter().all(|verb| has(&rule.verbs, verb))
        && part.api_groups.iter().all(|group| has(&rule.api_groups, group))
        && part.resources.iter().all(|resource| covers_resource(&rule.resources, resource))
        && part.paths.iter().all(|path| rule.paths.iter().any(|held| path_covers(held, path)))
}

fn covers_resource(held: &[String], resource: &str) -> bool {
    let everywhere = |sub: &str| held.iter().any(|one| one.strip_prefix("*/") == Some(sub));
    has(held, resource) || resource.split_once('/').is_some_and(|(_, sub)| everywhere(sub))
}

/// The same parts in fewer rules: those that differ in their verb alone are one.
pub(super) fn compact(parts: Vec<Rule>) -> Vec<Rule> {
    let mut simple: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut compacted = Vec::new();
    for part in parts {
        if part.resources.is_empty() {
            compacted.push(part);
        } else {
            let Rule { verbs, .. } = &part;
            let verbs = verbs.clone();
            simple.entry(Rule { verbs: Vec::new(), ..part }).or_default().extend(verbs);
        }
    }
    compacted.extend(simple.into_iter().map(|(rule, verbs)| Rule { verbs, ..rule }));
    compacted
}

/// Everything.
pub(super) fn full() -> [Rule; 2] {
    let all = || vec![ALL.to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), paths: all(), ..Rule::default() },
    ]
}
