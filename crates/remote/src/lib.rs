//! Another server that a kubeconfig names, and that answers documents in JSON posted to its URL:
//! reviews of users and images, lists of audit events.
//!
//! # Theory
//!
//! A [`Remote`] is a client of one URL. Connections are made when they are needed, and kept. A
//! document that may be sent twice is [posted repeatedly](Remote::post_repeatedly) if the server is
//! not reached or asks for it; how often, and with which pauses, says a [`Retry`]. A
//! [review](Remote::review) is such a document.
//!
//! This crate knows no API objects and no listener.

use http::{Method, Request, Uri};
use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube_client::{Client, Config};
use serde_json::Value;
use std::fmt;
use std::future::{Future, pending};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

/// Timeout of one attempt unless another one is asked for: 10 s, of which connecting takes a part.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Timeout of connections: 30 s, the longest timeout of an attempt.
pub const CONNECTION_MAX: Duration = Duration::from_secs(30);

/// How often a document is posted, and the pauses between the attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// Maximum number of attempts. Zero counts as one.
    pub attempts: u32,
    /// The pause after the first failed attempt.
    pub pause: Duration,
    /// By how much each pause is longer than the one before.
    pub growth: f64,
    /// Whether every error leads to another attempt, also one for which that makes no sense: the
    /// server has refused the document, or did not answer in time.
    pub whatever: bool,
}

impl Retry {
    /// The attempts of a [review](Remote::review); the request's deadline may end them earlier.
    pub const REVIEW: Self =
        Self { attempts: 3, pause: Duration::from_millis(200), growth: 2.0, whatever: false };
}

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
    /// The kubeconfig is not YAML, or a member has a wrong type. Without the parser's message,
    /// which may quote the file, credentials included.
    #[error("use the kubeconfig {}: it is invalid at line {line}, column {column}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1; 0 if it is unknown.
        line: u64,
        /// The column, from 1; 0 if it is unknown.
        column: u64,
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

/// Why a document was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PostError {
    /// What went wrong.
    pub message: String,
    /// Another attempt makes sense: the server was not reached, is busy or has failed. Not if it
    /// did not answer in time: that would multiply the time that the caller waits.
    pub may_repeat: bool,
}

/// A server that answers at one URL. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
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
    /// The server of a kubeconfig's current context. Call it within a tokio runtime. Connects
    /// later.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be read, or no client can be made of it.
    pub async fn open(path: &Path) -> Result<Self, RemoteError> {
        let failed = |source| match source {
            KubeconfigError::Parse(error) => {
                let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
                RemoteError::Syntax { path: path.to_owned(), line, column }
            }
            source => RemoteError::Kubeconfig { path: path.to_owned(), source },
        };
        let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(failed)?;
        Self::of(config, path)
    }

    /// The server of the cluster in which this process is a pod, at a path.
    ///
    /// # Errors
    ///
    /// The process is not in a pod.
    pub fn in_cluster(path: &str) -> Result<Self, RemoteError> {
        let config =
            Config::incluster().map_err(|error| RemoteError::InCluster(Box::new(error)))?;
        Self::at(config, path)
    }

    /// A server that a configuration of a client names, at a path. Call it within a tokio runtime.
    /// Connects later.
    ///
    /// # Errors
    ///
    /// No client can be made of it.
    pub fn at(config: Config, path: &str) -> Result<Self, RemoteError> {
        let target = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
        let name = PathBuf::from(config.cluster_url.to_string());
        Ok(Self { target, ..Self::of(config, &name)? })
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
    /// the attempt as [`Retry::REVIEW`] says: a review has no side effects.
    ///
    /// # Errors
    ///
    /// What the last attempt failed with, or that its answer is not JSON.
    pub async fn review(&self, review: &Value, attempt_max: Duration) -> Result<Value, String> {
        let json = review.to_string().into_bytes();
        let answer = self.post_repeatedly(json, attempt_max, Retry::REVIEW, pending()).await;
        serde_json::from_str(&answer.map_err(|error| error.message)?)
            .map_err(|error| error.to_string())
    }

    /// Posts a document in JSON until the server accepts it, the error says that another attempt
    /// makes no sense, or all attempts are made. Once `hurry` is ready, the pause ends and there is
    /// one more attempt. `attempt_max`: timeout of one attempt.
    ///
    /// # Errors
    ///
    /// What the last attempt failed with.
    pub async fn post_repeatedly(
        &self,
        json: Vec<u8>,
        attempt_max: Duration,
        retry: Retry,
        hurry: impl Future<Output = ()>,
    ) -> Result<String, PostError> {
        let (mut hurry, mut is_last) = (pin!(hurry), false);
        let (mut attempt, mut pause) = (1, retry.pause);
        loop {
            let error = match self.post(json.clone(), attempt_max).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let may_repeat = error.may_repeat || retry.whatever;
            if !may_repeat || is_last || attempt >= retry.attempts {
                return Err(error);
            }
            tracing::debug!(%error, attempt, "a document is posted again");
            tokio::select! {
                // Cancel safe: both only wait. `hurry` is not polled after it was ready.
                () = tokio::time::sleep(pause) => {}
                () = &mut hurry => is_last = true,
            }
            attempt += 1;
            pause = pause.mul_f64(retry.growth);
        }
    }

    /// Posts a document in JSON once, and returns what the server answers.
    ///
    /// # Errors
    ///
    /// The server was not reached in time, or answered with another code than 2xx.
    pub async fn post(&self, json: Vec<u8>, attempt_max: Duration) -> Result<String, PostError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.target.clone())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(json)
            .map_err(|error| PostError { message: error.to_string(), may_repeat: false })?;
        match tokio::time::timeout(attempt_max, self.client.request_text(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube_client::Error::Api(status))) => {
                let may_repeat = status.code >= 500 || status.code == 429;
                let message = match status.message.is_empty() {
                    true => format!("the server answered with {}", status.code),
                    false => status.message.clone(),
                };
                Err(PostError { message, may_repeat })
            }
            Ok(Err(error)) => Err(PostError { message: error.to_string(), may_repeat: true }),
            Err(_) => {
                let message = "context deadline exceeded".to_owned();
                Err(PostError { message, may_repeat: false })
            }
        }
    }
}
