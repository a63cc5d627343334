//! The far end: writes events to the server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{HeaderValue, Method, Request, header};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    correlator::{Correlator, Record, Write},
    recorder::Told,
};
use crate::{
    client::{Call, Client, ClientError},
    reconciler::chain,
};

/// How often an event is tried to be written when the server cannot be reached. 12, as client-go.
const TRIES_MAX: u32 = 12;
/// How long the worker waits between two tries; the first wait is a random part of it. 10 s, as client-go.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Writes what recorders were told; owned by the manager.
pub(crate) struct EventWorker {
    // Helpers.
    client: Client,
    rng: SmallRng,

    // Inputs.
    heard: mpsc::Receiver<Told>,

    // State.
    correlator: Correlator,
    lost: Arc<AtomicU64>,
}

impl EventWorker {
    pub(crate) fn new(
        client: Client,
        heard: mpsc::Receiver<Told>,
        lost: Arc<AtomicU64>,
        seed: u64,
    ) -> Self {
        Self {
            client,
            rng: SmallRng::seed_from_u64(seed),
            heard,
            correlator: Correlator::new(),
            lost,
        }
    }

    /// Writes until `stop`; then what was told before, each once and without patience.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let told = tokio::select! {
                biased;
                // Cancel safe: a dropped `recv` has taken nothing.
                told = self.heard.recv() => told,
                () = stop.cancelled() => return,
            };
            let Some(told) = told else { return };
            if let Some(write) = self.correlator.take(told) {
                self.write(write, &stop).await;
            }
        }
    }

    async fn write(&mut self, mut write: Write, stop: &CancellationToken) {
        for n_tries in 1.. {
            let error = match self.attempt(&mut write).await {
                Ok(()) => return,
                Err(error) => error,
            };
            // An answer is final: what was refused once is refused again.
            let is_final = error.api().is_some() || n_tries >= TRIES_MAX || stop.is_cancelled();
            if is_final {
                self.lost.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(error = chain(&error), n_tries, "an event is lost");
                return;
            }
            let pause = match n_tries {
                1 => RETRY_PAUSE.mul_f64(self.rng.random::<f64>()),
                _ => RETRY_PAUSE,
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Writes once; an event that is to be counted up but has expired is created.
    async fn attempt(&self, write: &mut Write) -> Result<(), ClientError> {
        if let Write::Count(record) = write {
            match self.send(Method::PATCH, record).await {
                Err(error) if error.is_not_found() => {
                    let record = record.clone();
                    *write = Write::Create(record);
                }
                answer => return answer,
            }
        }
        match write {
            Write::Create(record) | Write::Count(record) => self.send(Method::POST, record).await,
        }
    }

    async fn send(&self, method: Method, record: &Record) -> Result<(), ClientError> {
        let namespace = namespace(record);
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let (verb, path, content_type, body) = if method == Method::POST {
            ("create", path, "application/json", created(record, namespace))
        } else {
            (
                "patch",
                format!("{path}/{}", record.name),
                "application/merge-patch+json",
                counted(record),
            )
        };
        let call = Call {
            verb,
            resource: "events".into(),
            object: format!("{namespace}/{}", record.name),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
            .body(body.to_string().into_bytes());
        match request {
            Ok(request) => self.client.send(call, request).await.map(drop),
            Err(source) => Err(ClientError::Request { call, source: source.into() }),
        }
    }
}

/// Where an event about an object lives: with it, or in `default` when it has no namespace.
fn namespace(record: &Record) -> &str {
    if record.regarding.namespace.is_empty() { "default" } else { &record.regarding.namespace }
}

fn created(record: &Record, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": record.name, "namespace": namespace},
        "involvedObject": record.regarding,
        "type": record.event_type.as_str(),
        "reason": record.reason,
        "message": record.message,
        "source": {"component": &*record.component},
        "reportingComponent": &*record.component,
        "reportingInstance": "",
        "firstTimestamp": record.first.rfc3339(),
        "lastTimestamp": record.last.rfc3339(),
        "count": record.count,
    })
}

fn counted(record: &Record) -> Value {
    json!({"message": record.message, "lastTimestamp": record.last.rfc3339(), "count": record.count})
}
