//! Requests over HTTP: time-outs, bounded answers, retries.
//!
//! | the outcome of an attempt | a request that may repeat | one that creates |
//! |---|---|---|
//! | 2xx, and 4xx but those below | is the answer | is the answer |
//! | 429, 503, 409 of a lost race | another attempt | another attempt: it was refused |
//! | any other 5xx, no answer | another attempt | the error: it may have been carried out |
//!
//! Pauses double from [`PAUSE_MIN`] and vary by the given seed. `Retry-After` makes one longer; one
//! over [`PAUSE_MAX`] ends the attempts, and the queue's back-off waits instead.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use setpoint::kube_client::client::Body;
use setpoint::kube_client::{Client, Config};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Timeout of one attempt, until the last byte of its answer: 30 s.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(30);
/// Maximum number of attempts of one request.
pub const ATTEMPTS_MAX: u32 = 4;
/// The pause after the first failed attempt: 250 ms.
pub const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause that a server may ask for: 20 s.
pub const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Maximum size of an answer: 8 MiB. Catalogues of large clouds have some hundred KiB.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How much of a server's message, or of an answer that is no JSON, is shown, in characters.
const SHOWN_CHARS_MAX: usize = 500;

/// The header with a token.
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The types of a 409 after which the same request may succeed at once: a transaction lost a race.
const LOST_RACES: [&str; 3] = ["RetryRequest", "DBDeadlock", "StaleDataError"];

/// Why a cloud did not answer, or not as expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The URL cannot be used.
    #[error("{0:?} is not a URL with http or https and a host")]
    Url(String),
    /// No connection can be set up: the CA file cannot be used.
    #[error("set up connections to {server}")]
    Dial {
        /// The server's URL.
        server: String,
        /// The cause.
        #[source]
        source: Box<setpoint::kube_client::Error>,
    },
    /// The server was not reached, or the connection broke. The request may have been carried out.
    #[error("{method} {url}: no answer")]
    Broken {
        /// The request's method.
        method: Method,
        /// Its URL.
        url: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer in [`ATTEMPT_MAX`]. The request may have been carried out.
    #[error("{method} {url}: no answer within {} s", ATTEMPT_MAX.as_secs())]
    Timeout {
        /// The request's method.
        method: Method,
        /// Its URL.
        url: String,
    },
    /// The answer is too long. The request may have been carried out.
    #[error("{method} {url}: the answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLong {
        /// The request's method.
        method: Method,
        /// Its URL.
        url: String,
    },
    /// The server answered with an error.
    #[error("{method} {url}: {status}: {message}")]
    Refused {
        /// The request's method.
        method: Method,
        /// Its URL.
        url: String,
        /// The status.
        status: StatusCode,
        /// Neutron's name of the error, such as `OverQuota`; empty if there is none.
        kind: String,
        /// The server's message.
        message: String,
    },
    /// The answer is not what the API's reference describes.
    #[error("{url}: unexpected answer: {what}")]
    Malformed {
        /// The URL.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// A list has too many pages.
    #[error("{url}: the list has more than {pages_max} pages")]
    TooMany {
        /// The URL.
        url: String,
        /// The maximum.
        pages_max: usize,
    },
    /// A password or secret cannot be read.
    #[error("read the secret in {path}")]
    Secret {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The catalogue has no usable endpoint.
    #[error("the catalogue has no {interface} endpoint of type network{region}")]
    NoEndpoint {
        /// The interface that was looked for.
        interface: String,
        /// ` in region …`, if one was asked for.
        region: String,
    },
}

impl HttpError {
    /// Status and Neutron's name of the error, if the server answered with one.
    pub fn refusal(&self) -> Option<(StatusCode, &str)> {
        match self {
            Self::Refused { status, kind, .. } => Some((*status, kind)),
            _ => None,
        }
    }
}

/// Makes a client of the server at a URL that has no path.
#[derive(Clone)]
pub struct Dial(Arc<DialFn>);

type DialFn = dyn Fn(Uri) -> Result<Client, setpoint::kube_client::Error> + Send + Sync;

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

impl Dial {
    /// Connections over TCP, with TLS for `https`. Trusts the authorities in a PEM file, which is
    /// read again when it changes; `None`: those of the system. Clients must be made within a tokio
    /// runtime.
    pub fn tcp(ca_file: Option<PathBuf>) -> Self {
        Self::new(move |server| {
            let mut config = Config::new(server);
            config.root_cert_file.clone_from(&ca_file);
            // Retries are decided here.
            config.default_retry = false;
            config.connect_timeout = Some(ATTEMPT_MAX);
            Client::try_from(config)
        })
    }

    /// Connections of the caller's, for tests without sockets.
    pub fn new(
        dial: impl Fn(Uri) -> Result<Client, setpoint::kube_client::Error> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(dial))
    }
}

/// A server with a prefix of its paths.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    /// As it was configured, or is in the catalogue.
    given: String,
    /// Without a slash at its end.
    url: String,
    prefix: String,
}

