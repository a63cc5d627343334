//! Whether the etcd of `--etcd-servers` is a real one.
//!
//! A harness starts `etcd` and names it to the API server. If that is the program of this crate,
//! the API server keeps its objects itself: they would only be copied to and fro.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Who keeps the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Etcd {
    /// The API server itself.
    Ours,
    /// The etcd.
    Real,
}

/// How long an etcd that cannot be reached is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum size of the answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Asks the first server, if it speaks HTTP without TLS: the program of this crate does.
pub(crate) async fn which(servers: &[String]) -> anyhow::Result<Etcd> {
    let Some(server) = servers.first() else { return Ok(Etcd::Ours) };
    let Some(authority) = server.strip_prefix("http://") else { return Ok(Etcd::Real) };
    let authority = authority.trim_end_matches('/');
    let deadline = Instant::now() + PATIENCE;
    loop {
        match tokio::time::timeout_at(deadline, version(authority)).await {
            Ok(Ok(text)) => {
                let version: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
                let is_ours = version.get(setpoint_etcd_server::MARK).is_some();
                return Ok(if is_ours { Etcd::Ours } else { Etcd::Real });
            }
            Ok(Err(error)) if Instant::now() + PAUSE >= deadline => {
                return Err(error).with_context(|| format!("reach the etcd at {server}"));
            }
            Ok(Err(_)) => tokio::time::sleep(PAUSE).await,
            Err(_) => bail!("the etcd at {server} does not answer"),
        }
    }
}

/// The body of `/version`.
async fn version(authority: &str) -> anyhow::Result<String> {
    let stream = TcpStream::connect(authority).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/version").header("host", authority).body(Empty::<Bytes>::new())?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    let connection = async {
        // Ends with the answer; its error is the answer's too.
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        // Cancel safe: the connection ends with it.
        answer = answer => answer,
        () = connection => bail!("the connection ended"),
    }
}
