//! From tree to program.

use std::sync::Arc;

use super::program::{Attr, Base, Call, Entry, Fold, Node, Program, Qualifier, QualifierKind};
use super::{Context, Error, PATTERN_BYTES_MAX, PATTERNS_MAX};
use crate::ast::{Ast, Comprehension, Expr, ExprId, ExprKind, Literal, operators};
use crate::check::{Checked, Reference};
use crate::library::{Library, Overload};
use crate::macros::MAP_INSERT;
use crate::pattern::{Budget, Pattern};
use crate::types::Type;
use crate::value::{Str, Value};

/// Functions whose value is computed at once if their operand is a constant.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Operators whose operands decide alone what is computed, also if the checker has chosen an
/// overload: it may have given a variable of a generic type the type of the other operand.
const BY_OPERANDS: [&str; 10] = [
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::ADD,
    operators::SUBTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::NEGATE,
];

/// Functions whose second operand is a pattern.
const SEARCHES: [&str; 3] = ["matches", "find", "findAll"];

impl Program {
    /// Compiles a checked expression.
    pub fn new(checked: &Checked) -> Program {
        Self::with_budget(checked, &Arc::new(Budget::new(PATTERN_BYTES_MAX)))
    }

    /// Compiles a checked expression. Its constant patterns share a budget with those of other
    /// expressions.
    pub fn with_budget(checked: &Checked, budget: &Arc<Budget>) -> Program {
        let compiler = Compiler {
            checked: Some(checked),
            library: Library::kubernetes(),
            locals: Vec::new(),
            patterns: Vec::new(),
            fault: None,
        };
        compiler.program(&checked.ast, budget)
    }

    /// Compiles an expression that was not checked: calls are found by their names and by the types
    /// of their operands when it runs. A call without such a function fails only then.
    pub fn unchecked(ast: &Ast, library: &'static Library) -> Program {
        let (locals, patterns) = (Vec::new(), Vec::new());
        let compiler = Compiler { checked: None, library, locals, patterns, fault: None };
        compiler.program(ast, &Arc::new(Budget::new(PATTERN_BYTES_MAX)))
    }
}

/// The type with a name.
pub(super) fn named_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        _ => [Type::IP, Type::CIDR, Type::QUANTITY, Type::SEMVER, Type::URL, Type::FORMAT]
            .into_iter()
            .find(|ty| matches!(ty, Type::Opaque(known) if *known == name))?,
    })
}

struct Compiler<'a> {
    checked: Option<&'a Checked>,
    library: &'static Library,
    /// The locals in scope by name, the innermost last.
    locals: Vec<String>,
    /// The constant patterns, each once.
    patterns: Vec<Arc<str>>,
    /// The first constant without a value.
    fault: Option<Error>,
}

