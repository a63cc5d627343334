//! The compiled expressions of a policy.
use super::stored::Policy;
use crate::kind::admissionregistration::expression::{Environment, Fault, Wanted};
use crate::kind::{list, text};
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_cel::eval::Program;
use setpoint_object::Reason;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Maximum bytes of source of the compiled expressions that are kept, per kind of policy.
///
/// 2 MiB: a thousand ordinary policies. Compiled expressions take some tens of times as much.
pub(super) const SOURCE_BYTES_MAX: usize = 2 << 20;

/// An expression that may have been stored before it was checked.
pub(super) type Compiled = Result<Program, Fault>;

/// The expressions of a policy.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) conditions: Vec<Expression>,
    /// By name.
    pub(super) variables: BTreeMap<String, Compiled>,
    pub(super) validations: Vec<Validation>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) mutations: Vec<Mutation>,
    source_bytes: usize,
}
/// An expression with its text.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) program: Compiled,
}
/// `validations[]`.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message_expression: Option<Compiled>,
    pub(super) message: String,
    pub(super) reason: Reason,
}
/// `auditAnnotations[]`.
#[derive(Debug)]
pub(super) struct Annotation {
    pub(super) key: String,
    pub(super) expression: Expression,
}
/// `mutations[]`.
#[derive(Debug)]
pub(super) struct Mutation {
    /// It makes a JSON patch. If `false`, an apply configuration.
    pub(super) is_json_patch: bool,
    pub(super) expression: Expression,
}

impl Programs {
    /// Compiles the expressions of a `spec`.
    pub(super) fn new(spec: &Value) -> Self {
        let conditions = Environment::new(spec["paramKind"].is_object());
        let mut environment = match list(spec, "mutations") {
            [] => conditions.clone(),
            _ => conditions.clone().with_patches(),
        };
        let mut programs = Self::default();
        for condition in list(spec, "matchConditions") {
            let condition = programs.expression(condition, "expression", &conditions, Wanted::Bool);
            programs.conditions.push(condition);
        }
        for variable in list(spec, "variables") {
            let (name, expression) = (text(variable, "name"), text(variable, "expression"));
            programs.source_bytes += expression.len();
            let compiled = environment.variable(name, expression);
            programs.variables.insert(name.to_owned(), compiled);
        }
        for validation in list(spec, "validations") {
            let reason = match text(validation, "reason") {
                "" => Reason::Invalid,
                name => Reason::from_name(name),
            };
            let message = text(validation, "messageExpression").trim();
            programs.source_bytes += message.len();
            let message =
                (!message.is_empty()).then(|| environment.compile(message, Wanted::Message));
            let expression =
                programs.expression(validation, "expression", &environment, Wanted::Bool);
            programs.validations.push(Validation {
                expression,
                message_expression: message,
                message: text(validation, "message").trim().to_owned(),
                reason,
            });
        }
        for annotation in list(spec, "auditAnnotations") {
            let wanted = Wanted::TextOrNull;
            let expression =
                programs.expression(annotation, "valueExpression", &environment, wanted);
            let key = text(annotation, "key").to_owned();
            programs.annotations.push(Annotation { key, expression });
        }
        for mutation in list(spec, "mutations") {
            let is_json_patch = text(mutation, "patchType") == "JSONPatch";
            let (member, wanted) = match is_json_patch {
                true => (&mutation["jsonPatch"], Wanted::Operations),
                false => (&mutation["applyConfiguration"], Wanted::Configuration),
            };
            let expression = programs.expression(member, "expression", &environment, wanted);
            programs.mutations.push(Mutation { is_json_patch, expression });
        }
        programs
    }
    fn expression(
        &mut self,
        value: &Value,
        member: &str,
        environment: &Environment,
        wanted: Wanted,
    ) -> Expression {
        let text = text(value, member).trim().to_owned();
        self.source_bytes += text.len();
        Expression { program: environment.compile(&text, wanted), text }
    }
}

/// The policies with compiled expressions.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Cached>);
#[derive(Debug, Default)]
struct Cached {
    source_bytes: usize,
    policies: Vec<Weak<Policy>>,
}
impl Cache {
    /// Keeps the compiled expressions of a policy. Drops those of all others if there are too many.
    pub(super) fn keep(&self, policy: &Arc<Policy>, programs: &Arc<Programs>) {
        let mut cached = self.0.lock();
        cached.source_bytes += programs.source_bytes;
        if cached.source_bytes > SOURCE_BYTES_MAX {
            for other in cached.policies.drain(..).filter_map(|policy| policy.upgrade()) {
                *other.programs.lock() = None;
            }
            cached.source_bytes = programs.source_bytes;
        }
        cached.policies.push(Arc::downgrade(policy));
        *policy.programs.lock() = Some(programs.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(n: usize) -> Arc<Policy> {
        let expression = format!("'{}' != ''", "x".repeat(9000 + n));
        let spec = json!({"validations": [{"expression": expression}]});
        Arc::new(Policy::new(json!({"metadata": {"name": "p"}, "spec": spec})))
    }

    #[test]
    fn compiled_expressions_are_kept_within_a_bound_of_bytes() {
        let cache = Cache::default();
        let policies: Vec<_> = (0..300).map(policy).collect();
        for policy in &policies {
            let programs = Arc::new(Programs::new(&policy.spec));
            assert!(programs.validations[0].expression.program.is_ok());
            cache.keep(policy, &programs);
            assert!(policy.programs.lock().is_some());
        }
        let cached = policies.iter().filter(|policy| policy.programs.lock().is_some());
        let bytes: usize = cached.map(|policy| policy.spec.to_string().len()).sum();
        assert!(bytes > 0 && bytes < SOURCE_BYTES_MAX + (64 << 10), "{bytes}");
    }
}
