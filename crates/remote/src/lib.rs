//! Another server that a kubeconfig names, and that answers at a URL: mostly documents in JSON that
//! are posted to it, such as reviews of users and images, and lists of audit events.
//!
//! # Theory
//!
//! A [`Remote`] is a client of one URL. Connections are made when they are needed, and kept. A
//! document that may be sent twice is [posted repeatedly](Remote::post_repeatedly) if the server is
//! not reached or asks for it; how often, and with which pauses, says a [`Retry`]. A
//! [review](Remote::review) is such a document. Other requests are [sent](Remote::send) once.
//!
//! Every attempt is bounded in time, and its answer in bytes ([`ANSWER_BYTES_MAX`]): a server that
//! answers without an end costs no more than that. Connections are those of webhooks
//! ([`Transport`]).
//!
//! So are the files that a kubeconfig names, and the commands that it runs for credentials:
//! [`KUBECONFIG_BYTES_MAX`], [`EXEC_MAX`] and [`OUTPUT_BYTES_MAX`]. A configuration that the caller
//! has made with kube-client ([`Remote::at`]) is used as it is, commands included.
//!
//! This crate knows no API objects and no listener.

mod authorization;
mod exec;
mod kubeconfig;
mod users;

pub use exec::{EXEC_MAX, ExecError, OUTPUT_BYTES_MAX};
pub use kubeconfig::KUBECONFIG_BYTES_MAX;
pub use users::Users;

use authorization::{Token, authorized, refused};
use setpoint_object::error::chain;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use kube_client::Config;
use kube_client::client::{Body, ConfigExt as _};
use kube_client::config::{KubeConfigOptions, KubeconfigError};
use serde_json::Value;
use setpoint_dial::Dialer;
use setpoint_small_file::SmallFileError;
use setpoint_webhook_client::{Address, Answer, FetchError, Lane, Transport};
use std::fmt;
use std::future::{Future, pending};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tower::util::{BoxCloneSyncService, ServiceExt as _};
use tower::{BoxError, service_fn};

/// Timeout of one attempt unless another one is asked for: 10 s, of which connecting takes a part.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Timeout of connections: 30 s, the longest timeout of an attempt.
pub const CONNECTION_MAX: Duration = Duration::from_secs(30);

/// Maximum bytes of an answer: 1 MiB. Reviews have a few hundred; the groups of a user and what a
/// server has to say about a decision fit many times.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of an answer that is parsed at once: 32 KiB, far less than a millisecond. Longer
/// ones are parsed on another thread.
const PARSED_BYTES_MAX: usize = 32 << 10;

/// The content type of documents.
const JSON: &str = "application/json";
/// What an answer should be, in client-go's words.
const ACCEPTED: &str = "application/json, */*";

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
    /// The attempts of a [review](Remote::review), as kube-apiserver's: four seconds of pauses in
    /// all. The request's deadline may end them earlier.
    pub const REVIEW: Self =
        Self { attempts: 5, pause: Duration::from_millis(500), growth: 1.5, whatever: false };
}

/// Why a remote server cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The kubeconfig does not name a server, or a part of it cannot be used.
    #[error("use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: KubeconfigError,
    },
    /// The kubeconfig, or a file that it names, cannot be read or is too long.
    #[error("use the kubeconfig {}", path.display())]
    File {
        /// The kubeconfig.
        path: PathBuf,
        /// The cause, with the file.
        #[source]
        source: SmallFileError,
    },
    /// The user has no token: that of a file is malformed, or a command has failed.
    #[error("use the user of the kubeconfig {}", path.display())]
    Token {
        /// The kubeconfig.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
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

/// Why a request has no answer that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// What went wrong.
    pub message: String,
    /// Another attempt makes sense: the server was not reached, is busy or has failed. Not if it
    /// did not answer in time: that would multiply the time that the caller waits.
    pub may_repeat: bool,
    /// The server did not answer in time, or says so of one that it asked.
    pub is_timeout: bool,
}

/// Is told of attempts: how long one took, and its error.
pub type AttemptObserver<'a> = &'a mut (dyn FnMut(Duration, Option<&RequestError>) + Send);