impl Compiler<'_> {
    fn program(mut self, ast: &Ast, budget: &Arc<Budget>) -> Program {
        let root = self.node(&ast.root);
        let pattern = |source: &Arc<str>| Pattern::new(source, budget.clone());
        let patterns = self.patterns.iter().map(pattern).collect();
        Program { root, patterns, fault: self.fault }
    }

    fn local(&self, name: &str) -> Option<usize> {
        self.locals.iter().rposition(|local| local == name)
    }

    fn reference(&self, expr: &Expr) -> Option<&Reference> {
        self.checked.and_then(|checked| checked.references.get(&expr.id))
    }

    fn node(&mut self, expr: &Expr) -> Node {
        match &expr.kind {
            ExprKind::Literal(literal) => Node::Const(constant(literal)),
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select { operand, field, test } => {
                if !test && let Some(Reference::Ident(name)) = self.reference(expr) {
                    return self.named(name, expr.id);
                }
                let index = Value::String(Str::Shared(Arc::from(field.as_str())));
                let qualifier = Qualifier { kind: QualifierKind::Const(index), optional: false };
                let mut node = self.qualified(operand, qualifier);
                if let Node::Attr(attr) = &mut node {
                    attr.test = *test;
                }
                node
            }
            ExprKind::Call { function, target, args } => {
                self.call(expr, function, target.as_deref(), args)
            }
            ExprKind::List { elements, optional } => {
                let elements = self.nodes(elements);
                let optional = (0..elements.len()).map(|index| optional.contains(&index)).collect();
                fold_constants(Node::List { elements, optional }).0
            }
            ExprKind::Map(entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for entry in entries {
                    let (key, value) = (self.node(&entry.key), self.node(&entry.value));
                    nodes.push(Entry { key, value, optional: entry.optional });
                }
                fold_constants(Node::Map(nodes)).0
            }
            ExprKind::Struct { name, fields } => {
                let mut nodes = Vec::with_capacity(fields.len());
                for field in fields {
                    let value = self.node(&field.value);
                    nodes.push((Arc::from(field.name.as_str()), value, field.optional));
                }
                Node::Struct(name.trim_start_matches('.').into(), nodes)
            }
            ExprKind::Comprehension(fold) => self.fold(fold),
        }
    }

    fn nodes(&mut self, exprs: &[Expr]) -> Vec<Node> {
        exprs.iter().map(|expr| self.node(expr)).collect()
    }

    fn ident(&self, expr: &Expr, name: &str) -> Node {
        if let Some(slot) = self.local(name) {
            return attr(Base::Local(slot));
        }
        match (self.checked, self.reference(expr)) {
            (_, Some(Reference::Ident(name))) => self.named(name, expr.id),
            (Some(_), _) => self.named(name, expr.id),
            (None, _) => attr(Base::Names(vec![(name.trim_start_matches('.').into(), 0)])),
        }
    }

    /// A variable or a type by its full name.
    fn named(&self, name: &str, id: ExprId) -> Node {
        let name = name.trim_start_matches('.');
        let is_type =
            self.checked.is_some_and(|checked| matches!(checked.type_of(id), Type::Type(_)));
        match named_type(name) {
            Some(ty) if is_type => Node::Const(Value::Type(ty)),
            _ => attr(Base::Global(name.into())),
        }
    }

    /// An operand with one more field or index behind it.
    fn qualified(&mut self, operand: &Expr, qualifier: Qualifier) -> Node {
        let mut attr = match self.node(operand) {
            Node::Attr(attr) if !attr.test => attr,
            node => Box::new(Attr { base: Base::Value(node), qualifiers: Vec::new(), test: false }),
        };
        // A chain of fields may be one dotted name.
        if let Base::Names(names) = &mut attr.base
            && let QualifierKind::Const(Value::String(field)) = &qualifier.kind
            && let Some((longest, used)) = names.first().cloned()
            && used == attr.qualifiers.len()
        {
            names.insert(0, (format!("{longest}.{}", &**field).into(), used + 1));
        }
        attr.qualifiers.push(qualifier);
        Node::Attr(attr)
    }

    fn pair(&mut self, a: &Expr, b: &Expr) -> Box<[Node; 2]> {
        Box::new([self.node(a), self.node(b)])
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) -> Node {
        match (function, target, args) {
            (operators::AND, None, [a, b]) => return Node::And(self.pair(a, b)),
            (operators::OR, None, [a, b]) => return Node::Or(self.pair(a, b)),
            (operators::EQUALS | operators::NOT_EQUALS, None, [a, b]) => {
                let negated = function == operators::NOT_EQUALS;
                return Node::Equals { operands: self.pair(a, b), negated };
            }
            (operators::NOT_STRICTLY_FALSE, None, [operand]) => {
                return Node::NotStrictlyFalse(Box::new(self.node(operand)));
            }
            (operators::CONDITIONAL, None, [condition, yes, no]) => {
                let parts = [self.node(condition), self.node(yes), self.node(no)];
                return attr(Base::Conditional(Box::new(parts)));
            }
            (
                operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT,
                None,
                [value, index],
            ) => {
                let kind = match self.node(index) {
                    Node::Const(index) => QualifierKind::Const(index),
                    node => QualifierKind::Computed(node),
                };
                let optional = function != operators::INDEX;
                return self.qualified(value, Qualifier { kind, optional });
            }
            ("or" | "orValue", Some(target), [other]) => {
                let operands = self.pair(target, other);
                return Node::OptionalOr { operands, value: function == "orValue" };
            }
            _ => {}
        }
        let Callee { name, target, overloads } = self.callee(expr, function, target, args.len());
        let mut nodes = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target {
            nodes.push(self.node(target));
        }
        nodes.extend(self.nodes(args));
        let resolved = self.checked.is_some() && overloads.len() == 1;
        if resolved
            && overloads.iter().all(|overload| overload.id == "in_list")
            && let [value, Node::Const(Value::List(list))] = &mut nodes[..]
            && list.iter().all(|item| item.is_ok_and(|item| is_scalar(&item)))
        {
            if list.is_empty() {
                return Node::Const(Value::Bool(false));
            }
            let value = std::mem::replace(value, Node::Const(Value::Null));
            return Node::InConstants { value: Box::new(value), list: list.clone() };
        }
        if SEARCHES.contains(&name.as_str())
            && let Some(Node::Const(Value::String(pattern))) = nodes.get(1)
            && let Err(error) = crate::pattern::translate(pattern)
        {
            self.fault.get_or_insert(Error::message(error.to_string()));
        }
        if SEARCHES.contains(&name.as_str())
            && let Some(Node::Const(Value::String(pattern))) = nodes.get(1)
            && !self.patterns.iter().any(|known| **known == **pattern)
            && self.patterns.len() < PATTERNS_MAX
        {
            self.patterns.push(Arc::from(&**pattern));
        }
        let conversion = CONVERSIONS.contains(&name.as_str());
        let others = match self.checked.is_some() && BY_OPERANDS.contains(&name.as_str()) {
            true => self.rows(&name, false, nodes.len()),
            false => Vec::new(),
        };
        let call = Call { function: name.into(), args: nodes, overloads, others, resolved };
        let node = Node::Call(Box::new(call));
        if !conversion {
            return node;
        }
        let (node, fault) = fold_constants(node);
        if let Some(fault) = fault {
            self.fault.get_or_insert(fault);
        }
        node
    }

    fn callee<'e>(
        &self,
        expr: &Expr,
        function: &str,
        target: Option<&'e Expr>,
        args: usize,
    ) -> Callee<'e> {
        if let Some(Reference::Overloads(rows)) = self.reference(expr) {
            let target = target.filter(|_| rows.iter().any(|row| row.member));
            let name = rows.first().map_or(function, |row| row.function).to_owned();
            return Callee { name, target, overloads: rows.clone() };
        }
        let function = function.trim_start_matches('.');
        if let Some(prefix) = target.and_then(Expr::qualified_name)
            && self.local(prefix.split('.').next().unwrap_or_default()).is_none()
        {
            let name = format!("{}.{function}", prefix.trim_start_matches('.'));
            if self.library.function(&name).is_some() {
                let overloads = self.rows(&name, false, args);
                return Callee { name, target: None, overloads };
            }
        }
        let member = target.is_some();
        let overloads = self.rows(function, member, args + usize::from(member));
        Callee { name: function.to_owned(), target, overloads }
    }

    /// The overloads of a function with so many arguments.
    fn rows(&self, name: &str, member: bool, args: usize) -> Vec<&'static Overload> {
        let rows = self.library.function(name).unwrap_or_default().iter();
        rows.filter(|row| row.member == member && row.args.len() == args).collect()
    }

    fn fold(&mut self, fold: &Comprehension) -> Node {
        let Comprehension { range, variable, variable2, accumulator, init, .. } = fold;
        let lazy = matches!(&range.kind, ExprKind::List { elements, .. } if elements.is_empty())
            && matches!(&fold.condition.kind, ExprKind::Literal(Literal::Bool(false)));
        let range = self.node(range);
        let init = self.node(init);
        let slot = self.locals.len();
        self.locals.push(accumulator.clone());
        let always = matches!(&fold.condition.kind, ExprKind::Literal(Literal::Bool(true)));
        let (condition, step) = if lazy {
            (None, Node::Const(Value::Null))
        } else {
            self.locals.push(variable.clone());
            self.locals.extend(variable2.clone());
            let condition = if always { None } else { Some(self.node(&fold.condition)) };
            (condition, self.step(&fold.step, slot, accumulator))
        };
        self.locals.truncate(slot + 1);
        let result = self.node(&fold.result);
        self.locals.truncate(slot);
        let two = variable2.is_some();
        Node::Fold(Box::new(Fold { range, slot, two, lazy, init, condition, step, result }))
    }

    /// A loop's step, with what adds to the accumulator done in place.
    fn step(&mut self, step: &Expr, slot: usize, accumulator: &str) -> Node {
        let is_accumulator =
            |expr: &Expr| matches!(&expr.kind, ExprKind::Ident(name) if name == accumulator);
        let ExprKind::Call { function, target: None, args } = &step.kind else {
            return self.node(step);
        };
        match (function.as_str(), &args[..]) {
            (operators::CONDITIONAL, [condition, yes, no]) if is_accumulator(no) => {
                let condition = self.node(condition);
                let parts = [condition, self.step(yes, slot, accumulator), self.node(no)];
                attr(Base::Conditional(Box::new(parts)))
            }
            (operators::ADD, [left, Expr { kind: ExprKind::List { elements, optional }, .. }])
                if is_accumulator(left) && optional.is_empty() =>
            {
                let elements = self.nodes(elements);
                let constants = elements.iter().all(|e| matches!(e, Node::Const(_)));
                Node::Append { accumulator: slot, elements, constants }
            }
            (MAP_INSERT, [map, key, value]) if is_accumulator(map) => Node::Insert {
                accumulator: slot,
                key: Some(Box::new(self.node(key))),
                value: Box::new(self.node(value)),
            },
            (MAP_INSERT, [map, value]) if is_accumulator(map) => {
                Node::Insert { accumulator: slot, key: None, value: Box::new(self.node(value)) }
            }
            _ => self.node(step),
        }
    }
}

/// The function of a call.
struct Callee<'e> {
    name: String,
    target: Option<&'e Expr>,
    overloads: Vec<&'static Overload>,
}

fn attr(base: Base) -> Node {
    Node::Attr(Box::new(Attr { base, qualifiers: Vec::new(), test: false }))
}

fn is_scalar(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
    )
}

/// The value of what has only constants in it; the node itself and the error if it fails.
fn fold_constants(node: Node) -> (Node, Option<Error>) {
    let constant = |node: &Node| matches!(node, Node::Const(_));
    let all = match &node {
        Node::List { elements, .. } => elements.iter().all(constant),
        Node::Map(entries) => entries.iter().all(|e| constant(&e.key) && constant(&e.value)),
        Node::Call(call) => call.args.iter().all(constant),
        _ => false,
    };
    if !all {
        return (node, None);
    }
    let program = Program { root: node, patterns: Arc::default(), fault: None };
    match program.evaluate(&mut Context::new(u64::MAX), &()) {
        Ok(value) => (Node::Const(value), None),
        Err(error) => (program.root, Some(error)),
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Str::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}
