//! Expressions in CEL about a request: match conditions of webhooks and policies, and the other
//! expressions of policies (spec: admission §4, §5, §6).
use serde_json::Value;
use setpoint_cel::check::{Checked, Env, check};
use setpoint_cel::decl::{DeclType, ListType};
use setpoint_cel::eval::Program;
use setpoint_cel::macros::Macros;
use setpoint_cel::parse::parse;
use setpoint_cel::types::Type;
use setpoint_object::field::{self, Path};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How expressions see the variable `request`: an AdmissionRequest without its objects.
pub(crate) static REQUEST: LazyLock<DeclType> = LazyLock::new(request);

/// How expressions see the variable `namespaceObject`.
pub(crate) static NAMESPACE: LazyLock<DeclType> = LazyLock::new(namespace);

/// How deep the types of variables nest. Types of lists of lists grow with each variable, and
/// the checker descends into them. A deeper one is dynamic.
const VARIABLE_DEPTH_MAX: usize = 32;

/// The type that an expression must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Of a variable.
    Anything,
    /// Of a condition.
    Bool,
    /// Of a message. It cannot ask the authorizer.
    Message,
    /// Of an audit annotation.
    TextOrNull,
    /// `Object{...}`.
    Configuration,
    /// `[JSONPatch{...}]`.
    Operations,
}
impl Wanted {
    /// Whether a type is right.
    ///
    /// # Errors
    ///
    /// It is not: the detail of a field's error.
    fn check(self, found: &Type) -> Result<(), String> {
        let types = match self {
            Self::Anything => return Ok(()),
            Self::Bool => vec![Type::Bool],
            Self::Message => vec![Type::String],
            Self::TextOrNull => vec![Type::String, Type::Null],
            Self::Configuration => vec![Type::apply_configuration("Object")],
            Self::Operations => vec![Type::list(Type::json_patch())],
        };
        match (types.contains(found), &types[..], found.declared()) {
            (true, ..) => Ok(()),
            (false, [wanted], found) => Err(format!("must evaluate to {wanted} but got {found}")),
            (false, _, found) => {
                Err(format!("must evaluate to one of [string null_type] but got {found}"))
            }
        }
    }
}

/// Why an expression cannot be used: the detail of a field's error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// It does not compile, or has another type than is wanted.
    #[error("{0}")]
    Invalid(String),
    /// It compiles, but a constant in it has no value, such as `int('x')`.
    #[error("{0}")]
    Internal(String),
}
impl Fault {
    /// The error of a field, in which an expression is shown like this.
    pub(crate) fn of_field(self, path: Path, shown: &Value) -> field::Error {
        match self {
            Self::Invalid(detail) => field::Error::invalid(path, shown, detail),
            Self::Internal(detail) => field::Error::internal(path, detail),
        }
    }
}

/// What expressions may refer to.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    /// The type of `object` and `oldObject`.
    object: Type,
    /// The type of `params`.
    params: Option<Type>,
    /// Patches may be written where they are wanted.
    patches: bool,
    /// Whether there are variables of the policy, and those that are known with their types.
    has_variables: bool,
    variables: BTreeMap<String, Type>,
}
impl Environment {
    /// Expressions about a request. `has_params`: the policy has a paramKind.
    pub(crate) fn new(has_params: bool) -> Self {
        Self {
            object: Type::Dyn,
            params: has_params.then_some(Type::Dyn),
            patches: false,
            has_variables: false,
            variables: BTreeMap::new(),
        }
    }
    /// The same for expressions that may refer to variables, even if none is known.
    pub(crate) fn with_variables(mut self) -> Self {
        self.has_variables = true;
        self
    }
    /// The same for expressions that make patches.
    pub(crate) fn with_patches(mut self) -> Self {
        self.patches = true;
        self
    }
    /// The same for objects of one type, and params of another.
    pub(crate) fn with_types(mut self, object: Type, params: Option<Type>) -> Self {
        self.object = object;
        self.params = self.params.map(|dynamic| params.unwrap_or(dynamic));
        self
    }
    /// Compiles a variable of the policy. Later expressions may refer to it, also if it fails.
    ///
    /// # Errors
    ///
    /// As [`Environment::compile`].
    pub(crate) fn variable(&mut self, name: &str, expression: &str) -> Result<Program, Fault> {
        let checked = self.check(expression, Wanted::Anything);
        let compiled = checked.and_then(|checked| {
            let ty = of_variable(checked.result_type(), VARIABLE_DEPTH_MAX);
            Ok((ty, instantiated(checked)?))
        });
        let ty = compiled.as_ref().map_or(Type::Dyn, |(ty, _)| ty.clone());
        self.variables.insert(name.to_owned(), ty);
        compiled.map(|(_, program)| program)
    }
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// It does not compile, or has another type, or a constant in it has no value.
    pub(crate) fn compile(&self, expression: &str, wanted: Wanted) -> Result<Program, Fault> {
        self.check(expression, wanted).and_then(instantiated)
    }
    fn check(&self, expression: &str, wanted: Wanted) -> Result<Checked, Fault> {
        let checked = self
            .issues(expression, wanted)
            .map_err(|text| Fault::Invalid(format!("compilation failed: {text}")))?;
        wanted.check(checked.result_type()).map_err(Fault::Invalid)?;
        Ok(checked)
    }
    /// Checks the types of an expression, except for that of its value.
    ///
    /// # Errors
    ///
    /// The faults in cel-go's words.
    pub(crate) fn issues(&self, expression: &str, wanted: Wanted) -> Result<Checked, String> {
        let checked = parse(expression, &Macros::KUBERNETES);
        checked.and_then(|ast| check(ast, &self.env(wanted))).map_err(|issues| issues.to_string())
    }
    fn env(&self, wanted: Wanted) -> Env {
        let is_patch = matches!(wanted, Wanted::Configuration | Wanted::Operations);
        let base = if self.patches && is_patch { Env::patches() } else { Env::kubernetes() };
        let mut env = base
            .variable("object", self.object.clone())
            .variable("oldObject", self.object.clone())
            .variable("namespaceObject", NAMESPACE.ty.clone())
            .variable("request", REQUEST.ty.clone());
        if wanted != Wanted::Message {
            env = env
                .variable("authorizer", Type::AUTHORIZER)
                .variable("authorizer.requestResource", Type::RESOURCE_CHECK);
        }
        if let Some(params) = &self.params {
            env = env.variable("params", params.clone());
        }
        if self.has_variables || !self.variables.is_empty() {
            let variables = Type::object("kubernetes.variables", self.variables.clone());
            env = env.variable("variables", variables);
        }
        env
    }
}

