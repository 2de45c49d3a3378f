//! What is on disk: it survives restarts, damage is told, and only one process has it.

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use apiserver::{ApiServer, OpenError, Place};
use serde_json::json;

use crate::support::{DEFINITIONS, MAPS, Server, WIDGETS, map, widget, widgets};

async fn open(folder: &Path) -> Result<Server, OpenError> {
    ApiServer::builder(Place::Folder(folder.to_owned())).start().await.map(Server::on)
}

/// Opens again what was just dropped: the writer lets go of the lock when its task has ended.
async fn reopen(folder: &Path) -> Server {
    loop {
        match open(folder).await {
            Ok(server) => return server,
            Err(OpenError::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = open(folder.path()).await.unwrap();
    server.define(&widgets()).await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let custom = server.post(WIDGETS, &widget("w", &json!({ "color": "blue" }))).await.expect(201);
    server.post(MAPS, &map("gone")).await.expect(201);
    server.delete(&format!("{MAPS}/gone"), &json!({})).await.expect(200);
    drop(server);
    let server = reopen(folder.path()).await;
    assert_eq!(server.get(&format!("{MAPS}/a")).await.expect(200), made);
    assert_eq!(server.get(&format!("{WIDGETS}/w")).await.expect(200), custom);
    server.get(&format!("{MAPS}/gone")).await.expect(404);
    let selected = server.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dblue")).await.expect(200);
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let number =
        |value: &serde_json::Value| value["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    // What happened before the restart is not known any more.
    let mut frames = server.watch(&format!("{MAPS}?watch=1&resourceVersion=2")).await;
    let error = frames.next().await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(frames.next().await, serde_json::Value::Null);
    let next = server.post(MAPS, &map("b")).await.expect(201);
    assert!(number(&next) > number(&custom) + 1, "revisions only grow");
    server.delete(&format!("{DEFINITIONS}/widgets.example.com"), &json!({})).await.expect(200);
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _first = open(folder.path()).await.unwrap();
    let error = open(folder.path()).await.err().unwrap().to_string();
    assert!(error.contains(&format!("is in use by process {}", std::process::id())), "{error}");
}

#[tokio::test]
async fn files_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let _server = open(folder.path()).await.unwrap();
    for name in ["objects.sqlite", "objects.sqlite-wal", "lock"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_file_that_is_damaged_as_a_whole_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = open(folder.path()).await.unwrap();
    let mut marked = map("a");
    marked["data"]["x"] = "find-me".into();
    server.post(MAPS, &marked).await.expect(201);
    drop(server);
    drop(reopen(folder.path()).await);
    let backup = folder.path().join("backup.sqlite");
    apiserver::backup(folder.path(), &backup).unwrap();
    let flip = |name: &str, what: &[u8], with: &[u8]| {
        let other = tempfile::tempdir().unwrap();
        let file = other.path().join("objects.sqlite");
        let mut bytes = std::fs::read(&backup).unwrap();
        let at = bytes.windows(what.len()).position(|window| window == what).unwrap_or_else(|| panic!("{name}"));
        bytes[at..at + with.len()].copy_from_slice(with);
        std::fs::write(&file, bytes).unwrap();
        other
    };
    let error = |folder: tempfile::TempDir| async move {
        open(folder.path()).await.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let header = error(flip("the header", b"SQLite format 3", b"Something other")).await;
    assert!(header.contains("is not an Orlop store"), "{header}");
    let truncated = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(&backup).unwrap();
    std::fs::write(truncated.path().join("objects.sqlite"), &bytes[..bytes.len() / 2]).unwrap();
    let cut = error(truncated).await;
    assert!(cut.contains("is damaged"), "{cut}");
    let newer = tempfile::tempdir().unwrap();
    let file = newer.path().join("objects.sqlite");
    std::fs::copy(&backup, &file).unwrap();
    // The format is the user version of the header, at offset 60.
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().write_at(&9_u32.to_be_bytes(), 60).unwrap();
    let newer = error(newer).await;
    assert!(newer.contains("has format 9, but this version of Orlop only reads formats up to 1"), "{newer}");
}

/// In the row, in its content, in the index by which it is found: wherever its name is in the file, one bit of it turns.
#[tokio::test]
async fn a_bit_that_turns_on_disk_costs_one_object_at_most() {
    const NAME: &[u8] = b"find-me";
    let folder = tempfile::tempdir().unwrap();
    let server = open(folder.path()).await.unwrap();
    for name in ["find-me", "sound"] {
        server.post(MAPS, &map(name)).await.expect(201);
    }
    drop(server);
    drop(reopen(folder.path()).await);
    let backup = folder.path().join("backup.sqlite");
    apiserver::backup(folder.path(), &backup).unwrap();
    let bytes = std::fs::read(&backup).unwrap();
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(NAME)).collect();
    assert!(places.len() >= 3, "{places:?}");
    let mut costs = 0;
    for at in places {
        let other = tempfile::tempdir().unwrap();
        let mut bytes = bytes.clone();
        bytes[at + NAME.len() - 1] ^= 1;
        std::fs::write(other.path().join("objects.sqlite"), bytes).unwrap();
        let server = open(other.path()).await.unwrap();
        server.get(&format!("{MAPS}/sound")).await.expect(200);
        let list = server.get(MAPS).await.expect(200);
        costs += 2 - list["items"].as_array().unwrap().len();
        // Whatever is left of it goes for good, and its name can be had again.
        server.delete(MAPS, &json!({})).await.expect(200);
        server.post(MAPS, &map("find-me")).await.expect(201);
        drop(server);
        let server = reopen(other.path()).await;
        let list = server.get(MAPS).await.expect(200);
        let names: Vec<&str> =
            list["items"].as_array().unwrap().iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
        assert_eq!(names, ["find-me"], "at {at}");
    }
    assert!(costs >= 2, "a checksum tells of the row's place and of its content");
}

/// A write that was cut off in the middle of the log is as if it never was; all before it are there.
#[tokio::test]
async fn a_torn_write_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let server = open(folder.path()).await.unwrap();
    for index in 0..10 {
        server.post(MAPS, &map(&format!("m{index}"))).await.expect(201);
    }
    let copy = tempfile::tempdir().unwrap();
    for name in ["objects.sqlite", "objects.sqlite-wal"] {
        std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    // What a crash in the middle of the next commit would leave: a part of a frame.
    let log = copy.path().join("objects.sqlite-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend_from_within(32..32 + 1000);
    std::fs::write(&log, bytes).unwrap();
    let again = open(copy.path()).await.unwrap();
    assert_eq!(again.get(MAPS).await.expect(200)["items"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn a_backup_of_a_running_server_opens() {
    let folder = tempfile::tempdir().unwrap();
    let server = open(folder.path()).await.unwrap();
    server.post(MAPS, &map("a")).await.expect(201);
    let other = tempfile::tempdir().unwrap();
    apiserver::backup(folder.path(), &other.path().join("objects.sqlite")).unwrap();
    server.post(MAPS, &map("later")).await.expect(201);
    let restored = open(other.path()).await.unwrap();
    restored.get(&format!("{MAPS}/a")).await.expect(200);
    restored.get(&format!("{MAPS}/later")).await.expect(404);
    let again = apiserver::backup(folder.path(), &other.path().join("objects.sqlite"));
    assert!(again.is_err(), "a backup never overwrites");
}

/// What happens when the disk under a running server is not what it was.
#[tokio::test]
async fn a_store_that_failed_is_told_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let server = open(folder.path()).await.unwrap();
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let file = rusqlite::Connection::open(folder.path().join("objects.sqlite")).unwrap();
    file.execute_batch("DROP TABLE objects").unwrap();
    let failed = tokio::spawn({
        let server = server.server.clone();
        async move { server.failed().await }
    });
    server.get("/readyz").await.expect(200);
    let refused = server.post(MAPS, &map("b")).await.expect(500);
    assert_eq!(refused["reason"], "InternalError");
    let reason = failed.await.unwrap();
    assert!(reason.contains("no such table"), "{reason}");
    for path in ["/readyz", "/readyz/store", "/livez"] {
        let text = server.get(path).await.expect(500);
        assert!(text.as_str().unwrap().contains(&reason), "{path}: {text}");
    }
    server.post(MAPS, &map("c")).await.expect(500);
    // What is known can still be read; the process is about to end.
    assert_eq!(server.get(&format!("{MAPS}/a")).await.expect(200), made);
}

/// A crash at the wrong moment, or an older program, left objects whose definition is gone.
#[tokio::test]
async fn objects_without_a_definition_do_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = open(folder.path()).await.unwrap();
    server.define(&widgets()).await;
    server.post(WIDGETS, &widget("w", &json!({}))).await.expect(201);
    server.post(MAPS, &map("a")).await.expect(201);
    drop(server);
    drop(reopen(folder.path()).await);
    let file = rusqlite::Connection::open(folder.path().join("objects.sqlite")).unwrap();
    let removed = file.execute("DELETE FROM objects WHERE resource LIKE 'customresourcedefinitions.%'", []).unwrap();
    assert_eq!(removed, 1);
    let server = reopen(folder.path()).await;
    let left: i64 = file
        .query_row("SELECT count(*) FROM objects WHERE resource = 'widgets.example.com'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
    server.define(&widgets()).await;
    assert_eq!(server.get(WIDGETS).await.expect(200)["items"], json!([]));
    server.get(&format!("{MAPS}/a")).await.expect(200);
}