impl Server {
    /// `url` may have a path, which `version` is appended to unless it ends with it.
    pub(super) fn new(dial: &Dial, url: &str, version: &str) -> Result<Self, HttpError> {
        let unusable = || HttpError::Url(url.to_owned());
        let parsed: Uri = url.parse().map_err(|_| unusable())?;
        let scheme = parsed.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
        let (Some(scheme), Some(authority)) = (scheme, parsed.authority()) else {
            return Err(unusable());
        };
        let root = format!("{scheme}://{authority}");
        let mut prefix = parsed.path().trim_end_matches('/').to_owned();
        if !prefix.ends_with(version) {
            prefix.push_str(version);
        }
        let client = (dial.0)(root.parse().map_err(|_| unusable())?)
            .map_err(|source| HttpError::Dial { server: root.clone(), source: Box::new(source) })?;
        Ok(Self { client, given: url.to_owned(), url: format!("{root}{prefix}"), prefix })
    }

    /// Whether it was made of this URL.
    pub(super) fn is_at(&self, url: &str) -> bool {
        self.given == url
    }

    /// The URL of a path.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    pub(super) method: Method,
    /// Path and query after the server's prefix.
    pub(super) path: &'a str,
    pub(super) body: Option<&'a Value>,
    /// Whether it may be sent again although it may have been carried out.
    pub(super) may_repeat: bool,
}

/// What a server answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// `Null` if the body is empty or no JSON.
    pub(super) json: Value,
    /// The start of a body that is no JSON.
    text: String,
}

impl Answer {
    /// Neutron's and Keystone's forms of an error: its name, if there is one, and its message.
    fn error(&self) -> (String, String) {
        let text = |value: &Value| {
            value.as_str().unwrap_or_default().chars().take(SHOWN_CHARS_MAX).collect::<String>()
        };
        let neutron = &self.json["NeutronError"];
        if neutron.is_string() {
            return (String::new(), text(neutron));
        }
        if neutron.is_object() {
            return (text(&neutron["type"]), text(&neutron["message"]));
        }
        let message = text(&self.json["error"]["message"]);
        (String::new(), if message.is_empty() { self.text.clone() } else { message })
    }

    /// How long the server wants the next attempt to wait, in whole seconds. A date is ignored: no
    /// OpenStack service sends one.
    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

/// Sends requests, again if that may help.
#[derive(Debug)]
pub(super) struct Sender {
    /// The variation of pauses. Locked for one statement.
    rng: Mutex<SmallRng>,
}

impl Sender {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Mutex::new(SmallRng::seed_from_u64(seed)) }
    }

    /// Sends a request until there is an answer that another attempt would not change. Dropping the
    /// future may leave the request carried out.
    ///
    /// # Errors
    ///
    /// There is no answer, or one with an error.
    pub(super) async fn send(
        &self,
        server: &Server,
        token: Option<&HeaderValue>,
        call: &Call<'_>,
    ) -> Result<Answer, HttpError> {
        let mut backoff = PAUSE_MIN;
        let mut attempt = 1;
        loop {
            let (pause, error) = match Self::once(server, token, call).await {
                Ok(answer) if answer.status.is_success() => return Ok(answer),
                Ok(answer) => {
                    let (kind, message) = answer.error();
                    let status = answer.status;
                    let is_refused = status == StatusCode::TOO_MANY_REQUESTS
                        || status == StatusCode::SERVICE_UNAVAILABLE
                        || status == StatusCode::CONFLICT && LOST_RACES.contains(&&*kind);
                    let may_help = is_refused || status.is_server_error() && call.may_repeat;
                    let pause = answer.retry_after().unwrap_or_default().max(backoff);
                    let url = server.url(call.path);
                    let method = call.method.clone();
                    let error = HttpError::Refused { method, url, status, kind, message };
                    (may_help.then_some(pause), error)
                }
                Err(error) => {
                    let broken =
                        matches!(error, HttpError::Broken { .. } | HttpError::Timeout { .. });
                    ((broken && call.may_repeat).then_some(backoff), error)
                }
            };
            let Some(pause) = pause.filter(|pause| attempt < ATTEMPTS_MAX && *pause <= PAUSE_MAX)
            else {
                return Err(error);
            };
            tracing::debug!(%error, attempt, "another attempt follows");
            let more = self.rng.lock().unwrap_or_else(PoisonError::into_inner).random::<f64>();
            sleep(pause.mul_f64(1.0 + more / 2.0)).await;
            backoff *= 2;
            attempt += 1;
        }
    }

    async fn once(
        server: &Server,
        token: Option<&HeaderValue>,
        call: &Call<'_>,
    ) -> Result<Answer, HttpError> {
        let url = || server.url(call.path);
        let method = || call.method.clone();
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", server.prefix, call.path))
            .header(ACCEPT, "application/json");
        if let Some(token) = token {
            request = request.header(TOKEN, token);
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = call.body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(Body::from(body)).map_err(|_| HttpError::Url(url()))?;
        let exchange = async {
            let broken = |source| HttpError::Broken { method: method(), url: url(), source };
            let answer = server.client.send(request).await;
            let (head, body) = answer.map_err(|error| broken(error.into()))?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => HttpError::TooLong { method: method(), url: url() },
                false => broken(error),
            })?;
            let body = body.to_bytes();
            let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let text = match json.is_null() {
                true => String::from_utf8_lossy(&body).chars().take(SHOWN_CHARS_MAX).collect(),
                false => String::new(),
            };
            Ok(Answer { status: head.status, headers: head.headers, json, text })
        };
        match timeout(ATTEMPT_MAX, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(HttpError::Timeout { method: method(), url: url() }),
        }
    }
}
