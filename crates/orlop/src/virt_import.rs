//! `orlop virt-import`: fills the disk of a DataVolume from inside the importer's pod.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use importer::{Checksum, Import, Progress, Reach, Source, Web};
use storage::image::Reference;
use storage::pull::{Credentials, Registries};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

/// Fill the disk of a DataVolume.
#[derive(clap::Args)]
#[group(id = "virt_import")]
pub(crate) struct Arguments {
    /// Address of the file: http://, https://, or docker:// for an image of a registry.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Bytes that the disk has.
    #[arg(long, value_name = "BYTES")]
    size: u64,
    /// Directory of the claim.
    #[arg(long, value_name = "PATH")]
    target: PathBuf,
    /// Directory for what cannot be converted while it arrives.
    #[arg(long, value_name = "PATH")]
    scratch: PathBuf,
    /// Checksum of the file, such as sha256:...
    #[arg(long, value_name = "CHECKSUM")]
    checksum: Option<Checksum>,
    /// Header to send along, as NAME: VALUE.
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
    /// Directory whose files are headers to send along.
    #[arg(long, value_name = "PATH")]
    secret_headers: Vec<PathBuf>,
    /// Directory with the files accessKeyId and secretKey.
    #[arg(long, value_name = "PATH")]
    credentials: Option<PathBuf>,
    /// Directory whose files are certificates to trust.
    #[arg(long, value_name = "PATH")]
    certificates: Option<PathBuf>,
    /// Allocate all blocks of the disk.
    #[arg(long)]
    preallocate: bool,
    /// Port on which to report progress.
    #[arg(long, value_name = "PORT")]
    progress_port: u16,
    /// File for the final message.
    #[arg(long, value_name = "PATH")]
    last_words: PathBuf,
}

/// Runs. An attempt that may be repeated fails; one that nobody needs to repeat exits with success, and says what is wrong in its
/// final message.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let last_words = arguments.last_words.clone();
    let say = |text: &str| std::fs::write(&last_words, text).with_context(|| format!("write {}", last_words.display()));
    let ended = runtime.block_on(import(arguments));
    // Whoever still reads or writes is of no use any more.
    runtime.shutdown_background();
    match ended {
        Ok(Ok(())) => say(data_volumes::DONE),
        Ok(Err(error)) if error.is_final() => {
            say(&format!("{}{}", data_volumes::REFUSED, manager::errors::chain(&error)))
        }
        Ok(Err(error)) => {
            say(&manager::errors::chain(&error))?;
            Err(error.into())
        }
        // What cannot be read now may be there later: a secret, a config map.
        Err(error) => {
            say(&manager::errors::chain(error.as_ref()))?;
            Err(error)
        }
    }
}

async fn import(arguments: Arguments) -> anyhow::Result<Result<(), importer::ImportError>> {
    let Arguments {
        url,
        size,
        target,
        scratch,
        checksum,
        header,
        secret_headers,
        credentials,
        certificates,
        preallocate,
        progress_port,
        last_words: _,
    } = arguments;
    let credentials = credentials.map(|directory| credentials_in(&directory)).transpose()?;
    let mut pem = Vec::new();
    for file in certificates.iter().map(|directory| files(directory)).collect::<Result<Vec<_>, _>>()?.concat() {
        pem.extend(std::fs::read(&file).with_context(|| format!("read {}", file.display()))?);
        pem.push(b'\n');
    }
    let source = match url.strip_prefix("docker://") {
        Some(image) => registry(image, credentials, &pem)?,
        None => {
            let mut headers = header;
            for directory in &secret_headers {
                for file in files(directory)? {
                    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
                    headers.extend(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
                }
            }
            Source::Web(Web { url, headers, credentials, certificates: pem, checksum, reach: Reach::default() })
        }
    };
    let import = Import { source, target, scratch, size, preallocate };
    let progress = Arc::new(Progress::default());
    // Nobody learns of the progress of an import that cannot listen, and that is no reason to fail.
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, progress_port)).await {
        Ok(listener) => Some(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, progress_port)).await.ok(),
    };
    let Some(listener) = listener else { return Ok(importer::run(&import, &progress).await) };
    tokio::select! {
        biased;
        ended = importer::run(&import, &progress) => Ok(ended),
        error = tell(&listener, &progress) => Err(error),
    }
}

/// Tells whoever connects how far the import is.
async fn tell(listener: &TcpListener, progress: &Progress) -> anyhow::Error {
    loop {
        let (mut connection, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => return anyhow::Error::new(error).context("report progress"),
        };
        let text = progress.percent().unwrap_or_default();
        // Whoever does not wait for the answer does not need it.
        let _ = connection.write_all(text.as_bytes()).await;
    }
}

fn registry(image: &str, credentials: Option<Credentials>, pem: &[u8]) -> anyhow::Result<Source> {
    let image: Reference = image.parse().context("read the image's name")?;
    let mut registries = Registries::default();
    let Reference::Registry { host, .. } = &image else { bail!("{image} is not an image of a registry") };
    if let Some(credentials) = credentials {
        registries.set_credentials(host, credentials)?;
    }
    if !pem.is_empty() {
        registries.add_root_certificates(pem)?;
    }
    Ok(Source::Registry { image, registries: Box::new(registries) })
}

fn credentials_in(directory: &Path) -> anyhow::Result<Credentials> {
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    Ok(Credentials { user: read("accessKeyId")?, password: read("secretKey")? })
}

/// What a volume of a secret or a config map shows; names with two dots are its own.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("read {}", directory.display()))?;
        if !entry.file_name().to_string_lossy().starts_with("..") {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
