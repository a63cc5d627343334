//! Macros: calls that the parser replaces by loops and tests.

use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprId, ExprKind, Literal, Source, operators};
use crate::issue::Issue;

/// The function that adds an entry to the map a loop makes; its name cannot be written.
pub const MAP_INSERT: &str = "cel.@mapInsert";

/// The function that `sortBy` becomes; its name cannot be written.
pub const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";

/// Which macros there are, beyond `has`, `all`, `exists`, `exists_one`, `map` and `filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macros {
    /// `optMap`, `optFlatMap`.
    pub optionals: bool,
    /// `all(i, v, …)` and its like, `transformList`, `transformMap`, `transformMapEntry`.
    pub two_variables: bool,
    /// `sortBy`.
    pub sort_by: bool,
    /// `existsOne` with one variable. Kubernetes does not have it.
    pub exists_one: bool,
    /// `cel.bind`. Kubernetes does not have it.
    pub bind: bool,
}

impl Macros {
    /// Those of Kubernetes 1.36.
    pub const KUBERNETES: Macros = Macros {
        optionals: true,
        two_variables: true,
        sort_by: true,
        exists_one: false,
        bind: false,
    };
    /// All there are.
    pub const ALL: Macros = Macros { exists_one: true, bind: true, ..Macros::KUBERNETES };
}

/// The result of expanding a call.
pub(crate) enum Expanded {
    /// Its replacement.
    Expr(Expr),
    /// It is no macro: receiver and arguments as they were.
    Not(Option<Expr>, Vec<Expr>),
}

/// Makes nodes at the place of the call.
struct Maker<'a> {
    source: &'a mut Source,
    at: u32,
}

impl Maker<'_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        Expr { id: self.source.next_id(self.at), kind }
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    fn bool(&mut self, value: bool) -> Expr {
        self.literal(Literal::Bool(value))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.node(ExprKind::List { elements, optional: Vec::new() })
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call { function: function.to_owned(), target: None, args })
    }

    fn method(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        let target = Some(Box::new(target));
        self.node(ExprKind::Call { function: function.to_owned(), target, args })
    }

    /// `if condition { step } else { the accumulator as it is }`.
    fn only_if(&mut self, condition: Option<Expr>, step: Expr) -> Expr {
        match condition {
            Some(condition) => {
                let same = self.accumulator();
                self.call(operators::CONDITIONAL, vec![condition, step, same])
            }
            None => step,
        }
    }

    /// A loop whose value is its accumulator.
    fn fold(&mut self, range: Expr, names: Names, init: Expr, condition: Expr, step: Expr) -> Expr {
        let result = self.accumulator();
        self.fold_to(range, names, init, condition, step, result)
    }

    fn fold_to(
        &mut self,
        range: Expr,
        names: Names,
        init: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
    ) -> Expr {
        self.node(ExprKind::Comprehension(Box::new(Comprehension {
            range,
            variable: names.0,
            variable2: names.1,
            accumulator: ACCUMULATOR.to_owned(),
            init,
            condition,
            step,
            result,
        })))
    }
}

/// The variables of a loop.
type Names = (String, Option<String>);

