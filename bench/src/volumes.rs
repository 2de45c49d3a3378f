//! Volumes: what an import costs beside `curl` and `qemu-img convert`, and how long a copy of a disk takes.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use importer::{Import, Progress, Reach, Source, Web};
use serde_json::{Value, json};
use storage::volumes::files::{DISK, Files};
use storage::volumes::{Copies, Filling, Name, Stored, Volumes as _};
use tokio::time::Instant;

use crate::boot::ratio;
use crate::rounds::{Spread, in_turns};

const MIB: u64 = 1 << 20;
/// Bytes of a disk that are not zeros are all different: nothing compresses them.
const BLOCK: usize = 64 << 10;

/// Images that are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Raw,
    Qcow2,
}

impl Format {
    fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Imports a disk of which half is data, and does the same with `curl` and `qemu-img`, in turns; the first figures are of ours.
///
/// # Errors
/// When one of them fails.
pub async fn import(folder: &Path, format: Format, mib: u64, rounds: usize) -> Result<Value> {
    let (raw, image) = (folder.join("raw"), folder.join("image"));
    data(&raw, mib, 2)?;
    e2e::output(Command::new("qemu-img").args(["convert", "-O", format.word()]).arg(&raw).arg(&image))?;
    std::fs::remove_file(&raw)?;
    let address = serve(&image)?;
    let url = format!("http://{address}/image");
    let ours = async || {
        let round = tempfile::tempdir_in(folder)?;
        let reach = Reach::default().and(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let import = Import {
            source: Source::Web(Web { url: url.clone(), reach, ..Web::default() }),
            target: made(round.path(), "target")?,
            scratch: made(round.path(), "scratch")?,
            size: mib * MIB,
            preallocate: false,
        };
        let begun = Instant::now();
        importer::run(&import, &Arc::<Progress>::default()).await.context("import")?;
        anyhow::Ok(begun.elapsed())
    };
    let theirs = async || {
        let round = tempfile::tempdir_in(folder)?;
        let (got, disk) = (round.path().join("got"), round.path().join("disk"));
        let begun = Instant::now();
        e2e::output(Command::new("curl").args(["-sSf", "-o"]).arg(&got).arg(&url))?;
        e2e::output(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(&got).arg(&disk))?;
        // An import is on the disk when it is done.
        File::open(&disk)?.sync_all()?;
        anyhow::Ok(begun.elapsed())
    };
    let (ours, theirs): (Vec<Duration>, Vec<Duration>) = in_turns(rounds, ours, theirs).await?.into_iter().unzip();
    Ok(json!({
        "figure": "import", "format": format.word(), "mib": mib,
        "orlop_s": seconds(&ours), "curl_and_convert_s": seconds(&theirs), "ratio": ratio(&ours, &theirs),
    }))
}

/// Copies a sparse disk of so many GiB, with so many MiB of data.
///
/// # Errors
/// When it cannot be copied.
pub fn copy(folder: &Path, gib: u64, mib: u64, rounds: usize) -> Result<Value> {
    let volumes = Files::open(&folder.join("volumes"))?;
    let origin = Name::try_from("origin")?;
    volumes.create(&origin, Filling::Nothing, 0)?;
    let disk = volumes.path(&origin).join(DISK);
    data(&disk, mib, 1)?;
    File::options().write(true).open(&disk)?.set_len(gib << 30)?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let name = Name::try_from(format!("copy-{round}"))?;
        let begun = Instant::now();
        volumes.create(&name, Filling::Copy(&Stored::Volume(origin.clone())), gib << 30)?;
        times.push(begun.elapsed());
        volumes.delete(&Stored::Volume(name))?;
    }
    let copies = match volumes.copies() {
        Copies::Shared => "shared",
        Copies::Plain { .. } => "plain",
    };
    Ok(json!({ "figure": "clone", "gib": gib, "data_mib": mib, "copies": copies, "s": seconds(&times) }))
}

fn seconds(times: &[Duration]) -> Value {
    let all: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    Spread::of(&all).map_or(Value::Null, |spread| spread.json())
}

fn made(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::create_dir(&path)?;
    Ok(path)
}

/// A file of so many MiB, of which every so many are data.
fn data(path: &Path, mib: u64, every: u64) -> Result<()> {
    let mut file = File::create(path)?;
    file.set_len(mib * MIB)?;
    // A generator of numbers, as all that matters is that they do not repeat soon.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; BLOCK];
    for at in (0..mib * MIB).step_by(BLOCK).filter(|at| (at / MIB).is_multiple_of(every)) {
        for bytes in block.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.copy_from_slice(&state.to_le_bytes());
        }
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}

/// Serves a file to whoever asks for anything, as long as the program runs; parts of it, too.
fn serve(path: &Path) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let path = path.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let path = path.clone();
            // Whoever hangs up early sees that itself.
            std::thread::spawn(move || drop(answer(stream, &path)));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, path: &Path) -> Result<()> {
    let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut buffer)?;
        anyhow::ensure!(length > 0, "no request");
        request.extend_from_slice(&buffer[..length]);
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    match range(&String::from_utf8_lossy(&request).to_ascii_lowercase(), length) {
        Some((first, last)) => {
            let part = last - first + 1;
            write!(stream, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{length}\r\n")?;
            write!(stream, "Content-Length: {part}\r\nConnection: close\r\n\r\n")?;
            file.seek(SeekFrom::Start(first))?;
            std::io::copy(&mut file.take(part), &mut stream)?;
        }
        None => {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            )?;
            std::io::copy(&mut file, &mut stream)?;
        }
    }
    Ok(())
}

/// The first and the last byte that a request asks for.
fn range(request: &str, length: u64) -> Option<(u64, u64)> {
    let asked = request.lines().find_map(|line| line.strip_prefix("range: bytes="))?;
    let (first, last) = asked.trim().split_once('-')?;
    let first = first.parse().ok()?;
    let last = last.parse().unwrap_or(u64::MAX).min(length.checked_sub(1)?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_with_the_file() {
        let of = |line: &str| range(&format!("get / http/1.1\r\n{line}\r\n\r\n"), 100);
        assert_eq!(of("range: bytes=10-19"), Some((10, 19)));
        assert_eq!(of("range: bytes=10-"), Some((10, 99)));
        assert_eq!([of("host: h"), of("range: bytes=100-"), of("range: bytes=-5")], [None; 3]);
    }

    #[tokio::test]
    async fn small_figures_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let told = copy(folder.path(), 1, 1, 1).unwrap();
        assert!(told["s"]["median"].as_f64().is_some() && told["figure"] == "clone", "{told}");
        if ["curl", "qemu-img"].iter().all(|name| testkit::Need::Program(name).missing().is_none()) {
            for format in [Format::Raw, Format::Qcow2] {
                let folder = tempfile::tempdir().unwrap();
                let told = import(folder.path(), format, 4, 1).await.unwrap();
                assert!(told["ratio"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{told}");
            }
        }
    }
}
