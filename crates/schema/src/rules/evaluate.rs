//! Rules over an object.

use super::compile::Rule;
use super::{NodeRules, Rules};
use crate::correlate::{OldItems, is_unchanged};
use crate::node::View;
use serde_json::{Map, Value as Json};
use setpoint_cel::decl::DeclType;
use setpoint_cel::eval::{self, Context, EXPRESSION_COST_MAX, Program, Variables};
use setpoint_cel::value::Value;
use setpoint_object::field::{self, Errors, Path};
use std::cell::OnceCell;
use std::ops::ControlFlow;

/// The most bytes of a message that an expression makes: 5 KiB, as in Kubernetes.
const MESSAGE_BYTES_MAX: usize = 5 << 10;
const BUDGET_SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The violations that rules found in an object.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Violations.
    pub(crate) errors: Errors,
    /// Violations of unchanged values.
    pub(crate) warnings: Vec<String>,
}

/// Evaluates rules for a value, which lies at `path`, within a budget.
///
/// With `ratchet`, failed rules of values that are unchanged since `old` are warnings.
pub(crate) fn evaluate(
    rules: &Rules,
    view: View<'_>,
    value: &Json,
    old: Option<&Json>,
    ratchet: bool,
    path: &Path,
    budget: &mut u64,
) -> Findings {
    let context = Context::new(EXPRESSION_COST_MAX);
    let mut evaluator = Evaluator { rules, budget, context, findings: Findings::default() };
    let pair = old.filter(|_| ratchet).map(|old| Pair::new(view, value, old));
    let at = At {
        view,
        value,
        old: old.filter(|old| !old.is_null()),
        correlation: Correlation { current: pair.as_ref(), parent: None },
    };
    // The reason for a break is among the findings.
    let _ = evaluator.node(&at, path);
    evaluator.findings
}

/// A value and its old value.
struct Pair<'v> {
    view: View<'v>,
    new: &'v Json,
    old: &'v Json,
    /// Whether nothing has changed, computed on first use.
    same: OnceCell<bool>,
}

impl<'v> Pair<'v> {
    fn new(view: View<'v>, new: &'v Json, old: &'v Json) -> Self {
        Self { view, new, old, same: OnceCell::new() }
    }

    fn is_same(&self) -> bool {
        *self.same.get_or_init(|| is_unchanged(self.view, self.new, self.old))
    }
}

/// The pairs that decide whether a node has changed.
#[derive(Clone, Copy)]
struct Correlation<'p, 'v> {
    /// The node with its old value.
    current: Option<&'p Pair<'v>>,
    /// The nearest node above it that has an old value.
    parent: Option<&'p Pair<'v>>,
}

impl<'p, 'v> Correlation<'p, 'v> {
    fn is_same(self) -> bool {
        self.current.or(self.parent).is_some_and(Pair::is_same)
    }

    /// That of a child, which has this pair of its own.
    fn below(self, child: Option<&'p Pair<'v>>) -> Self {
        match self.current {
            Some(current) => Self { current: child, parent: Some(current) },
            None => self,
        }
    }
}

/// A node of the schema with its value.
struct At<'p, 'v> {
    view: View<'v>,
    value: &'v Json,
    old: Option<&'v Json>,
    correlation: Correlation<'p, 'v>,
}

struct Evaluator<'r> {
    rules: &'r Rules,
    budget: &'r mut u64,
    /// Of all evaluations in turn: a pattern that one has used is ready for the next.
    context: Context<'r>,
    findings: Findings,
}

/// `self` and `oldSelf`.
struct SelfAndOld<'v> {
    this: Result<Value<'v>, eval::Error>,
    old: Option<Result<Value<'v>, eval::Error>>,
}

impl<'v> Variables<'v> for SelfAndOld<'v> {
    fn get(&self, name: &str) -> Option<Result<Value<'v>, eval::Error>> {
        match name {
            "self" => Some(self.this.clone()),
            "oldSelf" => self.old.clone(),
            _ => None,
        }
    }
}

