//! Costs and sizes of calls.

use super::{
    Cost, Estimator, Expr, ExprKind, LIST, Literal, Operand, Overload, PATTERN, Range, TRAVERSAL,
    Type, extended,
};
use crate::ast::ACCUMULATOR;
use crate::library::devices::VALUES_MAX;

/// The longest pattern of a named format, in characters.
///
/// 128, as in Kubernetes.
const FORMAT_PATTERN_MAX: f64 = 128.0;
/// The most that the comparison of two formats goes through, in characters.
///
/// 64, as in Kubernetes.
const FORMAT_MAX: u64 = 64;
/// Bytes of an IP address.
const ADDRESS: Range = Range { min: 4, max: 16 };

/// The cost of a call with its operands, and the size of its result.
struct Estimate {
    cost: Range,
    size: Option<Range>,
}

/// The operands of a call and what they cost.
struct Operands<'a> {
    target: Option<Operand<'a>>,
    args: Vec<Operand<'a>>,
    costs: Vec<Range>,
}

impl<'a> Operands<'a> {
    /// The receiver of a member, else the first argument.
    fn first(&self) -> Option<&Operand<'a>> {
        self.target.as_ref().or(self.args.first())
    }

    fn arg(&self, index: usize) -> Range {
        self.args.get(index).map_or(Range::UNKNOWN, Operand::size)
    }

    fn target(&self) -> Range {
        self.target.as_ref().map_or(Range::UNKNOWN, Operand::size)
    }

    fn sum(&self) -> Range {
        self.costs.iter().fold(Range::exactly(0), |sum, cost| sum.plus(*cost))
    }
}

