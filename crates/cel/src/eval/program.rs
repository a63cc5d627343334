//! The nodes of a program.

use std::sync::Arc;

use super::Error;
use crate::library::Overload;
use crate::pattern::Pattern;
use crate::value::{List, Value};

/// An expression ready to run.
#[derive(Debug)]
pub struct Program {
    pub(super) root: Node,
    /// The constants that texts are matched with.
    pub(super) patterns: Arc<[Pattern]>,
    pub(super) fault: Option<Error>,
}

impl Program {
    /// Why a constant in it has no value: a conversion such as `int('x')`, or a pattern. It fails
    /// where it is evaluated; Kubernetes refuses such an expression when it is created.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.as_ref()
    }

    /// The program, unless Kubernetes refuses it ([`Self::fault`]).
    ///
    /// # Errors
    ///
    /// The text of a refusal.
    pub fn instantiated(self) -> Result<Program, String> {
        match &self.fault {
            Some(fault) => Err(format!("program instantiation failed: {fault}")),
            None => Ok(self),
        }
    }
}

/// One step. Locals are numbered by their place in the scope.
#[derive(Debug)]
pub(super) enum Node {
    Const(Value<'static>),
    Attr(Box<Attr>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Equals {
        operands: Box<[Node; 2]>,
        negated: bool,
    },
    NotStrictlyFalse(Box<Node>),
    /// `x in [constants]`.
    InConstants {
        value: Box<Node>,
        list: List<'static>,
    },
    Call(Box<Call>),
    /// `a.or(b)`, `a.orValue(b)`: the second only if the first is absent.
    OptionalOr {
        operands: Box<[Node; 2]>,
        value: bool,
    },
    List {
        elements: Vec<Node>,
        optional: Vec<bool>,
    },
    Map(Vec<Entry>),
    /// `Name{field: value}`; the last is whether the value is optional.
    Struct(Arc<str>, Vec<(Arc<str>, Node, bool)>),
    Fold(Box<Fold>),
    /// `accumulator + [element]`, in place.
    Append {
        accumulator: usize,
        elements: Vec<Node>,
        constants: bool,
    },
    /// `cel.@mapInsert(accumulator, …)`, in place.
    Insert {
        accumulator: usize,
        key: Option<Box<Node>>,
        value: Box<Node>,
    },
}

/// A variable or value, and the fields and indices behind it.
#[derive(Debug)]
pub(super) struct Attr {
    pub(super) base: Base,
    pub(super) qualifiers: Vec<Qualifier>,
    /// `has(…)`: the last qualifier only tests.
    pub(super) test: bool,
}

#[derive(Debug)]
pub(super) enum Base {
    Global(Arc<str>),
    /// A chain of names that may be one dotted variable: the longest that exists counts.
    Names(Vec<(Arc<str>, usize)>),
    Local(usize),
    Value(Node),
    Conditional(Box<[Node; 3]>),
}

#[derive(Debug)]
pub(super) struct Qualifier {
    pub(super) kind: QualifierKind,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) enum QualifierKind {
    Const(Value<'static>),
    Computed(Node),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: Arc<str>,
    pub(super) args: Vec<Node>,
    /// Those that the types of the operands may choose, in order.
    pub(super) overloads: Vec<&'static Overload>,
    /// Those of an operator that the checker has left out. It may have given a variable the wrong
    /// type: the operands of these operators decide alone.
    pub(super) others: Vec<&'static Overload>,
    /// Whether the checker left only one.
    pub(super) resolved: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Node,
    pub(super) value: Node,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Node,
    /// The place of the accumulator in the scope; the variables follow it.
    pub(super) slot: usize,
    pub(super) two: bool,
    /// The accumulator is a named value that is computed when it is first read.
    pub(super) lazy: bool,
    pub(super) init: Node,
    /// None: always true.
    pub(super) condition: Option<Node>,
    pub(super) step: Node,
    pub(super) result: Node,
}
