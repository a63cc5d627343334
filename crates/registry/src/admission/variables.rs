//! The variables that expressions about a request have.
use super::question::Questions;
use crate::kind::admissionregistration::expression::{NAMESPACE, REQUEST};
use serde_json::Value;
use setpoint_cel::eval::{self, Variables};
use setpoint_cel::library::authorizer::{self, Authorizer};
use setpoint_cel::value::Value as Cel;
use std::sync::Arc;

/// The variables of an expression. Absent objects are null.
pub(super) struct RequestVariables<'v> {
    pub(super) request: &'v Value,
    pub(super) object: &'v Value,
    pub(super) old: &'v Value,
    pub(super) namespace: &'v Value,
    pub(super) params: &'v Value,
    pub(super) questions: &'v Arc<Questions>,
}
impl<'v> Variables<'v> for RequestVariables<'v> {
    fn get(&self, name: &str) -> Option<Result<Cel<'v>, eval::Error>> {
        let questions = || self.questions.clone() as Arc<dyn Authorizer>;
        Some(match name {
            "object" => Ok(Cel::dynamic(self.object)),
            "oldObject" => Ok(Cel::dynamic(self.old)),
            "namespaceObject" => Cel::json(self.namespace, &NAMESPACE),
            "params" => Ok(Cel::dynamic(self.params)),
            "request" => Cel::json(self.request, &REQUEST),
            "authorizer" => Ok(authorizer::authorizer(questions())),
            "authorizer.requestResource" => {
                Ok(authorizer::resource(questions(), self.questions.resource.clone()))
            }
            _ => return None,
        })
    }
}
