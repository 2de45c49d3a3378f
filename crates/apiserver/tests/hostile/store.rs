//! Objects in the store that nobody can read, written by a program that had no limit, or by nobody that is known.

use std::path::Path;

use http::Request;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::scene::{Scene, TREES, tree};

const HOSTILE_MAPS: &str = "/api/v1/namespaces/hostile/configmaps";

/// Puts a text in the place of an object's, with the checksum that it should have.
fn overwrite(folder: &Path, table: &str, name: &str, text: &str) {
    let connection = Connection::open(folder.join("objects.sqlite")).unwrap();
    let of = params![table, "hostile", name];
    let query = "SELECT revision FROM objects WHERE resource = ?1 AND namespace = ?2 AND name = ?3";
    let revision: i64 = connection.query_row(query, of, |row| row.get(0)).unwrap();
    let mut hasher = crc32fast::Hasher::new();
    for part in [table.as_bytes(), b"hostile", name.as_bytes(), &revision.to_le_bytes(), text.as_bytes()] {
        hasher.update(part);
        hasher.update(&[0]);
    }
    let change = "UPDATE objects SET content = ?4, checksum = ?5 WHERE resource = ?1 AND namespace = ?2 AND name = ?3";
    let changed = connection.execute(change, params![table, "hostile", name, text, hasher.finalize()]).unwrap();
    assert_eq!(changed, 1);
}

