//! Questions of expressions for the authorizer.
use super::Review;
use crate::attributes::ResourcePath;
use crate::authorize::Decision;
use crate::identity::Identity;
use crate::routed::{Attributes, Requested};
use crate::subresource::Subresource;
use crate::verb::Verb;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_cel::library::authorizer::{self, Authorizer};
use setpoint_object::users;

/// Maximum rounds of new questions for the authorizer that depend on earlier answers.
///
/// 32: each round evaluates the expressions again. Real expressions ask once or twice.
pub(super) const ROUNDS_MAX: usize = 32;

/// Questions of expressions for the authorizer. Expressions cannot wait: a question without an
/// answer is recorded, asked after the evaluation, and the evaluation repeated.
#[derive(Debug)]
pub(super) struct Questions {
    /// `authorizer.requestResource`.
    pub(super) resource: authorizer::Attributes,
    state: Mutex<State>,
}
#[derive(Debug, Default)]
struct State {
    answered: Vec<(authorizer::Attributes, authorizer::Decision)>,
    asked: Vec<authorizer::Attributes>,
}
impl Questions {
    /// `request` is the member of the same name in reviews.
    pub(super) fn new(request: &Value) -> Self {
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
    pub(super) async fn ask(&self, review: &Review<'_>) -> bool {
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
        Some((namespace, name)) => {
            let groups = users::service_account_groups(namespace);
            let groups = groups.iter().map(String::as_str).chain([users::AUTHENTICATED]);
            Identity::new(&users::service_account(namespace, name), groups)
        }
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
