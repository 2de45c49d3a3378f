//! A shim and nothing else: `test-shim shim --state FOLDER`.

use std::path::Path;

fn main() -> Result<(), node::shim::ShimError> {
    let state = std::env::args().nth(3).unwrap_or_default();
    node::shim::run(Path::new(&state), std::future::ready(()))
}
