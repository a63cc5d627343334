//! The evaluation of a policy's expressions.
use super::input::{Input, Place};
use super::patch;
use super::programs::{Compiled, Expression, Mutation, Programs, Validation};
use crate::admission::variables::RequestVariables;
use serde_json::Value;
use setpoint_cel::eval::{
    Context, EXPRESSION_COST_MAX, Error, OBJECT_COST_MAX, Program, Variables,
};
use setpoint_cel::value::Value as Cel;
use setpoint_object::Reason;
use setpoint_object::error::aggregate;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// What the match conditions may cost together: Kubernetes' budget.
const CONDITIONS_COST_MAX: u64 = 2_500_000;
/// What a policy may cost on the serving thread: about a millisecond.
const HERE_COST_MAX: u64 = 20_000;
/// How many variables with lists or maps may be made of each other, one after the other.
///
/// 24: values nest deeper with each, and are compared and freed level by level. Real policies have
/// chains of two or three.
const CHAIN_MAX: usize = 24;
/// Maximum bytes of a message that an expression makes.
const MESSAGE_BYTES_MAX: usize = 5 << 10;
/// The error of a policy whose budget is used up.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Why an expression has no value.
enum Failure {
    /// Its own error.
    Expression(Error),
    /// The budget is used up.
    OutOfBudget,
    /// It costs more than it may here.
    Costly,
}

/// What the match conditions say.
enum Verdict {
    Met,
    Unmet,
    /// None is false, and some failed.
    Failed(String),
}

/// What the validations and audit annotations of a policy say.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) failures: Vec<Failed>,
    /// Key and value.
    pub(super) annotations: Vec<(String, String)>,
    /// Errors of audit annotations.
    pub(super) annotation_errors: Vec<String>,
}
/// A failed validation, or an error.
#[derive(Debug)]
pub(super) struct Failed {
    /// The index of the validation.
    pub(super) index: usize,
    pub(super) message: String,
    pub(super) reason: Reason,
    /// It is an error: the failure policy decides.
    pub(super) is_error: bool,
}
impl Outcome {
    /// The outcome of a policy that could not be evaluated.
    pub(super) fn failed(message: String) -> Self {
        let failed = Failed { index: 0, message, reason: Reason::Invalid, is_error: true };
        Self { failures: vec![failed], ..Self::default() }
    }
}

/// Evaluates a validating policy. `None`: it costs more than it may here.
pub(super) fn validations(
    programs: &Programs,
    input: &Input,
    params: &Value,
    place: Place,
) -> Option<Outcome> {
    let evaluation = Evaluation::new(programs, input, params, place);
    match evaluation.conditions() {
        Ok(Verdict::Met) => {}
        Ok(Verdict::Unmet) => return Some(Outcome::default()),
        Ok(Verdict::Failed(error)) => return Some(Outcome::failed(error)),
        Err(Failure::Costly) => return None,
        Err(_) => return Some(Outcome::failed(OUT_OF_BUDGET.to_owned())),
    }
    let mut outcome = Outcome::default();
    let mut budget = OBJECT_COST_MAX;
    for (index, validation) in programs.validations.iter().enumerate() {
        let expression = &validation.expression;
        let (message, reason, is_error) =
            match evaluation.value(Phase::Expressions, &expression.program, &mut budget) {
                Ok(Cel::Bool(true)) => continue,
                Ok(_) => match evaluation.message(validation, &mut budget) {
                    Ok(message) => (message, validation.reason, false),
                    Err(Failure::Costly) => return None,
                    Err(_) => {
                        let text = format!("failed messageExpression: {OUT_OF_BUDGET}");
                        (text, Reason::Invalid, true)
                    }
                },
                Err(Failure::Expression(error)) => {
                    (resulted(expression, &error), Reason::Invalid, true)
                }
                Err(Failure::OutOfBudget) => {
                    return Some(Outcome::failed(OUT_OF_BUDGET.to_owned()));
                }
                Err(Failure::Costly) => return None,
            };
        outcome.failures.push(Failed { index, message, reason, is_error });
    }
    let mut budget = OBJECT_COST_MAX;
    for annotation in &programs.annotations {
        match evaluation.value(Phase::Texts, &annotation.expression.program, &mut budget) {
            Ok(Cel::String(text)) if !text.trim().is_empty() => {
                outcome.annotations.push((annotation.key.clone(), text.trim().to_owned()));
            }
            Ok(_) => {}
            Err(Failure::Expression(error)) => {
                outcome.annotation_errors.push(resulted(&annotation.expression, &error));
            }
            Err(Failure::OutOfBudget) => return Some(Outcome::failed(OUT_OF_BUDGET.to_owned())),
            Err(Failure::Costly) => return None,
        }
    }
    Some(outcome)
}

