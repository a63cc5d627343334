//! From the metrics of a spec to the recommendations, their statuses and their texts.

use super::metrics::{MetricObject, MetricsSource, PodMetrics, milli};
use super::pod::{Pod, request};
use super::replicas::{PodState, Proposal, Target, Tolerance, of_average, of_value, per_pod};
use k8s_openapi::api::autoscaling::v2 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use setpoint_object::label::{Selector, go_text};
use setpoint_object::quantity::Quantity;
use setpoint_object::time::Timestamp;
use setpoint_runtime::mapper::Mapper;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A recommendation, the name of its metric, and the metric's status.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) replicas: i32,
    pub(super) name: String,
    pub(super) status: api::MetricStatus,
}

/// Why a metric gives no recommendation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    /// The reason of the event and of the condition.
    pub(super) reason: &'static str,
    /// The message of the event.
    pub(super) note: String,
    /// The error of the whole pass.
    pub(super) error: String,
}

/// What a pass knows of an autoscaler's target.
pub(super) struct Scaled<'a> {
    pub(super) source: &'a dyn MetricsSource,
    pub(super) mapper: &'a Mapper,
    pub(super) namespace: &'a str,
    /// The selector of the scale.
    pub(super) selector: &'a str,
    pub(super) pods: &'a [Arc<Pod>],
    /// `spec.replicas` and `status.replicas` of the scale.
    pub(super) spec_replicas: i32,
    pub(super) status_replicas: i32,
    pub(super) tolerance: Tolerance,
    pub(super) now: Timestamp,
}

