//! PodTolerationRestriction: default and permitted tolerations of a namespace's pods.
use super::tolerations::{covers, merged};
use super::{Admission, Operation, Review};
use crate::kind::annotated::{self, Struct, Type};
use crate::kind::{list, toleration_errors};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;
use setpoint_quota::qos;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

const TOLERATION: Struct = Struct {
    name: "v1.Toleration",
    members: &[
        ("key", Type::Text("string")),
        ("operator", Type::Text("v1.TolerationOperator")),
        ("value", Type::Text("string")),
        ("effect", Type::Text("v1.TaintEffect")),
        ("tolerationSeconds", Type::Integer),
    ],
};

/// Its configuration has `default` and `whitelist`, lists of tolerations for namespaces without
/// annotations.
#[derive(Debug)]
pub(super) struct PodTolerationRestriction {
    default: Vec<Value>,
    allowed: Vec<Value>,
}

impl PodTolerationRestriction {
    pub(super) fn new(config: &Value) -> Result<Self, String> {
        let list = |member: &str| match config.get(member) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(list)) if list.iter().all(Value::is_object) => Ok(list.clone()),
            Some(_) => Err(format!("{member} is not a list of tolerations")),
        };
        let (default, allowed) = (list("default")?, list("whitelist")?);
        let document = json!({"podtolerationrestriction": config});
        let lists = ["podtolerationrestriction.default", "podtolerationrestriction.whitelist"];
        let errors = toleration_errors(&document, &lists);
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(format!("invalid config: [{}]", errors.join(" ")));
        }
        Ok(Self { default, allowed })
    }
}

impl Admission for PodTolerationRestriction {
    fn name(&self) -> &str {
        "PodTolerationRestriction"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        matches!(review.operation, Operation::Create | Operation::Update) && review.is("", "pods")
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let mut added = Vec::new();
            if review.operation == Operation::Create {
                let own = annotated(review, DEFAULTS).await?;
                added = own.unwrap_or_else(|| self.default.clone());
            }
            // Pods with guaranteed resources stay on nodes that run out of memory.
            if qos::of(pod) != "BestEffort" {
                added.push(json!({
                    "key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule",
                }));
            }
            if !added.is_empty() {
                let merged = merged(list(&pod["spec"], "tolerations"), &added);
                pod["spec"]["tolerations"] = merged.into();
            }
            self.check(review, pod).await
        }
        .boxed()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            match pod {
                Some(pod) => self.check(review, pod).await,
                None => Ok(()),
            }
        }
        .boxed()
    }
}

impl PodTolerationRestriction {
    /// Refuses a pod with a toleration that is not permitted. As in the reference, with a 500
    /// without a reason.
    async fn check(&self, review: &Review<'_>, pod: &Value) -> Result<(), ApiError> {
        let own = list(&pod["spec"], "tolerations");
        if own.is_empty() {
            return Ok(());
        }
        let (allowed, scope) = match annotated(review, ALLOWED).await? {
            Some(allowed) => (allowed, "namespace"),
            None => (self.allowed.clone(), "cluster"),
        };
        let is_allowed = |toleration| allowed.iter().any(|wide| covers(wide, toleration));
        if allowed.is_empty() || own.iter().all(is_allowed) {
            return Ok(());
        }
        Err(ApiError::unclassified(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )))
    }
}

/// The tolerations in an annotation of the namespace, none if it is empty; `None` without the
/// annotation.
async fn annotated(review: &Review<'_>, key: &str) -> Result<Option<Vec<Value>>, ApiError> {
    let namespace = review.namespace_object().await?;
    let annotations = namespace.as_ref().and_then(|n| n.meta()?.get("annotations"));
    let Some(text) = annotations.and_then(|annotations| annotations.get(key)?.as_str()) else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(Vec::new()));
    }
    match annotated::read(text, Type::List(&TOLERATION)) {
        Ok(Value::Array(list)) => Ok(Some(list)),
        Ok(_) => Ok(Some(Vec::new())),
        Err(fault) => Err(ApiError::unclassified(fault)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_checked() {
        let check = |config: Value| PodTolerationRestriction::new(&config).map(drop);
        assert_eq!(check(Value::Null), Ok(()));
        let fits = json!({"default": [{"key": "a", "operator": "Exists"}], "whitelist": null});
        assert_eq!(check(fits), Ok(()));
        let wrong = json!({
            "default": [{"key": "a", "operator": "Foo"}], "whitelist": [{"operator": "Equal"}],
        });
        assert_eq!(
            check(wrong).unwrap_err(),
            "invalid config: [podtolerationrestriction.default[0].operator: Unsupported value: \"Foo\": supported values: \"Equal\", \"Exists\" podtolerationrestriction.whitelist[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"]"
        );
    }
}
