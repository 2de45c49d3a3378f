//! What must not stay in a source file, and what no lint can tell.

use super::File;

/// Complaints about left-overs, unexplained exceptions and unbiased selects.
pub(super) fn leftovers(sources: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for File { path, text } in sources {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            // Text and comments may name what code may not contain.
            let code = line.split("//").next().unwrap_or_default();
            let next = lines.get(index + 1).copied().unwrap_or_default();
            if let Some(problem) = problem(code, next) {
                complaints.push(format!("{path}:{}: {problem}", index + 1));
            }
        }
    }
    complaints
}

fn problem(code: &str, next: &str) -> Option<String> {
    // Spelled in two parts, so that this file may stand in the tree it checks.
    for (name, tail) in [("todo", "!"), ("dbg", "!"), ("unimplemented", "!")] {
        if has_word(code, &format!("{name}{tail}(")) {
            return Some(format!("{name}{tail} is for work in progress"));
        }
    }
    if code.contains(concat!("#[", "allow(")) || code.contains(concat!("#![", "allow(")) {
        return Some("allow hides for ever; use #[expect(..., reason = \"...\")]".to_owned());
    }
    let counted =
        |word: &str| code.split(word).nth(1).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if counted(concat!("Config { ", "cases: ")) || counted(concat!("Config::", "with_cases(")) {
        return Some("a fixed number of cases stays the same in `make soak`; use testkit::soak::cases".to_owned());
    }
    if code.contains(concat!("TestRunner::", "deterministic()")) {
        return Some("a runner of its own seed never sees another; use TestRunner::default()".to_owned());
    }
    let select = concat!("select", "! {");
    if has_word(code, select) && !code.contains("biased;") && next.trim() != "biased;" {
        return Some("select! without `biased;` makes runs of one seed differ; its order needs a comment".to_owned());
    }
    None
}

/// Whether `word` stands in `code` and does not continue a longer name or a string.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        leftovers(&[File { path: "x.rs".into(), text: text.into() }]).len()
    }

    /// The samples spell `!` as `@`: this file is checked too.
    fn spell(code: &str) -> String {
        code.replace("#@[", "#![").replace('@', "!")
    }

    #[test]
    fn leftovers_are_found() {
        for code in ["    todo@()", "let x = dbg@(y);", "unimplemented@(\"later\")", "#@[allow(dead_code)]"] {
            assert_eq!(complaints(&spell(code)), 1, "{code}");
        }
    }

    #[test]
    fn comments_and_longer_names_are_no_leftovers() {
        for code in ["// todo@() later", "my_todo@()", "#[expect(dead_code, reason = \"x\")]"] {
            assert_eq!(complaints(&spell(code)), 0, "{code}");
        }
    }

    #[test]
    fn property_tests_can_be_given_more_cases_and_other_seeds() {
        let fixed = ["ProptestConfig { #: 24, x: 1 }", "Config { #: 2 }", "ProptestConfig::with_#(100)"];
        for code in fixed.map(|code| code.replace('#', "cases")) {
            assert_eq!(complaints(&code), 1, "{code}");
            let scaled = code.replace("24", "soak::cases(24)").replace(": 2 ", ": soak::cases(2) ");
            assert_eq!(complaints(&scaled.replace("100", "soak::cases(100)")), 0, "{scaled}");
        }
        assert_eq!(complaints(&format!("TestRunner::{}()", "deterministic")), 1);
    }

    #[test]
    fn a_select_is_biased() {
        assert_eq!(complaints(&spell("tokio::select@ {\n    a = b => {}\n}")), 1);
        assert_eq!(complaints(&spell("tokio::select@ {\n    biased;\n    a = b => {}\n}")), 0);
    }
}
