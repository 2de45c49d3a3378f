//! The page of controllers in `docs/controllers.md`, from the tables that the programs start them by; and whether roles, logs and
//! metrics know the same ones.

use std::path::Path;

use anyhow::{Context, Result};
use manager::descriptor::{Descriptor, Unwritten};

/// The page, from the root.
const PAGE: &str = "docs/controllers.md";
/// What stands between these lines is written by [`write()`], the rest by people.
const BEGIN: &str = "<!-- controllers: written by `cargo xtask controllers` -->";
const END: &str = "<!-- controllers: end -->";
/// Where the rights of Kubernetes' controllers are, and those of our own programs.
const ROLES: [&str; 2] = ["crates/apiserver/src/rbac/policy.txt", "crates/virt-server/src/roles/components.rs"];
/// Where lines of the log get the names of their controllers.
const PARTS: &str = "crates/orlop/src/logging/parts.rs";
/// Where controllers are.
const SOURCES: [&str; 3] = ["crates/kube-controllers/src", "crates/virt-controller/src", "crates/data-volumes/src"];
/// What has no queue, and why.
const WITHOUT_QUEUE: [&str; 1] = ["rate-limit-controller"];
/// What has queues of other names, which dashboards of Kubernetes know, or makes its queue in a file beside.
const OTHER_QUEUES: [&str; 2] = ["garbage-collector-controller", "node-lifecycle-controller"];

/// A controller, as far as it must be known elsewhere.
struct Row {
    program: &'static str,
    name: &'static str,
    aliases: &'static [&'static str],
    off_by_default: bool,
    /// The role that it works with; none if it has the program's own rights.
    role: Option<String>,
}

fn rows() -> Vec<Row> {
    fn of<S>(program: &'static str, prefix: &str, descriptors: &'static [Descriptor<S>]) -> Vec<Row> {
        let row = |one: &'static Descriptor<S>| {
            let role = (!one.special_handling).then(|| format!("{prefix}{}", one.account));
            let Descriptor { name, aliases, off_by_default, .. } = *one;
            Row { program, name, aliases, off_by_default, role }
        };
        descriptors.iter().map(row).collect()
    }
    let mut rows = of("controller-manager", "system:controller:", kube_controllers::table::DESCRIPTORS);
    rows.extend(of("virt-controller", "", virt_controller::DESCRIPTORS));
    rows.extend(of("up", "", data_volumes::DESCRIPTORS));
    rows
}

/// Writes the table into the page.
pub(crate) fn write(root: &Path) -> Result<()> {
    let page = read(root, PAGE)?;
    std::fs::write(root.join(PAGE), renewed(&page, &rows())?).with_context(|| format!("write {PAGE}"))
}

/// What is not as [`write()`] would leave it, and what does not know a controller.
pub(crate) fn stale(root: &Path) -> Result<Vec<String>> {
    let (page, rows) = (read(root, PAGE)?, rows());
    let mut complaints = Vec::new();
    if renewed(&page, &rows)? != page {
        complaints.push(format!("{PAGE}: differs from the tables of controllers; run `cargo xtask controllers`"));
    }
    let roles = ROLES.iter().map(|path| read(root, path)).collect::<Result<Vec<_>>>()?.concat();
    let parts = read(root, PARTS)?;
    let mut sources = String::new();
    for directory in SOURCES {
        gather(&root.join(directory), &mut sources)?;
    }
    complaints.extend(rows.iter().flat_map(|row| unknown(row, &roles, &parts, &sources)));
    let both = [kube_controllers::unwritten::UNWRITTEN, virt_controller::UNWRITTEN].concat();
    complaints.extend(written_after_all(&rows, &both));
    Ok(complaints)
}

fn read(root: &Path, path: &str) -> Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"))
}

/// All Rust sources below a directory, each with a line that says where it begins.
fn gather(directory: &Path, text: &mut String) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push('\0');
            text.push_str(&std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?);
        }
    }
    Ok(())
}

/// Where a controller is not known.
fn unknown(row: &Row, roles: &str, parts: &str, sources: &str) -> Vec<String> {
    let Row { name, role, .. } = row;
    let mut complaints = Vec::new();
    if let Some(role) = role
        && !roles.contains(&format!("ClusterRole {role}\n"))
        && !roles.contains(&format!("\"{role}\""))
    {
        complaints.push(format!("{name}: no role {role} in {}", ROLES.join(" or ")));
    }
    if WITHOUT_QUEUE.contains(name) {
        return complaints;
    }
    if !parts.contains(&format!("\"{name}\"")) {
        complaints.push(format!("{name}: no part of the log in {PARTS}"));
    }
    let defined = format!("pub const NAME: &str = \"{name}\";");
    let file = sources.split('\0').find(|file| file.contains(&defined)).unwrap_or_default();
    let counted = file.contains("Kit::new(NAME") || file.contains("queue(NAME)") || OTHER_QUEUES.contains(name);
    if !counted {
        complaints.push(format!("{name}: no queue of its name, so that metrics do not show it"));
    }
    complaints
}

/// Controllers that are there and still in the list of those that are not.
fn written_after_all(rows: &[Row], unwritten: &[Unwritten]) -> Vec<String> {
    let is_there = |one: &&Unwritten| rows.iter().any(|row| row.name == one.name);
    unwritten
        .iter()
        .filter(is_there)
        .map(|one| format!("{}: is written; take it off the list UNWRITTEN", one.name))
        .collect()
}

fn renewed(page: &str, rows: &[Row]) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} has no line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no line {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n{END}{after}", table(rows)))
}

fn table(rows: &[Row]) -> String {
    let mut text = "| program | controller | also known as | by default | role |\n|---|---|---|---|---|\n".to_owned();
    for Row { program, name, aliases, off_by_default, role } in rows {
        let aliases: Vec<String> = aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let state = if *off_by_default { "off" } else { "on" };
        let role = role.as_ref().map_or("the program's own".to_owned(), |role| format!("`{role}`"));
        text.push_str(&format!("| `{program}` | `{name}` | {} | {state} | {role} |\n", aliases.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str) -> Row {
        Row { program: "p", name, aliases: &["a"], off_by_default: false, role: Some("system:controller:x".to_owned()) }
    }

    #[test]
    fn an_edited_table_is_stale_and_the_rest_of_the_page_is_kept() {
        let page = renewed(&format!("before\n{BEGIN}\nold\n{END}\nafter\n"), &[row("x-controller")]).unwrap();
        assert!(page.starts_with("before\n") && page.ends_with("\nafter\n") && !page.contains("old\n"), "{page}");
        assert!(page.contains("| `p` | `x-controller` | `a` | on | `system:controller:x` |"), "{page}");
        assert_eq!(renewed(&page, &[row("x-controller")]).unwrap(), page);
    }

    #[test]
    fn a_controller_that_something_does_not_know_is_reported() {
        let (roles, parts) = ("ClusterRole system:controller:x\n", "part(\"x\", \"x-controller\")");
        let source = "pub const NAME: &str = \"x-controller\"; Kit::new(NAME, context)";
        assert!(unknown(&row("x-controller"), roles, parts, source).is_empty());
        assert_eq!(unknown(&row("x-controller"), "", "", "").len(), 3);
        let listed = [Unwritten { name: "x-controller", aliases: &[] }];
        assert_eq!(written_after_all(&[row("x-controller")], &listed).len(), 1);
    }
}
