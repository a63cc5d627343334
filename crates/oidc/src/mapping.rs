//! From the claims of a verified token to its user, by claims or by expressions.

use crate::authenticator::User;
use crate::config::JwtAuthenticator;
use serde_json::{Map, Value, json};
use setpoint_cel::check::{Checked, Env, check};
use setpoint_cel::decl::{DeclType, ListType};
use setpoint_cel::eval::{Context, EXPRESSION_COST_MAX, Error, OBJECT_COST_MAX, Program};
use setpoint_cel::macros::Macros;
use setpoint_cel::parse::parse;
use setpoint_cel::types::Type;
use setpoint_cel::value::{List, Value as Cel};
use setpoint_object::field::quote;
use setpoint_object::users::CREDENTIAL_ID;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What the expressions of one token may cost on a thread that serves requests: about a
/// millisecond.
const QUICK_COST_MAX: u64 = 20_000;

/// The compiled expressions of an issuer.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    pub(crate) username: Option<Expression>,
    pub(crate) groups: Option<Expression>,
    pub(crate) uid: Option<Expression>,
    /// With their keys.
    pub(crate) extra: Vec<(String, Expression)>,
    /// Claims with the texts that they must have.
    pub(crate) required_claims: Vec<(String, String)>,
    pub(crate) claim_rules: Vec<Rule>,
    pub(crate) user_rules: Vec<Rule>,
}

/// A compiled expression with its text.
#[derive(Debug)]
pub(crate) struct Expression {
    text: String,
    program: Program,
}

/// A condition with its message.
#[derive(Debug)]
pub(crate) struct Rule {
    expression: Expression,
    message: String,
}

impl Expression {
    pub(crate) fn new(checked: &Checked) -> Self {
        Self { text: checked.ast.source.text().to_owned(), program: Program::new(checked) }
    }
}

impl Rule {
    pub(crate) fn new(checked: &Checked, message: &str) -> Self {
        Self { expression: Expression::new(checked), message: message.to_owned() }
    }
}

/// How expressions see the user.
static USER: LazyLock<DeclType> = LazyLock::new(|| {
    let text = || DeclType::text(None, None, std::iter::empty());
    let texts = || DeclType::list(text(), ListType::Atomic, None);
    let fields = [
        ("username", text()),
        ("uid", text()),
        ("groups", texts()),
        ("extra", DeclType::map(texts(), None)),
    ];
    let fields = fields.into_iter().map(|(field, decl)| (field.to_owned(), decl));
    DeclType::declared("kubernetes.UserInfo".to_owned(), fields)
});

/// Compiles an expression about `claims`.
///
/// # Errors
///
/// The detail of a field's error.
pub(crate) fn compile_claims(expression: &str, is_condition: bool) -> Result<Checked, String> {
    let env = Env::kubernetes().variable("claims", Type::map(Type::String, Type::Dyn));
    compile(expression, &env, is_condition)
}

/// Compiles a condition about `user`.
///
/// # Errors
///
/// As [`compile_claims`].
pub(crate) fn compile_user(expression: &str) -> Result<Checked, String> {
    compile(expression, &Env::kubernetes().variable("user", USER.ty.clone()), true)
}

fn compile(expression: &str, env: &Env, is_condition: bool) -> Result<Checked, String> {
    let checked = parse(expression, &Macros::KUBERNETES).and_then(|ast| check(ast, env));
    let checked = checked.map_err(|issues| format!("compilation failed: {issues}"))?;
    if is_condition && *checked.result_type() != Type::Bool {
        return Err("must evaluate to bool".to_owned());
    }
    Ok(checked)
}

/// Why there is no user.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The token is not accepted, for this reason.
    Invalid(String),
    /// The expressions cost too much for this thread.
    Costly,
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(why) => why,
            // On other threads only the cost limits of expressions count.
            Refusal::Costly => "oidc: verify token: too costly".to_owned(),
        }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Invalid(why)
    }
}

/// Where expressions are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a thread that serves requests.
    Serving,
    /// On another one.
    Elsewhere,
}

