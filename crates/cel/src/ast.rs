//! The expression tree: what the parser gives, and what checker and evaluator walk.
//!
//! Macros are already expanded in it. Every node has an [`ExprId`], unique within its tree and
//! never 0; the checker's tables (types, references) are keyed by it, and [`Source`] knows where in
//! the text the node stands.

use std::sync::Arc;

/// The number of a node within its tree: 1 and up.
pub type ExprId = u32;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Ast {
    /// The outermost node.
    pub root: Expr,
    /// The text, and the places of all nodes in it.
    pub source: Source,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The node's number.
    pub id: ExprId,
    /// The kind of the node, with its children.
    pub kind: ExprKind,
}

/// The kinds of nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A constant.
    Literal(Literal),
    /// A name. It begins with a dot if it is absolute (`.a`).
    Ident(String),
    /// `operand.field`, or, with `test`, `has(operand.field)`.
    Select {
        /// The value that has the field.
        operand: Box<Expr>,
        /// The field's name.
        field: String,
        /// Whether the node only tests for presence.
        test: bool,
    },
    /// A function or operator, global or of a receiver.
    Call {
        /// The function's name, or an operator's ([`operators`]).
        function: String,
        /// The expression before the dot.
        target: Option<Box<Expr>>,
        /// The arguments, without the receiver.
        args: Vec<Expr>,
    },
    /// `[a, ?b]`.
    List {
        /// The elements.
        elements: Vec<Expr>,
        /// The indices of optional elements, ascending.
        optional: Vec<usize>,
    },
    /// `{k: v, ?k: v}`.
    Map(Vec<MapEntry>),
    /// `Name{field: v}`.
    Struct {
        /// The type's name as written.
        name: String,
        /// The fields.
        fields: Vec<FieldInit>,
    },
    /// A loop, from a macro.
    Comprehension(Box<Comprehension>),
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// A number with suffix `u`.
    Uint(u64),
    /// A number with point or exponent.
    Double(f64),
    /// Text.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
}

/// One entry of a map literal.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// The entry's number.
    pub id: ExprId,
    /// The key.
    pub key: Expr,
    /// The value; with `optional`, an optional one.
    pub value: Expr,
    /// Whether the entry is written `?key: value`.
    pub optional: bool,
}

/// One field of a struct literal.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldInit {
    /// The field's number.
    pub id: ExprId,
    /// The field's name.
    pub name: String,
    /// The value; with `optional`, an optional one.
    pub value: Expr,
    /// Whether the field is written `?name: value`.
    pub optional: bool,
}

/// A loop with an accumulator, as macros make it.
///
/// With `accumulator` set to `init`, runs `step` for each element of `range` as long as `condition`
/// holds; the value is `result`.
#[derive(Clone, Debug, PartialEq)]
pub struct Comprehension {
    /// The range of the loop: a list or a map.
    pub range: Expr,
    /// The name of the element: a list's element or a map's key; with two variables, index or key.
    pub variable: String,
    /// The second variable: the element or the value.
    pub variable2: Option<String>,
    /// The accumulator's name: [`ACCUMULATOR`], or the name `cel.bind` and `optMap` give.
    pub accumulator: String,
    /// The accumulator's first value.
    pub init: Expr,
    /// The loop ends when this is false.
    pub condition: Expr,
    /// The accumulator's next value.
    pub step: Expr,
    /// The loop's value.
    pub result: Expr,
}

/// The name of the accumulator in loops of macros: no expression can spell it.
pub const ACCUMULATOR: &str = "@result";

/// The names operators have as functions.
pub mod operators {
    /// `a ? b : c`.
    pub const CONDITIONAL: &str = "_?_:_";
    /// `a && b`.
    pub const AND: &str = "_&&_";
    /// `a || b`.
    pub const OR: &str = "_||_";
    /// `!a`.
    pub const NOT: &str = "!_";
    /// `a == b`.
    pub const EQUALS: &str = "_==_";
    /// `a != b`.
    pub const NOT_EQUALS: &str = "_!=_";
    /// `a < b`.
    pub const LESS: &str = "_<_";
    /// `a <= b`.
    pub const LESS_EQUALS: &str = "_<=_";
    /// `a > b`.
    pub const GREATER: &str = "_>_";
    /// `a >= b`.
    pub const GREATER_EQUALS: &str = "_>=_";
    /// `a + b`.
    pub const ADD: &str = "_+_";
    /// `a - b`.
    pub const SUBTRACT: &str = "_-_";
    /// `a * b`.
    pub const MULTIPLY: &str = "_*_";
    /// `a / b`.
    pub const DIVIDE: &str = "_/_";
    /// `a % b`.
    pub const MODULO: &str = "_%_";
    /// `-a`.
    pub const NEGATE: &str = "-_";
    /// `a in b`.
    pub const IN: &str = "@in";
    /// `a[b]`.
    pub const INDEX: &str = "_[_]";
    /// `a[?b]`.
    pub const OPT_INDEX: &str = "_[?_]";
    /// `a.?b`: the second argument is the literal text `b`.
    pub const OPT_SELECT: &str = "_?._";
    /// True unless its argument is `false`: errors count as true.
    pub const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The number of code points before it in its line.
    pub column: u32,
}

impl Position {
    /// The place of what concerns a text as a whole. It is before all others.
    pub const NOWHERE: Self = Self { line: 0, column: 0 };
}

/// The text of an expression and where its nodes stand in it.
#[derive(Clone, Debug)]
pub struct Source {
    text: Arc<str>,
    /// The code point offsets at which the lines after the first one begin.
    lines: Arc<[u32]>,
    /// The code point offset of the node with id `i + 1`.
    offsets: Vec<u32>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let breaks = (1u32..).zip(text.chars()).filter(|(_, c)| *c == '\n');
        let lines = breaks.map(|(after, _)| after).collect();
        Self { text: text.into(), lines, offsets: Vec::new() }
    }

    /// The next free id; its node stands at `offset`, in code points.
    pub(crate) fn next_id(&mut self, offset: u32) -> ExprId {
        self.offsets.push(offset);
        ExprId::try_from(self.offsets.len()).unwrap_or(ExprId::MAX)
    }

    /// How many ids are given out: ids are 1 to this.
    pub fn ids(&self) -> usize {
        self.offsets.len()
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many code points stand before the node. 0 for an unknown id.
    ///
    /// The place of a call is its opening parenthesis, of an operator the operator, of a selection
    /// the dot, as cel-go has it.
    pub fn offset(&self, id: ExprId) -> u32 {
        (id as usize).checked_sub(1).and_then(|i| self.offsets.get(i)).copied().unwrap_or(0)
    }

    /// Line and column of the node.
    pub fn position(&self, id: ExprId) -> Position {
        self.position_of(self.offset(id))
    }

    /// Line and column of a code point.
    pub fn position_of(&self, offset: u32) -> Position {
        let n_before = self.lines.partition_point(|start| *start <= offset);
        let start = n_before.checked_sub(1).and_then(|i| self.lines.get(i)).copied().unwrap_or(0);
        let line = u32::try_from(n_before + 1).unwrap_or(u32::MAX);
        Position { line, column: offset - start }
    }

    /// The line with this number, from 1.
    pub fn line(&self, line: u32) -> Option<&str> {
        self.text.split('\n').nth((line as usize).checked_sub(1)?)
    }
}

impl Expr {
    /// The dotted name this node spells (`a.b.c`), if it is nothing but names and selections.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.clone()),
            ExprKind::Select { operand, field, test: false } => {
                let mut name = operand.qualified_name()?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}
