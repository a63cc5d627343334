//! Evaluation: a checked expression becomes a [`Program`] once, which runs any number of times.
//!
//! Costs are counted as cel-go counts them: one for a variable, one for each field or index behind
//! it, ten for a list, thirty for a map, and what [`budget`](crate::budget) says for calls. A
//! constant costs nothing, nor does a list of constants. Both branches of a condition are free
//! variables: `c ? x : y` costs what `c` costs.

mod compile;
mod program;
mod run;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::Literal;
use crate::pattern::Regex;
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

/// After so many rounds of loops it is asked whether to stop.
///
/// 100, as Kubernetes.
const INTERRUPT_ROUNDS: u32 = 100;

/// Steps beyond the counted cost that one evaluation may take: see [`Fuel`].
const FUEL: u64 = 4_000_000;

/// The most bytes of new values one evaluation makes, freed ones counted too.
const ALLOCATED_BYTES_MAX: u64 = 64 << 20;

/// The most patterns one evaluation keeps that are not constants.
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
    /// The caller wants no more of it.
    #[error("operation interrupted")]
    Interrupted,
}

impl Error {
    /// An error with a text made for it.
    pub fn message(text: impl Into<Cow<'static, str>>) -> Self {
        Error::Message(text.into())
    }

    /// Whether the evaluation ends whatever stands around: `||` and `&&` do not absorb it.
    pub fn is_final(&self) -> bool {
        matches!(self, Error::CostLimit | Error::Interrupted)
    }
}

/// What one evaluation has and may use.
pub struct Context<'c> {
    cost: u64,
    limit: u64,
    rounds: u32,
    allocated: u64,
    interrupted: Option<&'c dyn Fn() -> bool>,
    /// Steps for going through values.
    pub fuel: Fuel,
    patterns: HashMap<Arc<str>, Arc<Regex>>,
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
            patterns: HashMap::new(),
        }
    }

    /// Asks every hundred rounds of loops whether to stop.
    #[must_use]
    pub fn interrupted_by(mut self, interrupted: &'c dyn Fn() -> bool) -> Self {
        self.interrupted = Some(interrupted);
        self
    }

    /// What the evaluation has cost.
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

    /// Says that so many bytes are about to be made.
    ///
    /// # Errors
    ///
    /// [`Error::CostLimit`]: too many for one evaluation.
    pub fn allocate(&mut self, bytes: usize) -> Result<(), Error> {
        self.allocated = self.allocated.saturating_add(bytes as u64);
        if self.allocated > ALLOCATED_BYTES_MAX { Err(Error::CostLimit) } else { Ok(()) }
    }

    /// The compiled pattern; a few are kept for this evaluation.
    ///
    /// # Errors
    ///
    /// What is not a pattern, or too large a one.
    pub fn pattern(&mut self, text: &str) -> Result<Arc<Regex>, Error> {
        if let Some(regex) = self.patterns.get(text) {
            return Ok(regex.clone());
        }
        let regex = Arc::new(Regex::new(text).map_err(|error| Error::message(error.to_string()))?);
        if self.patterns.len() >= PATTERNS_MAX {
            self.patterns.clear();
        }
        self.patterns.insert(text.into(), regex.clone());
        Ok(regex)
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

/// What the variables of an expression stand for.
pub trait Variables<'v> {
    /// The value of a variable, if there is one of this name. Asked each time the variable is read.
    fn get(&self, name: &str) -> Option<Result<Value<'v>, Error>>;
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
        (Type::Dyn | Type::Param(_) | Type::Error, _) => true,
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
        _ => true,
    }
}
