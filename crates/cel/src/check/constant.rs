//! Checks of literals with known types: texts of timestamps, durations and
//! patterns are valid, literals have one type of element, `format` has fitting arguments.

use super::Checked;
use crate::ast::{Expr, ExprKind, Literal};
use crate::eval;
use crate::issue::Issue;
use crate::pattern;
use crate::types::Type;

mod format;

/// The faults of all literals.
pub(super) fn faults(checked: &Checked) -> Vec<Issue> {
    let mut faults = Faults { checked, issues: Vec::new() };
    faults.walk(&checked.ast.root, false);
    faults.issues
}

struct Faults<'a> {
    checked: &'a Checked,
    issues: Vec<Issue>,
}

impl Faults<'_> {
    fn fault(&mut self, expr: &Expr, message: String) {
        let position = self.checked.ast.source.position(expr.id);
        self.issues.push(Issue { position, message });
    }

    fn walk(&mut self, expr: &Expr, in_format: bool) {
        match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => self.walk(operand, in_format),
            ExprKind::Call { function, target, args } => {
                self.argument(function, args);
                if function == "format"
                    && let (Some(target), [arg]) = (target, args.as_slice())
                {
                    self.format(expr, target, arg);
                }
                let in_format = in_format || function == "format";
                for operand in target.as_deref().into_iter().chain(args) {
                    self.walk(operand, in_format);
                }
            }
            ExprKind::List { elements, optional } => {
                if !in_format {
                    self.list(elements, optional);
                }
                for element in elements {
                    self.walk(element, in_format);
                }
            }
            ExprKind::Map(entries) => {
                if !in_format {
                    self.map(entries);
                }
                for entry in entries {
                    self.walk(&entry.key, in_format);
                    self.walk(&entry.value, in_format);
                }
            }
            ExprKind::Struct { fields, .. } => {
                for field in fields {
                    self.walk(&field.value, in_format);
                }
            }
            ExprKind::Comprehension(c) => {
                for part in [&c.range, &c.init, &c.condition, &c.step, &c.result] {
                    self.walk(part, in_format);
                }
            }
        }
    }

    /// The literal argument of a conversion or the literal pattern of a match.
    fn argument(&mut self, function: &str, args: &[Expr]) {
        let Some(arg) = args.first() else { return };
        let ExprKind::Literal(literal) = &arg.kind else { return };
        let valid = match (function, literal) {
            ("matches", Literal::String(pattern)) => pattern::is_valid(pattern),
            ("timestamp" | "duration", literal) => eval::converts(function, literal),
            _ => return,
        };
        if !valid {
            self.fault(arg, format!("invalid {function} argument"));
        }
    }

    fn list(&mut self, elements: &[Expr], optional: &[usize]) {
        let mut first: Option<Type> = None;
        for (index, element) in elements.iter().enumerate() {
            let ty = self.element_type(element, optional.contains(&index));
            match &first {
                None => first = Some(ty),
                Some(first) if *first != ty => {
                    let message = format!("expected type '{first}' but found '{ty}'");
                    self.fault(element, message);
                    break;
                }
                Some(_) => {}
            }
        }
    }

    fn map(&mut self, entries: &[crate::ast::MapEntry]) {
        let mut first: Option<(Type, Type)> = None;
        for entry in entries {
            let key = self.element_type(&entry.key, false);
            let value = self.element_type(&entry.value, entry.optional);
            let Some((keys, values)) = &first else {
                first = Some((key, value));
                continue;
            };
            let differs = |wanted: &Type, ty: &Type| {
                (wanted != ty).then(|| format!("expected type '{wanted}' but found '{ty}'"))
            };
            let (key, value) = (differs(keys, &key), differs(values, &value));
            if let Some(message) = key {
                self.fault(&entry.key, message);
            }
            if let Some(message) = value {
                self.fault(&entry.value, message);
            }
        }
    }

    fn element_type(&self, expr: &Expr, optional: bool) -> Type {
        match self.checked.type_of(expr.id) {
            Type::Optional(inner) if optional => inner.as_ref().clone(),
            ty => ty.clone(),
        }
    }

    fn format(&mut self, call: &Expr, target: &Expr, arg: &Expr) {
        if let ExprKind::Literal(Literal::String(text)) = &target.kind
            && let ExprKind::List { elements, .. } = &arg.kind
            && let Err((expr, message)) = format::check(self.checked, text, elements)
        {
            self.fault(expr.unwrap_or(call), message);
        }
    }
}
