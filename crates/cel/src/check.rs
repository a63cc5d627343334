//! The type check of an expression.
//!
//! Every node gets a type, every name and call what it refers to. Types are cel-go's: parameters of
//! overloads are unified, `dyn` fits everywhere, literals of lists and maps have one type of
//! element. Faults are collected, and checking goes on behind them.

use std::collections::{BTreeMap, HashMap};

use crate::ast::{
    Ast, Comprehension, Expr, ExprId, ExprKind, FieldInit, Literal, MapEntry, operators,
};
use crate::issue::{Issue, Issues};
use crate::library::{Library, Overload};
use crate::types::{Param, Type};

mod constant;
mod unify;

use unify::{Substitutions, at_least_as_general};

/// The variables and functions that an expression may use.
#[derive(Clone, Debug)]
pub struct Env {
    variables: BTreeMap<String, Type>,
    library: &'static Library,
    /// `Object{…}` and `JSONPatch{…}` are known.
    patches: bool,
}

impl Env {
    /// Rules of Kubernetes, without variables.
    pub fn kubernetes() -> Env {
        Env { variables: BTreeMap::new(), library: Library::kubernetes(), patches: false }
    }

    /// Expressions of mutating admission policies: with the structs `Object{…}` and `JSONPatch{…}`,
    /// and `jsonpatch.escapeKey`.
    pub fn patches() -> Env {
        Env { library: Library::patches(), patches: true, ..Env::kubernetes() }
    }

    /// Expressions that select devices whose attributes may be lists: with `includes`.
    pub fn devices() -> Env {
        Env { library: Library::devices(), ..Env::kubernetes() }
    }

    /// Declares a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Env {
        self.variables.insert(name.to_owned(), ty);
        self
    }

    /// The type of a struct literal with this name.
    fn struct_type(&self, name: &str) -> Option<Type> {
        let is_object = |rest: &str| rest.is_empty() || rest.len() > 1 && rest.starts_with('.');
        match name.strip_prefix('.').unwrap_or(name) {
            _ if !self.patches => None,
            Type::JSON_PATCH => Some(Type::json_patch()),
            name if name.strip_prefix("Object").is_some_and(is_object) => {
                Some(Type::apply_configuration(name))
            }
            _ => None,
        }
    }

    /// The functions.
    pub fn library(&self) -> &'static Library {
        self.library
    }
}

/// A checked expression.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The expression, as it was parsed.
    pub ast: Ast,
    /// The types of all nodes, by id. Entries of maps have none and are `dyn` here.
    pub types: Vec<Type>,
    /// The references of names and calls.
    pub references: HashMap<ExprId, Reference>,
}

/// The reference of a name or a call.
#[derive(Clone, Debug)]
pub enum Reference {
    /// A variable or a type, by its full name. Stands also at a selection that is one name:
    /// `google.protobuf.Timestamp`.
    Ident(String),
    /// The overloads that fit; the types of the operands when it runs say which one it is. Rows
    /// that are not of members stand at a call with a target if target and function are one name:
    /// `sets.contains(a, b)`. Empty for `a.?b`.
    Overloads(Vec<&'static Overload>),
}

impl Checked {
    /// The type of a node.
    pub fn type_of(&self, id: ExprId) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }

    /// The type of the result.
    pub fn result_type(&self) -> &Type {
        self.type_of(self.ast.root.id)
    }

    /// The overloads that fit a call.
    pub fn overloads(&self, id: ExprId) -> &[&'static Overload] {
        match self.references.get(&id) {
            Some(Reference::Overloads(overloads)) => overloads,
            _ => &[],
        }
    }

    /// Whether the expression refers to this variable.
    pub fn mentions(&self, variable: &str) -> bool {
        self.references
            .values()
            .any(|reference| matches!(reference, Reference::Ident(name) if name == variable))
    }
}

/// Checks an expression.
///
/// # Errors
///
/// All faults that were found, in the order of the source.
pub fn check(ast: Ast, env: &Env) -> Result<Checked, Issues> {
    let mut checker = Checker {
        env,
        ast: &ast,
        types: vec![None; ast.source.ids() + 1],
        references: HashMap::new(),
        issues: Vec::new(),
        substitutions: Substitutions::default(),
        scopes: Vec::new(),
    };
    checker.expr(&ast.root);
    let Checker { types, references, issues, substitutions, .. } = checker;
    if !issues.is_empty() {
        return Err(Issues::new(&ast.source, issues));
    }
    let types =
        types.into_iter().map(|ty| ty.map_or(Type::Dyn, |ty| substitutions.finish(&ty))).collect();
    let checked = Checked { ast, types, references };
    let issues = constant::faults(&checked);
    if !issues.is_empty() {
        return Err(Issues::new(&checked.ast.source, issues));
    }
    Ok(checked)
}