/// Whether the match conditions of a policy are met. The error is their text. `None`: they cost
/// more than they may here.
pub(super) fn conditions(
    programs: &Programs,
    input: &Input,
    params: &Value,
    place: Place,
) -> Option<Result<bool, String>> {
    match Evaluation::new(programs, input, params, place).conditions() {
        Ok(Verdict::Met) => Some(Ok(true)),
        Ok(Verdict::Unmet) => Some(Ok(false)),
        Ok(Verdict::Failed(error)) => Some(Err(error)),
        Err(Failure::Costly) => None,
        Err(_) => Some(Err(OUT_OF_BUDGET.to_owned())),
    }
}

/// The patch that a mutation makes, as JSON. The error is its text. `None`: it costs more than it
/// may here.
pub(super) fn patch(
    programs: &Programs,
    mutation: &Mutation,
    input: &Input,
    params: &Value,
    place: Place,
) -> Option<Result<Value, String>> {
    let evaluation = Evaluation::new(programs, input, params, place);
    let mut budget = OBJECT_COST_MAX;
    let value =
        match evaluation.value(Phase::Expressions, &mutation.expression.program, &mut budget) {
            Ok(value) => value,
            Err(Failure::Expression(error)) => {
                return Some(Err(resulted(&mutation.expression, &error)));
            }
            Err(Failure::OutOfBudget) => return Some(Err(OUT_OF_BUDGET.to_owned())),
            Err(Failure::Costly) => return None,
        };
    let written = match mutation.is_json_patch {
        true => patch::operations(&value, place),
        false => patch::configuration(&value, place),
    };
    match written {
        Ok(patch) => Some(Ok(patch)),
        Err(patch::Fault::Text(text)) => Some(Err(text)),
        Err(patch::Fault::Costly) => None,
    }
}

fn resulted(expression: &Expression, error: &Error) -> String {
    match &expression.program {
        Ok(_) => format!("expression '{}' resulted in error: {error}", expression.text),
        Err(error) => format!("compilation error: {error}"),
    }
}

/// One evaluation: what its expressions see, and the variables that have been read.
struct Evaluation<'v> {
    programs: &'v Programs,
    request: RequestVariables<'v>,
    /// That of the running expression.
    phase: Cell<Phase>,
    /// The remaining cost budget on this thread; `None`: the limits of Kubernetes.
    inline_budget: Option<Cell<u64>>,
    read: RefCell<BTreeMap<(Phase, &'v str), Read<'v>>>,
    /// The variable that the running expression waits for.
    awaited: Cell<Option<&'v str>>,
    /// The longest chain of the variables that the running expression has read.
    chain: Cell<usize>,
}
/// What runs, which sees some of the variables only, as in Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Match conditions. They are asked before the namespace is read: it is null.
    Conditions,
    /// Validations and mutations, which see all.
    Expressions,
    /// Messages and audit annotations, without the authorizer.
    Texts,
}

