//! etcd, as the operator uses it: a trait, and the implementation over HTTP.
//!
//! [`Gateway`] speaks JSON with the gateway that every etcd serves beside gRPC, on the same port.
//! The calls of the operator are few and small, and a client of gRPC would need `protoc` to build.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time-out of a call.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest pause before and in the stream of a snapshot.
pub const SNAPSHOT_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum size of an answer, and of one part of a snapshot. etcd's parts have 32 KiB.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum size of a snapshot: twice the largest database that etcd recommends.
pub const SNAPSHOT_BYTES_MAX: u64 = 16 << 30;
/// The port of clients.
pub const CLIENT_PORT: u16 = 2379;
/// The port of other members.
pub const PEER_PORT: u16 = 2380;

/// gRPC's code for a state in which the call is not possible.
const FAILED_PRECONDITION: i64 = 9;
/// gRPC's code for a call that may succeed later.
const UNAVAILABLE: i64 = 14;
/// gRPC's code for something that does not exist.
const NOT_FOUND: i64 = 5;

/// Why a call of etcd failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// No address is known.
    #[error("no member has an address")]
    NoEndpoint,
    /// The member could not be reached.
    #[error("connect to {endpoint}")]
    Connect {
        /// The member's address.
        endpoint: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("call {endpoint}")]
    Call {
        /// The member's address.
        endpoint: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The member did not answer in time.
    #[error("{endpoint} has not answered for {waited:?}")]
    Timeout {
        /// The member's address.
        endpoint: String,
        /// The time-out.
        waited: Duration,
    },
    /// etcd refused the call.
    #[error("{endpoint} refuses: {message}")]
    Refused {
        /// The member's address.
        endpoint: String,
        /// gRPC's code.
        code: i64,
        /// etcd's message.
        message: String,
    },
    /// The answer is not one of etcd.
    #[error("{endpoint} answers with something else: {what}")]
    Malformed {
        /// The member's address.
        endpoint: String,
        /// What is wrong.
        what: String,
    },
    /// The snapshot could not be written.
    #[error("write the snapshot")]
    Write(#[source] std::io::Error),
}

impl EtcdError {
    /// Whether a retry may succeed: etcd changes members only after all of them have been connected
    /// for some seconds.
    pub fn is_for_now(&self) -> bool {
        matches!(self, Self::Refused { code: UNAVAILABLE, .. })
    }
}

/// The members of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The cluster's id.
    pub cluster_id: u64,
    /// The members.
    pub list: Vec<Listed>,
}

/// A member in the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: u64,
    /// Its name; empty before it has started.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// It does not vote.
    pub is_learner: bool,
}

/// The status of one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// Its id.
    pub id: u64,
    /// Its version.
    pub version: String,
    /// The id of its leader; 0 if it has none.
    pub leader: u64,
    /// The revision that it has.
    pub revision: i64,
    /// A majority agrees with it.
    pub is_healthy: bool,
}

/// The calls of etcd that the operator needs. `endpoints` are addresses of members; they are tried
/// in order.
pub trait Etcd: Send + Sync + 'static {
    /// The members, as a majority knows them at the time of the call.
    fn members<'a>(&'a self, endpoints: &'a [String]) -> BoxFuture<'a, Result<Members, EtcdError>>;

    /// Returns the status of a member.
    fn look<'a>(&'a self, endpoint: &'a str) -> BoxFuture<'a, Result<Look, EtcdError>>;

    /// Adds a member that does not vote. Succeeds if there is one with the address.
    fn add_learner<'a>(
        &'a self,
        endpoints: &'a [String],
        peer_url: &'a str,
    ) -> BoxFuture<'a, Result<(), EtcdError>>;

    /// Lets a learner vote; `false` if it has not received enough of the data yet. Succeeds if it
    /// votes already.
    fn promote<'a>(
        &'a self,
        endpoints: &'a [String],
        id: u64,
    ) -> BoxFuture<'a, Result<bool, EtcdError>>;

    /// Removes a member. Succeeds if it does not exist.
    fn remove<'a>(
        &'a self,
        endpoints: &'a [String],
        id: u64,
    ) -> BoxFuture<'a, Result<(), EtcdError>>;
}

