//! Logs in directories.

use std::fs::OpenOptions;
use std::io::Write as _;

use tokio::sync::oneshot;

use super::*;

fn write(folder: &Path, file: &str, lines: &[&str]) {
    let mut file = OpenOptions::new().append(true).create(true).open(folder.join(file)).unwrap();
    for line in lines {
        writeln!(file, "2026-01-02T03:04:05Z stdout F {line}").unwrap();
    }
}

fn begin(folder: &Path, options: &Options) -> (Lines, oneshot::Sender<()>) {
    let (end, ended) = oneshot::channel::<()>();
    let ended = Box::pin(async move { drop(ended.await) });
    (read(folder, options, ended, Timestamp::UNIX_EPOCH).unwrap(), end)
}

async fn all(mut lines: Lines) -> String {
    let mut text = Vec::new();
    while let Some(piece) = lines.next().await {
        text.extend(piece.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn the_newest_attempt_is_read_with_what_was_rotated_away() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "9.log", &["before"]);
    write(folder.path(), "10.log.1", &["a", "b"]);
    write(folder.path(), "10.log", &["c"]);
    let of = async |options: Options| all(begin(folder.path(), &options).0).await;
    assert_eq!(of(Options::default()).await, "a\nb\nc\n");
    assert_eq!(of(Options { tail_lines: Some(2), ..Options::default() }).await, "b\nc\n");
    assert_eq!(of(Options { limit_bytes: Some(3), ..Options::default() }).await, "a\nb");
    assert_eq!(of(Options { previous: true, ..Options::default() }).await, "before\n");
}

#[tokio::test]
async fn following_goes_on_across_a_rotation_until_the_end() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "0.log", &["a"]);
    let (mut lines, end) = begin(folder.path(), &Options { follow: true, ..Options::default() });
    assert_eq!(lines.next().await.unwrap().unwrap(), b"a\n");
    write(folder.path(), "0.log", &["b"]);
    std::fs::rename(folder.path().join("0.log"), folder.path().join("0.log.1")).unwrap();
    write(folder.path(), "0.log", &["c"]);
    let mut seen = Vec::new();
    while seen != b"b\nc\n" {
        seen.extend(lines.next().await.unwrap().unwrap());
        assert!(b"b\nc\n".starts_with(&seen), "{seen:?}");
    }
    write(folder.path(), "0.log", &["d"]);
    end.send(()).unwrap();
    assert_eq!(all(lines).await, "d\n");
}

#[test]
fn what_is_not_there_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let none = || Box::pin(async {});
    let of = |options: &Options| read(folder.path(), options, none(), Timestamp::UNIX_EPOCH).err();
    assert!(matches!(of(&Options::default()), Some(LogError::None(_))));
    write(folder.path(), "0.log", &["a"]);
    let previous = Options { previous: true, ..Options::default() };
    assert!(matches!(of(&previous), Some(LogError::NoPrevious(_))));
}
