//! Metrics of requests to the API server.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use tower::{Layer, Service};

use super::{Metrics, family::counter};

/// How many combinations of code, method and host have their own series. Further ones are counted
/// under the code `other`.
const SERIES_MAX: usize = 512;

/// The code, or `<error>` without an answer; the method; the host.
type Labels = (Box<str>, Box<str>, Box<str>);

/// Counts of requests by labels. Cheap to clone.
#[derive(Clone, Default)]
struct RequestFigures(Arc<Mutex<BTreeMap<Labels, u64>>>);

impl RequestFigures {
    fn count(&self, code: &str, method: &Method, host: &str) {
        let mut counts = self.0.lock();
        let mut labels: Labels = (code.into(), method.as_str().into(), host.into());
        if counts.len() >= SERIES_MAX && !counts.contains_key(&labels) {
            labels = ("other".into(), "".into(), "".into());
        }
        *counts.entry(labels).or_default() += 1;
    }
}

/// A `tower` layer that counts requests when they are answered, for `rest_client_requests_total`. A
/// manager with a metrics endpoint puts one around its client.
///
/// The label `host` is the given text, since a client does not expose its server.
#[derive(Clone)]
pub struct CountRequests {
    figures: RequestFigures,
    host: Arc<str>,
}

impl CountRequests {
    /// Registers with these metrics. They must not have such a layer already, or the family would
    /// be registered twice.
    pub fn new(metrics: &Metrics, host: impl Into<Arc<str>>) -> Self {
        let figures = RequestFigures::default();
        let collector = Box::new(RequestCollector(figures.clone()));
        metrics.update(|registry| registry.register_collector(collector));
        Self { figures, host: host.into() }
    }
}

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, layer: self.clone() }
    }
}

/// A service that counts requests: see [`CountRequests`].
#[derive(Debug, Clone)]
pub struct Counted<S> {
    inner: S,
    layer: CountRequests,
}

impl<S, Q, P> Service<Request<Q>> for Counted<S>
where
    S: Service<Request<Q>, Response = Response<P>>,
    S::Future: Send + 'static,
{
    type Response = Response<P>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<P>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let CountRequests { figures, host } = self.layer.clone();
        let method = request.method().clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map(|answer| answer.status()).ok();
            figures.count(code.as_ref().map_or("<error>", |code| code.as_str()), &method, &host);
            answer
        })
    }
}

impl fmt::Debug for CountRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountRequests").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Writes `rest_client_requests_total`.
struct RequestCollector(RequestFigures);

impl Collector for RequestCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.0.lock().clone();
        let help = "Requests to the API server, by answer, method and host";
        let mut requests = counter(&mut encoder, "rest_client_requests", help)?;
        for ((code, method, host), count) in counts {
            let labels: [(&str, &str); 3] = [("code", &code), ("method", &method), ("host", &host)];
            requests.count(&labels, count)?;
        }
        Ok(())
    }
}

impl fmt::Debug for RequestCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestCollector")
    }
}