/// etcd over HTTP, without TLS.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gateway;

impl Etcd for Gateway {
    fn members<'a>(&'a self, endpoints: &'a [String]) -> BoxFuture<'a, Result<Members, EtcdError>> {
        Box::pin(first(endpoints, |endpoint| Box::pin(members_at(endpoint))))
    }

    fn look<'a>(&'a self, endpoint: &'a str) -> BoxFuture<'a, Result<Look, EtcdError>> {
        Box::pin(async move {
            let status = post(endpoint, "/v3/maintenance/status", &json!({})).await?;
            let health = get(endpoint, "/health?exclude=NOSPACE").await?;
            Ok(Look {
                id: number(&status["header"]["member_id"]),
                version: status["version"].as_str().unwrap_or_default().to_owned(),
                leader: number(&status["leader"]),
                revision: number(&status["header"]["revision"]).cast_signed(),
                is_healthy: health["health"] == "true",
            })
        })
    }

    fn add_learner<'a>(
        &'a self,
        endpoints: &'a [String],
        peer_url: &'a str,
    ) -> BoxFuture<'a, Result<(), EtcdError>> {
        Box::pin(first(endpoints, move |endpoint| Box::pin(add_learner_at(endpoint, peer_url))))
    }

    fn promote<'a>(
        &'a self,
        endpoints: &'a [String],
        id: u64,
    ) -> BoxFuture<'a, Result<bool, EtcdError>> {
        Box::pin(first(endpoints, move |endpoint| Box::pin(promote_at(endpoint, id))))
    }

    fn remove<'a>(
        &'a self,
        endpoints: &'a [String],
        id: u64,
    ) -> BoxFuture<'a, Result<(), EtcdError>> {
        Box::pin(first(endpoints, move |endpoint| Box::pin(remove_at(endpoint, id))))
    }
}