/// Compiles a match condition of a webhook.
///
/// # Errors
///
/// As [`Environment::compile`].
pub(crate) fn condition(expression: &str) -> Result<Program, Fault> {
    Environment::new(false).compile(expression, Wanted::Bool)
}

fn instantiated(checked: Checked) -> Result<Program, Fault> {
    Program::new(&checked).instantiated().map_err(Fault::Internal)
}

/// The type that later expressions know a variable by: types of CEL itself, lists and maps of
/// them. All others are dynamic, and so is what nests deeper than this.
fn of_variable(ty: &Type, depth: usize) -> Type {
    let part = |ty: &Type| of_variable(ty, depth.saturating_sub(1));
    match ty {
        Type::List(_) | Type::Map(..) if depth == 0 => Type::Dyn,
        Type::List(element) => Type::list(part(element)),
        Type::Map(key, value) => Type::map(part(key), part(value)),
        Type::Any
        | Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Timestamp
        | Type::Duration => ty.clone(),
        Type::Error
        | Type::Dyn
        | Type::Optional(_)
        | Type::Type(_)
        | Type::Param(_)
        | Type::Object(_)
        | Type::Opaque(_) => Type::Dyn,
    }
}

fn text() -> DeclType {
    DeclType::text(None, None, std::iter::empty())
}
fn time() -> DeclType {
    DeclType::text(Some("date-time"), None, std::iter::empty())
}
fn object<const N: usize>(name: &str, fields: [(&str, DeclType); N]) -> DeclType {
    let fields = fields.into_iter().map(|(field, decl)| (field.to_owned(), decl));
    DeclType::declared(format!("kubernetes.{name}"), fields)
}

