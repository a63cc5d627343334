//! The highest cost of an expression, estimated before it runs.
//!
//! The rules are cel-go's with Kubernetes' for its libraries: every node has a cost and, if it is a
//! text, a list or a map, a range of sizes. Sizes come from literals, from the bounds of the schema
//! (by the path of fields that leads to a node) and from the functions that make values. A loop
//! costs the size of its range times its step. Stored definitions depend on the figures, so what
//! looks odd here is so there: the element of a literal list has the size of the whole of `self`.

use std::collections::HashMap;
use std::rc::Rc;

use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprId, ExprKind, Literal};
use crate::check::Checked;
use crate::decl::{DeclKind, DeclType};
use crate::library::{Cost, Overload};
use crate::types::Type;

mod call;
mod range;

pub use range::Range;

/// Cost of a name or a selected field.
const NAME: u64 = 1;
/// Cost of a list literal beside its elements.
const LIST: u64 = 10;
/// Cost of a map literal beside its entries.
const MAP: u64 = 30;
/// Cost of a message literal beside its fields.
const STRUCT: u64 = 40;
/// Cost of going through one character or byte.
const TRAVERSAL: f64 = 0.1;
/// The factor by which one character of a pattern multiplies the cost of a text.
const PATTERN: f64 = 0.25;

/// What is known of the sizes of variables and of what is below them.
pub trait Sizes {
    /// The size of what is at the end of a path: the name of a variable, then names of fields,
    /// `@items`, `@keys`, `@indices` and `@values`. `None`: nothing is known.
    fn size(&self, path: &[String]) -> Option<Range>;
}

/// Variables (`self`, `oldSelf`) of this type.
impl Sizes for DeclType {
    fn size(&self, path: &[String]) -> Option<Range> {
        let mut decl = self;
        for step in path.iter().skip(1) {
            decl = match (&decl.kind, step.as_str()) {
                (DeclKind::List { items, .. }, "@items" | "@values") => items,
                (DeclKind::Map { values }, "@items" | "@values") => values,
                // Keys of maps are strings without bounds in the schema.
                (DeclKind::Map { .. }, "@keys") => return Some(Range::exactly(0)),
                (DeclKind::Object(object), field) => &object.fields.get(field)?.decl,
                _ => return None,
            };
        }
        Some(Range { min: 0, max: decl.max_elements })
    }
}

/// The least and the most that an expression costs.
pub fn estimate(checked: &Checked, sizes: &dyn Sizes) -> Range {
    let mut estimator = Estimator {
        checked,
        declared: sizes,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    estimator.cost(&checked.ast.root)
}

/// How a node is reached from a variable: its name, names of fields, `@items`, `@keys`, `@values`.
type Path = Rc<[String]>;

/// Sizes of the keys and the values of a container.
#[derive(Clone, Copy, Debug)]
struct Entries {
    list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(self, other: Entries) -> Entries {
        Entries {
            list: self.list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

/// A variable of a loop.
struct Local<'a> {
    name: &'a str,
    path: Option<Path>,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Estimator<'a> {
    checked: &'a Checked,
    declared: &'a dyn Sizes,
    paths: HashMap<ExprId, Path>,
    locals: Vec<Local<'a>>,
    sizes: HashMap<ExprId, Range>,
    entries: HashMap<ExprId, Entries>,
}

/// An operand of a call.
struct Operand<'a> {
    expr: &'a Expr,
    ty: &'a Type,
    path: Option<Path>,
    size: Option<Range>,
}

impl Operand<'_> {
    fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }
}

