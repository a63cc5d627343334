//! Authorization checks of admission policies and match conditions.
//!
//! The functions are always there; a variable of type [`Type::AUTHORIZER`] is only in environments
//! that declare one. An [`Authorizer`] answers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{Cost, Overload, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, String as Text};
use crate::value::{Opaque, Value};

type Result<'v> = std::result::Result<Value<'v>, Error>;

/// Answers the checks of an expression. Called while it runs, so it must not block.
pub trait Authorizer: fmt::Debug + Send + Sync + 'static {
    /// The decision about a check.
    fn authorize(&self, attributes: &Attributes) -> Decision;
}

/// A check of an expression: whether a user may do this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Namespace and name of a service account that is checked instead of the user of the
    /// request.
    pub service_account: Option<(String, String)>,
    /// The path, if it is not about a resource.
    pub path: Option<String>,
    /// The verb.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource, or nothing.
    pub subresource: String,
    /// The namespace, or nothing.
    pub namespace: String,
    /// The object's name, or nothing.
    pub name: String,
    /// The field selector as written, or nothing.
    pub field_selector: String,
    /// The label selector as written, or nothing.
    pub label_selector: String,
}

impl Attributes {
    /// The bytes of all texts.
    fn text_bytes(&self) -> usize {
        let account = self.service_account.as_ref().map_or(0, |(a, b)| a.len() + b.len());
        let texts = [
            &self.verb,
            &self.group,
            &self.resource,
            &self.subresource,
            &self.namespace,
            &self.name,
            &self.field_selector,
            &self.label_selector,
        ];
        let texts = texts.into_iter().chain(&self.path);
        account + texts.map(String::len).sum::<usize>()
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// The error.
    pub error: Option<String>,
}

/// The steps on the way to a check.
#[derive(Clone, Debug)]
enum Step {
    Authorizer,
    Path,
    Group,
    Resource,
}

#[derive(Clone, Debug)]
struct Check {
    authorizer: Arc<dyn Authorizer>,
    step: Step,
    attributes: Attributes,
}

impl Opaque for Check {
    fn type_of(&self) -> Type {
        match self.step {
            Step::Authorizer => Type::AUTHORIZER,
            Step::Path => Type::PATH_CHECK,
            Step::Group => Type::GROUP_CHECK,
            Step::Resource => Type::RESOURCE_CHECK,
        }
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Check>().is_some_and(|other| {
            Arc::ptr_eq(&self.authorizer, &other.authorizer)
                && other.type_of() == self.type_of()
                && other.attributes == self.attributes
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn text_bytes(&self) -> usize {
        self.attributes.text_bytes()
    }
}

impl Opaque for Decision {
    fn type_of(&self) -> Type {
        Type::DECISION
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn text_bytes(&self) -> usize {
        self.reason.len() + self.error.as_ref().map_or(0, String::len)
    }
}

/// The value of the variable `authorizer`.
pub fn authorizer<'v>(authorizer: Arc<dyn Authorizer>) -> Value<'v> {
    let attributes = Attributes::default();
    Value::opaque(Check { authorizer, step: Step::Authorizer, attributes })
}

/// The value of `authorizer.requestResource`: the checks of the resource of a request.
pub fn resource<'v>(authorizer: Arc<dyn Authorizer>, attributes: Attributes) -> Value<'v> {
    Value::opaque(Check { authorizer, step: Step::Resource, attributes })
}

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let (path, group, resource) =
        (|| Type::PATH_CHECK, || Type::GROUP_CHECK, || Type::RESOURCE_CHECK);
    let authorizer = || Type::AUTHORIZER;
    let refine = |function, id| member(function, id, [resource(), Text], resource());
    vec![
        member("path", "authorizer_path", [authorizer(), Text], path()).call(check_path),
        member("group", "authorizer_group", [authorizer(), Text], group()).call(check_group),
        member(
            "serviceAccount",
            "authorizer_serviceaccount",
            [authorizer(), Text, Text],
            authorizer(),
        )
        .call(service_account),
        member("resource", "groupcheck_resource", [group(), Text], resource()).call(check_resource),
        refine("subresource", "resourcecheck_subresource").call(|context, args| {
            refined(context, args, |attributes, text| attributes.subresource = text)
        }),
        refine("namespace", "resourcecheck_namespace").call(|context, args| {
            refined(context, args, |attributes, text| attributes.namespace = text)
        }),
        refine("name", "resourcecheck_name").call(|context, args| {
            refined(context, args, |attributes, text| attributes.name = text)
        }),
        refine("fieldSelector", "authorizer_fieldselector").cost(Cost::Selector).call(
            |context, args| {
                refined(context, args, |attributes, text| attributes.field_selector = text)
            },
        ),
        refine("labelSelector", "authorizer_labelselector").cost(Cost::Selector).call(
            |context, args| {
                refined(context, args, |attributes, text| attributes.label_selector = text)
            },
        ),
        member("check", "pathcheck_check", [path(), Text], Type::DECISION)
            .cost(Cost::Check)
            .call(check),
        member("check", "resourcecheck_check", [resource(), Text], Type::DECISION)
            .cost(Cost::Check)
            .call(check),
        member("errored", "decision_errored", [Type::DECISION], Bool).call(errored),
        member("error", "decision_error", [Type::DECISION], Text).call(error),
        member("allowed", "decision_allowed", [Type::DECISION], Bool).call(allowed),
        member("reason", "decision_reason", [Type::DECISION], Text).call(reason),
    ]
}

/// A check and a text. Charges a copy of both.
fn operands<'a>(
    context: &mut Context<'_>,
    args: &'a [Value<'_>],
) -> std::result::Result<(&'a Check, String), Error> {
    match args {
        [check, Value::String(text)] => {
            let check: &Check = check.downcast().ok_or(Error::NoSuchOverload)?;
            context.allocate(check.text_bytes() + text.len())?;
            Ok((check, text.to_string()))
        }
        _ => Err(Error::NoSuchOverload),
    }
}

fn next<'v>(check: &Check, step: Step, change: impl FnOnce(&mut Attributes)) -> Value<'v> {
    let mut check = Check { step, ..check.clone() };
    change(&mut check.attributes);
    Value::opaque(check)
}

fn check_path<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (check, path) = operands(context, args)?;
    if path.is_empty() {
        return Err(Error::message("path must not be empty"));
    }
    Ok(next(check, Step::Path, |attributes| attributes.path = Some(path)))
}

fn check_group<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (check, group) = operands(context, args)?;
    Ok(next(check, Step::Group, |attributes| attributes.group = group))
}