/// The answer of the first endpoint that answers; the last error if none does.
async fn first<'a, T>(
    endpoints: &'a [String],
    call: impl Fn(&'a str) -> BoxFuture<'a, Result<T, EtcdError>>,
) -> Result<T, EtcdError> {
    let mut failed = EtcdError::NoEndpoint;
    for endpoint in endpoints {
        match call(endpoint).await {
            Ok(answer) => return Ok(answer),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn members_at(endpoint: &str) -> Result<Members, EtcdError> {
    // A linearizable read: what the member knows afterwards, a majority knows.
    let read = json!({"key": BASE64.encode([0]), "count_only": true});
    post(endpoint, "/v3/kv/range", &read).await?;
    let answer = post(endpoint, "/v3/cluster/member/list", &json!({})).await?;
    members(endpoint, &answer)
}

async fn add_learner_at(endpoint: &str, peer_url: &str) -> Result<(), EtcdError> {
    let body = json!({"peerURLs": [peer_url], "isLearner": true});
    match post(endpoint, "/v3/cluster/member/add", &body).await {
        Err(EtcdError::Refused { code: FAILED_PRECONDITION, message, .. })
            if message.contains("already exist") =>
        {
            Ok(())
        }
        answer => answer.map(drop),
    }
}

async fn promote_at(endpoint: &str, id: u64) -> Result<bool, EtcdError> {
    let body = json!({"ID": id.to_string()});
    match post(endpoint, "/v3/cluster/member/promote", &body).await {
        Ok(_) => Ok(true),
        // It is none, or it is one that is not in sync.
        Err(EtcdError::Refused { code: FAILED_PRECONDITION, message, .. }) => {
            Ok(message.ends_with("promote a learner member"))
        }
        Err(error) => Err(error),
    }
}

async fn remove_at(endpoint: &str, id: u64) -> Result<(), EtcdError> {
    let body = json!({"ID": id.to_string()});
    match post(endpoint, "/v3/cluster/member/remove", &body).await {
        Err(EtcdError::Refused { code: NOT_FOUND, .. }) => Ok(()),
        answer => answer.map(drop),
    }
}

/// A number, which the gateway writes as text; 0 if there is none.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn members(endpoint: &str, answer: &Value) -> Result<Members, EtcdError> {
    let malformed = || EtcdError::Malformed {
        endpoint: endpoint.to_owned(),
        what: format!("no list of members: {answer}"),
    };
    let list = answer["members"].as_array().ok_or_else(malformed)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = list.iter().map(|member| Listed {
        id: number(&member["ID"]),
        name: text(&member["name"]),
        peer_urls: member["peerURLs"].as_array().into_iter().flatten().map(text).collect(),
        is_learner: member["isLearner"] == true,
    });
    let list: Vec<_> = list.collect();
    let cluster_id = number(&answer["header"]["cluster_id"]);
    if cluster_id == 0 || list.iter().any(|member| member.id == 0) {
        return Err(malformed());
    }
    Ok(Members { cluster_id, list })
}

async fn get(endpoint: &str, path: &str) -> Result<Value, EtcdError> {
    timed(endpoint, exchange(endpoint, Method::GET, path, Bytes::new(), whole)).await
}

async fn post(endpoint: &str, path: &str, body: &Value) -> Result<Value, EtcdError> {
    let body = Bytes::from(body.to_string());
    timed(endpoint, exchange(endpoint, Method::POST, path, body, whole)).await
}

async fn timed<T>(
    endpoint: &str,
    call: impl Future<Output = Result<T, EtcdError>>,
) -> Result<T, EtcdError> {
    let endpoint = endpoint.to_owned();
    let late = |_| EtcdError::Timeout { endpoint, waited: CALL_TIMEOUT };
    timeout(CALL_TIMEOUT, call).await.map_err(late)?
}

/// One request on a connection of its own. Dropping the future closes the connection. A member that
/// does not begin to answer within [`SNAPSHOT_PAUSE_MAX`] is given up, `read` has its own limit.
async fn exchange<T>(
    endpoint: &str,
    method: Method,
    path: &str,
    body: Bytes,
    read: impl AsyncFnOnce(&str, Response<Incoming>) -> Result<T, EtcdError>,
) -> Result<T, EtcdError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| EtcdError::Call {
        endpoint: endpoint.to_owned(),
        source,
    };
    let late = |_| EtcdError::Timeout { endpoint: endpoint.to_owned(), waited: SNAPSHOT_PAUSE_MAX };
    let authority = endpoint.strip_prefix("http://").unwrap_or(endpoint);
    let stream = timeout(SNAPSHOT_PAUSE_MAX, TcpStream::connect(authority)).await.map_err(late)?;
    let stream =
        stream.map_err(|source| EtcdError::Connect { endpoint: endpoint.to_owned(), source })?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(error.into()))?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, authority)
        .body(Full::new(body))
        .map_err(|error| failed(error.into()))?;
    let answer = async {
        let response = timeout(SNAPSHOT_PAUSE_MAX, sender.send_request(request)).await;
        let response = response.map_err(late)?;
        read(endpoint, response.map_err(|error| failed(error.into()))?).await
    };
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        // Cancel safe: the answer is polled in place, also after the connection has ended.
        answer = &mut answer => return answer,
        _ = connection => {}
    }
    // What was received before the end can still be read.
    answer.await
}

/// Reads an answer as a whole.
async fn whole(endpoint: &str, response: Response<Incoming>) -> Result<Value, EtcdError> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body
        .map_err(|source| EtcdError::Call { endpoint: endpoint.to_owned(), source })?
        .to_bytes();
    refused(endpoint, parsed(endpoint, &body)?)
}

fn parsed(endpoint: &str, text: &[u8]) -> Result<Value, EtcdError> {
    serde_json::from_slice(text).map_err(|error| EtcdError::Malformed {
        endpoint: endpoint.to_owned(),
        what: error.to_string(),
    })
}