impl Scaled<'_> {
    /// The recommendation of one metric.
    pub(super) async fn evaluate(&self, spec: &api::MetricSpec) -> Result<Found, Failed> {
        match (spec.type_.as_str(), spec) {
            ("Resource", api::MetricSpec { resource: Some(metric), .. }) => {
                self.resource(&metric.name, None, &metric.target).await.map_err(|error| Failed {
                    reason: "FailedGetResourceMetric",
                    error: format!("failed to get {} resource metric value: {error}", metric.name),
                    note: error,
                })
            }
            ("ContainerResource", api::MetricSpec { container_resource: Some(metric), .. }) => {
                let container = metric.container.as_str();
                let found = self.resource(&metric.name, Some(container), &metric.target).await;
                found.map_err(|error| Failed {
                    reason: "FailedGetContainerResourceMetric",
                    error: format!("failed to get {container} container metric value: {error}"),
                    note: error,
                })
            }
            ("Pods", api::MetricSpec { pods: Some(metric), .. }) => {
                self.of_pods(metric).await.map_err(|error| Failed {
                    reason: "FailedGetPodsMetric",
                    error: format!("failed to get pods metric value: {error}"),
                    note: error,
                })
            }
            ("Object", api::MetricSpec { object: Some(metric), .. }) => {
                self.of_object(metric).await.map_err(|(note, error)| Failed {
                    reason: "FailedGetObjectMetric",
                    error: format!("failed to get object metric value: {error}"),
                    note,
                })
            }
            ("External", api::MetricSpec { external: Some(metric), .. }) => {
                let name = &metric.metric.name;
                self.of_external(metric).await.map_err(|(note, error)| Failed {
                    reason: "FailedGetExternalMetric",
                    error: format!("failed to get {name} external metric value: {error}"),
                    note,
                })
            }
            (kind, _) => {
                let error = format!("unknown metric source type {kind:?}");
                Err(Failed { reason: "InvalidMetricSourceType", note: error.clone(), error })
            }
        }
    }

    async fn resource(
        &self,
        resource: &str,
        container: Option<&str>,
        target: &api::MetricTarget,
    ) -> Result<Found, String> {
        let (what, target) = match (&target.average_value, target.average_utilization) {
            (Some(value), _) => ("usage", Err(milli(&value.0)?)),
            (None, Some(percent)) => ("utilization", Ok(percent)),
            (None, None) => {
                return Err("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".to_owned());
            }
        };
        let proposal = async {
            let metrics =
                self.source.resource(self.namespace, self.selector, resource, container).await;
            let metrics = metrics.map_err(|error| {
                format!("unable to get metrics for resource {resource}: {error}")
            })?;
            let target = match target {
                Err(average) => Target::Average(average),
                // Pods come first: without one there are no requests.
                Ok(percent) => {
                    let requests = self.requests(resource, container);
                    let requests = match self.check(&metrics, resource == "cpu") {
                        Ok(()) => requests?,
                        Err(error) => return Err(error),
                    };
                    Target::Utilization { percent, requests }
                }
            };
            self.per_pod(&metrics, &target, resource == "cpu")
        };
        let proposal: Result<Proposal, String> = proposal.await;
        let proposal =
            proposal.map_err(|error| format!("failed to get {resource} {what}: {error}"))?;
        let name = match (proposal.utilization, container) {
            (None, _) => format!("{resource} resource"),
            (Some(_), None) => format!("{resource} resource utilization (percentage of request)"),
            (Some(_), Some(_)) => {
                format!("{resource} container resource utilization (percentage of request)")
            }
        };
        let current = api::MetricValueStatus {
            average_utilization: proposal.utilization,
            average_value: Some(quantity(proposal.usage, resource == "memory")),
            value: None,
        };
        let resource = resource.to_owned();
        let status = match container {
            None => api::MetricStatus {
                type_: "Resource".to_owned(),
                resource: Some(api::ResourceMetricStatus { name: resource, current }),
                ..Default::default()
            },
            Some(container) => api::MetricStatus {
                type_: "ContainerResource".to_owned(),
                container_resource: Some(api::ContainerResourceMetricStatus {
                    container: container.to_owned(),
                    name: resource,
                    current,
                }),
                ..Default::default()
            },
        };
        Ok(Found { replicas: proposal.replicas, name, status })
    }

    async fn of_pods(&self, spec: &api::PodsMetricSource) -> Result<Found, String> {
        let name = spec.metric.name.as_str();
        let selector = metric_selector(spec.metric.selector.as_ref())?;
        let target = spec.target.average_value.as_ref().map(|value| milli(&value.0)).transpose()?;
        let target = target.ok_or("invalid pods metric source: no average value target was set")?;
        let metrics = self.source.pods(self.namespace, self.selector, name, &selector).await;
        let metrics = metrics.map_err(|error| format!("unable to get metric {name}: {error}"))?;
        let proposal = self.per_pod(&metrics, &Target::Average(target), false)?;
        let status = api::MetricStatus {
            type_: "Pods".to_owned(),
            pods: Some(api::PodsMetricStatus {
                current: average(proposal.usage),
                metric: spec.metric.clone(),
            }),
            ..Default::default()
        };
        Ok(Found { replicas: proposal.replicas, name: format!("pods metric {name}"), status })
    }

    /// An error is the note of the event, and the error of the pass.
    async fn of_object(&self, spec: &api::ObjectMetricSource) -> Result<Found, (String, String)> {
        let twice = |error: String| (error.clone(), error);
        let (name, object) = (spec.metric.name.as_str(), &spec.described_object);
        let target = &spec.target;
        let (target, is_average) = match (
            target.type_.as_str(),
            &target.value,
            &target.average_value,
        ) {
            ("Value", Some(value), _) => (milli(&value.0).map_err(twice)?, false),
            ("AverageValue", _, Some(value)) => (milli(&value.0).map_err(twice)?, true),
            _ => {
                return Err(twice("invalid object metric source: neither a value target nor an average value target was set".to_owned()));
            }
        };
        let selector = metric_selector(spec.metric.selector.as_ref()).map_err(twice)?;
        let usage = self.object_usage(object, name, &selector).await.map_err(|error| {
            let (kind, namespace, of) = (&object.kind, self.namespace, &object.name);
            let error = format!("unable to get metric {name}: {kind} on {namespace} {of}/{error}");
            match is_average {
                true => (error.clone(), format!("failed to get {name} object metric: {error}")),
                false => twice(error),
            }
        })?;
        let (proposal, current, name) = if is_average {
            let proposal = of_average(usage, target, self.status_replicas, self.tolerance);
            let name = format!("external metric {name}({})", shown(spec.metric.selector.as_ref()));
            (proposal, average(proposal.usage), name)
        } else {
            let states = self.states();
            let proposal = of_value(&states, usage, target, self.spec_replicas, self.tolerance);
            let name = format!("{} metric {name}", object.kind);
            (proposal.map_err(twice)?, value(usage), name)
        };
        let status = api::MetricStatus {
            type_: "Object".to_owned(),
            object: Some(api::ObjectMetricStatus {
                current,
                described_object: object.clone(),
                metric: spec.metric.clone(),
            }),
            ..Default::default()
        };
        Ok(Found { replicas: proposal.replicas, name, status })
    }

    async fn object_usage(
        &self,
        object: &api::CrossVersionObjectReference,
        metric: &str,
        selector: &str,
    ) -> Result<i64, String> {
        let version = object.api_version.as_deref().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let resource = self.mapper.resolve_preferred(group, &object.kind).await;
        let resource = resource
            .map_err(|error| format!("unable to fetch metrics from custom metrics API: {error}"))?;
        let resource = match resource.resource {
            resource if resource.group.is_empty() => resource.plural,
            resource => format!("{}.{}", resource.plural, resource.group),
        };
        let object = MetricObject { resource: &resource, name: &object.name };
        let usage = self.source.object(self.namespace, object, metric, selector).await;
        usage.map_err(|error| error.to_string())
    }

    /// An error is the note of the event, and the error of the pass.
    async fn of_external(
        &self,
        spec: &api::ExternalMetricSource,
    ) -> Result<Found, (String, String)> {
        let name = spec.metric.name.as_str();
        let (target, is_average) = match (&spec.target.average_value, &spec.target.value) {
            (Some(value), _) => (milli(&value.0), true),
            (None, Some(value)) => (milli(&value.0), false),
            (None, None) => (
                Err("invalid external metric source: neither a value target nor an average value target was set".to_owned()),
                false,
            ),
        };
        let target = target.map_err(|error| (error.clone(), error))?;
        let shown = shown(spec.metric.selector.as_ref());
        let usage = async {
            let selector = metric_selector(spec.metric.selector.as_ref())?;
            let values = self.source.external(self.namespace, name, &selector).await;
            let values = values.map_err(|error| {
                let namespace = self.namespace;
                format!("unable to get external metric {namespace}/{name}/{shown}: {error}")
            })?;
            Ok(values.into_iter().fold(0, i64::saturating_add))
        };
        let usage: Result<i64, String> = usage.await;
        let proposal = usage.and_then(|usage| match is_average {
            true => Ok(of_average(usage, target, self.status_replicas, self.tolerance)),
            false => of_value(&self.states(), usage, target, self.spec_replicas, self.tolerance),
        });
        let proposal = proposal.map_err(|error| match is_average {
            true => (error.clone(), format!("failed to get {name} external metric: {error}")),
            false => (error.clone(), format!("failed to get external metric {name}: {error}")),
        })?;
        let usage = proposal.usage;
        let status = api::MetricStatus {
            type_: "External".to_owned(),
            external: Some(api::ExternalMetricStatus {
                current: if is_average { average(usage) } else { value(usage) },
                metric: spec.metric.clone(),
            }),
            ..Default::default()
        };
        let name = format!("external metric {name}({shown})");
        Ok(Found { replicas: proposal.replicas, name, status })
    }

    fn states(&self) -> Vec<PodState> {
        self.pods.iter().map(|pod| pod.state()).collect()
    }

    fn per_pod(
        &self,
        metrics: &PodMetrics,
        target: &Target,
        is_cpu: bool,
    ) -> Result<Proposal, String> {
        let (current, tolerance, now) = (self.spec_replicas, self.tolerance, self.now);
        per_pod(&self.states(), metrics, target, current, tolerance, is_cpu, now)
    }

    /// Whether the metrics are of pods at all, before the pods' requests are looked at.
    fn check(&self, metrics: &PodMetrics, is_cpu: bool) -> Result<(), String> {
        self.per_pod(metrics, &Target::Average(1), is_cpu).map(drop)
    }

    /// What each pod requests, in thousandths.
    fn requests(
        &self,
        resource: &str,
        container: Option<&str>,
    ) -> Result<BTreeMap<String, i64>, String> {
        let of_pod =
            |pod: &Arc<Pod>| Ok((pod.name().to_owned(), request(pod, resource, container)?));
        self.pods.iter().map(of_pod).collect()
    }
}

