//! Where metrics come from: the metrics APIs, or a source of one's own.

use crate::api::{Api, RequestError};
use futures::future::{BoxFuture, FutureExt as _};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use serde_json::Value;
use setpoint_object::duration;
use setpoint_object::error::chain;
use setpoint_object::quantity::Quantity;
use setpoint_object::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The window of a metric that names none: 1 min, as in kube-controller-manager.
const DEFAULT_WINDOW: Duration = Duration::from_secs(60);

/// What is encoded in a part of a path or query.
const PART: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'*');

/// The group of custom metrics.
const CUSTOM: &str = "custom.metrics.k8s.io";

/// A metric of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodMetric {
    /// The value in thousandths.
    pub milli: i64,
    /// The end of the window.
    pub at: Timestamp,
    /// The time over which it was measured.
    pub window: Duration,
}

/// Metrics of pods, by the pod's name.
pub type PodMetrics = BTreeMap<String, PodMetric>;

/// An object that a metric is about. The namespace is the autoscaler's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricObject<'a> {
    /// The plural, with the group if it has one: `ingresses.networking.k8s.io`.
    pub resource: &'a str,
    /// The name.
    pub name: &'a str,
}

/// Why there are no metrics. The text becomes part of a condition's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MetricsError(pub String);

/// A source of metrics. Selectors are in the text form of a query; an empty one selects
/// everything. Values are in thousandths.
///
/// The controller drops a call that its pass no longer waits for.
pub trait MetricsSource: Send + Sync + 'static {
    /// A resource of the pods that a selector matches, of one container or of all together.
    /// Without an entry, a pod has no metric yet.
    fn resource<'a>(
        &'a self,
        namespace: &'a str,
        pods: &'a str,
        resource: &'a str,
        container: Option<&'a str>,
    ) -> BoxFuture<'a, Result<PodMetrics, MetricsError>>;

    /// A metric of the pods that a selector matches.
    fn pods<'a>(
        &'a self,
        namespace: &'a str,
        pods: &'a str,
        metric: &'a str,
        selector: &'a str,
    ) -> BoxFuture<'a, Result<PodMetrics, MetricsError>>;

    /// A metric of one object.
    fn object<'a>(
        &'a self,
        namespace: &'a str,
        object: MetricObject<'a>,
        metric: &'a str,
        selector: &'a str,
    ) -> BoxFuture<'a, Result<i64, MetricsError>>;

    /// The values of a metric of nothing in the cluster.
    fn external<'a>(
        &'a self,
        namespace: &'a str,
        metric: &'a str,
        selector: &'a str,
    ) -> BoxFuture<'a, Result<Vec<i64>, MetricsError>>;
}

/// The groups `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io` of a server,
/// which usually forwards them to an aggregated one.
pub(super) struct ApiMetrics {
    pub(super) api: Api,
}

impl ApiMetrics {
    /// The preferred version of custom metrics, of those that are known.
    async fn custom_version(&self) -> Result<&'static str, MetricsError> {
        let missing = || MetricsError(format!("no custom metrics API ({CUSTOM}) registered"));
        let group = self.api.get_opt(&format!("/apis/{CUSTOM}")).await;
        let group = group.map_err(|error| MetricsError(chain(&error)))?.ok_or_else(missing)?;
        let known = |version: &Value| {
            ["v1beta2", "v1beta1"].into_iter().find(|known| version["version"] == *known)
        };
        let versions = group["versions"].as_array().into_iter().flatten();
        let versions = std::iter::once(&group["preferredVersion"]).chain(versions);
        versions.into_iter().find_map(known).ok_or_else(missing)
    }

    async fn get(&self, path: &str, what: &str, kind: &str) -> Result<Value, MetricsError> {
        let failed =
            |error: String| MetricsError(format!("unable to fetch metrics from {kind}: {error}"));
        match self.api.get(path).await {
            Ok(answer) => Ok(answer),
            // No server serves the group.
            Err(RequestError::Api(error)) if error.code() == 404 && error.0.details.is_none() => {
                let reason = "the server could not find the requested resource";
                Err(failed(format!("{reason} (get {what})")))
            }
            Err(error) => Err(failed(chain(&error))),
        }
    }

    async fn custom(
        &self,
        path: &str,
        what: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<Value>, MetricsError> {
        let kind = "custom metrics API";
        let version = self.custom_version().await.map_err(|error| {
            MetricsError(format!("unable to fetch metrics from {kind}: {error}"))
        })?;
        let path = format!("/apis/{CUSTOM}/{version}/{path}{}", encode_query(query));
        items(self.get(&path, &format!("{what}.{CUSTOM}"), kind).await?, kind)
    }
}

/// The items of a list, of which there must be one.
fn items(mut answer: Value, kind: &str) -> Result<Vec<Value>, MetricsError> {
    match answer["items"].take() {
        Value::Array(items) if !items.is_empty() => Ok(items),
        _ => Err(MetricsError(format!("no metrics returned from {kind}"))),
    }
}

