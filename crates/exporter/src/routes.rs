//! From a request to what answers it.

use std::io;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use percent_encoding::percent_decode_str;

use crate::answer::{self, Answer};
use crate::manifests::{self, Reader};
use crate::{Content, Export, Volume, below, image, token, tree};

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Route<'a> {
    /// Whether the server is ready. Nobody needs a token for this.
    Ready,
    Image(&'a Path),
    CompressedImage(&'a Path),
    Archive(&'a Path),
    /// A directory without the slash at the end of its address.
    Bare,
    File(&'a Path, PathBuf),
    Manifests(Reader),
    Secret,
}

/// Answers a request. It blocks while files are opened.
pub(crate) fn answer(export: &Export, method: &Method, uri: &Uri, headers: &HeaderMap) -> Answer {
    let Some(route) = find(export, uri.path()) else { return answer::empty(StatusCode::NOT_FOUND) };
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refusal = answer::empty(StatusCode::METHOD_NOT_ALLOWED);
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    if route == Route::Ready {
        return answer::text("text/plain; charset=utf-8", "OK");
    }
    let token = match token::read(&export.token) {
        Ok(token) => token,
        Err(error) => return failed(&error),
    };
    match token::is_shown(&token, headers, uri) {
        Ok(true) => {}
        Ok(false) => return answer::empty(StatusCode::UNAUTHORIZED),
        Err(error) => return failed(&error),
    }
    match send(export, &token, route, (method, uri, headers)) {
        Ok(answer) => answer,
        Err(error) if below::is_nothing(&error) => answer::empty(StatusCode::NOT_FOUND),
        Err(error) => failed(&error),
    }
}

fn send(
    export: &Export,
    token: &[u8],
    route: Route<'_>,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
) -> io::Result<Answer> {
    match route {
        Route::Ready => Ok(answer::empty(StatusCode::OK)),
        Route::Image(volume) => image::send(image::open(volume)?, method, headers),
        Route::CompressedImage(volume) => Ok(image::send_compressed(image::open(volume)?, method)),
        Route::Archive(volume) => tree::send_archive(volume, method),
        Route::Bare => {
            let mut answer = answer::empty(StatusCode::MOVED_PERMANENTLY);
            let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            // Relative: whoever comes through the API server has another path in front.
            let last = uri.path().rsplit('/').next().unwrap_or_default();
            let place = HeaderValue::from_str(&format!("{last}/{query}")).map_err(io::Error::other)?;
            answer.headers_mut().insert(header::LOCATION, place);
            Ok(answer)
        }
        Route::File(volume, path) => tree::send(volume, &path, method, headers),
        Route::Manifests(reader) => {
            let known = export.manifests.as_deref().map(|path| manifests::all(path, reader, headers)).transpose()?;
            Ok(known.flatten().unwrap_or_else(|| answer::empty(StatusCode::NOT_FOUND)))
        }
        Route::Secret => manifests::secret(&export.name, token, headers),
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Answer {
    tracing::warn!(error, "cannot answer a request");
    answer::empty(StatusCode::INTERNAL_SERVER_ERROR)
}

fn find<'a>(export: &'a Export, path: &str) -> Option<Route<'a>> {
    match path {
        "/exportready" => return Some(Route::Ready),
        "/internal/manifests/all" => return Some(Route::Manifests(Reader::Inside)),
        "/external/manifests/all" => return Some(Route::Manifests(Reader::Outside)),
        "/internal/manifests/secret" | "/external/manifests/secret" => return Some(Route::Secret),
        _ => {}
    }
    let (name, rest) = path.strip_prefix("/volumes/")?.split_once('/')?;
    let Volume { path, content, .. } = export.volumes.iter().find(|volume| volume.name == name)?;
    match (content, rest) {
        (Content::Disk, "disk.img") => Some(Route::Image(path)),
        (Content::Disk, "disk.img.gz") => Some(Route::CompressedImage(path)),
        (Content::Files, "disk.tar.gz") => Some(Route::Archive(path)),
        (Content::Files, "dir") => Some(Route::Bare),
        (Content::Files, rest) => Some(Route::File(path, decoded(rest.strip_prefix("dir/")?)?)),
        (Content::Disk, _) => None,
    }
}

/// The path of a file as it was written; none if it could lead elsewhere.
fn decoded(text: &str) -> Option<PathBuf> {
    let parts = text.split('/').filter(|part| !part.is_empty());
    let mut path = PathBuf::new();
    for part in parts {
        let part = percent_decode_str(part).decode_utf8().ok()?;
        let is_name = part != "." && part != ".." && !part.contains(['/', '\0']);
        path.push(Some(&*part).filter(|_| is_name)?);
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn export() -> Export {
        let volume = |name: &str, content| Volume { name: name.to_owned(), path: format!("/{name}").into(), content };
        Export {
            name: "e".to_owned(),
            volumes: vec![volume("disk", Content::Disk), volume("files", Content::Files)],
            token: "/token".into(),
            manifests: None,
        }
    }

    #[test]
    fn each_volume_is_offered_as_what_it_holds() {
        let export = export();
        let file = |path: &str| Some(Route::File(Path::new("/files"), path.into()));
        for (path, route) in [
            ("/volumes/disk/disk.img", Some(Route::Image(Path::new("/disk")))),
            ("/volumes/disk/disk.img.gz", Some(Route::CompressedImage(Path::new("/disk")))),
            ("/volumes/disk/disk.tar.gz", None),
            ("/volumes/disk/dir/", None),
            ("/volumes/files/disk.img", None),
            ("/volumes/files/disk.tar.gz", Some(Route::Archive(Path::new("/files")))),
            ("/volumes/files/dir", Some(Route::Bare)),
            ("/volumes/files/dir/", file("")),
            ("/volumes/files/dir/a%20b//c/", file("a b/c")),
            ("/volumes/files/dir/../x", None),
            ("/volumes/files/dir/%2e%2e/x", None),
            ("/volumes/files/dir/a%2fb", None),
            ("/volumes/files/dir/a%00", None),
            ("/volumes/other/disk.img", None),
            ("/volumes/disk", None),
            ("/", None),
        ] {
            assert_eq!(find(&export, path), route, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_upwards(path in "[a.%/25ef]{0,30}") {
            if let Some(path) = decoded(&path) {
                prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
            }
        }
    }
}
