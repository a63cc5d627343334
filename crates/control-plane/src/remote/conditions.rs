//! Match conditions of authorization webhooks: expressions in CEL about a SubjectAccessReview's
//! `spec`, as `request` (spec: auth §2.5).

use serde_json::{Value, json};
use setpoint_cel::check::{Env, check};
use setpoint_cel::decl::{DeclType, ListType};
use setpoint_cel::eval::{Context, EXPRESSION_COST_MAX, Error, OBJECT_COST_MAX, Program};
use setpoint_cel::macros::Macros;
use setpoint_cel::parse::parse;
use setpoint_cel::types::Type;
use setpoint_cel::value::Value as Cel;
use std::sync::{Arc, LazyLock};
use tokio::sync::Semaphore;

/// Maximum number of conditions: 64, as kube-apiserver.
pub const CONDITIONS_MAX: usize = 64;

/// What the conditions of one request may cost on a thread that serves requests: about a
/// millisecond.
const QUICK_COST_MAX: u64 = 20_000;
/// How many requests are evaluated on other threads at the same time, per webhook.
const SLOW_AT_ONCE: usize = 2;

/// Compiled conditions. Without any, every request meets them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MatchConditions {
    conditions: Arc<[(String, Program)]>,
    slow: Arc<Semaphore>,
}

impl Default for MatchConditions {
    fn default() -> Self {
        Self { conditions: Arc::default(), slow: Arc::new(Semaphore::new(SLOW_AT_ONCE)) }
    }
}

/// What the conditions say.
pub(super) enum Verdict {
    /// All are true.
    Met,
    /// One is false.
    Unmet {
        /// One before it has failed.
        has_failed: bool,
    },
    /// None is false, and some have failed.
    Failed(String),
}

impl MatchConditions {
    /// Compiles one expression.
    ///
    /// # Errors
    ///
    /// The detail of a field's error, in kube-apiserver's words.
    pub fn compile(expression: &str) -> Result<Program, String> {
        let env = Env::kubernetes().variable("request", REQUEST.ty.clone());
        let checked = parse(expression, &Macros::KUBERNETES).and_then(|ast| check(ast, &env));
        let checked = checked.map_err(|issues| format!("compilation failed: {issues}"))?;
        match checked.result_type() {
            Type::Bool => Program::new(&checked).instantiated(),
            other => Err(format!("must evaluate to bool but got {}", other.declared())),
        }
    }