/// Adds what a kubeconfig says about credentials to a request, and sends it.
type Service = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// A server that answers at one URL. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    service: Service,
    /// Scheme, path and query of the URL.
    target: Uri,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("target", &self.target).finish_non_exhaustive()
    }
}

fn unusable(path: &Path, error: KubeconfigError) -> RemoteError {
    match error {
        KubeconfigError::Parse(error) => {
            let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
            RemoteError::Syntax { path: path.to_owned(), line, column }
        }
        source => RemoteError::Kubeconfig { path: path.to_owned(), source },
    }
}

impl Remote {
    /// The server of a kubeconfig's current context. Call it within a tokio runtime. Connects
    /// later, with the dialer.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be read, or no client can be made of it.
    pub async fn open(path: &Path, dialer: Dialer) -> Result<Self, RemoteError> {
        let owned = path.to_owned();
        let reading = tokio::task::spawn_blocking(move || kubeconfig::open_current(&owned));
        let kubeconfig = reading.await.map_err(|error| RemoteError::File {
            path: path.to_owned(),
            source: SmallFileError::Read { path: path.to_owned(), source: error.into() },
        })??;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(|error| unusable(path, error))?;
        let mut token = Token::of_file(&mut config.auth_info);
        if let Ok(None) = token {
            token = Token::of_exec(&mut config.auth_info).await;
        }
        Self::of(config, token.map_err(|error| refused(path, error))?, path, dialer)
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

    /// A server that a configuration of a client names, at a path below that of its URL. Call it
    /// within a tokio runtime. Connects later.
    ///
    /// # Errors
    ///
    /// No client can be made of it.
    pub fn at(mut config: Config, path: &str) -> Result<Self, RemoteError> {
        let name = PathBuf::from(config.cluster_url.to_string());
        let mut target = config.cluster_url.clone().into_parts();
        let root = || PathAndQuery::from_static("/");
        let path = format!("{}{path}", config.cluster_url.path().trim_end_matches('/'));
        target.path_and_query = Some(path.parse().unwrap_or_else(|_| root()));
        if let Ok(target) = Uri::from_parts(target) {
            config.cluster_url = target;
        }
        Self::of(config, None, &name, Dialer::default())
    }

    fn of(
        config: Config,
        token: Option<Token>,
        path: &Path,
        dialer: Dialer,
    ) -> Result<Self, RemoteError> {
        let wrong =
            |source| RemoteError::Client { path: path.to_owned(), source: Box::new(source) };
        if let Some(proxy) = &config.proxy_url {
            let proxy_url = Box::new(proxy.clone());
            return Err(wrong(kube_client::Error::ProxyProtocolUnsupported { proxy_url }));
        }
        let address = Address::of(&config.cluster_url);
        let tls = config.rustls_client_config().map_err(wrong)?;
        let transport = Transport::with_tls(tls, config.tls_server_name.as_deref(), dialer);
        let transport = Arc::new(transport);
        let send = service_fn(move |request: Request<Body>| {
            let (transport, address) = (transport.clone(), address.clone());
            async move { transport.send(&address, request, Lane::Shared).await }
        });
        let send = send.map_err(BoxError::from);
        let service = authorized(&config, token, send).map_err(wrong)?;
        Ok(Self { service, target: config.cluster_url })
    }

    /// Posts a review and returns the answered one. `attempt_max`: timeout of one attempt. Repeats
    /// the attempt as [`Retry::REVIEW`] says: a review has no side effects.
    ///
    /// # Errors
    ///
    /// What the last attempt failed with, or that its answer is not JSON.
    pub async fn review(&self, review: &Value, attempt_max: Duration) -> Result<Value, String> {
        self.ask(review, attempt_max, Retry::REVIEW).await.map_err(|error| error.message)
    }

    /// The same with other attempts.
    ///
    /// # Errors
    ///
    /// As [`review`](Self::review).
    pub async fn ask(
        &self,
        review: &Value,
        attempt_max: Duration,
        retry: Retry,
    ) -> Result<Value, RequestError> {
        self.ask_observed(review, attempt_max, retry, &mut |_, _| {}).await
    }

    /// The same, and tells of each attempt.
    ///
    /// # Errors
    ///
    /// As [`review`](Self::review).
    pub async fn ask_observed(
        &self,
        review: &Value,
        attempt_max: Duration,
        retry: Retry,
        observe: AttemptObserver<'_>,
    ) -> Result<Value, RequestError> {
        let json = Bytes::from(review.to_string());
        parse(self.attempts((json, attempt_max), retry, pending(), observe).await?).await
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
    ) -> Result<Bytes, RequestError> {
        self.attempts((json.into(), attempt_max), retry, hurry, &mut |_, _| {}).await
    }

    async fn attempts(
        &self,
        (json, attempt_max): (Bytes, Duration),
        retry: Retry,
        hurry: impl Future<Output = ()>,
        observe: AttemptObserver<'_>,
    ) -> Result<Bytes, RequestError> {
        let (mut hurry, mut is_last) = (pin!(hurry), false);
        let (mut attempt, mut pause) = (1, retry.pause);
        loop {
            let begun = Instant::now();
            let sent = self.send(Method::POST, Some((JSON, json.clone())), attempt_max).await;
            observe(begun.elapsed(), sent.as_ref().err());
            let error = match sent {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let may_repeat = error.may_repeat || retry.whatever;
            if !may_repeat || is_last || attempt >= retry.attempts {
                return Err(error);
            }
            tracing::debug!(error = chain(&error), attempt, "a document is posted again");
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
    /// The server was not reached in time, answered with another code than 200 to 206, or with more
    /// than [`ANSWER_BYTES_MAX`].
    ///
    /// Dropping the future ends the request.
    pub async fn post(&self, json: Vec<u8>, attempt_max: Duration) -> Result<Bytes, RequestError> {
        self.send(Method::POST, Some((JSON, json.into())), attempt_max).await
    }

    /// Sends a request once, with a body of a content type, and returns what the server answers.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post).
    ///
    /// Dropping the future ends the request.
    pub async fn send(
        &self,
        method: Method,
        content: Option<(&'static str, Bytes)>,
        attempt_max: Duration,
    ) -> Result<Bytes, RequestError> {
        let failed =
            |message: String, may_repeat| RequestError { message, may_repeat, is_timeout: false };
        // Gateways refuse requests without them.
        let mut request = Request::builder()
            .method(method)
            .uri(self.target.clone())
            .header(USER_AGENT, concat!("setpoint/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, ACCEPTED);
        let mut body = Body::empty();
        if let Some((content_type, bytes)) = content {
            request = request.header(CONTENT_TYPE, content_type);
            body = Body::from(bytes);
        }
        let request = request.body(body).map_err(|error| failed(error.to_string(), false))?;
        let answered = async {
            let response = self.service.clone().oneshot(request).await;
            let response = response.map_err(|error| failed(error.to_string(), true))?;
            let answer = Answer::read(response, ANSWER_BYTES_MAX).await.map_err(|error| {
                // It would be as long again.
                let may_repeat = !matches!(error, FetchError::TooLong(_));
                failed(error.to_string(), may_repeat)
            })?;
            let code = answer.head.status.as_u16();
            let success = answer.success().await;
            let is_timeout = code == StatusCode::GATEWAY_TIMEOUT.as_u16();
            success.map_err(|error| RequestError {
                is_timeout,
                ..failed(error.to_string(), code >= 500 || code == 429)
            })
        };
        match tokio::time::timeout(attempt_max, answered).await {
            Ok(answered) => answered,
            Err(_) => Err(RequestError {
                is_timeout: true,
                ..failed("context deadline exceeded".to_owned(), false)
            }),
        }
    }
}

/// An answer as a tree. A long one is parsed on another thread.
///
/// # Errors
///
/// It is not JSON.
pub async fn parse(answer: Bytes) -> Result<Value, RequestError> {
    let failed = |message| RequestError { message, may_repeat: false, is_timeout: false };
    let parsed = match answer.len() > PARSED_BYTES_MAX {
        false => serde_json::from_slice(&answer),
        true => tokio::task::spawn_blocking(move || serde_json::from_slice(&answer))
            .await
            .map_err(|error| failed(error.to_string()))?,
    };
    parsed.map_err(|error: serde_json::Error| failed(error.to_string()))
}
