//! Whatever reads bytes that a stranger has put into an image, as functions of bytes: each returns, or panics where a promise is
//! broken. The fuzzers of `fuzz/` call them, and the property tests here.

use crate::qcow2;

pub use crate::pull::fuzzing::{archive, manifest};

/// The header of a qcow2 image.
pub fn qcow2_header(bytes: &[u8]) {
    let Ok(info) = qcow2::parse(bytes) else { return };
    assert!((2..=3).contains(&info.version));
    // What is told of other files is in the header itself.
    for name in [&info.backing_file, &info.backing_format].into_iter().flatten() {
        assert!(name.is_empty() || bytes.windows(name.len()).any(|part| part == name.as_slice()));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::OnceLock;

    use proptest::prelude::*;
    use testkit::edits::{Edit, edited};

    use super::*;

    const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":
"application/vnd.oci.image.config.v1+json","digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
"size":2},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":
"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":32}]}"#;

    const INDEX: &str = r#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":
"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":7,"platform":{"os":"linux","architecture":
"amd64"},"annotations":{"org.opencontainers.image.ref.name":"latest"}}]}"#;

    /// The start of an overlay as this crate writes it.
    fn overlay() -> &'static [u8] {
        static OVERLAY: OnceLock<Vec<u8>> = OnceLock::new();
        OVERLAY.get_or_init(new_overlay)
    }

    fn new_overlay() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        qcow2::create_overlay(&path, Path::new("/images/base"), qcow2::Format::Raw, 1 << 30).unwrap();
        std::fs::read(&path).unwrap()[..512].to_vec()
    }

    /// Files, a directory, links, and names that need headers of their own.
    fn layer() -> Vec<u8> {
        let mut builder = ::tar::Builder::new(Vec::new());
        let mut header = ::tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        for name in ["disk/a".to_owned(), format!("disk/{}", "long".repeat(60))] {
            builder.append_data(&mut header.clone(), name, &b"abc"[..]).unwrap();
        }
        header.set_size(0);
        header.set_entry_type(::tar::EntryType::Symlink);
        builder.append_link(&mut header.clone(), "disk/link", "/etc/passwd").unwrap();
        builder.append_pax_extensions([("path", &b"disk/other"[..]), ("mtime", b"1.5")]).unwrap();
        builder.append_data(&mut header, "x", &b""[..]).unwrap();
        builder.into_inner().unwrap()
    }

    /// The checksums of its headers are those of what is in them: else every change ends there.
    fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
        for block in bytes.chunks_exact_mut(512) {
            if block[257..262] == *b"ustar" {
                block[148..156].fill(b' ');
                let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
                block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        bytes
    }

    fn edits() -> impl Strategy<Value = Vec<Edit>> {
        proptest::collection::vec(any::<Edit>(), 0..8)
    }

    proptest! {
        #[test]
        fn manifests_are_read_or_refused(edits in edits()) {
            manifest(&edited(MANIFEST.as_bytes(), &edits));
            manifest(&edited(INDEX.as_bytes(), &edits));
        }

        #[test]
        fn archives_are_read_or_refused(edits in edits()) {
            archive(&summed(edited(&layer(), &edits)));
        }

        #[test]
        fn headers_of_disks_are_read_or_refused(edits in edits()) {
            qcow2_header(&edited(overlay(), &edits));
        }
    }

    /// Without a change they are what they are meant to be: else nothing above would be tried.
    #[test]
    fn what_is_changed_is_right() {
        assert_eq!(archive(&summed(layer())), 4);
        assert!(manifest(MANIFEST.as_bytes()) && manifest(INDEX.as_bytes()));
        assert_eq!(qcow2::parse(overlay()).unwrap().backing_file.unwrap(), b"/images/base");
    }
}