/// A variable that has been read.
struct Read<'v> {
    value: Result<Cel<'v>, Error>,
    /// How many variables with lists or maps are made of each other, up to this one.
    chain: usize,
}
impl<'v> Evaluation<'v> {
    fn new(programs: &'v Programs, input: &'v Input, params: &'v Value, place: Place) -> Self {
        let Input { request, object, old, namespace, questions } = input;
        Self {
            programs,
            request: RequestVariables { request, object, old, namespace, params, questions },
            phase: Cell::new(Phase::Expressions),
            inline_budget: (place == Place::Here).then(|| Cell::new(HERE_COST_MAX)),
            read: RefCell::default(),
            awaited: Cell::default(),
            chain: Cell::default(),
        }
    }
    /// The value of an expression, whose cost is taken from a budget.
    fn value(
        &self,
        phase: Phase,
        program: &'v Compiled,
        budget: &mut u64,
    ) -> Result<Cel<'v>, Failure> {
        self.phase.set(phase);
        let Ok(program) = program else {
            return Err(Failure::Expression(Error::message("it does not compile")));
        };
        // The variables that wait for each other, the expression's own first.
        let mut reading: Vec<&'v str> = Vec::new();
        loop {
            let result = match reading.last() {
                None => self.run(program, budget)?,
                Some(name) => match self.programs.variables.get(*name) {
                    Some(Ok(variable)) => self.run(variable, budget)?,
                    Some(Err(error)) => Err(Error::message(error.to_string())),
                    None => Err(Error::NoSuchKey((*name).to_owned())),
                },
            };
            if let (Err(Error::Interrupted), Some(name)) = (&result, self.awaited.take()) {
                // One that reads itself, by a name that is given twice, finds this error.
                let own = Error::message(format!("variable {name:?} reads itself"));
                self.keep(name, Err(own), 0);
                reading.push(name);
                continue;
            }
            let Some(name) = reading.pop() else {
                return result.map_err(Failure::Expression);
            };
            let (result, chain) = self.chained(result);
            let is_compiled = matches!(self.programs.variables.get(name), Some(Ok(_)));
            let verb = if is_compiled { "evaluate" } else { "compile" };
            let value = result.map_err(|error| {
                Error::message(format!("composited variable {name:?} fails to {verb}: {error}"))
            });
            self.keep(name, value, chain);
        }
    }
    fn keep(&self, name: &'v str, value: Result<Cel<'v>, Error>, chain: usize) {
        self.read.borrow_mut().insert((self.phase.get(), name), Read { value, chain });
    }
    /// The value of a variable, and its chain. A value at the end of a long chain is an error.
    fn chained(&self, value: Result<Cel<'v>, Error>) -> (Result<Cel<'v>, Error>, usize) {
        match &value {
            Ok(Cel::List(_) | Cel::Map(_) | Cel::Object(_) | Cel::Optional(Some(_))) => {
                match self.chain.get() + 1 {
                    chain if chain > CHAIN_MAX => {
                        let text =
                            format!("more than {CHAIN_MAX} variables are made of each other");
                        (Err(Error::message(text)), 0)
                    }
                    chain => (value, chain),
                }
            }
            _ => (value, 0),
        }
    }
    /// Runs a program once, until it has a value or waits for a variable.
    fn run(&self, program: &Program, budget: &mut u64) -> Result<Result<Cel<'v>, Error>, Failure> {
        let limit = self.inline_budget.as_ref().map_or(EXPRESSION_COST_MAX, Cell::get);
        self.chain.set(0);
        let mut context = Context::new(limit);
        let result = program.evaluate(&mut context, self);
        if let Some(left) = &self.inline_budget {
            left.set(left.get().saturating_sub(context.cost()));
            if matches!(result, Err(Error::CostLimit)) {
                return Err(Failure::Costly);
            }
        }
        *budget = budget.checked_sub(context.cost()).ok_or(Failure::OutOfBudget)?;
        Ok(result)
    }
    fn conditions(&self) -> Result<Verdict, Failure> {
        let mut errors = Vec::new();
        let mut budget = CONDITIONS_COST_MAX;
        for condition in &self.programs.conditions {
            match self.value(Phase::Conditions, &condition.program, &mut budget) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Ok(Verdict::Unmet),
                Err(Failure::Expression(error)) => errors.push(resulted(condition, &error)),
                Err(failure) => return Err(failure),
            }
        }
        Ok(match &errors[..] {
            [] => Verdict::Met,
            errors => Verdict::Failed(aggregate(errors)),
        })
    }
    /// The message of a failed validation.
    fn message(&self, validation: &'v Validation, budget: &mut u64) -> Result<String, Failure> {
        if let Some(expression) = &validation.message_expression {
            match self.value(Phase::Texts, expression, budget) {
                Ok(Cel::String(text)) => {
                    let text = text.trim();
                    let fits = text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
                    if fits && !text.is_empty() {
                        return Ok(text.to_owned());
                    }
                }
                Ok(_) | Err(Failure::Expression(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(match &*validation.message {
            "" => format!("failed expression: {}", validation.expression.text),
            message => message.to_owned(),
        })
    }
}
impl<'v> Variables<'v> for Evaluation<'v> {
    fn get(&self, name: &str) -> Option<Result<Cel<'v>, Error>> {
        match name {
            "namespaceObject" if self.phase.get() == Phase::Conditions => Some(Ok(Cel::Null)),
            "authorizer" | "authorizer.requestResource" if self.phase.get() == Phase::Texts => {
                Some(Err(Error::NoSuchAttribute(name.to_owned())))
            }
            name => self.request.get(name),
        }
    }
    fn field(&self, name: &str, field: &str) -> Option<Result<Cel<'v>, Error>> {
        let (field, _) =
            self.programs.variables.get_key_value(field).filter(|_| name == "variables")?;
        if let Some(Read { value, chain }) = self.read.borrow().get(&(self.phase.get(), &**field)) {
            self.chain.set(self.chain.get().max(*chain));
            return Some(value.clone());
        }
        // The expression starts again when the variable has a value.
        self.awaited.set(Some(field));
        Some(Err(Error::Interrupted))
    }
}