/// Types that expressions can name, with what they name.
fn type_name(name: &str) -> Option<Type> {
    let named = match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "google.protobuf.Duration" => Type::Duration,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "optional_type" => Type::optional(Type::Dyn),
        "string" => Type::String,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        _ => [Type::IP, Type::CIDR, Type::QUANTITY, Type::SEMVER, Type::URL, Type::FORMAT]
            .into_iter()
            .find(|ty| matches!(ty, Type::Opaque(known) if *known == name))?,
    };
    Some(Type::type_of(named))
}

struct Checker<'a> {
    env: &'a Env,
    ast: &'a Ast,
    types: Vec<Option<Type>>,
    references: HashMap<ExprId, Reference>,
    issues: Vec<Issue>,
    substitutions: Substitutions,
    /// Variables of the loops around, innermost last.
    scopes: Vec<(&'a str, Type)>,
}

impl<'a> Checker<'a> {
    fn fault(&mut self, id: ExprId, message: String) {
        self.issues.push(Issue { position: self.ast.source.position(id), message });
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        self.fault(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn undeclared(&mut self, id: ExprId, name: &str) {
        self.fault(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn set(&mut self, id: ExprId, ty: Type) -> Type {
        if let Some(slot) = self.types.get_mut(id as usize) {
            *slot = Some(ty.clone());
        }
        ty
    }

    /// Checks a node and what is below it; gives its type.
    fn expr(&mut self, expr: &'a Expr) -> Type {
        let ty = match &expr.kind {
            ExprKind::Literal(literal) => match literal {
                Literal::Null => Type::Null,
                Literal::Bool(_) => Type::Bool,
                Literal::Int(_) => Type::Int,
                Literal::Uint(_) => Type::Uint,
                Literal::Double(_) => Type::Double,
                Literal::String(_) => Type::String,
                Literal::Bytes(_) => Type::Bytes,
            },
            ExprKind::Ident(name) => match self.ident(expr.id, name) {
                Some(ty) => ty,
                None => {
                    self.undeclared(expr.id, name);
                    Type::Error
                }
            },
            ExprKind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            ExprKind::Call { function, target, args } => {
                self.call(expr.id, function, target.as_deref(), args)
            }
            ExprKind::List { elements, optional } => self.list(elements, optional),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => self.structure(expr.id, name, fields),
            ExprKind::Comprehension(comprehension) => self.comprehension(comprehension),
        };
        self.set(expr.id, ty)
    }

    /// The type of a name, if there is such a variable or type.
    fn ident(&mut self, id: ExprId, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let local = self.scopes.iter().rev().find(|(local, _)| *local == name);
        let ty = match local {
            Some((_, ty)) => ty.clone(),
            None => match self.env.variables.get(name) {
                Some(ty) => ty.clone(),
                None => type_name(name)?,
            },
        };
        self.references.insert(id, Reference::Ident(name.to_owned()));
        Some(ty)
    }

    fn select(&mut self, expr: &'a Expr, operand: &'a Expr, field: &str, test: bool) -> Type {
        if !test
            && let Some(name) = expr.qualified_name()
            && let Some(ty) = self.ident(expr.id, &name)
        {
            return ty;
        }
        let ty = self.field(expr.id, operand, field, false);
        if test { Type::Bool } else { self.substitutions.substitute(&ty) }
    }

    /// The type of a field of an operand.
    fn field(&mut self, id: ExprId, operand: &'a Expr, field: &str, optional: bool) -> Type {
        let operand = self.expr(operand);
        let operand = self.substitutions.substitute(&operand);
        let (operand, optional) = match &operand {
            Type::Optional(inner) => (inner.as_ref().clone(), true),
            _ => (operand, optional),
        };
        let ty = match &operand {
            Type::Map(_, value) => value.as_ref().clone(),
            Type::Object(object) => match object.field(field) {
                Some(ty) => ty,
                None => {
                    self.fault(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Opaque(_) => {
                self.fault(id, format!("undefined field '{field}'"));
                Type::Error
            }
            Type::Param(_) => {
                self.substitutions.assignable(&Type::Dyn, &operand);
                Type::Dyn
            }
            _ => {
                if !operand.is_dyn_or_error() {
                    self.fault(id, format!("type '{operand}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if optional { Type::optional(ty) } else { ty }
    }

    fn call(
        &mut self,
        id: ExprId,
        function: &str,
        target: Option<&'a Expr>,
        args: &'a [Expr],
    ) -> Type {
        if function == operators::OPT_SELECT
            && let [operand, Expr { id: field_id, kind: ExprKind::Literal(Literal::String(field)) }] =
                args
        {
            let ty = self.field(id, operand, field, true);
            self.set(*field_id, Type::String);
            self.references.insert(id, Reference::Overloads(Vec::new()));
            return self.substitutions.substitute(&ty);
        }
        let mut types: Vec<Type> = args.iter().map(|arg| self.expr(arg)).collect();
        let Some(target) = target else {
            let name = function.strip_prefix('.').unwrap_or(function);
            return match self.env.library.function(name) {
                Some(overloads) => self.resolve(id, name, overloads, false, types, args),
                None => {
                    self.undeclared(id, function);
                    Type::Error
                }
            };
        };
        if let Some(prefix) = target.qualified_name() {
            let name = format!("{}.{function}", prefix.strip_prefix('.').unwrap_or(&prefix));
            if let Some(overloads) = self.env.library.function(&name) {
                return self.resolve(id, &name, overloads, false, types, args);
            }
        }
        types.insert(0, self.expr(target));
        match self.env.library.function(function) {
            Some(overloads) => self.resolve(id, function, overloads, true, types, args),
            None => {
                self.undeclared(id, function);
                Type::Error
            }
        }
    }

    /// Finds the overloads that fit the operands; gives the type of the result.
    fn resolve(
        &mut self,
        id: ExprId,
        function: &str,
        overloads: &'static [Overload],
        member: bool,
        operands: Vec<Type>,
        args: &'a [Expr],
    ) -> Type {
        if function == operators::AND || function == operators::OR {
            return self.logical(id, overloads, &operands, args);
        }
        let mut fitting: Vec<&'static Overload> = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|overload| overload.member == member) {
            let (wanted, overload_result) = self.instantiate(overload);
            if !self.substitutions.all_assignable(&operands, &wanted) {
                continue;
            }
            fitting.push(overload);
            let ty = self.substitutions.substitute(&overload_result);
            result = Some(match result {
                None => ty,
                Some(before) if before.is_dyn() || before == ty => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let operands: Vec<String> =
                operands.iter().map(|ty| self.substitutions.finish(ty).to_string()).collect();
            let (receiver, rest) = match operands.split_first() {
                Some((receiver, rest)) if member => (format!("{receiver}."), rest),
                _ => (String::new(), operands.as_slice()),
            };
            self.fault(
                id,
                format!(
                    "found no matching overload for '{function}' applied to '{receiver}({})'",
                    rest.join(", ")
                ),
            );
            return Type::Error;
        };
        self.references.insert(id, Reference::Overloads(fitting));
        result
    }

    /// `&&` and `||`: each operand is a bool.
    fn logical(
        &mut self,
        id: ExprId,
        overloads: &'static [Overload],
        operands: &[Type],
        args: &'a [Expr],
    ) -> Type {
        let mut fit = true;
        for (arg, ty) in args.iter().zip(operands) {
            if !self.substitutions.assignable(ty, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, ty);
                fit = false;
            }
        }
        if !fit {
            return Type::Error;
        }
        self.references.insert(id, Reference::Overloads(overloads.iter().collect()));
        Type::Bool
    }

    /// The operands and the result of an overload, with new parameters.
    fn instantiate(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let mut named: Vec<(&'static str, Type)> = Vec::new();
        let wanted = overload.args.iter().map(|ty| self.instantiated(ty, &mut named)).collect();
        let result = self.instantiated(&overload.result, &mut named);
        (wanted, result)
    }

    fn instantiated(&mut self, ty: &Type, named: &mut Vec<(&'static str, Type)>) -> Type {
        match ty {
            Type::Param(Param::Named(name)) => {
                match named.iter().find(|(known, _)| known == name) {
                    Some((_, fresh)) => fresh.clone(),
                    None => {
                        let fresh = self.substitutions.fresh();
                        named.push((name, fresh.clone()));
                        fresh
                    }
                }
            }
            Type::List(element) => Type::list(self.instantiated(element, named)),
            Type::Map(key, value) => {
                let key = self.instantiated(key, named);
                Type::map(key, self.instantiated(value, named))
            }
            Type::Optional(inner) => Type::optional(self.instantiated(inner, named)),
            Type::Type(Some(inner)) => Type::type_of(self.instantiated(inner, named)),
            _ => ty.clone(),
        }
    }

    /// The inner type of an optional element or value.
    fn unwrapped(&mut self, id: ExprId, ty: Type) -> Type {
        match ty {
            Type::Optional(inner) => inner.as_ref().clone(),
            ty => {
                if !ty.is_dyn() {
                    self.mismatch(id, &Type::optional(ty.clone()), &ty);
                }
                ty
            }
        }
    }

    fn list(&mut self, elements: &'a [Expr], optional: &[usize]) -> Type {
        let mut joined = None;
        for (index, element) in elements.iter().enumerate() {
            let mut ty = self.expr(element);
            if optional.contains(&index) {
                ty = self.unwrapped(element.id, ty);
            }
            joined = Some(self.join(joined, ty));
        }
        Type::list(joined.unwrap_or_else(|| self.substitutions.fresh()))
    }

    fn map(&mut self, entries: &'a [MapEntry]) -> Type {
        let mut joined = None;
        for entry in entries {
            let key = self.expr(&entry.key);
            let (keys, values) = joined.map_or((None, None), |(k, v)| (Some(k), Some(v)));
            let key = self.join(keys, key);
            let mut value = self.expr(&entry.value);
            if entry.optional {
                value = self.unwrapped(entry.value.id, value);
            }
            let value = self.join(values, value);
            joined = Some((key, value));
        }
        match joined {
            Some((key, value)) => Type::map(key, value),
            None => {
                let key = self.substitutions.fresh();
                Type::map(key, self.substitutions.fresh())
            }
        }
    }

    /// `Name{field: value}`.
    fn structure(&mut self, id: ExprId, name: &str, fields: &'a [FieldInit]) -> Type {
        let ty = self.env.struct_type(name);
        if ty.is_none() {
            match type_name(name) {
                Some(Type::Type(Some(named))) => {
                    self.fault(id, format!("'{named}' is not a message type"));
                }
                Some(_) => {}
                None => self.undeclared(id, name),
            }
        }
        for field in fields {
            let mut found = self.expr(&field.value);
            if field.optional {
                found = self.unwrapped(field.value.id, found);
            }
            let Some(Type::Object(object)) = &ty else { continue };
            match object.field(&field.name) {
                // As in Kubernetes, this type has all fields, but not of any type.
                None if object.name == Type::JSON_PATCH => {
                    let found = self.substitutions.finish(&found);
                    if !matches!(found, Type::Dyn | Type::Error) {
                        let text = format!(
                            "expected type of field '{}' is '' but provided type is '{found}'",
                            field.name
                        );
                        self.fault(field.id, text);
                    }
                }
                None => self.fault(field.id, format!("undefined field '{}'", field.name)),
                Some(wanted) if !self.substitutions.assignable(&wanted, &found) => {
                    let found = self.substitutions.finish(&found);
                    let text = format!(
                        "expected type of field '{}' is '{wanted}' but provided type is '{found}'",
                        field.name
                    );
                    self.fault(field.id, text);
                }
                Some(_) => {}
            }
        }
        ty.unwrap_or(Type::Error)
    }

    /// The common type of a literal's elements so far and its next one.
    fn join(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if self.substitutions.assignable(&before, &ty) {
            return if at_least_as_general(&before, &ty) { before } else { ty };
        }
        // Literals of one type only are checked once all types are known: see `constant`.
        Type::Dyn
    }

    fn comprehension(&mut self, comprehension: &'a Comprehension) -> Type {
        let range = self.expr(&comprehension.range);
        let init = self.expr(&comprehension.init);
        let range = self.substitutions.substitute(&range);
        let depth = self.scopes.len();
        self.scopes.push((&comprehension.accumulator, init.clone()));
        let two = comprehension.variable2.is_some();
        let (first, second) = match &range {
            Type::List(element) if two => (Type::Int, element.as_ref().clone()),
            Type::List(element) => (element.as_ref().clone(), Type::Dyn),
            Type::Map(key, value) => (key.as_ref().clone(), value.as_ref().clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.substitutions.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                self.fault(
                    comprehension.range.id,
                    format!(
                        "expression of type '{range}' cannot be range of a comprehension (must be \
                         list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((&comprehension.variable, first));
        if let Some(variable) = &comprehension.variable2 {
            self.scopes.push((variable, second));
        }
        self.assert(&comprehension.condition, &Type::Bool);
        self.assert(&comprehension.step, &init);
        self.scopes.truncate(depth + 1);
        let result = self.expr(&comprehension.result);
        self.scopes.truncate(depth);
        self.substitutions.substitute(&result)
    }

    /// Checks a node, which must have this type.
    fn assert(&mut self, expr: &'a Expr, wanted: &Type) {
        let ty = self.expr(expr);
        if !self.substitutions.assignable(wanted, &ty) {
            self.mismatch(expr.id, wanted, &ty);
        }
    }
}

#[cfg(test)]
mod tests;
