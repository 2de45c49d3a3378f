//! A container disk of a registry.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use storage::image::Reference;
use storage::pull::{self, Limits, Registries, Wanted};
use storage::qcow2::Format;

use crate::convert;
use crate::disk::Draft;
use crate::{ImportError, Progress};

/// Fills a draft.
pub(crate) async fn fetch(
    image: &Reference,
    registries: &Registries,
    draft: &Draft,
    scratch: &Path,
    progress: &Arc<Progress>,
) -> Result<(), ImportError> {
    let scratch = scratch.join("image");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&scratch);
    let target = opened.map_err(ImportError::file("create", &scratch))?;
    let most = draft.most_received();
    let limits = Limits { max_disk_bytes: most, max_virtual_size: draft.size(), ..Limits::default() };
    let fetched = async {
        let found = pull::open(image, registries).await?;
        found.fetch(&Wanted::Disk(None), &limits, &target, &Watched(progress)).await
    };
    let converted = match fetched.await {
        Ok(pulled) => match pulled.format {
            Format::Raw => convert::raw(&scratch, pulled.bytes, draft).await,
            Format::Qcow2 => convert::qcow2(&scratch, draft).await,
        },
        Err(error) => Err(error.into()),
    };
    // It goes with the pod in any case; the next attempt begins with an empty one.
    let _ = std::fs::remove_file(&scratch);
    converted
}

struct Watched<'a>(&'a Progress);

impl pull::Progress for Watched<'_> {
    fn update(&self, _: &Reference, done: u64, total: u64) {
        self.0.update(done, Some(total));
    }
}
