//! The table of fields in `docs/compatibility.md`, from the table that admission and launchers go by.

use std::path::Path;

use anyhow::{Context, Result};
use virt_rules::support::{self, Entry, Placement};

/// The page, from the root.
const PAGE: &str = "docs/compatibility.md";
/// What stands between these lines is written by [`write()`], the rest by people.
const BEGIN: &str = "<!-- fields: written by `cargo xtask compatibility` -->";
const END: &str = "<!-- fields: end -->";

/// Writes the table into the page.
pub(crate) fn write(root: &Path) -> Result<()> {
    let page = read(root)?;
    std::fs::write(root.join(PAGE), renewed(&page)?).with_context(|| format!("write {PAGE}"))
}

/// What is not as [`write()`] would leave it.
pub(crate) fn stale(root: &Path) -> Result<Vec<String>> {
    let page = read(root)?;
    let is_stale = renewed(&page)? != page;
    let complaint = format!("{PAGE}: differs from what virt-rules says; run `cargo xtask compatibility`");
    Ok(is_stale.then_some(complaint).into_iter().collect())
}

fn read(root: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("read {PAGE}"))
}

fn renewed(page: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} has no line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no line {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n{END}{after}", table(&support::table())))
}

/// One row per field; fields of one part that simply work share a row.
fn table(entries: &[Entry]) -> String {
    let mut text = "| field | state | remarks |\n|---|---|---|\n".to_owned();
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let (part, _) = split(&first.path);
        let is_alike = |entry: &&Entry| entry.placement == Placement::Works && split(&entry.path).0 == part;
        let alike = rest.iter().take_while(is_alike).count().max(1);
        let (row, later) = rest.split_at(alike);
        let names: Vec<String> = row.iter().skip(1).map(|entry| format!("`{}`", split(&entry.path).1)).collect();
        let names = std::iter::once(format!("`{}`", first.path)).chain(names).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("| {names} | {} | {} |\n", first.placement.state(), first.placement));
        rest = later;
    }
    text
}

/// A field's part and its own name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_table_is_stale_and_the_rest_of_the_page_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let page = root.path().join(PAGE);
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(&page, format!("before\n{BEGIN}\nold\n{END}\nafter\n")).unwrap();
        assert_eq!(stale(root.path()).unwrap().len(), 1);
        write(root.path()).unwrap();
        assert_eq!(stale(root.path()).unwrap(), Vec::<String>::new());
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n") && !text.contains("old\n"), "{text}");
        assert!(
            text.contains("| `spec.domain.devices.sound` | refused | remove it; guests have no sound device |"),
            "{text}"
        );
    }

    #[test]
    fn a_page_without_a_place_for_the_table_is_told() {
        assert!(renewed("nothing").is_err());
    }
}
