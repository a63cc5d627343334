//! Match conditions: whether a hook wants to see a request (spec: admission §4).
use super::configuration::Hook;
use super::request::Subject;
use crate::admission::Review;
use crate::attributes::{Attributes, Identity, Requested, ResourcePath};
use crate::authorize::Decision;
use crate::kind::admissionregistration::expression::REQUEST;
use crate::subresource::Subresource;
use crate::verb::Verb;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_cel::eval::{self, Context, EXPRESSION_COST_MAX, Variables};
use setpoint_cel::library::authorizer::{self, Authorizer};
use setpoint_cel::value::Value as Cel;
use setpoint_object::ApiError;
use std::borrow::Cow;
use std::sync::Arc;

/// What the conditions of one hook may cost together: as Kubernetes' budget for match conditions.
const COST_MAX: u64 = 2_500_000;
/// What they may cost on the serving thread: about a millisecond. Costlier ones start over on
/// another thread.
const INLINE_COST_MAX: u64 = 20_000;
/// How many times expressions may ask the authorizer something new, depending on earlier answers.
///
/// 32: each round evaluates the expressions again. Real conditions ask once or twice.
const ROUNDS_MAX: usize = 32;

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
            Verdict::Failed(errors) => return Err(refused(review, &errors)),
        }
    }
    let text = "the match conditions ask the authorizer too often";
    if hook.fails_open { Ok(false) } else { Err(refused(review, &[text.to_owned()])) }
}
fn owned(tree: &Option<Cow<'_, Value>>) -> Value {
    tree.as_ref().map_or(Value::Null, |tree| Value::clone(tree))
}
fn refused(review: &Review<'_>, errors: &[String]) -> ApiError {
    match errors {
        [error] => review.forbidden(error),
        errors => review.forbidden(&format!("[{}]", errors.join(", "))),
    }
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
    let variables = RequestVariables { request, object, old, questions };
    let mut errors = Vec::new();
    let mut left = all;
    for (expression, program) in hook.conditions.iter().zip(hook.programs()) {
        let mut context = Context::new(one.min(left));
        let result = match program {
            Ok(program) => program.evaluate(&mut context, &variables),
            Err(error) => Err(eval::Error::message(error.clone())),
        };
        left = left.saturating_sub(context.cost());
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

/// The variables of an expression.
struct RequestVariables<'v> {
    request: &'v Value,
    object: &'v Value,
    old: &'v Value,
    questions: &'v Arc<Questions>,
}
impl<'v> Variables<'v> for RequestVariables<'v> {
    fn get(&self, name: &str) -> Option<Result<Cel<'v>, eval::Error>> {
        let questions = || self.questions.clone() as Arc<dyn Authorizer>;
        Some(match name {
            "object" => Ok(Cel::dynamic(self.object)),
            "oldObject" => Ok(Cel::dynamic(self.old)),
            "namespaceObject" => Ok(Cel::Null),
            "request" => Cel::json(self.request, &REQUEST),
            "authorizer" => Ok(authorizer::authorizer(questions())),
            "authorizer.requestResource" => {
                Ok(authorizer::resource(questions(), self.questions.resource.clone()))
            }
            _ => return None,
        })
    }
}

/// What expressions ask the authorizer. They cannot wait: a question without an answer yet is
/// recorded, asked after the evaluation, and the evaluation repeated.
#[derive(Debug)]
struct Questions {
    /// `authorizer.requestResource`.
    resource: authorizer::Attributes,
    state: Mutex<State>,
}
#[derive(Debug, Default)]
struct State {
    answered: Vec<(authorizer::Attributes, authorizer::Decision)>,
    asked: Vec<authorizer::Attributes>,
}
impl Questions {
    fn new(request: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = authorizer::Attributes {
            group: text(&request["requestResource"]["group"]),
            resource: text(&request["requestResource"]["resource"]),
            subresource: text(&request["requestSubResource"]),
            namespace: text(&request["namespace"]),
            name: text(&request["name"]),
            ..authorizer::Attributes::default()
        };
        Self { resource, state: Mutex::default() }
    }
    /// Asks the recorded questions; `false` if there are none.
    async fn ask(&self, review: &Review<'_>) -> bool {
        let asked = std::mem::take(&mut self.state.lock().asked);
        if asked.is_empty() {
            return false;
        }
        for question in asked {
            let request = request_of(&question, review.attributes);
            let answer = match review.inner.authorization.decide(&request).await {
                Ok(Decision::Allow(reason)) => {
                    authorizer::Decision { allowed: true, reason, error: None }
                }
                Ok(Decision::Deny(reason) | Decision::NoOpinion(reason)) => {
                    authorizer::Decision { allowed: false, reason, error: None }
                }
                Err(error) => authorizer::Decision {
                    allowed: false,
                    reason: String::new(),
                    error: Some(error.to_string()),
                },
            };
            self.state.lock().answered.push((question, answer));
        }
        true
    }
}
impl Authorizer for Questions {
    fn authorize(&self, question: &authorizer::Attributes) -> authorizer::Decision {
        let mut state = self.state.lock();
        if let Some((_, answer)) = state.answered.iter().find(|(asked, _)| asked == question) {
            return answer.clone();
        }
        if !state.asked.contains(question) {
            state.asked.push(question.clone());
        }
        authorizer::Decision::default()
    }
}
/// The request that a question is about.
fn request_of(question: &authorizer::Attributes, request: &Attributes) -> Attributes {
    let identity = match &question.service_account {
        None => request.identity.clone(),
        Some((namespace, name)) => Identity::new(
            &format!("system:serviceaccount:{namespace}:{name}"),
            [
                "system:serviceaccounts",
                &format!("system:serviceaccounts:{namespace}"),
                "system:authenticated",
            ],
        ),
    };
    let requested = match &question.path {
        Some(path) => Requested::Path(path.clone()),
        None => Requested::Unrouted(ResourcePath {
            group: question.group.clone(),
            version: "*".to_owned(),
            resource: question.resource.clone(),
            namespace: question.namespace.clone(),
            name: question.name.clone(),
            subresource: Subresource::of(&question.subresource),
        }),
    };
    Attributes {
        field_selector: question.field_selector.clone(),
        label_selector: question.label_selector.clone(),
        ..Attributes::new(identity, Verb::from(question.verb.as_str()), requested)
    }
}
