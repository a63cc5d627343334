//! The same job with plain HTTP: a list, a watch, a bearer token.
//!
//! This code does what an informer does for its user: it starts the watch at the list's
//! `resourceVersion`, assembles lines from chunks, lists again after an ERROR event, reconnects
//! when a stream ends, waits longer after each failure, and remembers all pods, to detect deletions
//! between two watches. An informer also has pages, bookmarks, several consumers and retries of
//! failed work.

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use setpoint::prelude::CancellationToken;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum length of a line of a watch: twice the largest object that the API accepts.
pub const LINE_BYTES_MAX: usize = 3 << 20;
/// The longest pause between attempts.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The server and the credentials.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Such as `http://localhost:8080`: what `setpoint up --insecure-port 8080` or `kubectl proxy
    /// --port 8080` serve.
    pub url: String,
    /// Sent as `Authorization: Bearer …` when given.
    pub token: Option<String>,
}

#[derive(Deserialize)]
struct PodList {
    metadata: ListMeta,
    items: Vec<Pod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}

/// Prints a line about each changed pod until `stop`.
pub async fn run(endpoint: &Endpoint, mut print: impl FnMut(String), stop: CancellationToken) {
    let http = Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let mut known = BTreeMap::new();
    let mut pause = Duration::from_millis(800);
    loop {
        let round = list_and_watch(&http, endpoint, &mut known, &mut print);
        tokio::select! {
            () = stop.cancelled() => return,
            ended = round => match ended {
                Ok(()) => pause = Duration::from_millis(800),
                Err(error) => tracing::warn!(error = format!("{error:#}"), "listing again in {pause:?}"),
            },
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
        }
    }
}

type Http = Client<HttpConnector, Empty<Bytes>>;

async fn get(
    http: &Http,
    endpoint: &Endpoint,
    query: &str,
) -> anyhow::Result<hyper::body::Incoming> {
    let mut request = http::Request::get(format!("{}/api/v1/pods?{query}", endpoint.url));
    if let Some(token) = &endpoint.token {
        request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = http.request(request.body(Empty::new())?).await?;
    if !response.status().is_success() {
        bail!("the server answered {}", response.status());
    }
    Ok(response.into_body())
}

/// One list and the watches that follow it. `Ok` when history ran out and a new list is due.
async fn list_and_watch(
    http: &Http,
    endpoint: &Endpoint,
    known: &mut BTreeMap<String, String>,
    print: &mut impl FnMut(String),
) -> anyhow::Result<()> {
    let body =
        get(http, endpoint, "").await.context("list")?.collect().await.context("list")?.to_bytes();
    let list: PodList = serde_json::from_slice(&body).context("list")?;
    let mut vanished = std::mem::take(known);
    for pod in &list.items {
        let before = vanished.remove(&key(pod));
        print_change(pod, before, known, print);
    }
    for key in vanished.into_keys() {
        print(format!("{key} is gone"));
    }
    let mut version = list.metadata.resource_version;
    loop {
        let query = format!("watch=true&resourceVersion={version}");
        let mut body = get(http, endpoint, &query).await.context("watch")?;
        let mut buffer = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.context("watch")?.into_data() else { continue };
            buffer.extend_from_slice(&data);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let event: Event = serde_json::from_slice(&line).context("watch")?;
                match event.kind.as_str() {
                    "ERROR" if event.object["code"] == 410 => return Ok(()),
                    "ERROR" => bail!("the watch ended: {}", event.object["message"]),
                    kind => {
                        let pod: Pod = serde_json::from_value(event.object).context("watch")?;
                        version = pod.metadata.resource_version.clone().unwrap_or_default();
                        if kind == "DELETED" {
                            known.remove(&key(&pod));
                            print(format!("{} is gone", key(&pod)));
                        } else {
                            let before = known.remove(&key(&pod));
                            print_change(&pod, before, known, print);
                        }
                    }
                }
            }
            if buffer.len() > LINE_BYTES_MAX {
                bail!("a line of the watch is over {LINE_BYTES_MAX} bytes");
            }
        }
    }
}

fn key(pod: &Pod) -> String {
    format!(
        "{}/{}",
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default()
    )
}

/// Prints a pod's line unless this version is known, and remembers the version.
fn print_change(
    pod: &Pod,
    before: Option<String>,
    known: &mut BTreeMap<String, String>,
    print: &mut impl FnMut(String),
) {
    let version = pod.metadata.resource_version.clone().unwrap_or_default();
    if before.as_ref() != Some(&version) {
        print(crate::line(pod));
    }
    known.insert(key(pod), version);
}