impl<'a> Estimator<'a> {
    fn ty(&self, expr: &Expr) -> &'a Type {
        self.checked.type_of(expr.id)
    }

    fn local(&self, name: &str) -> Option<&Local<'a>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn cost(&mut self, expr: &'a Expr) -> Range {
        match &expr.kind {
            ExprKind::Literal(_) => Range::exactly(0),
            ExprKind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => Some([name.clone()].into()),
                };
                if let Some(path) = path {
                    self.paths.insert(expr.id, path);
                }
                Range::exactly(NAME)
            }
            ExprKind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            ExprKind::Call { function, target, args } => {
                self.call(expr, function, target.as_deref(), args)
            }
            ExprKind::List { elements, .. } => {
                let mut sum = Range::exactly(LIST);
                let mut sizes = Elements::default();
                for element in elements {
                    sum = sum.plus(self.cost(element));
                    sizes.add(self.size_or_unknown(element));
                }
                let entries = Entries { list: true, key: Range::exactly(1), value: sizes.range() };
                self.entries.insert(expr.id, entries);
                sum
            }
            ExprKind::Map(entries) => {
                let mut sum = Range::exactly(MAP);
                let (mut keys, mut values) = (Elements::default(), Elements::default());
                for entry in entries {
                    sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    keys.add(self.size_or_unknown(&entry.key));
                    values.add(self.size_or_unknown(&entry.value));
                }
                let entries = Entries { list: false, key: keys.range(), value: values.range() };
                self.entries.insert(expr.id, entries);
                sum
            }
            ExprKind::Struct { fields, .. } => fields
                .iter()
                .fold(Range::exactly(STRUCT), |sum, field| sum.plus(self.cost(&field.value))),
            ExprKind::Comprehension(comprehension) if is_binding(comprehension) => {
                self.binding(expr, comprehension)
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
        }
    }

    fn select(&mut self, expr: &'a Expr, operand: &'a Expr, field: &str, test: bool) -> Range {
        let mut sum = self.cost(operand);
        // Tests for presence cost nothing, as in the first versions of cel-go.
        if test {
            return sum;
        }
        if matches!(self.ty(operand), Type::Map(..) | Type::Object(_) | Type::Opaque(_)) {
            sum = sum.plus(Range::exactly(NAME));
        }
        let path = extended(self.path(operand), field);
        self.paths.insert(expr.id, path);
        sum
    }

    /// A loop that only names a value, as `optMap` makes it.
    fn binding(&mut self, expr: &'a Expr, comprehension: &'a Comprehension) -> Range {
        let mut sum = self.cost(&comprehension.range).plus(self.cost(&comprehension.init));
        self.push_accumulator(comprehension);
        sum = sum.plus(self.cost(&comprehension.result));
        if let Some(size) = self.size(&comprehension.result) {
            self.sizes.insert(expr.id, size);
        }
        if let Some(entries) = self.entry_sizes(&comprehension.result) {
            self.entries.insert(expr.id, entries);
        }
        self.locals.pop();
        sum
    }

    fn comprehension(&mut self, expr: &'a Expr, comprehension: &'a Comprehension) -> Range {
        let mut sum = self.cost(&comprehension.range).plus(self.cost(&comprehension.init));
        self.push_accumulator(comprehension);
        let depth = self.locals.len();
        self.push_variables(comprehension);
        let condition = self.cost(&comprehension.condition);
        let step = self.cost(&comprehension.step);
        self.locals.truncate(depth);
        sum = sum.plus(self.cost(&comprehension.result));
        let size = self.size_or_unknown(&comprehension.range);
        sum = sum.plus(size.times(step.plus(condition)));
        match &comprehension.init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(&comprehension.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.sizes.insert(expr.id, size);
                if let Some(entries) = self.entry_sizes(&comprehension.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        self.locals.truncate(depth - 1);
        sum
    }

    fn push_accumulator(&mut self, comprehension: &'a Comprehension) {
        let init = &comprehension.init;
        let local = Local {
            name: &comprehension.accumulator,
            path: self.path(init),
            size: self.size(init),
            entries: self.entry_sizes(init),
        };
        self.locals.push(local);
    }

    fn push_variables(&mut self, comprehension: &'a Comprehension) {
        let range = &comprehension.range;
        let path = self.path(range);
        let entries = self.entry_sizes(range);
        let list = match entries {
            Some(entries) => entries.list,
            None => matches!(self.ty(range), Type::List(_)),
        };
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        let mut push = |name, step, size| {
            let path = Some(extended(path.clone(), step));
            self.locals.push(Local { name, path, size, entries: None });
        };
        let first = comprehension.variable.as_str();
        match &comprehension.variable2 {
            Some(second) => {
                push(first, if list { "@indices" } else { "@keys" }, key);
                push(second, if list { "@items" } else { "@values" }, value);
            }
            None if list => push(first, "@items", value),
            None => push(first, "@keys", key),
        }
    }

    fn path(&self, expr: &Expr) -> Option<Path> {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned()
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let literal = match &expr.kind {
            ExprKind::Literal(Literal::String(text)) => Some(text.chars().count()),
            ExprKind::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            ExprKind::Literal(_) => Some(1),
            ExprKind::List { elements, .. } => Some(elements.len()),
            ExprKind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = literal {
            return Some(Range::exactly(size as u64));
        }
        if let Some(size) = self.path(expr).and_then(|path| self.declared.size(&path)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.ty(expr)) {
            return Some(Range::exactly(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn entry_sizes(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }
}

/// The range of the sizes of a literal's elements.
#[derive(Default)]
struct Elements(Option<Range>);

impl Elements {
    fn add(&mut self, size: Range) {
        self.0 = Some(self.0.map_or(size, |sizes| sizes.union(size)));
    }

    fn range(self) -> Range {
        self.0.unwrap_or(Range::exactly(0))
    }
}

fn extended(path: Option<Path>, step: &str) -> Path {
    path.iter().flat_map(|path| path.iter().cloned()).chain([step.to_owned()]).collect()
}

fn is_binding(comprehension: &Comprehension) -> bool {
    matches!(&comprehension.range.kind, ExprKind::List { elements, .. } if elements.is_empty())
        && matches!(comprehension.condition.kind, ExprKind::Literal(Literal::Bool(false)))
        && comprehension.accumulator != ACCUMULATOR
}

/// Whether values of the type have no size worth mentioning.
fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