impl Evaluator<'_> {
    fn node(&mut self, at: &At<'_, '_>, path: &Path) -> ControlFlow<()> {
        let rules = self.rules;
        let Some(found) = rules.at(&at.view).filter(|_| !at.value.is_null()) else {
            return ControlFlow::Continue(());
        };
        self.expressions(found, at, path)?;
        match at.value {
            Json::Object(members) => self.members(at, members, path),
            Json::Array(items) => self.items(at, items, path),
            _ => ControlFlow::Continue(()),
        }
    }

    fn members(
        &mut self,
        at: &At<'_, '_>,
        members: &Map<String, Json>,
        path: &Path,
    ) -> ControlFlow<()> {
        let old_members = at.old.and_then(Json::as_object);
        let is_root = at.correlation.parent.is_none();
        for (name, value) in members {
            let (view, path) = match at.view.declared_property(name) {
                Some(view) => (view, path.child(name)),
                None => match at.view.additional {
                    Some(id) => (at.view.at(id), path.key(name)),
                    None => continue,
                },
            };
            if self.rules.at(&view).is_none() {
                continue;
            }
            let before = at.correlation.current.and_then(|pair| pair.old.get(name));
            let pair = before.map(|before| Pair::new(view, value, before));
            // Both objects have the same version, so `apiVersion` and `kind` are not compared.
            let correlation = match is_root && (name == "apiVersion" || name == "kind") {
                true => Correlation { current: None, parent: None },
                false => at.correlation.below(pair.as_ref()),
            };
            let old = old_members.and_then(|old| old.get(name)).filter(|old| !old.is_null());
            self.node(&At { view, value, old, correlation }, &path)?;
        }
        ControlFlow::Continue(())
    }

    fn items(&mut self, at: &At<'_, '_>, items: &[Json], path: &Path) -> ControlFlow<()> {
        let Some(view) = at.view.items().filter(|view| self.rules.at(view).is_some()) else {
            return ControlFlow::Continue(());
        };
        let old_items = at.old.and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        let old_items = OldItems::new(&at.view.node().list_type, old_items);
        for (index, value) in items.iter().enumerate() {
            let old = old_items.of(value);
            let pair = old
                .filter(|_| at.correlation.current.is_some())
                .map(|before| Pair::new(view, value, before));
            let correlation = at.correlation.below(pair.as_ref());
            self.node(&At { view, value, old, correlation }, &path.index(index))?;
        }
        ControlFlow::Continue(())
    }

    fn expressions(&mut self, found: &NodeRules, at: &At<'_, '_>, path: &Path) -> ControlFlow<()> {
        let (Some(decl), Some(first)) = (&found.decl, found.rules.first()) else {
            return ControlFlow::Continue(());
        };
        if *self.budget == 0 {
            return self.end(path, first, BUDGET_SPENT.to_owned());
        }
        for rule in &found.rules {
            self.rule(rule, found, decl, at, path)?;
            if self.findings.errors.is_full() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn rule(
        &mut self,
        rule: &Rule,
        found: &NodeRules,
        decl: &DeclType,
        at: &At<'_, '_>,
        path: &Path,
    ) -> ControlFlow<()> {
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => {
                self.wrong(path, rule, format!("rule compile error: {why}"));
                return ControlFlow::Continue(());
            }
        };
        if rule.uses_old && at.old.is_none() && !rule.optional_old {
            return ControlFlow::Continue(());
        }
        let old = at.old.filter(|_| rule.uses_old).map(|old| Value::json(old, decl));
        let variables = SelfAndOld {
            this: Value::json(at.value, decl),
            old: match (rule.optional_old, old) {
                (false, old) => old,
                (true, Some(old)) => Some(old.map(Value::some)),
                (true, None) => Some(Ok(Value::NONE)),
            },
        };
        let (result, cost) = self.run(program, &variables);
        if !self.spend(cost) {
            return self.end(path, rule, BUDGET_SPENT.to_owned());
        }
        let shown = &rule.shown;
        match result {
            Ok(Value::Bool(true)) => return ControlFlow::Continue(()),
            Ok(_) => {}
            Err(eval::Error::CostLimit) => {
                let why = eval::Error::CostLimit;
                let text = format!(
                    "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
                );
                return self.end(path, rule, text);
            }
            Err(why @ eval::Error::NoSuchOverload) => {
                let text = format!(
                    "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
                );
                self.wrong(path, rule, text);
                return ControlFlow::Continue(());
            }
            Err(why) => {
                self.wrong(path, rule, format!("{why} evaluating rule: {shown}"));
                return ControlFlow::Continue(());
            }
        }
        let place = match &rule.field_path {
            Some(below) => path.child(below),
            None => path.clone(),
        };
        let is_warning = !rule.uses_old && at.correlation.is_same();
        // The API binds the old value itself, also where the rule has an optional one, but only if
        // a rule of the node uses it.
        let old = at.old.filter(|_| found.rules.iter().any(|rule| rule.uses_old));
        let variables = SelfAndOld {
            this: Value::json(at.value, decl),
            old: old.map(|old| Value::json(old, decl)),
        };
        let detail = match self.message(rule, &variables) {
            Ok(message) => message.unwrap_or_else(|| rule.message.clone()),
            Err(text) => {
                self.add(field::Error::invalid(place, &rule.type_word.into(), text), is_warning);
                return ControlFlow::Break(());
            }
        };
        self.add(violation(rule, at.value, place, detail), is_warning);
        ControlFlow::Continue(())
    }

    /// The message that an expression makes, unless there is none or it makes none that can be
    /// shown. An error ends the validation.
    fn message(
        &mut self,
        rule: &Rule,
        variables: &SelfAndOld<'_>,
    ) -> Result<Option<String>, String> {
        let Some(program) = &rule.message_program else { return Ok(None) };
        let (result, cost) = self.run(program, variables);
        if !self.spend(cost) {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        }
        let message = match result {
            Ok(Value::String(message)) => message,
            Err(eval::Error::CostLimit) => {
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    field::quote(&rule.message_expression)
                ));
            }
            _ => return Ok(None),
        };
        let message: &str = &message;
        let message = message.trim();
        let fits =
            !message.is_empty() && message.len() <= MESSAGE_BYTES_MAX && !message.contains('\n');
        Ok(fits.then(|| message.to_owned()))
    }

    /// The result of an expression and its cost.
    fn run<'v>(
        &mut self,
        program: &Program,
        variables: &SelfAndOld<'v>,
    ) -> (Result<Value<'v>, eval::Error>, u64) {
        self.context.restart();
        let result = program.evaluate(&mut self.context, variables);
        (result, self.context.cost())
    }

    /// Takes a cost from the budget; whether there was so much.
    fn spend(&mut self, cost: u64) -> bool {
        match self.budget.checked_sub(cost) {
            Some(left) => {
                *self.budget = left;
                true
            }
            None => {
                *self.budget = 0;
                false
            }
        }
    }

    /// An error of a rule that has no answer.
    fn wrong(&mut self, path: &Path, rule: &Rule, text: String) {
        self.add(field::Error::invalid(path.clone(), &rule.type_word.into(), text), false);
    }

    /// The same, behind which no rule is run.
    fn end(&mut self, path: &Path, rule: &Rule, text: String) -> ControlFlow<()> {
        self.wrong(path, rule, text);
        ControlFlow::Break(())
    }

    fn add(&mut self, error: field::Error, is_warning: bool) {
        match is_warning {
            true => self.findings.warn(error),
            false => self.findings.errors.push(error),
        }
    }
}

impl Findings {
    /// The most warnings: more than a response shows.
    const WARNINGS_MAX: usize = 1000;

    fn warn(&mut self, error: field::Error) {
        if self.warnings.len() < Self::WARNINGS_MAX {
            self.warnings.push(error.to_string());
        }
    }
}

/// The error of a rule that does not hold. Objects and lists are not shown.
fn violation(rule: &Rule, value: &Json, path: Path, detail: String) -> field::Error {
    let is_scalar = !matches!(rule.type_word, "object" | "array");
    let mut error = match rule.reason.as_str() {
        "FieldValueForbidden" => return field::Error::forbidden(path, detail),
        "FieldValueRequired" => return field::Error::required(path, detail),
        "FieldValueDuplicate" => field::Error::duplicate(path, &Json::Null),
        _ => field::Error::invalid(path, &Json::Null, detail),
    };
    error.shown = is_scalar.then(|| field::show(value));
    error
}