impl<'a> Estimator<'a> {
    pub(super) fn call(
        &mut self,
        expr: &'a Expr,
        function: &str,
        target: Option<&'a Expr>,
        args: &'a [Expr],
    ) -> Range {
        if let ("dyn", None, [arg]) = (function, target, args) {
            let cost = Range::exactly(1).plus(self.cost(arg));
            if let Some(size) = self.size(arg) {
                self.sizes.insert(expr.id, size);
            }
            if let Some(entries) = self.entry_sizes(arg) {
                self.entries.insert(expr.id, entries);
            }
            return cost;
        }
        let costs: Vec<Range> = args.iter().map(|arg| self.cost(arg)).collect();
        let args: Vec<Operand<'a>> = args.iter().map(|arg| self.operand(arg)).collect();
        let overloads = self.checked.overloads(expr.id);
        // The target of a namespaced function is a part of its name.
        let target = target.filter(|_| overloads.iter().any(|overload| overload.member));
        let target_cost = target.map_or(Range::exactly(0), |target| self.cost(target));
        let target = target.map(|target| self.operand(target));
        let operands = Operands { target, args, costs };
        if overloads.is_empty() {
            return Range::exactly(1).plus(operands.sum());
        }
        let mut cost: Option<Range> = None;
        let mut size: Option<Range> = None;
        for overload in overloads {
            let estimate = self.overload(expr, overload, &operands);
            cost = Some(cost.map_or(estimate.cost, |cost| cost.union(estimate.cost)));
            size = match (size, estimate.size) {
                (Some(size), Some(other)) => Some(size.union(other)),
                (size, other) => size.or(other),
            };
            if let (Cost::IndexList | Cost::IndexMap, Some(container)) =
                (overload.cost, operands.args.first())
            {
                size = self.entry_sizes(container.expr).map(|entries| entries.value);
                let step = if overload.cost == Cost::IndexList { "@items" } else { "@values" };
                let path = extended(self.path(container.expr), step);
                self.paths.insert(expr.id, path);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        target_cost.plus(cost.unwrap_or(Range::exactly(0)))
    }

    fn operand(&mut self, expr: &'a Expr) -> Operand<'a> {
        let path = self.path(expr).filter(|path| path.first().is_some_and(|p| p != ACCUMULATOR));
        Operand { expr, ty: self.ty(expr), path, size: self.size(expr) }
    }

    fn overload(
        &mut self,
        expr: &'a Expr,
        overload: &Overload,
        operands: &Operands<'a>,
    ) -> Estimate {
        let (cost, size) = match overload.cost {
            Cost::Logical => {
                let second = operands.sum();
                let first = operands.costs.first().map_or(0, |cost| cost.min);
                return Estimate { cost: Range { min: first, max: second.max }, size: None };
            }
            Cost::Conditional => return self.conditional(expr, operands),
            Cost::One | Cost::IndexList | Cost::IndexMap => (Range::exactly(1), None),
            Cost::Compare => (self.compare(overload, operands), None),
            Cost::Concat | Cost::AddList => {
                let size = operands.arg(0).plus(operands.arg(1));
                if let [a, b] = operands.args.as_slice()
                    && let Some(a) = self.entry_sizes(a.expr)
                    && let Some(b) = self.entry_sizes(b.expr)
                {
                    self.entries.insert(expr.id, a.union(b));
                }
                let cost = if overload.cost == Cost::AddList {
                    Range::exactly(1)
                } else {
                    size.scaled(TRAVERSAL)
                };
                (cost, Some(size))
            }
            Cost::Check => (Range::exactly(350_000), None),
            Cost::Selector => {
                // A list; and for every two characters a list and a struct.
                let text = operands.arg(0);
                let requirements = text.scaled(0.5).scaled(50.0);
                (Range::exactly(10).plus(text.scaled(TRAVERSAL)).plus(requirements), None)
            }
            Cost::InList => (operands.arg(1), None),
            Cost::Includes => (Range { min: 0, max: VALUES_MAX as u64 }, None),
            Cost::Affix => (operands.arg(0).scaled(TRAVERSAL), None),
            Cost::Contains => {
                let text = operands.target().scaled(TRAVERSAL);
                (text.times(operands.arg(0).scaled(TRAVERSAL)), None)
            }
            Cost::Matches => (pattern_cost(operands), None),
            Cost::Find => {
                let size = Range { min: 0, max: operands.target().max };
                (pattern_cost(operands), Some(size))
            }
            Cost::StringToBytes => {
                let size = operands.arg(0);
                let bytes = Range { min: size.min, max: size.max.wrapping_mul(4) };
                (size.scaled(TRAVERSAL), Some(bytes))
            }
            Cost::BytesToString => {
                let size = operands.arg(0);
                (size.scaled(TRAVERSAL), Some(Range { min: size.min / 4, max: size.max }))
            }
            Cost::Format => (operands.target().scaled(TRAVERSAL), None),
            Cost::Quote => {
                let size = operands.arg(0);
                let quoted = Range {
                    min: size.min.wrapping_add(2),
                    max: size.max.wrapping_mul(2).wrapping_add(2),
                };
                (size.scaled(TRAVERSAL), Some(quoted))
            }
            Cost::Scan => {
                let size = operands.first().map_or(Range::UNKNOWN, Operand::size);
                (size.scaled(TRAVERSAL), Some(size))
            }
            Cost::Replace => {
                let size = operands.target();
                let result = replaced(size, operands.arg(0), operands.arg(1));
                (size.scaled(2.0 * TRAVERSAL), Some(result))
            }
            Cost::Split => {
                let size = operands.target();
                let max = match operands.args.get(1).map(|arg| &arg.expr.kind) {
                    Some(ExprKind::Literal(Literal::Int(limit))) => *limit as u64,
                    _ => size.max,
                };
                (size.scaled(2.0 * TRAVERSAL), Some(Range { min: 0, max }))
            }
            Cost::Join => {
                let size = self.joined(operands);
                (size.scaled(TRAVERSAL), Some(size))
            }
            Cost::Aggregate => (self.aggregate(operands), None),
            Cost::Sets | Cost::SetsEquivalent => {
                let factor = if overload.cost == Cost::Sets { 1.0 } else { 2.0 };
                let product = operands.arg(0).times(operands.arg(1));
                (product.scaled(factor).plus(Range::exactly(1)), None)
            }
            Cost::Slice => {
                let start = int_arg(operands, 0, 0);
                let end = int_arg(operands, 1, operands.target().max);
                new_list(1.0, Range::exactly(end.wrapping_sub(start)))
            }
            Cost::Range => new_list(1.0, Range::exactly(int_arg(operands, 0, u64::MAX))),
            Cost::Reverse => new_list(1.0, operands.target()),
            Cost::Flatten => {
                let depth =
                    if operands.args.is_empty() { 1 } else { int_arg(operands, 0, u64::MAX) };
                new_list(depth as f64, operands.target())
            }
            Cost::Distinct => {
                let size = operands.target();
                new_list(2.0, size.times(size))
            }
            Cost::Sort => sorted(operands.target(), overload.args.first()),
            Cost::SortBy => sorted(operands.arg(0), overload.args.get(1)),
            Cost::Parse => (operands.arg(0).scaled(TRAVERSAL), None),
            Cost::ParseTwice => (operands.arg(0).scaled(2.0 * TRAVERSAL), None),
            Cost::ContainsIp(text) => {
                let mut cost = ADDRESS.plus(ADDRESS).scaled(TRAVERSAL);
                if text {
                    cost = cost.plus(operands.arg(0).scaled(TRAVERSAL));
                }
                (cost, None)
            }
            Cost::ContainsCidr(text) => {
                let mut cost = ADDRESS.plus(ADDRESS).scaled(TRAVERSAL);
                cost = cost.plus(ADDRESS.scaled(TRAVERSAL)).plus(Range::exactly(1));
                if text {
                    cost = cost.plus(operands.arg(0).scaled(TRAVERSAL));
                }
                (cost, None)
            }
            Cost::Validate => {
                let text = operands.arg(0).scaled(TRAVERSAL);
                (text.scaled(FORMAT_PATTERN_MAX * PATTERN), None)
            }
        };
        Estimate { cost: cost.plus(operands.sum()), size }
    }

    fn conditional(&mut self, expr: &'a Expr, operands: &Operands<'a>) -> Estimate {
        let ([_, yes, no], [condition, yes_cost, no_cost]) =
            (operands.args.as_slice(), operands.costs.as_slice())
        else {
            return Estimate { cost: operands.sum(), size: None };
        };
        if let (Some(yes), Some(no)) = (self.entry_sizes(yes.expr), self.entry_sizes(no.expr)) {
            self.entries.insert(expr.id, yes.union(no));
        }
        Estimate {
            cost: condition.plus(yes_cost.union(*no_cost)),
            size: Some(yes.size().union(no.size())),
        }
    }

    fn compare(&self, overload: &Overload, operands: &Operands<'_>) -> Range {
        if let [a, b] = operands.args.as_slice()
            && overload.function == "_==_"
            && a.ty == b.ty
        {
            let one = Range::exactly(1);
            match *a.ty {
                Type::IP | Type::CIDR | Type::QUANTITY | Type::SEMVER => return one,
                Type::FORMAT => return Range { min: 1, max: FORMAT_MAX }.scaled(TRAVERSAL),
                Type::URL => {
                    let max = b.size.map_or(1, |size| size.max);
                    return Range { min: 1, max }.scaled(TRAVERSAL);
                }
                _ => {}
            }
        }
        let max = operands.arg(0).max.min(operands.arg(1).max);
        Range { min: u64::from(max > 0), max }.scaled(TRAVERSAL)
    }

    /// The type and the size of the elements of an operand, if its type has parameters.
    fn element<'o>(&self, operand: &'o Operand<'a>) -> Option<(&'o Type, Range)> {
        let ty = match operand.ty {
            Type::List(inner) | Type::Map(inner, _) | Type::Optional(inner) => inner,
            _ => return None,
        };
        let path = operand.path.as_ref().map(|path| extended(Some(path.clone()), "@items"));
        let declared = path.and_then(|path| self.declared.size(&path));
        Some((ty, declared.unwrap_or(Range::UNKNOWN)))
    }

    fn aggregate(&self, operands: &Operands<'a>) -> Range {
        let Some(target) = &operands.target else { return Range::exactly(1) };
        match self.element(target) {
            Some((ty, size)) => {
                let mut each = Range::exactly(1);
                if matches!(ty, Type::String | Type::Bytes) {
                    each = each.plus(size.scaled(TRAVERSAL));
                }
                target.size().times(each)
            }
            None => target.size().scaled(TRAVERSAL),
        }
    }

    fn joined(&self, operands: &Operands<'a>) -> Range {
        let Some(target) = &operands.target else { return Range::UNKNOWN };
        let list = target.size();
        let mut size = match self.element(target) {
            Some((_, element)) => list.times(element),
            None => Range::exactly(0),
        };
        if let Some(separator) = operands.args.first() {
            let separators =
                Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
            size = size.plus(separator.size().times(separators));
        }
        size
    }
}

/// A call that makes a list of this size.
fn new_list(factor: f64, size: Range) -> (Range, Option<Range>) {
    (size.scaled(factor).plus(Range::exactly(1 + LIST)), Some(size))
}

fn sorted(size: Range, list: Option<&Type>) -> (Range, Option<Range>) {
    let text = matches!(list, Some(Type::List(element)) if matches!(**element, Type::String | Type::Bytes));
    new_list(if text { 2.0 + TRAVERSAL } else { 2.0 }, size.times(size))
}

fn pattern_cost(operands: &Operands<'_>) -> Range {
    // One more character, so that the product is not nothing for an empty text.
    let text = operands.target().plus(Range::exactly(1)).scaled(TRAVERSAL);
    text.times(operands.arg(0).scaled(PATTERN))
}

/// The value of a literal argument that is a number of at least 0.
fn int_arg(operands: &Operands<'_>, index: usize, default: u64) -> u64 {
    match operands.args.get(index).map(|arg| &arg.expr.kind) {
        Some(ExprKind::Literal(Literal::Int(value))) => u64::try_from(*value).unwrap_or(0),
        _ => default,
    }
}

/// The size of a text of this size when texts in it are replaced.
fn replaced(size: Range, from: Range, to: Range) -> Range {
    let divided = |size: u64, by: u64| (size as f64 / by as f64).ceil() as u64;
    let (count_max, kept_max) = if from.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if to.max <= from.min {
        (0, size.max)
    } else {
        (divided(size.max, from.min), 0)
    };
    let (count_min, kept_min) = if from.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if from.max <= to.min {
        (0, size.min)
    } else {
        (divided(size.min, from.max), 0)
    };
    Range { min: count_min, max: count_max }.times(to).plus(Range { min: kept_min, max: kept_max })
}