    /// Conditions with their texts.
    pub fn new(conditions: Vec<(String, Program)>) -> Self {
        Self { conditions: conditions.into(), ..Self::default() }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Evaluates them for a review's spec.
    pub(super) async fn evaluate(&self, spec: &Value) -> Verdict {
        let request = complete(spec);
        let limits = (QUICK_COST_MAX, QUICK_COST_MAX);
        if let Some(verdict) = evaluate(&self.conditions, &request, limits) {
            return verdict;
        }
        let stopping = || Verdict::Failed("the server is stopping".to_owned());
        let Ok(permit) = self.slow.clone().acquire_owned().await else { return stopping() };
        let conditions = self.conditions.clone();
        let there = tokio::task::spawn_blocking(move || {
            let limits = (EXPRESSION_COST_MAX, OBJECT_COST_MAX);
            let verdict = evaluate(&conditions, &request, limits);
            drop(permit);
            verdict
        });
        there.await.ok().flatten().unwrap_or_else(stopping)
    }
}

/// `limits`: costs of one expression and of all. `None`: they cost more than may be spent here.
fn evaluate(
    conditions: &[(String, Program)],
    request: &Value,
    (one, all): (u64, u64),
) -> Option<Verdict> {
    let mut errors = Vec::new();
    let mut left = all;
    for (text, program) in conditions {
        let mut context = Context::new(one.min(left));
        let result = Cel::json(request, &REQUEST)
            .and_then(|request| program.evaluate(&mut context, &[("request", request)]));
        left = left.saturating_sub(context.cost());
        let why = match result {
            Ok(Cel::Bool(true)) => continue,
            Ok(Cel::Bool(false)) => {
                return Some(Verdict::Unmet { has_failed: !errors.is_empty() });
            }
            Err(Error::CostLimit) if one < EXPRESSION_COST_MAX => return None,
            Ok(_) => "must evaluate to bool".to_owned(),
            Err(error) => error.to_string(),
        };
        errors.push(format!("cel evaluation error: expression '{text}' resulted in error: {why}"));
    }
    Some(match &errors[..] {
        [] => Verdict::Met,
        [error] => Verdict::Failed(error.clone()),
        errors => Verdict::Failed(format!("[{}]", errors.join(", "))),
    })
}

/// The spec with all texts that a review may leave out, so that expressions need not ask for them.
fn complete(spec: &Value) -> Value {
    let text = |object: &Value, member: &str| Value::from(object[member].as_str().unwrap_or(""));
    let mut request = json!({
        "user": text(spec, "user"), "uid": text(spec, "uid"),
        "groups": spec.get("groups").cloned().unwrap_or_else(|| json!([])),
        "extra": spec.get("extra").cloned().unwrap_or_else(|| json!({})),
    });
    if let Some(resource) = spec.get("resourceAttributes") {
        let mut shown = json!({});
        for member in ["namespace", "verb", "group", "version", "resource", "subresource", "name"] {
            shown[member] = text(resource, member);
        }
        for member in ["fieldSelector", "labelSelector"] {
            if let Some(selector) = resource.get(member) {
                shown[member] = selector.clone();
            }
        }
        request["resourceAttributes"] = shown;
    }
    if let Some(path) = spec.get("nonResourceAttributes") {
        request["nonResourceAttributes"] = path.clone();
    }
    request
}

/// How expressions see the spec.
static REQUEST: LazyLock<DeclType> = LazyLock::new(|| {
    let text = || DeclType::text(None, None, std::iter::empty());
    let texts = || DeclType::list(text(), ListType::Atomic, None);
    let named = |names: &[&str]| -> Vec<(String, DeclType)> {
        names.iter().map(|name| ((*name).to_owned(), text())).collect()
    };
    let selector = |name: &str| {
        let mut requirement = named(&["key", "operator"]);
        requirement.push(("values".to_owned(), texts()));
        let requirement = object("SelectorRequirement", requirement);
        let list = DeclType::list(requirement, ListType::Atomic, None);
        let mut fields = named(&["rawSelector"]);
        fields.push(("requirements".to_owned(), list));
        object(name, fields)
    };
    let mut resource =
        named(&["namespace", "verb", "group", "version", "resource", "subresource", "name"]);
    resource.push(("fieldSelector".to_owned(), selector("FieldSelectorAttributes")));
    resource.push(("labelSelector".to_owned(), selector("LabelSelectorAttributes")));
    let mut fields = named(&["user", "uid"]);
    let path = object("NonResourceAttributes", named(&["path", "verb"]));
    fields.push(("resourceAttributes".to_owned(), object("ResourceAttributes", resource)));
    fields.push(("nonResourceAttributes".to_owned(), path));
    fields.push(("groups".to_owned(), texts()));
    fields.push(("extra".to_owned(), DeclType::map(texts(), None)));
    object("SubjectAccessReviewSpec", fields)
});

fn object(name: &str, fields: Vec<(String, DeclType)>) -> DeclType {
    DeclType::declared(format!("kubernetes.{name}"), fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn verdict(expressions: &[&str], spec: &Value) -> String {
        let compile = |text: &&str| (text.to_string(), MatchConditions::compile(text).unwrap());
        let conditions = MatchConditions::new(expressions.iter().map(compile).collect());
        match conditions.evaluate(spec).await {
            Verdict::Met => "met".to_owned(),
            Verdict::Unmet { .. } => "unmet".to_owned(),
            Verdict::Failed(why) => why,
        }
    }

    #[tokio::test]
    async fn conditions_see_the_review() {
        let spec = json!({
            "user": "jane", "groups": ["a"],
            "resourceAttributes": {"verb": "list", "resource": "pods",
                "labelSelector": {"requirements": [{"key": "x", "operator": "Exists"}]}},
        });
        let check = async |expressions: &[&str]| verdict(expressions, &spec).await;
        assert_eq!(check(&[]).await, "met");
        assert_eq!(
            check(&[
                "request.user == 'jane' && 'a' in request.groups",
                "has(request.resourceAttributes) && request.resourceAttributes.namespace == ''",
                "request.?resourceAttributes.labelSelector.hasValue()",
            ])
            .await,
            "met"
        );
        let fails = "request.nonResourceAttributes.path == '/'";
        assert_eq!(
            check(&[fails]).await,
            format!(
                "cel evaluation error: expression '{fails}' resulted in error: no such key: nonResourceAttributes"
            )
        );
        // One that is false counts more than one that fails.
        assert_eq!(check(&[fails, "request.uid != ''"]).await, "unmet");
        let paths = json!({"user": "u", "nonResourceAttributes": {"path": "/x", "verb": "get"}});
        assert_eq!(verdict(&["request.nonResourceAttributes.path == '/x'"], &paths).await, "met");
        // One that costs more starts over on another thread.
        let many = json!({"user": "u", "groups": vec!["x"; 300]});
        let costly = "request.groups.all(a, request.groups.all(b, a == b))";
        assert_eq!(verdict(&[costly], &many).await, "met");
    }

    #[test]
    fn wrong_expressions_are_reported_in_the_words_of_the_reference() {
        let error = |text| MatchConditions::compile(text).map(drop).unwrap_err();
        assert_eq!(error("request.user"), "must evaluate to bool but got string");
        assert_eq!(
            error("request.name == ''"),
            "compilation failed: ERROR: <input>:1:8: undefined field 'name'\n | request.name == ''\n | .......^"
        );
    }
}
