//! Configuration for the guest, as a CD: cloud-init's two kinds, and any set of files.
//!
//! The guest finds the image by its label: `cidata` for NoCloud, `config-2` for a config drive.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::iso::{self, IsoError};

/// What the guest is told about itself.
#[derive(Clone, Default)]
pub struct CloudInit {
    /// When it changes, cloud-init runs its once-per-instance steps again.
    pub instance_id: String,
    /// The guest's name.
    pub hostname: String,
    /// The kind of machine, if it has one; `#cloud-config` templates can ask for it.
    pub instance_type: Option<String>,
    /// A script, or `#cloud-config`; plain bytes.
    pub user_data: Vec<u8>,
    /// How the guest's network is to be set up, in the form of the chosen kind.
    pub network_data: Option<Vec<u8>>,
    /// Keys that may log in.
    pub public_keys: Vec<String>,
}

/// Where in the guest's eyes the configuration comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataSource {
    /// `user-data`, `meta-data`, `network-config` at the top.
    NoCloud,
    /// OpenStack's layout below `openstack/latest`.
    ConfigDrive,
}

impl DataSource {
    /// The label that cloud-init looks for.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NoCloud => "cidata",
            Self::ConfigDrive => "config-2",
        }
    }
}

impl CloudInit {
    /// Writes the image, mode 0600, over an older one.
    ///
    /// # Errors
    /// When it is too large or cannot be written.
    pub fn write(&self, path: &Path, source: DataSource) -> Result<(), IsoError> {
        iso::create(path, source.label(), &self.files(source))
    }

    /// The files that the guest will find, by path.
    #[must_use]
    pub fn files(&self, source: DataSource) -> BTreeMap<String, Vec<u8>> {
        let (folder, user, meta, network) = match source {
            DataSource::NoCloud => ("", "user-data", "meta-data", "network-config"),
            DataSource::ConfigDrive => ("openstack/latest/", "user_data", "meta_data.json", "network_data.json"),
        };
        let mut files = BTreeMap::new();
        // NoCloud ignores the image unless both files are there, even if empty.
        files.insert(format!("{folder}{user}"), self.user_data.clone());
        files.insert(format!("{folder}{meta}"), self.metadata(source));
        if let Some(network_data) = &self.network_data {
            files.insert(format!("{folder}{network}"), network_data.clone());
        }
        files
    }

    fn metadata(&self, source: DataSource) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "kebab-case")]
        struct NoCloud<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            instance_type: Option<&'a str>,
            instance_id: &'a str,
            local_hostname: &'a str,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            public_keys: BTreeMap<String, &'a str>,
        }

        #[derive(Serialize)]
        struct ConfigDrive<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            instance_type: Option<&'a str>,
            instance_id: &'a str,
            /// What cloud-init takes for the instance's identity on a config drive.
            uuid: &'a str,
            hostname: &'a str,
            local_hostname: &'a str,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            public_keys: BTreeMap<String, &'a str>,
        }

        let instance_type = self.instance_type.as_deref();
        let public_keys = self.public_keys.iter().enumerate().map(|(i, key)| (i.to_string(), key.trim())).collect();
        let (instance_id, hostname) = (self.instance_id.as_str(), self.hostname.as_str());
        let encoded = match source {
            DataSource::NoCloud => {
                serde_json::to_vec(&NoCloud { instance_type, instance_id, local_hostname: hostname, public_keys })
            }
            DataSource::ConfigDrive => serde_json::to_vec(&ConfigDrive {
                instance_type,
                instance_id,
                uuid: instance_id,
                hostname,
                local_hostname: hostname,
                public_keys,
            }),
        };
        // Strings and maps with string keys always have a JSON form.
        encoded.unwrap_or_default()
    }
}

/// User data holds passwords: a log that prints this struct must not.
impl std::fmt::Debug for CloudInit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudInit")
            .field("instance_id", &self.instance_id)
            .field("hostname", &self.hostname)
            .field("instance_type", &self.instance_type)
            .field("user_data", &format_args!("{} bytes", self.user_data.len()))
            .field("network_data", &format_args!("{} bytes", self.network_data.as_ref().map_or(0, Vec::len)))
            .field("public_keys", &self.public_keys)
            .finish()
    }
}

/// Writes a ConfigMap, a Secret or the like as a disk, mode 0600, over an older one.
///
/// # Errors
/// When a name or the label does not fit, it is too large, or cannot be written.
pub fn config_disk(path: &Path, label: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<(), IsoError> {
    iso::create(path, label, files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    use serde_json::{Value, json};

    use super::*;

    fn example() -> CloudInit {
        CloudInit {
            instance_id: "5a9fc181".to_owned(),
            hostname: "web".to_owned(),
            instance_type: Some("u1.small".to_owned()),
            user_data: b"#cloud-config\npassword: secret\n".to_vec(),
            network_data: Some(b"version: 2\n".to_vec()),
            public_keys: vec!["ssh-ed25519 AAAA me\n".to_owned()],
        }
    }

    fn json_of(files: &BTreeMap<String, Vec<u8>>, name: &str) -> Value {
        serde_json::from_slice(&files[name]).unwrap()
    }

    #[test]
    fn no_cloud_lies_at_the_top() {
        let files = example().files(DataSource::NoCloud);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["meta-data", "network-config", "user-data"]);
        assert_eq!(
            json_of(&files, "meta-data"),
            json!({"instance-type": "u1.small", "instance-id": "5a9fc181", "local-hostname": "web",
                   "public-keys": {"0": "ssh-ed25519 AAAA me"}})
        );
        let bare = CloudInit { instance_id: "i".to_owned(), hostname: "h".to_owned(), ..CloudInit::default() };
        let files = bare.files(DataSource::NoCloud);
        assert_eq!(files["user-data"], b"");
        assert_eq!(json_of(&files, "meta-data"), json!({"instance-id": "i", "local-hostname": "h"}));
    }

    #[test]
    fn a_config_drive_lies_where_openstack_puts_it() {
        let files = example().files(DataSource::ConfigDrive);
        let names = ["meta_data.json", "network_data.json", "user_data"].map(|name| format!("openstack/latest/{name}"));
        assert_eq!(files.keys().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
        assert_eq!(
            json_of(&files, "openstack/latest/meta_data.json"),
            json!({"instance_type": "u1.small", "instance_id": "5a9fc181", "uuid": "5a9fc181", "hostname": "web",
                   "local_hostname": "web", "public_keys": {"0": "ssh-ed25519 AAAA me"}})
        );
    }

    #[test]
    #[ignore = "needs isoinfo and xorriso: make test"]
    fn the_guest_finds_the_image_by_its_label_and_the_host_keeps_it_private() {
        let folder = tempfile::tempdir().unwrap();
        for source in [DataSource::NoCloud, DataSource::ConfigDrive] {
            let path = folder.path().join(source.label());
            example().write(&path, source).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            let output = Command::new("isoinfo")
                .args(["-R", "-f", "-i"])
                .arg(&path)
                .output()
                .expect("isoinfo is needed by these tests; Debian has it in genisoimage");
            let listed = String::from_utf8(output.stdout).unwrap();
            for name in example().files(source).keys() {
                assert!(listed.contains(&format!("/{name}\n")), "{listed}");
            }
        }
    }

    #[test]
    fn a_log_shows_no_user_data() {
        assert!(!format!("{:?}", example()).contains("secret"));
    }

    #[test]
    fn a_secret_becomes_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.iso");
        config_disk(&path, "secret", &BTreeMap::from([("password".to_owned(), b"x".to_vec())])).unwrap();
        assert!(path.exists());
    }
}
