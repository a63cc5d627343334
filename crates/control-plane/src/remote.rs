//! Another server that knows the users: it reviews tokens ([`TokenWebhook`]) and decides who may do
//! what ([`AccessWebhook`]). A kubeconfig says where it is and how to reach it, as for
//! kube-apiserver.

mod access;
mod cache;
mod conditions;
mod token;

pub use access::{AccessWebhook, AccessWebhookOptions, ReviewVersion};
pub use cache::{ANSWERS_MAX, QUESTION_BYTES_MAX};
pub use conditions::{CONDITIONS_MAX, MatchConditions};
pub use token::{TOKEN_TTL, TokenWebhook};

use http::{Method, Request, Uri};
use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube_client::{Client, Config};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of one attempt: 10 s, of which connecting takes a part.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Timeout of connections: 30 s, the longest timeout of an attempt.
const CONNECTION_MAX: Duration = Duration::from_secs(30);
/// Number of attempts of one question; the request's deadline may end them earlier.
const ATTEMPTS: u32 = 3;
/// The pause after the first failed attempt. Later ones are twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(200);

/// Why a remote server cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The kubeconfig cannot be read or does not name a server.
    #[error("use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: KubeconfigError,
    },
    /// This process is not in a pod of a cluster.
    #[error("use the configuration of a pod")]
    InCluster(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No client can be made of it.
    #[error("make a client of the kubeconfig {}", path.display())]
    Client {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<kube_client::Error>,
    },
}

/// A server that answers reviews at one URL.
#[derive(Clone)]
struct Remote {
    client: Client,
    /// Path and query of the URL.
    target: Uri,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Remote {
    /// The server of a kubeconfig's current context.
    async fn open(path: &Path) -> Result<Self, RemoteError> {
        let failed = |source| RemoteError::Kubeconfig { path: path.to_owned(), source };
        let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(failed)?;
        Self::of(config, path)
    }

    /// The server of the cluster in which this process is a pod, at a path.
    fn in_cluster(path: &str) -> Result<Self, RemoteError> {
        let config =
            Config::incluster().map_err(|error| RemoteError::InCluster(Box::new(error)))?;
        let target = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
        Ok(Self { target, ..Self::of(config, Path::new("in-cluster configuration"))? })
    }

    fn of(mut config: Config, path: &Path) -> Result<Self, RemoteError> {
        // Reviews are posted to exactly this path, and a client adds its paths to the server's.
        let target = config.cluster_url.path_and_query().map_or("/", |path| path.as_str());
        let target = target.parse().unwrap_or_else(|_| Uri::from_static("/"));
        let mut server = config.cluster_url.clone().into_parts();
        server.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        if let Ok(server) = Uri::from_parts(server) {
            config.cluster_url = server;
        }
        config.connect_timeout = Some(CONNECTION_MAX);
        config.read_timeout = Some(CONNECTION_MAX);
        let client = Client::try_from(config).map_err(|source| RemoteError::Client {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        Ok(Self { client, target })
    }

    /// Posts a review and returns the answered one. `attempt_max`: timeout of one attempt. Repeats
    /// the attempt if the server is not reached or asks for it: a review has no side effects.
    ///
    /// # Errors
    ///
    /// What the last attempt failed with.
    async fn review(&self, review: &Value, attempt_max: Duration) -> Result<Value, String> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            let request = Request::builder()
                .method(Method::POST)
                .uri(self.target.clone())
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(review.to_string().into_bytes())
                .map_err(|error| error.to_string())?;
            let answer = tokio::time::timeout(attempt_max, self.client.request::<Value>(request));
            let error = match answer.await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(kube_client::Error::Api(status)))
                    if status.code < 500 && status.code != 429 =>
                {
                    return Err(status.message);
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "context deadline exceeded".to_owned(),
            };
            if attempt == ATTEMPTS {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(String::new())
    }
}