impl MetricsSource for ApiMetrics {
    fn resource<'a>(
        &'a self,
        namespace: &'a str,
        pods: &'a str,
        resource: &'a str,
        container: Option<&'a str>,
    ) -> BoxFuture<'a, Result<PodMetrics, MetricsError>> {
        async move {
            let kind = "resource metrics API";
            let query = encode_query(&[("labelSelector", pods)]);
            let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods{query}");
            let items = items(self.get(&path, "pods.metrics.k8s.io", kind).await?, kind)?;
            Ok(items.iter().filter_map(|pod| resource_of(pod, resource, container)).collect())
        }
        .boxed()
    }

    fn pods<'a>(
        &'a self,
        namespace: &'a str,
        pods: &'a str,
        metric: &'a str,
        selector: &'a str,
    ) -> BoxFuture<'a, Result<PodMetrics, MetricsError>> {
        async move {
            let path = format!("namespaces/{namespace}/pods/*/{}", encode(metric));
            let query = [("labelSelector", pods), ("metricLabelSelector", selector)];
            let items = self.custom(&path, "pods", &query).await?;
            let value = |item: &Value| {
                let name = item["describedObject"]["name"].as_str()?.to_owned();
                let window = item["windowSeconds"].as_u64().or_else(|| item["window"].as_u64());
                let window = window.map_or(DEFAULT_WINDOW, Duration::from_secs);
                let metric = PodMetric { milli: milli_of(&item["value"])?, at: time(item), window };
                Some((name, metric))
            };
            Ok(items.iter().filter_map(value).collect())
        }
        .boxed()
    }

    fn object<'a>(
        &'a self,
        namespace: &'a str,
        object: MetricObject<'a>,
        metric: &'a str,
        selector: &'a str,
    ) -> BoxFuture<'a, Result<i64, MetricsError>> {
        async move {
            let MetricObject { resource, name } = object;
            let metric = encode(metric);
            // A namespace can only describe itself.
            let path = match resource {
                "namespaces" => format!("namespaces/{namespace}/metrics/{metric}"),
                resource => format!("namespaces/{namespace}/{resource}/{}/{metric}", encode(name)),
            };
            let items = self.custom(&path, resource, &[("metricLabelSelector", selector)]).await?;
            let [item] = items.as_slice() else {
                let n = items.len();
                return Err(MetricsError(format!(
                    "unable to fetch metrics from custom metrics API: the custom metrics API server returned {n} results when we asked for exactly one"
                )));
            };
            milli_of(&item["value"]).ok_or_else(|| MetricsError("the value is no quantity".to_owned()))
        }
        .boxed()
    }

    fn external<'a>(
        &'a self,
        namespace: &'a str,
        metric: &'a str,
        selector: &'a str,
    ) -> BoxFuture<'a, Result<Vec<i64>, MetricsError>> {
        async move {
            let kind = "external metrics API";
            let query = encode_query(&[("labelSelector", selector)]);
            let group = "external.metrics.k8s.io";
            let name = encode(metric);
            let path = format!("/apis/{group}/v1beta1/namespaces/{namespace}/{name}{query}");
            let items = items(self.get(&path, &format!("{metric}.{group}"), kind).await?, kind)?;
            Ok(items.iter().filter_map(|item| milli_of(&item["value"])).collect())
        }
        .boxed()
    }
}

/// A resource of a pod; `None` if one of its containers has no value yet.
fn resource_of(
    pod: &Value,
    resource: &str,
    container: Option<&str>,
) -> Option<(String, PodMetric)> {
    let mut containers = pod["containers"].as_array()?.iter();
    let usage = |container: &Value| milli_of(&container["usage"][resource]);
    let milli = match container {
        Some(name) => usage(containers.find(|container| container["name"] == name)?)?,
        None if containers.len() == 0 => return None,
        None => containers
            .try_fold(0_i64, |sum, container| Some(sum.saturating_add(usage(container)?)))?,
    };
    let window = pod["window"].as_str().and_then(|window| duration::parse(window).ok());
    let window =
        Duration::from_nanos(window.and_then(|n| u64::try_from(n).ok()).unwrap_or_default());
    let name = pod["metadata"]["name"].as_str()?.to_owned();
    Some((name, PodMetric { milli, at: time(pod), window }))
}

fn milli_of(quantity: &Value) -> Option<i64> {
    milli(quantity.as_str()?).ok()
}

/// A quantity in thousandths.
pub(super) fn milli(quantity: &str) -> Result<i64, String> {
    let parsed = Quantity::parse(quantity).map_err(|error| error.to_string())?;
    Ok(parsed.milli_value())
}

fn time(item: &Value) -> Timestamp {
    item["timestamp"].as_str().and_then(Timestamp::parse).unwrap_or_default()
}

/// A part of a path or query, percent-encoded.
fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, PART).to_string()
}

/// A query of the parameters that are not empty.
fn encode_query(parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let given: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", encode(value))).collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resources_of_containers_are_summed_or_picked() {
        let pod = json!({
            "metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:30Z", "window": "1m0.5s",
            "containers": [
                {"name": "a", "usage": {"cpu": "250m", "memory": "1Mi"}},
                {"name": "b", "usage": {"cpu": "1"}},
            ],
        });
        let (name, metric) = resource_of(&pod, "cpu", None).unwrap();
        assert_eq!((name.as_str(), metric.milli), ("p", 1250));
        assert_eq!(metric.window, Duration::from_millis(60_500));
        assert_eq!(Some(metric.at), Timestamp::parse("2026-01-01T00:00:30Z"));
        assert_eq!(resource_of(&pod, "cpu", Some("a")).unwrap().1.milli, 250);
        assert_eq!(resource_of(&pod, "memory", Some("a")).unwrap().1.milli, 1_048_576_000);
        assert!(resource_of(&pod, "memory", None).is_none(), "b has none");
        assert!(resource_of(&pod, "cpu", Some("c")).is_none());
    }

    #[test]
    fn queries_are_encoded() {
        let query = encode_query(&[("a", "app in (x,y)"), ("b", ""), ("c", "k=v")]);
        assert_eq!(query, "?a=app%20in%20%28x%2Cy%29&c=k%3Dv");
        assert_eq!(encode_query(&[("a", "")]), "");
    }
}
