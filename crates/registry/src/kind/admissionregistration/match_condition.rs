//! Match conditions of webhooks: expressions in CEL about a request (spec: admission §4).
use setpoint_cel::check::{Env, check};
use setpoint_cel::decl::{DeclType, ListType, Property};
use setpoint_cel::eval::Program;
use setpoint_cel::macros::Macros;
use setpoint_cel::parse::parse;
use setpoint_cel::types::Type;
use std::sync::LazyLock;

/// How expressions see the variable `request`: an AdmissionRequest without its objects.
pub(crate) static REQUEST: LazyLock<DeclType> = LazyLock::new(request);

/// What expressions may refer to.
static ENV: LazyLock<Env> = LazyLock::new(|| {
    Env::kubernetes()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("namespaceObject", Type::Dyn)
        .variable("request", REQUEST.ty.clone())
        .variable("authorizer", Type::AUTHORIZER)
        .variable("authorizer.requestResource", Type::RESOURCE_CHECK)
});

fn request() -> DeclType {
    let text = || DeclType::text(None, None, std::iter::empty());
    let object = |name: &str, fields: &mut dyn Iterator<Item = (&str, DeclType)>| {
        let property = |(name, decl): (&str, DeclType)| Property {
            name: name.to_owned(),
            decl: Some(decl),
            required: false,
            defaulted: false,
        };
        DeclType::object(format!("kubernetes.{name}"), fields.map(property))
    };
    let kind = || {
        let fields = ["group", "version", "kind"].map(|field| (field, text()));
        object("GroupVersionKind", &mut fields.into_iter())
    };
    let resource = || {
        let fields = ["group", "version", "resource"].map(|field| (field, text()));
        object("GroupVersionResource", &mut fields.into_iter())
    };
    let texts = || DeclType::list(text(), ListType::Atomic, None);
    let user = [
        ("username", text()),
        ("uid", text()),
        ("groups", texts()),
        ("extra", DeclType::map(texts(), None)),
    ];
    let fields = [
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", text()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        ("userInfo", object("UserInfo", &mut user.into_iter())),
        ("dryRun", DeclType::bool()),
        ("options", DeclType::int_or_string(None)),
    ];
    object("AdmissionRequest", &mut fields.into_iter())
}

/// Compiles an expression.
///
/// # Errors
///
/// The detail of a field's error: it does not compile, or is no condition.
pub(crate) fn compile(expression: &str) -> Result<Program, String> {
    let checked = parse(expression, &Macros::KUBERNETES)
        .and_then(|ast| check(ast, &ENV))
        .map_err(|issues| format!("compilation failed: {issues}"))?;
    match checked.result_type() {
        Type::Bool => Ok(Program::new(&checked)),
        _ => Err("must evaluate to bool".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_about_the_request_and_its_objects() {
        for expression in [
            "object.metadata.name.startsWith('a')",
            "request.operation == 'CREATE' && 'system:nodes' in request.userInfo.groups",
            "request.userInfo.extra['a.b/c'].exists(x, x == 'y') || request.dryRun",
            "request.requestKind.kind == 'Pod' && request.options.fieldManager == 'x'",
            "oldObject == null || authorizer.group('apps').resource('deployments').check('update').allowed()",
            "authorizer.requestResource.check('custom').allowed()",
        ] {
            assert!(compile(expression).is_ok(), "{expression}: {:?}", compile(expression).err());
        }
        assert_eq!(compile("1 + 1").unwrap_err(), "must evaluate to bool");
        let unknown = compile("request.foo == 1").unwrap_err();
        assert!(unknown.contains("compilation failed: ERROR: <input>:1:8: undefined field 'foo'"));
        assert!(compile("object.a ==").unwrap_err().contains("Syntax error"));
    }
}