/// Makes an error of an answer that is one.
fn refused(endpoint: &str, answer: Value) -> Result<Value, EtcdError> {
    let Some(code) = answer["code"].as_i64().filter(|code| *code != 0) else { return Ok(answer) };
    // Before etcd 3.5, the message is in `error` too.
    let message = answer["message"].as_str().or(answer["error"].as_str()).unwrap_or_default();
    Err(EtcdError::Refused { endpoint: endpoint.to_owned(), code, message: message.to_owned() })
}

/// Streams a snapshot of a member's data to `sink`, part by part, and returns its size. The last 32
/// bytes are the hash of the others, which is checked: so the snapshot is whole.
///
/// # Errors
///
/// The stream breaks or pauses too long, its hash is wrong, or the sink fails. What the sink has
/// received then is no snapshot.
pub async fn snapshot(
    endpoint: &str,
    mut sink: impl AsyncFnMut(&[u8]) -> std::io::Result<()>,
) -> Result<u64, EtcdError> {
    let read = async |endpoint: &str, response: Response<Incoming>| {
        let mut body = response.into_body();
        let mut parts = Parts::default();
        loop {
            let late = |_| EtcdError::Timeout {
                endpoint: endpoint.to_owned(),
                waited: SNAPSHOT_PAUSE_MAX,
            };
            let frame = timeout(SNAPSHOT_PAUSE_MAX, body.frame()).await.map_err(late)?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| EtcdError::Call {
                endpoint: endpoint.to_owned(),
                source: error.into(),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            for blob in parts.take(endpoint, &data)? {
                sink(&blob).await.map_err(EtcdError::Write)?;
            }
        }
        parts.end(endpoint)
    };
    exchange(endpoint, Method::POST, "/v3/maintenance/snapshot", Bytes::from_static(b"{}"), read)
        .await
}

/// The parts of a snapshot: lines of JSON.
#[derive(Default)]
struct Parts {
    /// A line that is not complete.
    line: Vec<u8>,
    /// The hash of everything but `tail`.
    hash: Sha256,
    /// The last bytes, up to the length of a hash.
    tail: Vec<u8>,
    n_bytes: u64,
}

/// The length of the hash at the end of a snapshot.
const HASH_BYTES: usize = 32;

impl Parts {
    /// The blobs that bytes complete.
    fn take(&mut self, endpoint: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, EtcdError> {
        let malformed = |what: String| EtcdError::Malformed { endpoint: endpoint.to_owned(), what };
        let mut blobs = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() > ANSWER_BYTES_MAX {
                return Err(malformed("a part of the snapshot is too long".to_owned()));
            }
            if !piece.ends_with(b"\n") {
                continue;
            }
            let line = parsed(endpoint, &std::mem::take(&mut self.line))?;
            refused(endpoint, line["error"].clone())?;
            let blob = line["result"]["blob"].as_str().unwrap_or_default();
            let blob = BASE64.decode(blob).map_err(|error| malformed(error.to_string()))?;
            self.n_bytes += blob.len() as u64;
            if self.n_bytes > SNAPSHOT_BYTES_MAX {
                return Err(malformed("the snapshot is too long".to_owned()));
            }
            self.tail.extend_from_slice(&blob);
            let n_sure = self.tail.len().saturating_sub(HASH_BYTES);
            self.hash.update(&self.tail[..n_sure]);
            self.tail.drain(..n_sure);
            blobs.push(blob);
        }
        Ok(blobs)
    }

    /// The size, if the snapshot is whole.
    fn end(self, endpoint: &str) -> Result<u64, EtcdError> {
        let is_whole = self.line.is_empty()
            && self.tail.len() == HASH_BYTES
            && self.hash.finalize()[..] == self.tail[..];
        is_whole.then_some(self.n_bytes).ok_or_else(|| EtcdError::Malformed {
            endpoint: endpoint.to_owned(),
            what: "the snapshot is not whole".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