/// Thousandths as a quantity. Bytes have binary suffixes.
fn quantity(milli: i64, is_bytes: bool) -> Text {
    let text = match milli / 1_024_000 {
        kibi if is_bytes && milli % 1_024_000 == 0 && kibi != 0 => format!("{kibi}Ki"),
        _ => format!("{milli}m"),
    };
    Text(Quantity::parse(&text).map_or(text, |quantity| quantity.as_str().to_owned()))
}

fn average(milli: i64) -> api::MetricValueStatus {
    let average_value = Some(quantity(milli, false));
    api::MetricValueStatus { average_value, average_utilization: None, value: None }
}

fn value(milli: i64) -> api::MetricValueStatus {
    let value = Some(quantity(milli, false));
    api::MetricValueStatus { value, average_utilization: None, average_value: None }
}

/// The selector of a metric in the text form of a query.
fn metric_selector(selector: Option<&LabelSelector>) -> Result<String, String> {
    let Some(selector) = selector else { return Ok(String::new()) };
    let selector = serde_json::to_value(selector).unwrap_or(Value::Null);
    let parsed = Selector::from_object(&selector).map_err(|error| error.to_string())?;
    Ok(parsed.map(|parsed| parsed.to_string()).unwrap_or_default())
}

/// A selector as Go prints it in messages.
fn shown(selector: Option<&LabelSelector>) -> String {
    selector.map_or_else(|| "nil".to_owned(), |selector| go_text(&json!(selector)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_canonical() {
        for (milli, is_bytes, text) in [
            (250, false, "250m"),
            (1_000_000, false, "1k"),
            (1500, false, "1500m"),
            (1_073_741_824_000, true, "1Gi"),
            (1_536_000, true, "1536"),
            (512_000, true, "512"),
            (0, true, "0"),
        ] {
            assert_eq!(quantity(milli, is_bytes).0, text);
        }
    }

    #[test]
    fn selectors_in_messages_are_as_go_prints_them() {
        assert_eq!(shown(None), "nil");
        let selector: LabelSelector = serde_json::from_value(json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["v", "w"]}],
        }))
        .unwrap();
        assert_eq!(
            shown(Some(&selector)),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[v w],},},}"
        );
        assert_eq!(metric_selector(Some(&selector)).unwrap(), "a=b,k in (v,w)");
    }
}
