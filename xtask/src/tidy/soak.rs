//! `make soak` runs every test that makes its cases up.

use super::File;

/// Complaints about property tests in programs that the script leaves out.
pub(super) fn left_out(script: &str, sources: &[File]) -> Vec<String> {
    let Some(pattern) = script.split("'!(").nth(1).and_then(|rest| rest.split(")'").next()) else {
        return vec![".ci/soak: there is no pattern of programs that are left out".to_owned()];
    };
    let mut complaints = Vec::new();
    for File { path, text } in sources.iter().filter(|file| makes_cases_up(&file.text)) {
        let Some(program) = program(path) else { continue };
        if pattern
            .split('|')
            .any(|left_out| left_out.strip_suffix('*').map_or(left_out == program, |start| program.starts_with(start)))
        {
            let line = text.lines().position(makes_cases_up).unwrap_or_default() + 1;
            complaints.push(format!("{path}:{line}: a property test in {program}, which .ci/soak leaves out"));
        }
    }
    complaints
}

fn makes_cases_up(text: &str) -> bool {
    text.contains(concat!("proptest", "! {")) || text.contains(concat!("TestRunner", "::"))
}

/// The test program that a source is part of: a crate's own, or one of the directory `tests`.
fn program(path: &str) -> Option<String> {
    let (package, within) = path.strip_prefix("crates/").unwrap_or(path).split_once('/')?;
    let name = match within.strip_prefix("tests/") {
        Some(test) => test.split(['/', '.']).next()?,
        None => package,
    };
    Some(name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let text = text.replace('@', "!");
        left_out(".ci/suites '!(up|cni|peers_*)'", &[File { path: path.into(), text }])
    }

    #[test]
    fn a_property_test_in_a_program_that_is_left_out_is_told() {
        let found = complaints("crates/network/tests/cni/reach.rs", "//@\nproptest@ {\n}");
        assert_eq!(found, ["crates/network/tests/cni/reach.rs:2: a property test in cni, which .ci/soak leaves out"]);
        assert_eq!(complaints("crates/orlop/tests/peers_up.rs", "proptest@ {").len(), 1);
    }

    #[test]
    fn others_are_fine() {
        for path in
            ["crates/network/src/cni/addresses.rs", "crates/virt-api/tests/admission/properties.rs", "e2e/src/lib.rs"]
        {
            assert_eq!(complaints(path, "proptest@ {"), Vec::<String>::new());
        }
        assert_eq!(complaints("crates/orlop/tests/up/machines.rs", "fn plain() {}"), Vec::<String>::new());
        assert_eq!(left_out("nothing", &[]).len(), 1);
    }
}
