//! Imports from servers, good and bad.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "web/secure.rs"]
mod secure;

use std::io::{Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use importer::{Import, ImportError, Progress, Reach, Source, Web};

const SIZE: u64 = 8 << 20;

/// What a request is answered with.
type Answer = Arc<dyn Fn(&str, &mut TcpStream) -> std::io::Result<()> + Send + Sync>;

/// A server that answers as it is told, and remembers what it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answer: impl Fn(&str, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let (answer, noted): (Answer, _) = (Arc::new(answer), asked.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (answer, noted) = (answer.clone(), noted.clone());
                std::thread::spawn(move || {
                    let request = read(&mut stream);
                    noted.lock().unwrap().push(request.clone());
                    // Whoever hangs up early sees that itself.
                    let _ = answer(&request, &mut stream);
                });
            }
        });
        Self { address, asked }
    }

    /// One that has a file.
    fn of(file: Vec<u8>) -> Self {
        Self::new(move |_, stream| {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len())?;
            stream.write_all(&file)
        })
    }

    fn web(&self) -> Web {
        let reach = Reach::default().and(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Web { url: format!("http://{}/file", self.address), reach, ..Web::default() }
    }
}

fn read(stream: &mut impl Read) -> String {
    let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => request.extend_from_slice(&buffer[..length]),
        }
    }
    String::from_utf8_lossy(&request).to_ascii_lowercase()
}