fn check_resource<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (check, resource) = operands(context, args)?;
    if resource.is_empty() {
        return Err(Error::message("resource must not be empty"));
    }
    Ok(next(check, Step::Resource, |attributes| attributes.resource = resource))
}

fn service_account<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [check, Value::String(namespace), Value::String(name)] = args else {
        return Err(Error::NoSuchOverload);
    };
    let check: &Check = check.downcast().ok_or(Error::NoSuchOverload)?;
    if !setpoint_object::name::dns1123_subdomain(name).is_empty() {
        return Err(Error::message("Invalid service account name"));
    }
    if !setpoint_object::name::dns1123_label(namespace).is_empty() {
        return Err(Error::message("Invalid service account namespace"));
    }
    context.allocate(check.text_bytes() + namespace.len() + name.len())?;
    let account = (namespace.to_string(), name.to_string());
    Ok(next(check, Step::Authorizer, |attributes| attributes.service_account = Some(account)))
}

fn refined<'v>(
    context: &mut Context<'_>,
    args: &[Value<'v>],
    change: fn(&mut Attributes, String),
) -> Result<'v> {
    let (check, text) = operands(context, args)?;
    Ok(next(check, Step::Resource, |attributes| change(attributes, text)))
}

fn check<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (check, verb) = operands(context, args)?;
    context.fuel.take(1)?;
    let attributes = Attributes { verb, ..check.attributes.clone() };
    Ok(Value::opaque(check.authorizer.authorize(&attributes)))
}

fn decision<'a>(args: &'a [Value<'_>]) -> std::result::Result<&'a Decision, Error> {
    args.first().and_then(Value::downcast).ok_or(Error::NoSuchOverload)
}

fn errored<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(decision(args)?.error.is_some()))
}

fn error<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let decision = decision(args)?;
    context.allocate(decision.text_bytes())?;
    Ok(decision.error.clone().unwrap_or_default().into())
}

fn allowed<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(decision(args)?.allowed))
}

fn reason<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let decision = decision(args)?;
    context.allocate(decision.text_bytes())?;
    Ok(decision.reason.clone().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::tests::check_with;

    #[derive(Debug)]
    struct Scale;

    impl Authorizer for Scale {
        fn authorize(&self, asked: &Attributes) -> Decision {
            let allowed = asked.subresource == "scale" && asked.verb == "update";
            Decision { allowed, reason: format!("{}/{}", asked.group, asked.name), error: None }
        }
    }

    #[test]
    fn checks_are_answered_by_the_authorizer() {
        let check = |expression: &str, expected: &str| {
            let variables = [("authorizer", authorizer(Arc::new(Scale)))];
            check_with(&format!("dyn(authorizer).{expression}"), &variables, expected);
        };
        let scale =
            "group('apps').resource('deployments').subresource('scale').namespace('n').name('x')";
        check(&format!("{scale}.check('update').allowed()"), "true");
        check(&format!("{scale}.check('get').allowed()"), "false");
        check(&format!("{scale}.check('get').reason()"), "\"apps/x\"");
        check("path('/healthz').check('get').errored()", "false");
        check("path('').check('get').errored()", "error: path must not be empty");
        check(
            "serviceAccount('a_b', 'x').path('/').check('get').allowed()",
            "error: Invalid service account namespace",
        );
    }

    #[test]
    fn a_third_check_is_over_the_limit_of_an_expression() {
        let variables = [("authorizer", authorizer(Arc::new(Scale)))];
        let one = "dyn(authorizer).path('/').check('get').allowed()";
        check_with(&format!("!{one} && !{one}"), &variables, "true");
        check_with(
            &format!("!{one} && !{one} && !{one}"),
            &variables,
            "error: operation cancelled: actual cost limit exceeded",
        );
    }
}
