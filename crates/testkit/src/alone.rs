//! Tests about the whole process, such as its memory, which other tests share.

use std::process::Command;

/// Set to the name of the test that a process is for.
const NAME: &str = "ORLOP_TEST_ALONE";

/// Does something in a process that does nothing else. `module` is `module_path!()` of the test, `name` its name.
///
/// # Panics
/// When it fails there.
pub fn alone(module: &str, name: &str, work: impl FnOnce()) {
    let inside = module.split_once("::").map_or("", |(_, inside)| inside);
    let test = format!("{inside}::{name}");
    if std::env::var(NAME).is_ok_and(|wanted| wanted == test) {
        return work();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args([&test, "--exact", "--nocapture"]).env(NAME, &test).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_in_a_process_of_its_own() {
        let mut is_done_here = false;
        alone(module_path!(), "it_is_done_in_a_process_of_its_own", || is_done_here = true);
        assert_eq!(is_done_here, std::env::var_os(NAME).is_some());
    }

    #[test]
    fn a_test_that_is_not_there_is_no_success() {
        let tried = std::panic::catch_unwind(|| alone(module_path!(), "no_such_test", || ()));
        assert!(tried.is_err());
    }
}