/// Evaluates the expressions of one token within its budget.
struct Evaluation {
    /// The most that one may cost.
    one: u64,
    /// What is left for all.
    left: u64,
    place: Place,
}

impl Evaluation {
    fn run<'v>(
        &mut self,
        what: &str,
        expression: &Expression,
        variable: (&str, Cel<'v>),
    ) -> Result<Cel<'v>, Refusal> {
        let mut context = Context::new(self.one.min(self.left));
        let result = expression.program.evaluate(&mut context, &[variable]);
        self.left = self.left.saturating_sub(context.cost());
        match result {
            Ok(value) => Ok(value),
            Err(Error::CostLimit) if self.place == Place::Serving => Err(Refusal::Costly),
            Err(error) => {
                let text = &expression.text;
                let why = format!("expression '{text}' resulted in error: {error}");
                Err(Refusal::Invalid(format!("{what}{why}")))
            }
        }
    }

    fn rules<'v>(
        &mut self,
        what: &str,
        rules: &[Rule],
        name: &str,
        value: &Cel<'v>,
    ) -> Result<(), Refusal> {
        for Rule { expression, message } in rules {
            let text = &expression.text;
            let failed = |why: String| Err(Refusal::Invalid(format!("{what}{why}")));
            match self.run(what, expression, (name, value.clone()))? {
                Cel::Bool(true) => {}
                Cel::Bool(false) => {
                    return failed(format!("validation expression '{text}' failed: {message}"));
                }
                _ => return failed("validation expression must return a boolean".to_owned()),
            }
        }
        Ok(())
    }
}

impl Mapping {
    /// The user of a token with these claims.
    ///
    /// # Errors
    ///
    /// A claim is missing or of another type, a condition is not met, an expression fails or costs
    /// too much.
    pub(crate) fn user(
        &self,
        jwt: &JwtAuthenticator,
        claims: &Map<String, Value>,
        place: Place,
    ) -> Result<User, Refusal> {
        let limits = match place {
            Place::Serving => (QUICK_COST_MAX, QUICK_COST_MAX),
            Place::Elsewhere => (EXPRESSION_COST_MAX, OBJECT_COST_MAX),
        };
        let mut evaluation = Evaluation { one: limits.0, left: limits.1, place };
        // Go reads all numbers of claims as floats.
        let tree = Value::Object(claims.iter().map(|(k, v)| (k.clone(), floats(v))).collect());
        let all = Cel::dynamic(&tree);
        let variable = || ("claims", all.clone());
        let mappings = &jwt.claim_mappings;

        let username = match &self.username {
            Some(expression) => {
                let what = "oidc: error evaluating username claim expression: ";
                match evaluation.run(what, expression, variable())? {
                    Cel::String(text) if text.is_empty() => {
                        let why = "oidc: empty username via CEL expression is not allowed";
                        return Err(why.to_owned().into());
                    }
                    Cel::String(text) => text.to_string(),
                    _ => {
                        return Err(format!(
                            "{what}username claim expression must return a string"
                        )
                        .into());
                    }
                }
            }
            None => username(mappings.username.claim.as_str(), claims)
                .map(|name| mappings.username.prefix.clone().unwrap_or_default() + &name)?,
        };
        let group_claim = &mappings.groups.claim;
        let groups = match (&self.groups, claims.get(group_claim)) {
            (None, Some(value)) if !group_claim.is_empty() => {
                let prefix = mappings.groups.prefix.as_deref().unwrap_or_default();
                let groups = text_or_texts(value).map_err(|why| {
                    format!("oidc: parse groups claim {}: {why}", quote(group_claim))
                })?;
                groups.iter().map(|group| format!("{prefix}{group}")).collect()
            }
            (None, _) => Vec::new(),
            (Some(expression), _) => {
                let what = "oidc: error evaluating group claim expression: ";
                let value = evaluation.run(what, expression, variable())?;
                strings(&value).map_err(|why| format!("{what}{why}"))?
            }
        };
        let uid_claim = &mappings.uid.claim;
        let uid = match &self.uid {
            None if uid_claim.is_empty() => String::new(),
            None => text_claim(claims, uid_claim)
                .map_err(|why| format!("oidc: parse uid claim {}: {why}", quote(uid_claim)))?,
            Some(expression) => {
                let what = "oidc: error evaluating uid claim expression: ";
                match evaluation.run(what, expression, variable())? {
                    Cel::String(text) => text.to_string(),
                    _ => {
                        return Err(
                            format!("{what}uid claim expression must return a string").into()
                        );
                    }
                }
            }
        };
        let mut extra = BTreeMap::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let value = evaluation.run("", expression, variable())?;
            let values = strings(&value).map_err(|why| {
                let text = &expression.text;
                format!("oidc: error evaluating extra claim expression: {text}: {why}")
            })?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        self.required(claims)?;
        let what = "oidc: error evaluating claim validation expression: ";
        evaluation.rules(what, &self.claim_rules, "claims", &all)?;
        let user = User { username, uid, groups, extra };
        self.check_user(&mut evaluation, &user)?;
        Ok(user)
    }

