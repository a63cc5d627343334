//! From the text of a rule to a program.

use super::type_word;
use crate::node::View;
use serde_json::Value;
use setpoint_cel::Type;
use setpoint_cel::check::{self, Checked, Env};
use setpoint_cel::decl::DeclType;
use setpoint_cel::eval::Program;
use setpoint_cel::macros::Macros;
use setpoint_cel::parse::parse;
use setpoint_cel::pattern::Budget;
use std::sync::Arc;

/// The variable of the old value.
const OLD_SELF: &str = "oldSelf";

/// A compiled rule and the compiled expression for its message.
#[derive(Debug)]
pub(crate) struct Compilation {
    /// The rule; none if there is no text. The error is the detail of a field's error.
    pub(crate) rule: Option<Result<Checked, String>>,
    /// The expression for the message, if there is one and the rule has compiled.
    pub(crate) message: Option<Result<Checked, String>>,
    /// Whether the rule mentions the old value.
    pub(crate) uses_old: bool,
}

impl Compilation {
    /// Whether one of the expressions does not compile.
    pub(crate) fn has_fault(&self) -> bool {
        [&self.rule, &self.message].into_iter().any(|one| matches!(one, Some(Err(_))))
    }
}

/// Compiles a rule of a node that expressions see like this.
pub(crate) fn compile(rule: &Value, decl: &DeclType) -> Compilation {
    let text = member(rule, "rule");
    if text.trim().is_empty() {
        return Compilation { rule: None, message: None, uses_old: false };
    }
    let old = match is_optional(rule) {
        true => Type::optional(decl.ty.clone()),
        false => decl.ty.clone(),
    };
    let env = Env::kubernetes().variable("self", decl.ty.clone()).variable(OLD_SELF, old);
    let checked = expression(
        text,
        &env,
        ["compilation failed", "program instantiation failed"],
        &Type::Bool,
        "cel expression must evaluate to a bool",
    );
    let message = member(rule, "messageExpression");
    let message = (checked.is_ok() && !message.is_empty()).then(|| {
        let failed =
            ["messageExpression compilation failed", "messageExpression instantiation failed"];
        let wrong = "messageExpression must evaluate to a string";
        expression(message, &env, failed, &Type::String, wrong)
    });
    let uses_old = checked.as_ref().is_ok_and(|checked| checked.mentions(OLD_SELF));
    Compilation { rule: Some(checked), message, uses_old }
}

fn expression(
    text: &str,
    env: &Env,
    [failed, uninstantiated]: [&str; 2],
    wanted: &Type,
    wrong: &str,
) -> Result<Checked, String> {
    let checked = parse(text, &Macros::KUBERNETES)
        .and_then(|ast| check::check(ast, env))
        .map_err(|issues| format!("{failed}: {issues}"))?;
    if checked.result_type() != wanted {
        return Err(wrong.to_owned());
    }
    match Program::new(&checked).fault() {
        Some(fault) => Err(format!("{uninstantiated}: {fault}")),
        None => Ok(checked),
    }
}

fn member<'a>(rule: &'a Value, name: &str) -> &'a str {
    rule.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_optional(rule: &Value) -> bool {
    rule.get("optionalOldSelf") == Some(&Value::Bool(true))
}

/// A rule that can be run.
#[derive(Debug)]
pub(super) struct Rule {
    /// The program; the error is that of a definition from before its rules were checked.
    pub(super) program: Result<Program, String>,
    /// Makes the message.
    pub(super) message_program: Option<Program>,
    /// The expression that makes the message.
    pub(super) message_expression: String,
    /// The message that is given, or the sentence that shows the rule.
    pub(super) message: String,
    /// Shown in messages about its evaluation: the given message, or the rule.
    pub(super) shown: String,
    /// The type of the node, as messages show it.
    pub(super) type_word: &'static str,
    pub(super) reason: String,
    /// Where the error belongs below the node.
    pub(super) field_path: Option<String>,
    pub(super) uses_old: bool,
    pub(super) optional_old: bool,
}

impl Rule {
    /// Compiles a rule; none if it has no text.
    pub(super) fn new(
        rule: &Value,
        view: View<'_>,
        decl: &DeclType,
        patterns: &Arc<Budget>,
    ) -> Option<Self> {
        let compiled = compile(rule, decl);
        let program = |checked: Checked| Program::with_budget(&checked, patterns);
        let message_program = compiled.message.and_then(Result::ok).map(program);
        let program = compiled.rule?.map(program);
        let text = member(rule, "rule").trim();
        let given = member(rule, "message");
        let (message, shown) = match given {
            "" => (format!("failed rule: {text}"), text),
            given => (given.trim().to_owned(), given.trim()),
        };
        Some(Self {
            program,
            message_program,
            message_expression: member(rule, "messageExpression").to_owned(),
            message,
            shown: shown.to_owned(),
            type_word: type_word(view.shape),
            reason: member(rule, "reason").to_owned(),
            field_path: field_path(member(rule, "fieldPath"), view),
            uses_old: compiled.uses_old,
            optional_old: is_optional(rule),
        })
    }
}

/// A rule's path as messages show it: `.x['y-z']` is `x.y-z`, and keys of maps are in brackets.
fn field_path(text: &str, view: View<'_>) -> Option<String> {
    let mut shown = String::new();
    let mut view = view;
    for step in crate::crd::rule_path(text)? {
        match view.property(&step) {
            Some(property) => {
                if !shown.is_empty() {
                    shown.push('.');
                }
                shown.push_str(&step);
                view = property;
            }
            None => {
                shown.push_str(&format!("[{step}]"));
                view = view.at(view.additional?);
            }
        }
    }
    Some(shown)
}
