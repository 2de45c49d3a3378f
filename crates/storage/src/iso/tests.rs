use std::process::Command;

use proptest::prelude::*;

use super::*;

fn files(list: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    list.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("{program} is needed by these tests ({error}); Debian has it in xorriso and genisoimage")
    });
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    text.into_owned()
}

fn written(label: &str, files: &BTreeMap<String, Vec<u8>>) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cd.iso");
    create(&path, label, files).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
#[ignore = "needs isoinfo and xorriso: make test"]
fn both_readers_find_every_file_under_its_name() {
    let files = files(&[
        ("user-data", "#cloud-config\n"),
        ("meta-data", "{}"),
        ("openstack/latest/meta_data.json", "[1]"),
        ("openstack/latest/user_data", &"x".repeat(5000)),
        ("openstack/empty", ""),
        ("UPPER and é.txt", "ü"),
    ]);
    let (folder, path) = written("config-2", &files);
    for names in ["-R", "-J"] {
        let listed = run("isoinfo", &[names, "-f", "-i", &path]);
        for name in files.keys().filter(|name| name.is_ascii()) {
            assert!(listed.lines().any(|line| line == format!("/{name}")), "{names}: {name} in {listed}");
            let read = run("isoinfo", &[names, "-x", &format!("/{name}"), "-i", &path]);
            assert_eq!(read.as_bytes(), files[name], "{names} {name}");
        }
    }
    let out = folder.path().join("out");
    run("xorriso", &["-abort_on", "SORRY", "-osirrox", "on", "-indev", &path, "-extract", "/", out.to_str().unwrap()]);
    for (name, bytes) in &files {
        assert_eq!(&std::fs::read(out.join(name)).unwrap(), bytes, "{name}");
    }
}

#[test]
#[ignore = "needs isoinfo and xorriso: make test"]
fn the_label_is_the_volumes_name() {
    for label in ["cidata", "config-2", "a", "exactly-thirty-two-characters-xx"] {
        let (_folder, path) = written(label, &files(&[("a", "b")]));
        let described = run("isoinfo", &["-d", "-i", &path]);
        assert!(described.contains(&format!("Volume id: {label}\n")), "{described}");
        assert!(described.contains("Joliet with UCS level 3 found"), "{described}");
        assert!(described.contains("Rock Ridge signatures version 1 found"), "{described}");
        let blkid = run("blkid", &["-p", "-o", "value", "-s", "LABEL", &path]);
        assert_eq!(blkid.trim(), label);
    }
}

#[test]
#[ignore = "needs isoinfo and xorriso: make test"]
fn many_files_and_the_longest_names_fit() {
    let long = |index: usize| format!("{index:03}{}", "n".repeat(100));
    let files: BTreeMap<_, _> = (0..300).map(|index| (long(index), vec![b'x'; index])).collect();
    let (_folder, path) = written("many", &files);
    for names in ["-R", "-J"] {
        let listed = run("isoinfo", &[names, "-f", "-i", &path]);
        assert_eq!(listed.lines().count(), 300, "{names}");
    }
    let listed = run("xorriso", &["-abort_on", "SORRY", "-indev", &path, "-find", "/", "-type", "f"]);
    assert!(files.keys().all(|name| listed.contains(name)));
    let plain = run("isoinfo", &["-f", "-i", &path]);
    let short: std::collections::BTreeSet<&str> = plain.lines().collect();
    assert_eq!(short.len(), 300, "short names are unique");
}

#[test]
fn the_same_files_give_the_same_private_bytes() {
    use std::os::unix::fs::MetadataExt;
    let files = files(&[("a", "1"), ("b/c", "2")]);
    assert_eq!(build("x", &files).unwrap(), build("x", &files).unwrap());
    let (folder, path) = written("x", &files);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    create(Path::new(&path), "y", &files).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), build("y", &files).unwrap(), "an image can be replaced");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn what_a_cd_cannot_hold_is_refused_by_name() {
    for name in
        ["", "/a", "a/", "a//b", "..", "a/../b", "a:b", "a\\b", "a\nb", "😀", &"x".repeat(104), "1/2/3/4/5/6/7/8/9"]
    {
        assert!(matches!(build("x", &files(&[(name, "")])), Err(IsoError::Name(n)) if n == name), "{name:?}");
    }
    assert!(matches!(build("x", &files(&[("a", ""), ("a/b", "")])), Err(IsoError::Conflict(_))));
    for label in ["", "é", &"x".repeat(33)] {
        assert!(matches!(build(label, &files(&[])), Err(IsoError::Label(_))));
    }
    let large = BTreeMap::from([("a".to_owned(), vec![0; MAX_CONTENT + 1])]);
    assert!(matches!(build("x", &large), Err(IsoError::Size(_))));
    let folders: BTreeMap<_, _> = (0..500).map(|index| (format!("folder-{index}/file"), Vec::new())).collect();
    assert!(matches!(build("x", &folders), Err(IsoError::Size(_))));
}

proptest! {
    #[test]
    fn every_file_is_in_the_image(names in proptest::collection::btree_set("[a-zA-Z0-9._ -]{1,12}(/[a-z]{1,4}){0,3}", 0..20)) {
        let files: BTreeMap<String, Vec<u8>> =
            names.into_iter().map(|name| { let bytes = format!("content of {name}").into_bytes(); (name, bytes) }).collect();
        if let Ok(image) = build("x", &files) {
            prop_assert_eq!(image.len() % SECTOR, 0);
            for bytes in files.values() {
                let found = image.chunks(SECTOR).any(|sector| sector.starts_with(bytes));
                prop_assert!(found);
            }
        }
    }
}
