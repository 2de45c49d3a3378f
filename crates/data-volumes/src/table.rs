//! The table of controllers, and what can be set about them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use manager::descriptor::Descriptor;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::pod::PROGRESS_PORT;
use crate::{config, data_source, profile, volume};

/// An importer that is not quick to say how far it is is asked again later.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest answer: `100.00%`.
const ANSWER: usize = 16;

/// Asks an importer's pod how far it is.
pub type Asking = Arc<dyn Fn(Arc<Pod>) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// What can be set.
#[derive(Clone)]
pub struct Settings {
    /// The image of importers.
    pub image: String,
    /// How they are asked for their progress.
    pub asking: Asking,
}

impl Settings {
    /// Importers of this image, asked over the network.
    #[must_use]
    pub fn new(image: &str) -> Self {
        Self { image: image.to_owned(), asking: Arc::new(|pod| Box::pin(async move { ask(&pod).await })) }
    }
}

/// All controllers. They share one account.
pub const DESCRIPTORS: &[Descriptor<Settings>] = &[
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(volume::controller::NAME, &["datavolume"], |context, settings| {
            Ok(volume::controller::start(context, settings))
        })
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(data_source::NAME, &["datasource"], |context, _| Ok(data_source::start(context)))
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(profile::NAME, &["storageprofile"], |context, _| Ok(profile::start(context)))
    },
    Descriptor {
        account: ACCOUNT,
        ..Descriptor::new(config::NAME, &["cdiconfig"], |context, _| Ok(config::start(context)))
    },
];

const ACCOUNT: &str = "orlop.dev:data-volumes";

/// What an importer writes to whoever connects to it. It reads what strangers made: no more is believed than a percentage.
async fn ask(pod: &Pod) -> Option<String> {
    let address = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    let asked = async {
        let mut connection = TcpStream::connect(SocketAddr::new(address, PROGRESS_PORT)).await.ok()?;
        let mut answer = [0; ANSWER];
        let mut length = 0;
        while length < ANSWER {
            match connection.read(&mut answer[length..]).await.ok()? {
                0 => break,
                count => length += count,
            }
        }
        percentage(std::str::from_utf8(&answer[..length]).ok()?)
    };
    timeout(PATIENCE, asked).await.ok().flatten()
}

fn percentage(text: &str) -> Option<String> {
    let (whole, rest) = text.strip_suffix('%')?.split_once('.')?;
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let fits = is_number(whole) && is_number(rest) && rest.len() == 2 && whole.parse::<u8>().is_ok_and(|it| it <= 100);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_percentage_is_believed() {
        assert_eq!(percentage("42.00%").as_deref(), Some("42.00%"));
        for text in ["", "%", "42%", "101.00%", "4 2.00%", "42.000%", "-1.00%", "<script>"] {
            assert_eq!(percentage(text), None, "{text:?}");
        }
    }
}