    fn required(&self, claims: &Map<String, Value>) -> Result<(), String> {
        for (claim, wanted) in &self.required_claims {
            if !claims.contains_key(claim) {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            }
            let found = text_claim(claims, claim)
                .map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if found != *wanted {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
                ));
            }
        }
        Ok(())
    }

    fn check_user(&self, evaluation: &mut Evaluation, user: &User) -> Result<(), Refusal> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let what = "oidc: error evaluating user info validation rule: ";
        let tree = json!({
            "username": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
        });
        let value = Cel::json(&tree, &USER).map_err(|error| format!("{what}{error}"))?;
        evaluation.rules(what, &self.user_rules, "user", &value)
    }
}

/// The text of a claim that is the user's name.
fn username(claim: &str, claims: &Map<String, Value>) -> Result<String, String> {
    let name = text_claim(claims, claim)
        .map_err(|why| format!("oidc: parse username claims {}: {why}", quote(claim)))?;
    if claim == "email" {
        match claims.get("email_verified") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false) | Value::Null) => {
                return Err("oidc: email not verified".to_owned());
            }
            Some(other) => {
                let why = not_a(other, "bool");
                return Err(format!("oidc: parse 'email_verified' claim: {why}"));
            }
        }
    }
    // Go reads null as an empty name, which no user has.
    if name.is_empty() {
        return Err(format!("oidc: parse username claims {}: empty", quote(claim)));
    }
    Ok(name)
}

fn text_claim(claims: &Map<String, Value>, claim: &str) -> Result<String, String> {
    match claims.get(claim) {
        None => Err("claim not present".to_owned()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Null) => Ok(String::new()),
        Some(other) => Err(not_a(other, "string")),
    }
}

/// The text of Go's decoder for a value of another type.
fn not_a(value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// A claim of groups: one text, or a list of texts.
fn text_or_texts(value: &Value) -> Result<Vec<String>, String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => match list.iter().map(text).collect() {
            Some(texts) => Ok(texts),
            None => Err(not_a(value, "string")),
        },
        other => text(other).map(|text| vec![text]).ok_or_else(|| not_a(other, "string")),
    }
}

/// The texts of an expression's value: one text or a list of texts. Empty ones are left out.
fn strings(value: &Cel<'_>) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let of_list = |list: &List<'_>| -> Result<Vec<String>, String> {
        let mut texts = Vec::new();
        for item in list.iter() {
            match item {
                Ok(Cel::String(text)) if text.is_empty() => {}
                Ok(Cel::String(text)) => texts.push(text.to_string()),
                _ => return Err(wrong()),
            }
        }
        Ok(texts)
    };
    match value {
        Cel::Null => Ok(Vec::new()),
        Cel::String(text) if text.is_empty() => Ok(Vec::new()),
        Cel::String(text) => Ok(vec![text.to_string()]),
        Cel::List(list) => of_list(list),
        _ => Err(wrong()),
    }
}

/// The same with all numbers as floats.
fn floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or_else(|| value.clone(), Value::from),
        Value::Array(list) => list.iter().map(floats).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(k, v)| (k.clone(), floats(v))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