/// Imports; the disk's bytes, or why there is none. Nothing else is ever left over.
async fn import(web: Web) -> Result<Vec<u8>, ImportError> {
    let (target, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let import = Import {
        source: Source::Web(web),
        target: target.path().to_owned(),
        scratch: scratch.path().to_owned(),
        size: SIZE,
        preallocate: false,
    };
    let done = importer::run(&import, &Arc::<Progress>::default()).await;
    assert_eq!(names(scratch.path()), Vec::<String>::new());
    match done {
        Ok(()) => {
            assert_eq!(names(target.path()), ["disk.img"]);
            Ok(std::fs::read(target.path().join("disk.img")).unwrap())
        }
        Err(error) => {
            assert_eq!(names(target.path()), Vec::<String>::new());
            Err(error)
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A disk with something at both ends of a large hole.
fn content() -> Vec<u8> {
    let mut bytes = vec![0; 5 << 20];
    bytes[..3].copy_from_slice(b"one");
    let end = bytes.len() - 3;
    bytes[end..].copy_from_slice(b"two");
    bytes
}

fn assert_is_content(disk: &[u8]) {
    let content = content();
    assert_eq!(disk.len() as u64, SIZE);
    assert!(disk[..content.len()] == content[..], "another content");
    assert!(disk[content.len()..].iter().all(|byte| *byte == 0), "not all zeros behind it");
}

/// By the program that everybody uses.
fn compressed(program: &str, arguments: &[&str], bytes: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new(program).args(arguments).arg("-c").arg(&path).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn qcow2(arguments: &[&str], bytes: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (raw, image) = (folder.path().join("raw"), folder.path().join("image"));
    std::fs::write(&raw, bytes).unwrap();
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-f", "raw", "-O", "qcow2"]).args(arguments).arg(&raw).arg(&image);
    assert!(command.status().unwrap().success());
    std::fs::read(image).unwrap()
}

#[tokio::test]
async fn every_format_becomes_the_same_disk() {
    let plain = content();
    let image = qcow2(&[], &plain);
    let files = [
        ("raw", plain.clone()),
        ("gz", compressed("gzip", &[], &plain)),
        ("xz", compressed("xz", &["-9"], &plain)),
        ("zst", compressed("zstd", &["-q"], &plain)),
        ("qcow2", image.clone()),
        ("compressed qcow2", qcow2(&["-c"], &plain)),
        ("qcow2.gz", compressed("gzip", &[], &image)),
        ("qcow2.xz", compressed("xz", &[], &image)),
    ];
    for (name, file) in files {
        match import(Server::of(file).web()).await {
            Ok(disk) => assert_is_content(&disk),
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn a_checksum_is_that_of_the_file_as_it_is_sent() {
    let file = compressed("gzip", &[], &content());
    let server = Server::of(file.clone());
    let sum = |program: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, &file).unwrap();
        let output = Command::new(program).arg(&path).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    for name in ["md5", "sha1", "sha256", "sha512"] {
        let checksum = format!("{name}:{}", sum(&format!("{name}sum")));
        assert_is_content(&import(Web { checksum: checksum.parse().ok(), ..server.web() }).await.unwrap());
    }
    let wrong = format!("md5:{}", "0".repeat(32));
    let refused = import(Web { checksum: wrong.parse().ok(), ..server.web() }).await.unwrap_err();
    assert!(matches!(refused, ImportError::Checksum { .. }) && refused.is_final(), "{refused:?}");
}

#[tokio::test]
async fn a_broken_connection_goes_on_where_it_was() {
    let file = content();
    let half = file.len() / 2;
    let server = Server::new(move |request, stream| match request.contains("range: bytes=") {
        false => {
            write!(stream, "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: {}\r\n\r\n", file.len())?;
            stream.write_all(&file[..half])
        }
        true => {
            let from: usize =
                request.split("range: bytes=").nth(1).unwrap().split('-').next().unwrap().parse().unwrap();
            assert!(request.contains("if-range: \"a\""), "{request}");
            let (rest, last) = (file.len() - from, file.len() - 1);
            let range = format!("bytes {from}-{last}/{}", file.len());
            write!(stream, "HTTP/1.1 206 Partial\r\nContent-Range: {range}\r\nContent-Length: {rest}\r\n\r\n")?;
            stream.write_all(&file[from..])
        }
    });
    assert_is_content(&import(server.web()).await.unwrap());
    assert_eq!(server.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_file_that_changed_meanwhile_is_not_mixed() {
    let file = content();
    let server = Server::new(move |_, stream| {
        write!(stream, "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: {}\r\n\r\n", file.len())?;
        stream.write_all(&file[..file.len() / 2])
    });
    let broken = import(server.web()).await.unwrap_err();
    assert!(matches!(broken, ImportError::Broken { .. }) && !broken.is_final(), "{broken:?}");
}

#[tokio::test]
async fn passwords_and_headers_are_sent() {
    let server = Server::of(content());
    let credentials = storage::pull::Credentials { user: "user".to_owned(), password: "word".to_owned() };
    let web = Web { credentials: Some(credentials), headers: vec!["X-Token: abc".to_owned()], ..server.web() };
    import(web).await.unwrap();
    let asked = server.asked.lock().unwrap().concat();
    // "user:word", in base64 and lower case.
    assert!(asked.contains("authorization: basic dxnlcjp3b3jk") && asked.contains("x-token: abc"), "{asked}");
    let refused = import(Web { headers: vec!["no colon".to_owned()], ..server.web() }).await.unwrap_err();
    assert!(refused.is_final() && !refused.to_string().contains("abc"), "{refused}");
}

#[tokio::test]
async fn headers_do_not_follow_to_another_server() {
    let mirror = Server::of(content());
    let to = mirror.address;
    let server = Server::new(move |request, stream| {
        let to = if request.contains("get /own") { format!("http://{to}/file") } else { "/own".to_owned() };
        write!(stream, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    });
    let credentials = storage::pull::Credentials { user: "user".to_owned(), password: "word".to_owned() };
    let web = Web { credentials: Some(credentials), headers: vec!["X-Token: abc".to_owned()], ..server.web() };
    assert_eq!(import(web).await.unwrap(), import(mirror.web()).await.unwrap());
    let asked = server.asked.lock().unwrap().clone();
    assert!(asked.len() == 2 && asked.iter().all(|one| one.contains("x-token: abc")), "{asked:?}");
    let asked = mirror.asked.lock().unwrap().concat();
    assert!(!asked.contains("abc") && !asked.contains("authorization"), "{asked}");
}

#[tokio::test]
async fn a_server_that_sends_to_the_machine_is_refused_by_name() {
    for target in ["http://127.0.0.2/", "http://169.254.169.254/latest", "http://[::1]/"] {
        let server = Server::new(move |_, stream| {
            write!(stream, "HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")
        });
        let refused = import(server.web()).await.unwrap_err();
        assert!(matches!(refused, ImportError::Forbidden { .. }) && refused.is_final(), "{target}: {refused:?}");
    }
    let circle =
        Server::new(|_, stream| write!(stream, "HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"));
    let refused = import(circle.web()).await.unwrap_err();
    assert!(matches!(refused, ImportError::Redirect { .. }), "{refused:?}");
    let own = import(Web { url: "http://localhost:1/".to_owned(), ..Web::default() }).await.unwrap_err();
    assert!(matches!(own, ImportError::Forbidden { .. }), "{own:?}");
}

#[tokio::test]
async fn size_lies_and_endless_bodies_end() {
    let large = |bytes: u64| {
        move |_: &str, stream: &mut TcpStream| write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\nx")
    };
    let endless = |_: &str, stream: &mut TcpStream| {
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        loop {
            stream.write_all(&[1; 4096])?;
        }
    };
    // Small on the way, and far more than the claim when it is decompressed.
    let bomb = compressed("gzip", &["-9"], &vec![0; 64 << 20]);
    let skipping = |_: &str, stream: &mut TcpStream| {
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        loop {
            // A zstd frame of nothing, to be skipped.
            stream.write_all(&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0])?;
        }
    };
    let wide = qcow2(&[], &vec![1; 9 << 20]);
    let servers = [
        ("length", Server::new(large(1 << 40))),
        ("endless", Server::new(endless)),
        ("bomb", Server::of(bomb)),
        ("skipping", Server::new(skipping)),
        ("wide", Server::of(wide)),
    ];
    for (name, server) in servers {
        let refused = import(server.web()).await.unwrap_err();
        assert!(matches!(refused, ImportError::TooLarge { .. }) && refused.is_final(), "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn hostile_images_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let with_backing = || {
        let mut command = Command::new("qemu-img");
        command.args(["create", "-q", "-f", "qcow2", "-u", "-b", "/etc/shadow", "-F", "raw"]).arg(&image).arg("1M");
        assert!(command.status().unwrap().success());
        std::fs::read(&image).unwrap()
    };
    let mut truncated = qcow2(&[], &content());
    truncated.truncate(100);
    let mut broken = compressed("gzip", &[], &content());
    broken.truncate(broken.len() / 2);
    let mut garbled = compressed("xz", &[], &content());
    let middle = garbled.len() / 2;
    garbled[middle] = !garbled[middle];
    let mut vmdk = b"KDMV".to_vec();
    vmdk.resize(4096, 0);
    let twice = compressed("gzip", &[], &compressed("gzip", &[], &content()));
    let cases = [
        ("backing", with_backing(), "has a backing file"),
        ("header", truncated, "inspect the qcow2 image"),
        ("gz", broken, "decompress the file"),
        ("xz", garbled, "decompress the file"),
        ("vmdk", vmdk, "is a VMDK image"),
        ("twice", twice, "twice compressed"),
        ("nothing", Vec::new(), "is empty"),
    ];
    for (name, file, problem) in cases {
        let refused = import(Server::of(file).web()).await.unwrap_err();
        assert!(refused.to_string().contains(problem) && refused.is_final(), "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn a_corrupt_qcow2_is_not_half_a_disk() {
    let mut image = qcow2(&[], &content());
    // The table of tables points nowhere.
    let table = u64::from_be_bytes(image[40..48].try_into().unwrap());
    let at = usize::try_from(table).unwrap();
    image[at..at + 8].copy_from_slice(&0x8fff_ffff_ffff_0000_u64.to_be_bytes());
    let refused = import(Server::of(image).web()).await.unwrap_err();
    assert!(refused.to_string().contains("it is corrupt") && refused.is_final(), "{refused:?}");
}

#[tokio::test]
async fn what_a_server_refuses_is_told() {
    for (status, is_final) in [("404 Not Found", true), ("401 No", true)] {
        let server = Server::new(move |_, stream| write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        let refused = import(server.web()).await.unwrap_err();
        assert!(matches!(refused, ImportError::Status { .. }) && refused.is_final() == is_final, "{refused:?}");
    }
}