fn namespace() -> DeclType {
    let texts = || DeclType::list(text(), ListType::Atomic, None);
    let map = || DeclType::map(text(), None);
    let metadata = object(
        "NamespaceMetadata",
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map()),
            ("annotations", map()),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", DeclType::int()),
            ("deletionTimestamp", time()),
            ("generation", DeclType::int()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let condition = object(
        "NamespaceCondition",
        [
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let conditions = DeclType::list(condition, ListType::Atomic, None);
    let status = object("NamespaceStatus", [("conditions", conditions), ("phase", text())]);
    let spec = object("NamespaceSpec", [("finalizers", texts())]);
    object("Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
}

fn request() -> DeclType {
    let kind = || {
        let fields = ["group", "version", "kind"].map(|field| (field, text()));
        object("GroupVersionKind", fields)
    };
    let resource = || {
        let fields = ["group", "version", "resource"].map(|field| (field, text()));
        object("GroupVersionResource", fields)
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
        ("userInfo", object("UserInfo", user)),
        ("dryRun", DeclType::bool()),
        ("options", DeclType::int_or_string(None)),
    ];
    object("AdmissionRequest", fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_about_the_request_and_its_objects() {
        for expression in [
            "object.metadata.name.startsWith('a')",
            "request.namespace == 'a' && namespaceObject.metadata.namespace == ''",
            "request.operation == 'CREATE' && 'system:nodes' in request.userInfo.groups",
            "request.userInfo.extra['a.b/c'].exists(x, x == 'y') || request.dryRun",
            "request.requestKind.kind == 'Pod' && request.options.fieldManager == 'x'",
            "oldObject == null || authorizer.group('apps').resource('deployments').check('update').allowed()",
            "authorizer.requestResource.check('custom').allowed()",
        ] {
            assert!(
                condition(expression).is_ok(),
                "{expression}: {:?}",
                condition(expression).err()
            );
        }
        assert_eq!(
            condition("1 + 1").unwrap_err().to_string(),
            "must evaluate to bool but got int"
        );
        for (expression, found) in [
            ("null", "null_type"),
            ("[duration('1s')]", "list(google.protobuf.Duration)"),
            ("{'a': timestamp('2020-01-01T00:00:00Z')}", "map(string, google.protobuf.Timestamp)"),
            ("optional.of(null)", "optional_type(null_type)"),
            ("type(duration('1s'))", "type(google.protobuf.Duration)"),
        ] {
            let expected = format!("must evaluate to bool but got {found}");
            assert_eq!(condition(expression).unwrap_err().to_string(), expected);
        }
        let unknown = condition("request.foo == 1").unwrap_err().to_string();
        assert!(unknown.contains("compilation failed: ERROR: <input>:1:8: undefined field 'foo'"));
        assert!(condition("object.a ==").unwrap_err().to_string().contains("Syntax error"));
    }

    #[test]
    fn policies_have_params_variables_and_patches() {
        let plain = Environment::new(false);
        let fault = |environment: &Environment, expression: &str, wanted: Wanted| {
            environment.compile(expression, wanted).unwrap_err().to_string()
        };
        let unknown = fault(&plain, "params.x", Wanted::Bool);
        assert!(unknown.contains("undeclared reference to 'params'"), "{unknown}");
        let hidden = fault(&plain, "namespaceObject.metadata.managedFields == []", Wanted::Bool);
        assert!(hidden.contains("undefined field 'managedFields'"), "{hidden}");
        assert_eq!(
            fault(&plain, "object.a", Wanted::Message),
            "must evaluate to string but got dyn"
        );
        assert_eq!(
            fault(&plain, "object.a", Wanted::TextOrNull),
            "must evaluate to one of [string null_type] but got dyn"
        );
        for (expression, name) in [
            ("authorizer.path('/').check('get').reason()", "authorizer"),
            ("string(math.greatest(1, 2))", "math"),
            ("cel.bind(a, 1, string(a))", "cel"),
            ("string(base64.decode('YQ=='))", "base64"),
            ("jsonpatch.escapeKey('a')", "jsonpatch"),
        ] {
            let fault = fault(&plain, expression, Wanted::Message);
            let expected = format!("undeclared reference to '{name}");
            assert!(fault.contains(&expected), "{expression}: {fault}");
        }

        let none = Environment::new(false).with_variables();
        let unknown = fault(&none, "variables.r < 5", Wanted::Bool);
        assert!(unknown.contains("undefined field 'r'"), "{unknown}");

        let mut policy = Environment::new(true).with_patches();
        let hidden = fault(&policy, "[JSONPatch{op: 'remove', path: '/a'}]", Wanted::Anything);
        assert!(hidden.contains("undeclared reference to 'JSONPatch'"), "{hidden}");
        assert!(policy.variable("size", "size(object.items)").is_ok());
        assert!(policy.compile("variables.size > params.max", Wanted::Bool).is_ok());
        assert!(
            fault(&policy, "variables.other > 1", Wanted::Bool).contains("undefined field 'other'")
        );
        assert!(
            fault(&policy, "variables.size == 'a'", Wanted::Bool).contains("no matching overload")
        );
        // Later expressions know variables by simple types.
        for (name, expression) in [
            ("amount", "quantity('1')"),
            ("kind", "type(1)"),
            ("maybe", "optional.of(1)"),
            ("asked", "authorizer.requestResource"),
            ("meta", "namespaceObject.metadata"),
            ("amounts", "[quantity('1')]"),
        ] {
            assert!(policy.variable(name, expression).is_ok());
            let used = format!("variables.{name} == 1");
            let is_list = name == "amounts";
            assert_eq!(policy.compile(&used, Wanted::Bool).is_err(), is_list, "{used}");
        }
        assert!(policy.compile("variables.amounts[0] == 1", Wanted::Bool).is_ok());
        // One that fails is of any type.
        assert!(policy.variable("broken", "int('x') == 1").is_err());
        assert!(policy.compile("variables.broken.startsWith('a')", Wanted::Bool).is_ok());
        let text = "program instantiation failed: type conversion error from 'string' to 'int'";
        let internal = policy.compile("int('x') == 1", Wanted::Bool).unwrap_err();
        assert_eq!(internal, Fault::Internal(text.to_owned()));
        assert_eq!(
            fault(&policy, "[]", Wanted::Operations),
            "must evaluate to list(JSONPatch) but got list(dyn)"
        );
        assert_eq!(
            fault(&policy, "'a'", Wanted::Configuration),
            "must evaluate to Object but got string"
        );
        assert!(policy.compile("Object{spec: Object.spec{}}", Wanted::Configuration).is_ok());
        assert_eq!(
            fault(&policy, "Object.spec{}", Wanted::Configuration),
            "must evaluate to Object but got Object.spec"
        );
    }
}
