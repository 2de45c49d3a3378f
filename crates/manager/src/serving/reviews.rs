//! The API server's word on who has a token and who may see a path.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::cache::{Answers, Key};

/// How long an answer holds, good or bad: as long as Kubernetes keeps it, and short enough to take a right away.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Answers of each kind. Askers are few; this bounds those who try.
const MOST_KEPT: usize = 1024;
/// Questions on their way at the same time; others wait within their time.
const MOST_AT_ONCE: usize = 16;
/// Who asks does not wait longer.
const SLOWEST_REVIEW: Duration = Duration::from_secs(10);

/// Why there is no answer. The next request asks again.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("no answer within {SLOWEST_REVIEW:?}")]
    Late,
    #[error("the review failed")]
    Failed(#[source] Arc<kube::Error>),
    #[error("the review was answered without a status")]
    Empty,
}

pub(super) struct Reviews {
    client: Client,
    places: Arc<Semaphore>,
    tokens: Answers<Option<Arc<UserInfo>>, ReviewError>,
    accesses: Answers<bool, ReviewError>,
}

impl Reviews {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            places: Arc::new(Semaphore::new(MOST_AT_ONCE)),
            tokens: Answers::new(KEPT_FOR, MOST_KEPT),
            accesses: Answers::new(KEPT_FOR, MOST_KEPT),
        }
    }

    /// Who has a token; none if nobody.
    pub(super) async fn token(&self, token: &str) -> Result<Option<Arc<UserInfo>>, ReviewError> {
        self.tokens
            .get(digest(token.as_bytes()), || {
                let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
                let review = TokenReview { spec, ..TokenReview::default() };
                let api = Api::<TokenReview>::all(self.client.clone());
                self.within_limits(async move {
                    let answered = api.create(&PostParams::default(), &review).await?;
                    Ok(answered.status.map(|status| {
                        let user = status.user.filter(|_| status.authenticated == Some(true))?;
                        user.username.as_ref().is_some_and(|name| !name.is_empty()).then(|| Arc::new(user))
                    }))
                })
            })
            .await
    }

    /// Whether someone may see a path.
    pub(super) async fn access(&self, who: &UserInfo, verb: &str, path: &str) -> Result<bool, ReviewError> {
        let asked = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: who.username.clone(),
            uid: who.uid.clone(),
            groups: who.groups.clone(),
            extra: who.extra.clone(),
            non_resource_attributes: Some(asked),
            resource_attributes: None,
        };
        let Ok(text) = serde_json::to_vec(&spec) else { return Err(ReviewError::Empty) };
        self.accesses
            .get(digest(&text), || {
                let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
                let api = Api::<SubjectAccessReview>::all(self.client.clone());
                self.within_limits(async move {
                    let answered = api.create(&PostParams::default(), &review).await?;
                    Ok(answered.status.map(|status| status.allowed && status.denied != Some(true)))
                })
            })
            .await
    }

    fn within_limits<V>(
        &self,
        review: impl Future<Output = Result<Option<V>, kube::Error>> + Send + 'static,
    ) -> impl Future<Output = Result<V, ReviewError>> + Send + 'static
    where
        V: Send + 'static,
    {
        let places = self.places.clone();
        async move {
            let asked = async {
                let _place = places.acquire().await;
                review.await
            };
            let answered = timeout(SLOWEST_REVIEW, asked).await.map_err(|_| ReviewError::Late)?;
            answered.map_err(|error| ReviewError::Failed(Arc::new(error)))?.ok_or(ReviewError::Empty)
        }
    }
}

fn digest(text: &[u8]) -> Key {
    Sha256::digest(text).into()
}
