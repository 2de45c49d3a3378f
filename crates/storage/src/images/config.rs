//! The configuration of an image: how it is run.

use serde::{Deserialize, Serialize};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is no JSON, or of another shape.
    #[error("malformed")]
    Json(#[source] serde_json::Error),
}

/// How an image wants to be run; whoever runs it may want otherwise.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Config {
    /// The program, and what always comes first among its arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, or the program if there is no entrypoint.
    pub cmd: Vec<String>,
    /// Names and values.
    pub env: Vec<(String, String)>,
    /// A user, or a user and a group behind a colon, by name or number; empty for root.
    pub user: String,
    /// Where it starts; empty for `/`.
    pub working_dir: String,
    /// What asks it to end, such as `SIGTERM` or `15`; none for SIGTERM.
    pub stop_signal: Option<String>,
}

impl Config {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Wire {
            entrypoint: Option<Vec<String>>,
            cmd: Option<Vec<String>>,
            env: Option<Vec<String>>,
            user: Option<String>,
            working_dir: Option<String>,
            stop_signal: Option<String>,
        }
        #[derive(Deserialize)]
        struct Outer {
            config: Option<Wire>,
        }

        let outer: Outer = serde_json::from_slice(bytes).map_err(ConfigError::Json)?;
        let wire = outer.config.unwrap_or_default();
        Ok(Self {
            entrypoint: wire.entrypoint.unwrap_or_default(),
            cmd: wire.cmd.unwrap_or_default(),
            env: wire.env.unwrap_or_default().iter().map(|entry| pair(entry)).collect(),
            user: wire.user.unwrap_or_default(),
            working_dir: wire.working_dir.unwrap_or_default(),
            stop_signal: wire.stop_signal.filter(|signal| !signal.is_empty()),
        })
    }
}

fn pair(entry: &str) -> (String, String) {
    let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
    (name.to_owned(), value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_or_null_is_empty() {
        for text in ["{}", r#"{"config": null}"#, r#"{"config": {"Cmd": null, "Env": null, "StopSignal": ""}}"#] {
            assert_eq!(Config::parse(text.as_bytes()).unwrap(), Config::default(), "{text}");
        }
        assert!(Config::parse(b"[]").is_err());
    }

    #[test]
    fn all_that_matters_is_read() {
        let text = r#"{"os": "linux", "config": {"Entrypoint": ["/a"], "Cmd": ["b"], "Env": ["P=x=y", "Q"],
            "User": "1:2", "WorkingDir": "/w", "StopSignal": "SIGQUIT", "Labels": {"l": "m"}}}"#;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = Config {
            entrypoint: vec!["/a".to_owned()],
            cmd: vec!["b".to_owned()],
            env: vec![pair("P", "x=y"), pair("Q", "")],
            user: "1:2".to_owned(),
            working_dir: "/w".to_owned(),
            stop_signal: Some("SIGQUIT".to_owned()),
        };
        assert_eq!(Config::parse(text.as_bytes()).unwrap(), expected);
    }
}
