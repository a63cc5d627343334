//! Evaluation: a checked expression becomes a [`Program`] once, which runs any number of times.
//!
//! Costs are counted as cel-go counts them: one for a variable, one for each field or index behind
//! it, ten for a list, thirty for a map, and what [`budget`](crate::budget) says for calls. A
//! constant costs nothing, nor does a list of constants. Both branches of a condition are free
//! variables: `c ? x : y` costs what `c` costs.

mod compile;
mod overload;
mod parts;
mod program;
mod run;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::Literal;
use crate::pattern::{Pattern, PatternError, Regex, Scratch};
use crate::types::Type;
use crate::value::{Fuel, Value};

pub use program::Program;

/// The most one expression may cost.
///
/// 1,000,000, as Kubernetes' limit of a call.
pub const EXPRESSION_COST_MAX: u64 = 1_000_000;

/// The most all expressions for one object may cost together.
///
/// 10,000,000, as Kubernetes' budget.
pub const OBJECT_COST_MAX: u64 = 10_000_000;

/// Number of rounds of loops between two checks whether to stop.
///
/// 100, as Kubernetes.
const INTERRUPT_ROUNDS: u32 = 100;

/// Steps beyond the counted cost that one evaluation may take: see [`Fuel`]. About a fifth of a
/// second.
const FUEL: u64 = 4_000_000;

/// The same for all evaluations of one context together: ten times as many, as [`OBJECT_COST_MAX`]
/// is ten times [`EXPRESSION_COST_MAX`].
const CONTEXT_FUEL: u64 = 10 * FUEL;

/// How many bytes of a program are made in one step when a pattern is compiled.
const PROGRAM_BYTES_PER_STEP: usize = 8;

/// How many bytes a search for all matches goes through in one step.
const SEARCHED_BYTES_PER_STEP: usize = 256;

/// The most bytes of new values one evaluation makes, freed ones counted too.
const ALLOCATED_BYTES_MAX: u64 = 64 << 20;

/// The largest program of a pattern in an expression: 2 MiB. Patterns of expressions are short.
pub const PATTERN_BYTES_MAX: usize = 2 << 20;

/// The most patterns that one context keeps ready to match.
const PATTERNS_MAX: usize = 16;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A map or an object does not have the key.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A list is shorter.
    #[error("index out of bounds: {0}")]
    OutOfBounds(String),
    /// No variable has the name.
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(String),
    /// A function is not there for operands of these types.
    #[error("no such overload")]
    NoSuchOverload,
    /// Everything else a function or an operator refuses.
    #[error("{0}")]
    Message(Cow<'static, str>),
    /// The expression costs more than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The caller has stopped it.
    #[error("operation interrupted")]
    Interrupted,
}

impl Error {
    /// An error with a text made for it.
    pub fn message(text: impl Into<Cow<'static, str>>) -> Self {
        Error::Message(text.into())
    }

    /// Whether the error ends the evaluation: `||` and `&&` do not absorb it.
    pub fn is_final(&self) -> bool {
        matches!(self, Error::CostLimit | Error::Interrupted)
    }
}

/// The state and the limits of one evaluation.
pub struct Context<'c> {
    cost: u64,
    limit: u64,
    rounds: u32,
    allocated: u64,
    interrupted: Option<&'c dyn Fn() -> bool>,
    /// Steps for going through values.
    pub fuel: Fuel,
    /// What is left for evaluations that follow this one.
    reserve: u64,
    /// The constant patterns of the program that runs.
    constants: Arc<[Pattern]>,
    ready: HashMap<Arc<str>, ReadyPattern>,
}

/// Without the patterns.
impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("cost", &self.cost)
            .field("limit", &self.limit)
            .field("allocated", &self.allocated)
            .finish_non_exhaustive()
    }
}

/// A compiled pattern with the memory to match it.
pub(crate) struct ReadyPattern {
    program: Arc<Regex>,
    scratch: Scratch,
}

impl ReadyPattern {
    fn new(program: Arc<Regex>) -> Self {
        let scratch = program.scratch();
        Self { program, scratch }
    }

