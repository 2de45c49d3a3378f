//! Health in the text form of Kubernetes: one word, or a line per check.

use crate::context::HealthCheck;

/// What is well, what is not, and how it is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) healthy: bool,
    pub(super) text: String,
    /// Checks that failed, with their reasons: for the log only. Anyone may ask for health.
    pub(super) failed: Vec<(String, String)>,
}

/// What was asked about health.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    verbose: bool,
    excluded: Vec<&'a str>,
}

impl<'a> Asked<'a> {
    /// Reads `verbose` and each `exclude`, and nothing else. Names of checks need no escapes, so none are undone.
    pub(super) fn parse(query: &'a str) -> Self {
        let mut asked = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "verbose" => asked.verbose = true,
                "exclude" => asked.excluded.push(value),
                _ => {}
            }
        }
        asked
    }
}

/// Asks all checks but those that are excluded.
pub(super) fn all(endpoint: &str, checks: &[(String, HealthCheck)], asked: &Asked<'_>) -> Report {
    let (mut text, mut failed) = (String::new(), Vec::new());
    for (name, check) in checks {
        if asked.excluded.contains(&name.as_str()) {
            text.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if let Err(reason) = check() {
            text.push_str(&format!("[-]{name} failed: reason withheld\n"));
            failed.push((name.clone(), reason));
        } else {
            text.push_str(&format!("[+]{name} ok\n"));
        }
    }
    let unknown: Vec<String> = asked
        .excluded
        .iter()
        .filter(|excluded| !checks.iter().any(|(name, _)| name == *excluded))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        text.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    let healthy = failed.is_empty();
    if !healthy {
        text.push_str(&format!("{endpoint} check failed\n"));
    } else if asked.verbose {
        text.push_str(&format!("{endpoint} check passed\n"));
    } else {
        "ok".clone_into(&mut text);
    }
    Report { healthy, text, failed }
}

/// Asks one check.
pub(super) fn one(name: &str, check: &HealthCheck) -> Report {
    match check() {
        Ok(()) => Report { healthy: true, text: "ok".to_owned(), failed: Vec::new() },
        Err(reason) => Report {
            healthy: false,
            text: "internal server error: reason withheld\n".to_owned(),
            failed: vec![(name.to_owned(), reason)],
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn checks(broken: &'static [&'static str]) -> Vec<(String, HealthCheck)> {
        let check = |name: &'static str| -> (String, HealthCheck) {
            let result = if broken.contains(&name) { Err("secret".to_owned()) } else { Ok(()) };
            (name.to_owned(), Arc::new(move || result.clone()))
        };
        ["ping", "leaderElection", "garbage-collector-controller"].map(check).to_vec()
    }

    #[test]
    fn one_word_is_enough_for_who_is_well() {
        let report = all("healthz", &checks(&[]), &Asked::parse(""));
        assert_eq!((report.healthy, report.text.as_str()), (true, "ok"));
        assert!(!Asked::parse("verb=1&xverbose").verbose);
    }

    #[test]
    fn verbose_has_a_line_for_each_check() {
        let report = all("livez", &checks(&[]), &Asked::parse("verbose"));
        let text = "[+]ping ok\n[+]leaderElection ok\n[+]garbage-collector-controller ok\nlivez check passed\n";
        assert_eq!(report.text, text);
        assert_eq!(all("livez", &checks(&[]), &Asked::parse("verbose=true")).text, text);
    }

    #[test]
    fn a_failure_is_told_without_its_reason_verbose_or_not() {
        for query in ["", "verbose"] {
            let report = all("healthz", &checks(&["leaderElection"]), &Asked::parse(query));
            let text = "[+]ping ok\n[-]leaderElection failed: reason withheld\n\
                        [+]garbage-collector-controller ok\nhealthz check failed\n";
            assert_eq!((report.healthy, report.text.as_str()), (false, text));
            assert_eq!(report.failed, [("leaderElection".to_owned(), "secret".to_owned())]);
        }
        let (name, check) = &checks(&["ping"])[0];
        assert_eq!(one(name, check).text, "internal server error: reason withheld\n");
    }

    #[test]
    fn what_is_excluded_is_not_asked() {
        let broken = checks(&["leaderElection"]);
        let report = all("healthz", &broken, &Asked::parse("exclude=leaderElection&exclude=other&verbose"));
        let text = "[+]ping ok\n[+]leaderElection excluded: ok\n[+]garbage-collector-controller ok\n\
                    warn: some health checks cannot be excluded: no matches for \"other\"\nhealthz check passed\n";
        assert_eq!((report.healthy, report.text.as_str()), (true, text));
    }
}