/// Metadata that can be read, and a spec that cannot.
fn too_deep(name: &str, uid: &str) -> String {
    let metadata = json!({ "finalizers": ["example.com/held"], "name": name, "namespace": "hostile", "uid": uid });
    format!("{{\"metadata\":{metadata},\"spec\":{}{}}}", "{\"a\":".repeat(1000), "1".to_owned() + &"}".repeat(1000))
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|one| one["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_cannot_be_read_keep_nothing_else_from_being_served() {
    let scene = Scene::begin().await;
    for name in ["good", "deep", "gone"] {
        scene.server.post(TREES, &tree(name, &json!({}))).await.expect(201);
        let map = json!({ "metadata": { "name": name }, "data": { "x": name } });
        scene.server.post(HOSTILE_MAPS, &map).await.expect(201);
    }
    let scene = scene.restart_after(|folder| {
        overwrite(folder, "trees.example.com", "deep", &too_deep("deep", "u"));
        overwrite(folder, "trees.example.com", "gone", "{\"metadata\":{\"name\":\"gone\"},");
        overwrite(folder, "configmaps", "deep", "no JSON at all");
        overwrite(folder, "configmaps", "gone", "[]");
    });
    let scene = scene.await;
    for collection in [TREES, HOSTILE_MAPS] {
        let list = scene.server.get(collection).await.expect(200);
        assert_eq!(names(&list), ["good"]);
        let mut frames = scene.server.watch(&format!("{collection}?watch=1")).await;
        assert_eq!(frames.names(1).await, ["ADDED good"]);
        let refused = scene.server.get(&format!("{collection}/deep")).await.expect(500);
        assert!(refused["message"].as_str().unwrap().contains("can only be deleted"), "{refused}");
        scene.server.merge(&format!("{collection}/deep"), &json!({ "data": {} })).await.expect(500);
        // Whoever asks for the name cannot have it.
        let again = json!({ "apiVersion": "example.com/v1", "kind": "Tree", "metadata": { "name": "deep" } });
        if collection == TREES {
            scene.server.post(collection, &again).await.expect(409);
        }
        // One by name, whatever its finalizers say; the rest with all others.
        let other = json!({ "preconditions": { "uid": "another" } });
        scene.server.delete(&format!("{collection}/deep"), &other).await.expect(409);
        scene.server.delete(&format!("{collection}/deep"), &json!({})).await.expect(200);
        scene.server.get(&format!("{collection}/deep")).await.expect(404);
    }
    scene.end(&[HOSTILE_MAPS]).await;
}

/// What a disk may do to bytes that it keeps: the content of one object, another's revision, the place of a third, and a word
/// of a fourth that makes the place no text any more.
fn rot(folder: &Path) {
    let connection = Connection::open(folder.join("objects.sqlite")).unwrap();
    let changes = [
        "UPDATE objects SET content = replace(content, 'content', 'contend') WHERE name = 'content'",
        "UPDATE objects SET revision = revision + 1152921504606846976 WHERE name = 'revision'",
        "UPDATE objects SET name = 'plaze' WHERE name = 'place'",
        "UPDATE objects SET name = CAST(x'ff' AS TEXT) WHERE name = 'word'",
    ];
    for change in changes {
        assert_eq!(connection.execute(change, []).unwrap(), 1, "{change}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_whose_bytes_have_changed_on_disk_are_told_and_the_rest_is_served() {
    let scene = Scene::begin().await;
    let made = ["content", "revision", "place", "word", "sound"];
    for name in made {
        let map = json!({ "metadata": { "name": name }, "data": { "x": name } });
        scene.server.post(HOSTILE_MAPS, &map).await.expect(201);
    }
    let scene = scene.restart_after(rot).await;
    let list = scene.server.get(HOSTILE_MAPS).await.expect(200);
    assert_eq!(names(&list), ["sound"]);
    for name in ["content", "revision", "plaze"] {
        let refused = scene.server.get(&format!("{HOSTILE_MAPS}/{name}")).await.expect(500);
        assert!(refused["message"].as_str().unwrap().contains("its checksum is wrong"), "{refused}");
        scene.server.merge(&format!("{HOSTILE_MAPS}/{name}"), &json!({ "data": {} })).await.expect(500);
    }
    // Its own writes go on, and what is damaged goes when it is deleted.
    let map = json!({ "metadata": { "name": "word" }, "data": { "x": "again" } });
    let new = scene.server.post(HOSTILE_MAPS, &map).await.expect(201);
    let revision: u64 = new["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(revision < 1 << 32, "a revision that nobody gave counts for nothing");
    for name in ["content", "revision", "plaze"] {
        scene.server.delete(&format!("{HOSTILE_MAPS}/{name}"), &json!({})).await.expect(200);
        scene.server.get(&format!("{HOSTILE_MAPS}/{name}")).await.expect(404);
    }
    let scene = scene.restart().await;
    let list = scene.server.get(HOSTILE_MAPS).await.expect(200);
    assert_eq!(names(&list), ["sound", "word"]);
    scene.end(&[HOSTILE_MAPS]).await;
}

/// Whoever reads an object to write it out again would write it in another way than it is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_has_the_bytes_of_the_store() {
    let scene = Scene::begin().await;
    let made = scene.server.post(HOSTILE_MAPS, &json!({ "metadata": { "name": "odd" }, "data": { "x": "1" } })).await;
    let uid = made.expect(201)["metadata"]["uid"].as_str().unwrap().to_owned();
    // No program of ours writes spaces, nor a letter as its number.
    let odd = r#""data" :  {"x":"\u0031"}"#;
    let text = format!(r#"{{"metadata":{{"name":"odd","namespace":"hostile","uid":"{uid}"}},{odd}}}"#);
    let scene = scene.restart_after(|folder| overwrite(folder, "configmaps", "odd", &text)).await;
    for path in [HOSTILE_MAPS.to_owned(), format!("{HOSTILE_MAPS}/odd"), format!("{HOSTILE_MAPS}?labelSelector=!none")]
    {
        let answer = scene.server.client.request_text(Request::get(&path).body(Vec::new()).unwrap()).await.unwrap();
        assert!(answer.contains(odd), "{path}: {answer}");
    }
    scene.end(&[HOSTILE_MAPS]).await;
}

/// A definition is an object like others: its own are kept until it is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_cannot_be_read_can_be_deleted() {
    let scene = Scene::begin().await;
    scene.server.post(TREES, &tree("t", &json!({}))).await.expect(201);
    let scene = scene.restart_after(|folder| {
        let connection = Connection::open(folder.join("objects.sqlite")).unwrap();
        let content = "{\"metadata\":{}";
        let table = "customresourcedefinitions.apiextensions.k8s.io";
        let query = "SELECT revision FROM objects WHERE resource = ?1";
        let revision: i64 = connection.query_row(query, [table], |row| row.get(0)).unwrap();
        let mut hasher = crc32fast::Hasher::new();
        for part in [table.as_bytes(), b"", b"trees.example.com", &revision.to_le_bytes(), content.as_bytes()] {
            hasher.update(part);
            hasher.update(&[0]);
        }
        let change = "UPDATE objects SET content = ?2, checksum = ?3 WHERE resource = ?1";
        connection.execute(change, params![table, content, hasher.finalize()]).unwrap();
    });
    let scene = scene.await;
    scene.server.get(TREES).await.expect(404);
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trees.example.com";
    scene.server.get(definition).await.expect(500);
    scene.server.delete(definition, &json!({})).await.expect(200);
    scene.server.get(definition).await.expect(404);
}
