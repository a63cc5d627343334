//! Match conditions: whether a hook is called for a request (spec: admission §4).
use super::configuration::Hook;
use crate::admission::Review;
use crate::admission::question::{Questions, ROUNDS_MAX};
use crate::admission::subject::Subject;
use crate::admission::variables::RequestVariables;
use serde_json::Value;
use setpoint_cel::eval::{self, Context, EXPRESSION_COST_MAX};
use setpoint_cel::value::Value as Cel;
use setpoint_object::ApiError;
use setpoint_object::error::aggregate;
use std::borrow::Cow;
use std::sync::Arc;

/// What the conditions of one hook may cost together: as Kubernetes' budget for match conditions.
const COST_MAX: u64 = 2_500_000;
/// The error if they cost more, whatever they say.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
/// What they may cost on the serving thread: about a millisecond. Costlier ones start over on
/// another thread.
const INLINE_COST_MAX: u64 = 20_000;
/// What the conditions say.
enum Verdict {
    /// All are true.
    Met,
    /// One is false.
    Unmet,
    /// None is false, and these have failed.
    Failed(Vec<String>),
    /// The evaluation costs more than it may here.
    Costly,
}

/// Whether all conditions of a hook are true.
///
/// # Errors
///
/// 403: an expression failed, and the hook fails closed.
pub(super) async fn all_met(
    hook: &Arc<Hook>,
    review: &Review<'_>,
    subject: &Subject<'_>,
) -> Result<bool, ApiError> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let threads = &review.inner.threads;
    if !hook.is_compiled() {
        let hook = hook.clone();
        threads.run(async move { _ = hook.programs() }).await?;
    }
    let questions = Arc::new(Questions::new(&subject.request));
    let mut is_inline = true;
    for _ in 0..ROUNDS_MAX {
        let verdict = if is_inline {
            let null = Value::Null;
            let object = subject.object.as_deref().unwrap_or(&null);
            let old = subject.old.as_deref().unwrap_or(&null);
            let limits = (INLINE_COST_MAX, INLINE_COST_MAX);
            evaluate(hook, &subject.request, object, old, &questions, limits)
        } else {
            let (hook, questions) = (hook.clone(), questions.clone());
            let (object, old) = (owned(&subject.object), owned(&subject.old));
            let request = subject.request.clone();
            let limits = (EXPRESSION_COST_MAX, COST_MAX);
            let there = async move { evaluate(&hook, &request, &object, &old, &questions, limits) };
            threads.run(there).await?
        };
        if questions.ask(review).await {
            continue;
        }
        match verdict {
            Verdict::Met => return Ok(true),
            Verdict::Unmet => return Ok(false),
            Verdict::Costly => is_inline = false,
            Verdict::Failed(_) if hook.fails_open => return Ok(false),
            Verdict::Failed(errors) => return Err(refused(review, subject, &errors)),
        }
    }
    let text = "the match conditions ask the authorizer too often";
    match hook.fails_open {
        true => Ok(false),
        false => Err(refused(review, subject, &[text.to_owned()])),
    }
}
fn owned(tree: &Option<Cow<'_, Value>>) -> Value {
    tree.as_ref().map_or(Value::Null, |tree| Value::clone(tree))
}
/// Names the object as reviews do.
fn refused(review: &Review<'_>, subject: &Subject<'_>, errors: &[String]) -> ApiError {
    let why = aggregate(errors);
    let name = subject.request["name"].as_str().unwrap_or_default();
    ApiError::forbidden(&review.group_resource(), name, &why)
}

/// Evaluates the conditions. `limits`: costs of one expression and of all together.
fn evaluate(
    hook: &Hook,
    request: &Value,
    object: &Value,
    old: &Value,
    questions: &Arc<Questions>,
    (one, all): (u64, u64),
) -> Verdict {
    let (namespace, params) = (&Value::Null, &Value::Null);
    let variables = RequestVariables { request, object, old, namespace, params, questions };
    let mut errors = Vec::new();
    let mut left = all;
    for (expression, program) in hook.conditions.iter().zip(hook.programs()) {
        let mut context = Context::new(one);
        let result = match program {
            Ok(program) => program.evaluate(&mut context, &variables),
            Err(fault) => Err(eval::Error::message(fault.to_string())),
        };
        left = match left.checked_sub(context.cost()) {
            Some(left) => left,
            None if one < EXPRESSION_COST_MAX => return Verdict::Costly,
            None => return Verdict::Failed(vec![OUT_OF_BUDGET.to_owned()]),
        };
        match result {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => return Verdict::Unmet,
            Err(eval::Error::CostLimit) if one < EXPRESSION_COST_MAX => return Verdict::Costly,
            Ok(_) => errors.push(format!(
                "expression '{expression}' resulted in error: must evaluate to bool"
            )),
            Err(error) => {
                errors.push(format!("expression '{expression}' resulted in error: {error}"));
            }
        }
    }
    if errors.is_empty() { Verdict::Met } else { Verdict::Failed(errors) }
}