/// Expands the call if it is a macro.
pub(crate) fn expand(
    source: &mut Source,
    macros: &Macros,
    id: ExprId,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expanded, Issue> {
    let at = source.offset(id);
    let Some(target) = target else {
        if function == "has" && args.len() == 1 {
            return has(source, id, args);
        }
        return Ok(Expanded::Not(None, args));
    };
    let bind = macros.bind
        && function == "bind"
        && args.len() == 3
        && matches!(&target.kind, ExprKind::Ident(name) if name == "cel");
    if bind {
        return self::bind(source, at, target, args);
    }
    let two = macros.two_variables;
    let (variables, kind) = match (function, args.len()) {
        ("all", 2) => (1, Kind::All),
        ("exists", 2) => (1, Kind::Exists),
        ("exists_one", 2) => (1, Kind::ExistsOne),
        ("existsOne", 2) if macros.exists_one => (1, Kind::ExistsOne),
        ("map", 2 | 3) => (1, Kind::List),
        ("filter", 2) => (1, Kind::Filter),
        ("all", 3) if two => (2, Kind::All),
        ("exists", 3) if two => (2, Kind::Exists),
        ("exists_one" | "existsOne", 3) if two => (2, Kind::ExistsOne),
        ("transformList", 3 | 4) if two => (2, Kind::List),
        ("transformMap", 3 | 4) if two => (2, Kind::Map),
        ("transformMapEntry", 3 | 4) if two => (2, Kind::Entries),
        ("optMap" | "optFlatMap", 2) if macros.optionals => {
            return optional(source, at, function, target, args);
        }
        ("sortBy", 2) if macros.sort_by => return sort_by(source, at, target, args),
        _ => return Ok(Expanded::Not(Some(target), args)),
    };
    let names = names(source, &args, variables)?;
    let mut args = args.into_iter().skip(variables);
    let (Some(first), second) = (args.next(), args.next()) else {
        return Ok(Expanded::Not(Some(target), Vec::new()));
    };
    let (filter, body) = match second {
        Some(second) => (Some(first), second),
        None => (None, first),
    };
    let make = &mut Maker { source, at };
    Ok(Expanded::Expr(match kind {
        Kind::All => {
            let init = make.bool(true);
            let accumulator = make.accumulator();
            let condition = make.call(operators::NOT_STRICTLY_FALSE, vec![accumulator]);
            let accumulator = make.accumulator();
            let step = make.call(operators::AND, vec![accumulator, body]);
            make.fold(target, names, init, condition, step)
        }
        Kind::Exists => {
            let init = make.bool(false);
            let accumulator = make.accumulator();
            let not = make.call(operators::NOT, vec![accumulator]);
            let condition = make.call(operators::NOT_STRICTLY_FALSE, vec![not]);
            let accumulator = make.accumulator();
            let step = make.call(operators::OR, vec![accumulator, body]);
            make.fold(target, names, init, condition, step)
        }
        Kind::ExistsOne => {
            let init = make.literal(Literal::Int(0));
            let condition = make.bool(true);
            let accumulator = make.accumulator();
            let one = make.literal(Literal::Int(1));
            let next = make.call(operators::ADD, vec![accumulator, one]);
            let step = make.only_if(Some(body), next);
            let accumulator = make.accumulator();
            let one = make.literal(Literal::Int(1));
            let result = make.call(operators::EQUALS, vec![accumulator, one]);
            make.fold_to(target, names, init, condition, step, result)
        }
        Kind::List => {
            let init = make.list(Vec::new());
            let condition = make.bool(true);
            let accumulator = make.accumulator();
            let element = make.list(vec![body]);
            let step = make.call(operators::ADD, vec![accumulator, element]);
            let step = make.only_if(filter, step);
            make.fold(target, names, init, condition, step)
        }
        Kind::Filter => {
            let init = make.list(Vec::new());
            let condition = make.bool(true);
            let accumulator = make.accumulator();
            let element = make.ident(&names.0);
            let element = make.list(vec![element]);
            let step = make.call(operators::ADD, vec![accumulator, element]);
            let step = make.only_if(Some(body), step);
            make.fold(target, names, init, condition, step)
        }
        Kind::Map | Kind::Entries => {
            let init = make.node(ExprKind::Map(Vec::new()));
            let condition = make.bool(true);
            let mut operands = vec![make.accumulator()];
            if kind == Kind::Map {
                operands.push(make.ident(&names.0));
            }
            operands.push(body);
            let step = make.call(MAP_INSERT, operands);
            let step = make.only_if(filter, step);
            make.fold(target, names, init, condition, step)
        }
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    Exists,
    ExistsOne,
    List,
    Filter,
    Map,
    Entries,
}

fn has(source: &mut Source, id: ExprId, mut args: Vec<Expr>) -> Result<Expanded, Issue> {
    let at = source.offset(id);
    match args.pop().map(|arg| (arg.id, arg.kind)) {
        Some((_, ExprKind::Select { operand, field, test: false })) => {
            let kind = ExprKind::Select { operand, field, test: true };
            Ok(Expanded::Expr(Maker { source, at }.node(kind)))
        }
        argument => {
            let id = argument.map_or(id, |(id, _)| id);
            Err(fault(source, id, "invalid argument to has() macro"))
        }
    }
}

/// `target.optMap(x, f)`: `target.hasValue() ? optional.of(let x = target.value() in f) :
/// optional.none()`.
fn optional(
    source: &mut Source,
    at: u32,
    function: &str,
    target: Expr,
    args: Vec<Expr>,
) -> Result<Expanded, Issue> {
    let mut args = args.into_iter();
    let (Some(variable), Some(body)) = (args.next(), args.next()) else {
        return Ok(Expanded::Not(Some(target), Vec::new()));
    };
    let ExprKind::Ident(name) = variable.kind else {
        let message = format!("{function}() variable name must be a simple identifier");
        return Err(fault(source, variable.id, &message));
    };
    let make = &mut Maker { source, at };
    let again = make_copy(make, &target);
    let value = make.method("value", target, Vec::new());
    let result = let_in(make, &name, value, body);
    let result = match function {
        "optMap" => make.call("optional.of", vec![result]),
        _ => result,
    };
    let has_value = make.method("hasValue", again, Vec::new());
    let none = make.call("optional.none", Vec::new());
    Ok(Expanded::Expr(make.call(operators::CONDITIONAL, vec![has_value, result, none])))
}

/// The same expression once more, with ids of its own.
fn make_copy(make: &mut Maker<'_>, expr: &Expr) -> Expr {
    fn renumber(make: &mut Maker<'_>, expr: &mut Expr) {
        let at = make.source.offset(expr.id);
        expr.id = make.source.next_id(at);
        match &mut expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => renumber(make, operand),
            ExprKind::Call { target, args, .. } => {
                target.iter_mut().for_each(|target| renumber(make, target));
                args.iter_mut().for_each(|arg| renumber(make, arg));
            }
            ExprKind::List { elements, .. } => {
                elements.iter_mut().for_each(|element| renumber(make, element));
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    let at = make.source.offset(entry.id);
                    entry.id = make.source.next_id(at);
                    renumber(make, &mut entry.key);
                    renumber(make, &mut entry.value);
                }
            }
            ExprKind::Struct { fields, .. } => {
                for field in fields {
                    let at = make.source.offset(field.id);
                    field.id = make.source.next_id(at);
                    renumber(make, &mut field.value);
                }
            }
            ExprKind::Comprehension(fold) => {
                let Comprehension { range, init, condition, step, result, .. } = &mut **fold;
                for part in [range, init, condition, step, result] {
                    renumber(make, part);
                }
            }
        }
    }
    let mut copy = expr.clone();
    renumber(make, &mut copy);
    copy
}

/// A value with a name: a loop over nothing whose accumulator it is.
fn let_in(make: &mut Maker<'_>, name: &str, value: Expr, body: Expr) -> Expr {
    let range = make.list(Vec::new());
    let condition = make.bool(false);
    let step = make.ident(name);
    make.node(ExprKind::Comprehension(Box::new(Comprehension {
        range,
        variable: "#unused".to_owned(),
        variable2: None,
        accumulator: name.to_owned(),
        init: value,
        condition,
        step,
        result: body,
    })))
}

/// `cel.bind(x, value, body)`.
fn bind(source: &mut Source, at: u32, target: Expr, args: Vec<Expr>) -> Result<Expanded, Issue> {
    let mut args = args.into_iter();
    let (Some(variable), Some(value), Some(body)) = (args.next(), args.next(), args.next()) else {
        return Ok(Expanded::Not(Some(target), Vec::new()));
    };
    let ExprKind::Ident(name) = variable.kind else {
        let message = "cel.bind() variable names must be simple identifiers";
        return Err(fault(source, variable.id, message));
    };
    Ok(Expanded::Expr(let_in(&mut Maker { source, at }, &name, value, body)))
}

/// `target.sortBy(x, key)`: the list, sorted as the list of its keys is.
fn sort_by(source: &mut Source, at: u32, target: Expr, args: Vec<Expr>) -> Result<Expanded, Issue> {
    let sortable = matches!(
        target.kind,
        ExprKind::Select { .. }
            | ExprKind::List { .. }
            | ExprKind::Comprehension(_)
            | ExprKind::Call { .. }
            | ExprKind::Ident(_)
    );
    if !sortable {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(fault(source, target.id, message));
    }
    let names = names(source, &args, 1)?;
    let Some(key) = args.into_iter().nth(1) else {
        return Ok(Expanded::Not(Some(target), Vec::new()));
    };
    let make = &mut Maker { source, at };
    // The list is evaluated once and has a name.
    let list = "@__sortBy_input__";
    let init = make.list(Vec::new());
    let condition = make.bool(true);
    let accumulator = make.accumulator();
    let element = make.list(vec![key]);
    let step = make.call(operators::ADD, vec![accumulator, element]);
    let range = make.ident(list);
    let keys = make.fold(range, names, init, condition, step);
    let named = make.ident(list);
    let sorted = make.method(SORT_BY_KEYS, named, vec![keys]);
    Ok(Expanded::Expr(let_in(make, list, target, sorted)))
}

/// The names of a loop's variables: the first arguments.
fn names(source: &Source, args: &[Expr], count: usize) -> Result<Names, Issue> {
    let mut names = Vec::new();
    for arg in args.iter().take(count) {
        match &arg.kind {
            ExprKind::Ident(name) if name == ACCUMULATOR || name == "__result__" => {
                let message = "iteration variable overwrites accumulator variable";
                return Err(fault(source, arg.id, message));
            }
            ExprKind::Ident(name) if !name.contains('.') => {
                if names.contains(name) {
                    let message = format!("duplicate variable name: {name}");
                    return Err(fault(source, arg.id, &message));
                }
                names.push(name.clone());
            }
            _ => return Err(fault(source, arg.id, "argument must be a simple name")),
        }
    }
    let mut names = names.into_iter();
    Ok((names.next().unwrap_or_default(), names.next()))
}

fn fault(source: &Source, id: ExprId, message: &str) -> Issue {
    Issue { position: source.position(id), message: message.to_owned() }
}