    /// Whether the pattern matches anywhere in the text.
    ///
    /// # Errors
    ///
    /// [`Error::CostLimit`]: it would take too long.
    pub(crate) fn is_match(&mut self, text: &str) -> Result<bool, Error> {
        self.check(text)?;
        Ok(self.program.is_match(&mut self.scratch, text))
    }

    /// The first match.
    ///
    /// # Errors
    ///
    /// As [`Self::is_match`].
    pub(crate) fn find<'t>(&mut self, text: &'t str) -> Result<Option<&'t str>, Error> {
        self.check(text)?;
        Ok(self.program.find(&mut self.scratch, text))
    }

    fn check(&self, text: &str) -> Result<(), Error> {
        if self.program.is_costly(text) { Err(Error::CostLimit) } else { Ok(()) }
    }

    /// The first `limit` matches, and how many bytes were looked at; `None` if it takes too long to
    /// find them.
    fn find_all<'t>(&mut self, text: &'t str, limit: usize) -> Option<(Vec<&'t str>, usize)> {
        self.program.find_all(&mut self.scratch, text, limit)
    }
}

impl Default for Context<'_> {
    fn default() -> Self {
        Self::new(EXPRESSION_COST_MAX)
    }
}

impl<'c> Context<'c> {
    /// For one evaluation that may cost at most `limit`.
    pub fn new(limit: u64) -> Self {
        Self {
            cost: 0,
            limit,
            rounds: 0,
            allocated: 0,
            interrupted: None,
            fuel: Fuel::new(FUEL),
            reserve: CONTEXT_FUEL - FUEL,
            constants: Arc::default(),
            ready: HashMap::new(),
        }
    }

    /// Checks every hundred rounds of loops whether to stop.
    #[must_use]
    pub fn interrupted_by(mut self, interrupted: &'c dyn Fn() -> bool) -> Self {
        self.interrupted = Some(interrupted);
        self
    }

    /// Starts another evaluation with the same limit. Patterns stay ready. All evaluations have ten
    /// times the steps of one.
    pub fn restart(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        let left = self.reserve + self.fuel.left();
        let fuel = left.min(FUEL);
        *self = Self {
            interrupted: self.interrupted,
            ready,
            fuel: Fuel::new(fuel),
            reserve: left - fuel,
            ..Self::new(self.limit)
        };
    }

