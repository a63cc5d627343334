//! PodNodeSelector: the node selector of a namespace, merged into its pods' (spec: admission §2).
use super::{Admission, Operation, Review};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;
use std::collections::BTreeMap;

/// The annotation with a namespace's selector.
const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The key of the configuration for namespaces without an annotation.
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;

/// Its configuration, `podNodeSelectorPluginConfig`, has a selector for namespaces without an
/// annotation, and for each namespace the labels that its pods may select.
#[derive(Debug)]
pub(super) struct PodNodeSelector {
    default: Labels,
    allowed: BTreeMap<String, Labels>,
}

impl PodNodeSelector {
    pub(super) fn new(config: &Value) -> Result<Self, String> {
        let config = config.get("podNodeSelectorPluginConfig").unwrap_or(config);
        let mut this = Self { default: Labels::new(), allowed: BTreeMap::new() };
        for (namespace, selector) in config.as_object().into_iter().flatten() {
            if matches!(namespace.as_str(), "apiVersion" | "kind" | "imagePolicy") {
                continue;
            }
            let selector = selector.as_str().ok_or_else(|| format!("{namespace} is not a text"))?;
            let labels = parse(selector)
                .ok_or_else(|| format!("{namespace}: {selector:?} is not a list of labels"))?;
            match namespace.as_str() {
                CLUSTER_DEFAULT => this.default = labels,
                _ => _ = this.allowed.insert(namespace.clone(), labels),
            }
        }
        Ok(this)
    }
    async fn selector(&self, review: &Review<'_>) -> Result<Labels, ApiError> {
        let namespace = review.namespace_object().await?;
        let annotations = namespace.as_ref().and_then(|n| n.meta()?.get("annotations"));
        match annotations.and_then(|annotations| annotations.get(ANNOTATION)?.as_str()) {
            // As the reference: a 500 without a reason.
            Some(selector) => parse(selector).ok_or_else(|| {
                let parts = selector.replace('=', " ");
                ApiError::unclassified(format!("invalid selector: [{parts}]"))
            }),
            None => Ok(self.default.clone()),
        }
    }
}

impl Admission for PodNodeSelector {
    fn name(&self) -> &str {
        "PodNodeSelector"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is("", "pods")
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let selector = self.selector(review).await?;
            check(review, &selector, pod)?;
            for (key, value) in selector {
                if !pod["spec"]["nodeSelector"].is_object() {
                    pod["spec"]["nodeSelector"] = json!({});
                }
                pod["spec"]["nodeSelector"][key] = value.into();
            }
            Ok(())
        }
        .boxed()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(pod) = pod else { return Ok(()) };
            check(review, &self.selector(review).await?, pod)?;
            let allowed = self.allowed.get(review.namespace).filter(|allowed| !allowed.is_empty());
            let mut own = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
            match allowed {
                Some(allowed)
                    if own.any(|(k, v)| allowed.get(k).map(String::as_str) != v.as_str()) =>
                {
                    let text =
                        "pod node label selector labels conflict with its namespace whitelist";
                    Err(ApiError::forbidden(&review.group_resource(), pod.name(), text))
                }
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

/// Refuses a pod that selects another value of one of the labels.
fn check(review: &Review<'_>, selector: &Labels, pod: &Value) -> Result<(), ApiError> {
    let own = &pod["spec"]["nodeSelector"];
    let conflicts = selector
        .iter()
        .any(|(key, value)| own.get(key).is_some_and(|own| own.as_str() != Some(value.as_str())));
    let text = "pod node label selector conflicts with its namespace node label selector";
    match conflicts {
        // By the name in the pod: it has none yet if it gets a generated one.
        true => Err(ApiError::forbidden(&review.group_resource(), pod.name(), text)),
        false => Ok(()),
    }
}

/// Labels as `a=b, c=d`.
fn parse(text: &str) -> Option<Labels> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let (key, value) = (key.trim(), value.trim_start_matches('=').trim());
        let is_valid = setpoint_object::name::qualified_name(key).is_empty();
        is_valid.then(|| (key.to_owned(), value.to_owned()))
    };
    parts.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_parsed() {
        let config = json!({"podNodeSelectorPluginConfig": {
            "clusterDefaultNodeSelector": "env=test", "a": "env=a, disk==ssd",
        }});
        let plugin = PodNodeSelector::new(&config).unwrap();
        assert_eq!(plugin.default, Labels::from([("env".into(), "test".into())]));
        assert_eq!(plugin.allowed["a"]["disk"], "ssd");
        assert!(PodNodeSelector::new(&json!({"a": 1})).is_err());
        assert!(PodNodeSelector::new(&json!({"a": "env"})).is_err());
        assert!(PodNodeSelector::new(&Value::Null).is_ok());
    }
}
