//! Delivers one write, with patience.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, header};
use rand::{Rng, rngs::SmallRng};
use tokio_util::sync::CancellationToken;

use super::{
    correlator::{Record, Write},
    encode,
    loss::{Losses, count},
    recorder::EventOptions,
};
use crate::{
    client::{Call, Client, ClientError},
    error::chain,
    events::EventApi,
};

/// How often an event is tried to be written. 12, as client-go.
const TRIES_MAX: u32 = 12;
/// How long is waited between two tries: 10 s, as client-go. With the core API the first wait is a
/// random part of it, with the newer one every wait is up to a quarter longer.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// What all deliveries share.
pub(super) struct Sender {
    pub(super) client: Client,
    pub(super) options: EventOptions,
    pub(super) losses: Arc<Losses>,
    /// Once it is cancelled every write is tried once.
    pub(super) stop: CancellationToken,
}

/// What an answer means for a write.
enum Verdict {
    /// It is there.
    Written,
    /// It is refused, and would be again.
    Refused,
    /// Nothing came of it, and something may next time.
    Again,
    /// The request itself cannot be made.
    Impossible,
}

impl Sender {
    /// Writes one event, or counts it as lost. Gives the event's name.
    pub(super) async fn deliver(self: Arc<Self>, mut write: Write, mut rng: SmallRng) -> Arc<str> {
        let name = write.record().name.clone();
        for n_tries in 1.. {
            let Err(error) = self.attempt(&mut write).await else { return name };
            match self.verdict(&write, &error, n_tries) {
                Verdict::Written => return name,
                Verdict::Again if n_tries < TRIES_MAX && !self.stop.is_cancelled() => {}
                Verdict::Again => {
                    return self.lose(name, &self.losses.unreachable, &error, n_tries);
                }
                Verdict::Refused | Verdict::Impossible => {
                    return self.lose(name, &self.losses.refused, &error, n_tries);
                }
            }
            let part = rng.random::<f64>();
            let pause = match (self.options.api, n_tries) {
                (EventApi::New, _) => RETRY_PAUSE.mul_f64(1.0 + part / 4.0),
                (EventApi::Core, 1) => RETRY_PAUSE.mul_f64(part),
                (EventApi::Core, _) => RETRY_PAUSE,
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        name
    }

    fn lose(
        &self,
        name: Arc<str>,
        counter: &std::sync::atomic::AtomicU64,
        error: &ClientError,
        n_tries: u32,
    ) -> Arc<str> {
        count(counter);
        if is_namespace_terminating(error) {
            tracing::debug!(event = &*name, "an event is lost: its namespace is going");
        } else {
            tracing::warn!(event = &*name, error = chain(error), n_tries, "an event is lost");
        }
        name
    }

    fn verdict(&self, write: &Write, error: &ClientError, n_tries: u32) -> Verdict {
        let is_more = matches!(write, Write::More(_));
        match error {
            // Somebody wrote it between a patch that did not find it and the creation: it can be
            // patched now.
            error if error.is_already_exists() && is_more => Verdict::Again,
            // The answer to an earlier try was lost, not what it did.
            error if error.is_already_exists() && n_tries > 1 => Verdict::Written,
            // What client-go's REST client repeats by itself.
            ClientError::Api { source, .. } if matches!(source.code(), 429 | 503) => Verdict::Again,
            ClientError::Api { .. } => Verdict::Refused,
            ClientError::Request { .. } => Verdict::Impossible,
            _ => Verdict::Again,
        }
    }

    /// Writes once; an event that there are more of but that is gone from the server is created.
    async fn attempt(&self, write: &mut Write) -> Result<(), ClientError> {
        if let Write::More(record) = write {
            match self.send(Method::PATCH, record).await {
                Err(error) if error.is_not_found() => {}
                answer => return answer,
            }
        }
        self.send(Method::POST, write.record()).await
    }

    async fn send(&self, method: Method, record: &Record) -> Result<(), ClientError> {
        let EventOptions { api, host } = &self.options;
        let namespace = encode::namespace(record);
        let path = encode::path(*api, namespace);
        let (verb, path, content_type, body) = if method == Method::POST {
            ("create", path, "application/json", encode::created(*api, record, host))
        } else {
            let path = format!("{path}/{}", record.name);
            ("patch", path, "application/merge-patch+json", encode::more(*api, record))
        };
        let resource = match api {
            EventApi::New => "events.events.k8s.io",
            EventApi::Core => "events",
        };
        let object = format!("{namespace}/{}", record.name);
        let call = Call { verb, resource: resource.into(), object };
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

/// Whether a write was refused because its namespace is being deleted.
fn is_namespace_terminating(error: &ClientError) -> bool {
    error.api().is_some_and(|error| {
        let mut causes = error.0.details.iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    })
}