    /// The cost of the evaluation so far.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Counts a cost.
    ///
    /// # Errors
    ///
    /// [`Error::CostLimit`] above the limit.
    pub fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Error::CostLimit) } else { Ok(()) }
    }

    /// Charges bytes before they are allocated.
    ///
    /// # Errors
    ///
    /// [`Error::CostLimit`]: too many for one evaluation.
    pub fn allocate(&mut self, bytes: usize) -> Result<(), Error> {
        self.allocated = self.allocated.saturating_add(bytes as u64);
        if self.allocated > ALLOCATED_BYTES_MAX { Err(Error::CostLimit) } else { Ok(()) }
    }

    /// A pattern ready to match. The program of a constant is compiled once, within the budget of
    /// its definition; this context keeps some others.
    ///
    /// # Errors
    ///
    /// A text that is no pattern, or one that is too large.
    pub(crate) fn pattern(&mut self, text: &str) -> Result<&mut ReadyPattern, Error> {
        if !self.ready.contains_key(text) {
            let constant = self.constants.iter().find(|constant| constant.source() == text);
            let program = match constant {
                Some(constant) => constant.program().map(|(program, _)| program),
                None => {
                    let compiled = Regex::new(text, PATTERN_BYTES_MAX);
                    let bytes = match &compiled {
                        Ok(program) => program.work_bytes(),
                        Err(PatternError::TooLarge) => PATTERN_BYTES_MAX,
                        Err(_) => 0,
                    };
                    self.fuel.take((bytes / PROGRAM_BYTES_PER_STEP) as u64)?;
                    compiled.map(Arc::new)
                }
            };
            let program = program.map_err(|error| Error::message(error.to_string()))?;
            if self.ready.len() >= PATTERNS_MAX {
                self.ready.clear();
            }
            self.ready.insert(text.into(), ReadyPattern::new(program));
        }
        self.ready.get_mut(text).ok_or_else(|| Error::message("the pattern is not there"))
    }

    /// The first `limit` matches of a pattern.
    ///
    /// # Errors
    ///
    /// As [`Context::pattern`], and [`Error::CostLimit`] if it takes too long to find them.
    pub(crate) fn find_all<'t>(
        &mut self,
        pattern: &str,
        text: &'t str,
        limit: usize,
    ) -> Result<Vec<&'t str>, Error> {
        let ready = self.pattern(pattern)?;
        ready.check(text)?;
        let (found, looked_at) = ready.find_all(text, limit).ok_or(Error::CostLimit)?;
        self.fuel.take((looked_at / SEARCHED_BYTES_PER_STEP) as u64)?;
        Ok(found)
    }

    /// Charges the copy of a key's text, before a map stores it.
    fn store_key(&mut self, key: &Value<'_>) -> Result<(), Error> {
        let bytes = key.text_bytes();
        self.fuel.read(bytes)?;
        self.allocate(bytes)
    }

    fn round(&mut self) -> Result<(), Error> {
        self.rounds += 1;
        if self.rounds.is_multiple_of(INTERRUPT_ROUNDS)
            && self.interrupted.is_some_and(|interrupted| interrupted())
        {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}

/// How a function is computed.
pub type Function = for<'v> fn(&mut Context<'_>, &[Value<'v>]) -> Result<Value<'v>, Error>;

/// The values of an expression's variables.
pub trait Variables<'v> {
    /// The value of a variable, if there is one of this name. Called each time the variable is
    /// read.
    fn get(&self, name: &str) -> Option<Result<Value<'v>, Error>>;
    /// The value of a field of a variable whose fields are computed when they are read. `None`: the
    /// field is one of the variable's value. Default: `None`.
    fn field(&self, _name: &str, _field: &str) -> Option<Result<Value<'v>, Error>> {
        None
    }
}

/// No variables.
impl Variables<'_> for () {
    fn get(&self, _: &str) -> Option<Result<Value<'static>, Error>> {
        None
    }
}

/// Variables by name.
impl<'v> Variables<'v> for HashMap<String, Value<'v>> {
    fn get(&self, name: &str) -> Option<Result<Value<'v>, Error>> {
        HashMap::get(self, name).cloned().map(Ok)
    }
}

/// Few variables.
impl<'v, const N: usize> Variables<'v> for [(&str, Value<'v>); N] {
    fn get(&self, name: &str) -> Option<Result<Value<'v>, Error>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| Ok(value.clone()))
    }
}

/// Whether a value may be an operand of a declared type. Elements are not looked at.
fn accepts(ty: &Type, value: &Value<'_>) -> bool {
    match (ty, value) {
        (Type::Dyn | Type::Any | Type::Param(_) | Type::Error, _) => true,
        (Type::List(_), Value::List(_))
        | (Type::Map(..) | Type::Object(_), Value::Map(_) | Value::Object(_))
        | (Type::Optional(_), Value::Optional(_))
        | (Type::Type(_), Value::Type(_)) => true,
        (Type::List(_) | Type::Map(..) | Type::Object(_) | Type::Optional(_), _) => false,
        (ty, value) => *ty == value.type_of(),
    }
}

/// Whether `duration(literal)` and `timestamp(literal)` have a value; true of other functions.
pub(crate) fn converts(function: &str, literal: &Literal) -> bool {
    match (function, literal) {
        ("duration", Literal::String(text)) => crate::value::Duration::parse(text).is_some(),
        ("timestamp", Literal::String(text)) => {
            matches!(crate::value::Timestamp::parse(text), Some(Ok(_)))
        }
        ("timestamp", Literal::Int(seconds)) => crate::value::Timestamp::new(*seconds, 0).is_some(),
        // There is an overload for whole numbers, and it converts none.
        ("duration", Literal::Int(_)) => false,
        _ => true,
    }
}
