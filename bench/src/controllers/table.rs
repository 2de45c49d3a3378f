//! A table for people.

/// Lines with columns of one width each; all but the first and the last column are numbers, to the right.
#[must_use]
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let width = |column: usize| {
        let cells = std::iter::once(&heads).chain(rows).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let last = heads.len().saturating_sub(1);
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("{cell:<width$}", width = width(column)),
            _ if column == last => cell.clone(),
            _ => format!("{cell:>width$}", width = width(column)),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(&heads).chain(rows).map(|row| line(row) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_one_width() {
        let rows = [vec!["plain".to_owned(), "7".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["load", "pods/s", "requests"], &rows), "load   pods/s  requests\nplain       7  x\n");
    }
}
