//! Running a program.

use indexmap::IndexMap;

use super::overload::no_such_overload;
use super::parts::{find, has_parts, missing, read_bytes};
use super::program::{Attr, Base, Call, Fold, Node, Program, Qualifier, QualifierKind};
use super::{Context, Error, Variables, accepts, compile};
use crate::budget;
use crate::library::json_patch;
use crate::types::Type;
use crate::value::{Key, Map, Str, Value};

/// A local variable.
#[derive(Clone)]
enum Slot<'p, 'v> {
    Ready(Result<Value<'v>, Error>),
    Lazy(&'p Node),
}

struct Run<'p, 'v, 'c, 'i> {
    context: &'c mut Context<'i>,
    variables: &'c dyn Variables<'v>,
    scope: Vec<Slot<'p, 'v>>,
}

impl Program {
    /// Runs the expression.
    ///
    /// # Errors
    ///
    /// The expression's own errors, [`Error::CostLimit`] and [`Error::Interrupted`].
    pub fn evaluate<'v>(
        &self,
        context: &mut Context<'_>,
        variables: &dyn Variables<'v>,
    ) -> Result<Value<'v>, Error> {
        context.constants = self.patterns.clone();
        Run { context, variables, scope: Vec::new() }.eval(&self.root)
    }
}

impl<'p, 'v> Run<'p, 'v, '_, '_> {
    fn eval(&mut self, node: &'p Node) -> Result<Value<'v>, Error> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attr(attr) => {
                let value = self.attr(attr)?;
                // `has` is free, and so is a condition.
                if !attr.test && !matches!(attr.base, Base::Conditional(_)) {
                    self.context.charge(1)?;
                }
                Ok(value)
            }
            Node::And(operands) => self.logical(operands, false),
            Node::Or(operands) => self.logical(operands, true),
            Node::Equals { operands, negated } => {
                let [a, b] = &**operands;
                let operands = [self.eval(a)?, self.eval(b)?];
                let equal = operands[0].equals(&operands[1], &mut self.context.fuel)?;
                self.context.charge(budget::equality(&operands, *negated))?;
                if !*negated && is_incomparable(&operands) {
                    return Err(Error::NoSuchOverload);
                }
                Ok(Value::Bool(equal != *negated))
            }
            Node::NotStrictlyFalse(operand) => {
                let value = match self.eval(operand) {
                    Err(error) if error.is_final() => return Err(error),
                    Ok(Value::Bool(value)) => value,
                    _ => true,
                };
                self.context.charge(1)?;
                Ok(Value::Bool(value))
            }
            Node::InConstants { value, list } => {
                let value = self.eval(value)?;
                Ok(Value::Bool(list.contains(&value, &mut self.context.fuel)?))
            }
            Node::Call(call) => self.call(call),
            Node::OptionalOr { operands, value } => {
                let [a, b] = &**operands;
                match (self.eval(a)?, value) {
                    (Value::Optional(Some(inner)), true) => Ok((*inner).clone()),
                    (found @ Value::Optional(Some(_)), false) => Ok(found),
                    (Value::Optional(None), _) => self.eval(b),
                    // As cel-go: what is no optional value is there.
                    (found, _) => Ok(found),
                }
            }
            Node::List { elements, optional } => {
                let mut items = Vec::with_capacity(elements.len());
                self.elements(elements, optional, &mut items)?;
                self.context.allocate(items.len() * size_of::<Value<'_>>())?;
                self.context.charge(budget::LIST)?;
                Ok(items.into())
            }
            Node::Map(entries) => {
                let mut map = IndexMap::with_capacity(entries.len());
                for entry in entries {
                    let key = self.eval(&entry.key)?;
                    let value = self.eval(&entry.value)?;
                    self.context.store_key(&key)?;
                    let key = Key::of(&key).ok_or_else(|| {
                        Error::message(format!("unsupported key type: {}", key.type_name()))
                    })?;
                    let value = match (entry.optional, value) {
                        (false, value) => value,
                        (true, Value::Optional(Some(value))) => (*value).clone(),
                        (true, Value::Optional(None)) => {
                            map.shift_remove(&key);
                            continue;
                        }
                        (true, value) => return Err(not_optional_entry(&key.value(), &value)),
                    };
                    // As in cel-go, the last of several entries with one key counts.
                    map.insert(key, value);
                }
                self.context.allocate(map.len() * 2 * size_of::<Value<'_>>())?;
                self.context.charge(budget::MAP)?;
                Ok(map.into())
            }
            Node::Struct(struct_name, fields) => {
                let mut map = IndexMap::with_capacity(fields.len());
                for (name, value, optional) in fields {
                    let value = match (optional, self.eval(value)?) {
                        (false, value) => value,
                        (true, Value::Optional(Some(value))) => (*value).clone(),
                        (true, Value::Optional(None)) => continue,
                        (true, value) => {
                            let name = Value::String(Str::Shared(name.clone()));
                            return Err(not_optional_entry(&name, &value));
                        }
                    };
                    if &**struct_name == Type::JSON_PATCH {
                        json_patch::check_field(name, &value)?;
                    }
                    map.insert(Key::String(name.clone()), value);
                }
                self.context.allocate(map.len() * 2 * size_of::<Value<'_>>())?;
                self.context.charge(budget::STRUCT)?;
                Ok(Value::Map(Map::of_struct(struct_name.clone(), map)))
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Append { accumulator, elements, constants } => {
                self.context.charge(1)?;
                let mut items = Vec::with_capacity(elements.len());
                self.elements(elements, &[], &mut items)?;
                self.context.allocate(items.len() * size_of::<Value<'_>>())?;
                self.context.charge(if *constants { 1 } else { budget::LIST + 1 })?;
                match self.take(*accumulator)? {
                    Value::List(mut list) => {
                        for item in items {
                            list.push(item)?;
                        }
                        Ok(Value::List(list))
                    }
                    _ => Err(Error::NoSuchOverload),
                }
            }
            Node::Insert { accumulator, key, value } => {
                self.insert(*accumulator, key.as_deref(), value)
            }
        }
    }

    fn elements(
        &mut self,
        elements: &'p [Node],
        optional: &[bool],
        items: &mut Vec<Value<'v>>,
    ) -> Result<(), Error> {
        for (index, element) in elements.iter().enumerate() {
            let value = self.eval(element)?;
            if !optional.get(index).copied().unwrap_or(false) {
                items.push(value);
                continue;
            }
            match value {
                Value::Optional(Some(value)) => items.push((*value).clone()),
                Value::Optional(None) => {}
                value => {
                    return Err(Error::message(format!(
                        "cannot initialize optional list element from non-optional value {}",
                        crate::library::display(&value),
                    )));
                }
            }
        }
        Ok(())
    }

    /// Adds to the map that a loop makes.
    fn insert(
        &mut self,
        accumulator: usize,
        key: Option<&'p Node>,
        value: &'p Node,
    ) -> Result<Value<'v>, Error> {
        self.context.charge(1)?;
        let mut entries = Vec::new();
        match key {
            Some(key) => {
                let key = self.eval(key)?;
                entries.push((key, self.eval(value)?));
            }
            None => match self.eval(value)? {
                Value::Map(map) => {
                    for key in map.keys() {
                        self.context.fuel.read(map.read_bytes(&key))?;
                        let value = map.get(&key).ok_or(Error::NoSuchOverload)??;
                        entries.push((key, value));
                    }
                }
                _ => return Err(Error::NoSuchOverload),
            },
        }
        self.context.allocate(entries.len() * 2 * size_of::<Value<'_>>())?;
        for (key, _) in &entries {
            self.context.store_key(key)?;
        }
        self.context.charge(1)?;
        let Value::Map(mut map) = self.take(accumulator)? else {
            return Err(Error::NoSuchOverload);
        };
        for (key, value) in entries {
            let inner = Key::of(&key).ok_or(Error::NoSuchOverload)?;
            if !map.insert(inner, value)? {
                let key = crate::library::display(&key);
                return Err(Error::message(format!("insert failed: key {key} already exists")));
            }
        }
        Ok(Value::Map(map))
    }

    /// `&&` and `||`: the value that decides wins over an error of the other side.
    fn logical(&mut self, operands: &'p [Node; 2], decides: bool) -> Result<Value<'v>, Error> {
        let mut failed = None;
        for operand in operands {
            match self.eval(operand) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(Error::NoSuchOverload)),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Value::Bool(!decides)),
        }
    }

    fn call(&mut self, call: &'p Call) -> Result<Value<'v>, Error> {
        let mut args = smallvec::SmallVec::<[Value<'v>; 3]>::new();
        for arg in &call.args {
            args.push(self.eval(arg)?);
        }
        // What it costs may not say how long its operands are. They are also counted afterwards.
        for arg in &args {
            self.context.fuel.read(arg.text_bytes())?;
        }
        let fits = |overload: &&&'static crate::library::Overload| {
            overload.args.len() == args.len()
                && overload.args.iter().zip(&args).all(|(ty, value)| accepts(ty, value))
        };
        let overload = call.overloads.iter().find(fits);
        let found = overload.or_else(|| call.others.iter().find(fits));
        let Some((found, function)) = found.and_then(|o| Some((o, o.call?))) else {
            return Err(no_such_overload(&call.function, &args));
        };
        let value = function(self.context, &args)?;
        // It costs what the checker has chosen.
        let overload = overload.or(call.overloads.first()).unwrap_or(found);
        self.context.charge(budget::call(overload, call.resolved, &args, &value))?;
        Ok(value)
    }

    /// The value of an attribute, without the cost of its root.
    fn attr(&mut self, attr: &'p Attr) -> Result<Value<'v>, Error> {
        let mut qualifiers = &attr.qualifiers[..];
        let value = match &attr.base {
            Base::Global(name) => match self.computed_field(name, attr) {
                // It is there, but its own error counts.
                Some(value) if attr.test && qualifiers.len() == 1 => {
                    value?;
                    self.context.charge(1)?;
                    return Ok(Value::Bool(true));
                }
                Some(value) => {
                    self.context.charge(1)?;
                    let is_optional = qualifiers.first().is_some_and(|first| first.optional);
                    qualifiers = qualifiers.get(1..).unwrap_or_default();
                    if is_optional { Value::some(value?) } else { value? }
                }
                None => self.global(name)?,
            },
            Base::Names(names) => {
                let found = names
                    .iter()
                    .find_map(|(name, used)| self.variables.get(name).map(|value| (value, *used)));
                match found {
                    Some((value, used)) => {
                        qualifiers = qualifiers.get(used..).unwrap_or_default();
                        value?
                    }
                    None => {
                        let ty = names.iter().find_map(|(name, used)| {
                            compile::named_type(name).map(|ty| (ty, *used))
                        });
                        let Some((ty, used)) = ty else {
                            let name = names.last().map(|(name, _)| name.to_string());
                            return Err(Error::NoSuchAttribute(name.unwrap_or_default()));
                        };
                        qualifiers = qualifiers.get(used..).unwrap_or_default();
                        Value::Type(ty)
                    }
                }
            }
            Base::Local(slot) => self.local(*slot)?,
            Base::Value(node) => self.eval(node)?,
            Base::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                let branch = match self.eval(condition)? {
                    Value::Bool(true) => yes,
                    Value::Bool(false) => no,
                    _ => return Err(Error::NoSuchOverload),
                };
                self.unobserved(branch)?
            }
        };
        self.qualify(value, qualifiers, attr.test)
    }

    /// The value of a node whose own root is free: an index, a branch.
    fn unobserved(&mut self, node: &'p Node) -> Result<Value<'v>, Error> {
        match node {
            Node::Attr(attr) => self.attr(attr),
            node => self.eval(node),
        }
    }

    fn qualify(
        &mut self,
        mut value: Value<'v>,
        qualifiers: &'p [Qualifier],
        test: bool,
    ) -> Result<Value<'v>, Error> {
        if qualifiers.is_empty() {
            return Ok(value);
        }
        let mut optional = false;
        if let Value::Optional(inner) = &value {
            match inner {
                None => {
                    return Ok(if test { Value::Bool(false) } else { Value::NONE });
                }
                Some(inner) => {
                    optional = true;
                    value = (**inner).clone();
                }
            }
        }
        for (position, qualifier) in qualifiers.iter().enumerate() {
            optional = optional || qualifier.optional;
            let last = position + 1 == qualifiers.len();
            let index = match &qualifier.kind {
                QualifierKind::Const(index) => index.clone(),
                QualifierKind::Computed(node) => self.unobserved(node)?,
            };
            self.context
                .fuel
                .read(index.text_bytes().saturating_add(read_bytes(&value, &index)))?;
            // Nothing is in a value that has no parts.
            if (optional || test && last) && !has_parts(&value) {
                if test {
                    self.context.charge(1)?;
                }
                return Ok(if test { Value::Bool(false) } else { Value::NONE });
            }
            if test && last {
                let present = find(&value, &index)?.is_some();
                self.context.charge(1)?;
                return Ok(Value::Bool(present));
            }
            match find(&value, &index) {
                Ok(Some(found)) => value = found,
                Ok(None) if optional => {
                    return Ok(if test { Value::Bool(false) } else { Value::NONE });
                }
                Ok(None) => return Err(missing(&value, &index)),
                Err(error) => return Err(error),
            }
            self.context.charge(1)?;
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    /// The value of an attribute's first field, if the variables compute it.
    fn computed_field(&self, name: &str, attr: &Attr) -> Option<Result<Value<'v>, Error>> {
        match &attr.qualifiers.first()?.kind {
            QualifierKind::Const(Value::String(field)) => self.variables.field(name, field),
            _ => None,
        }
    }

    fn global(&self, name: &str) -> Result<Value<'v>, Error> {
        match self.variables.get(name) {
            Some(value) => value,
            None => Err(Error::NoSuchAttribute(name.to_owned())),
        }
    }

    fn local(&mut self, slot: usize) -> Result<Value<'v>, Error> {
        match self.scope.get(slot) {
            Some(Slot::Ready(value)) => value.clone(),
            Some(Slot::Lazy(node)) => {
                let node: &'p Node = node;
                // Its own loops have their variables where those behind it are now.
                let behind = self.scope.split_off(slot + 1);
                self.scope.truncate(slot);
                let value = self.eval(node);
                self.scope.truncate(slot);
                self.scope.push(Slot::Ready(value.clone()));
                self.scope.extend(behind);
                value
            }
            None => Err(Error::NoSuchAttribute(format!("#{slot}"))),
        }
    }

    /// The accumulator, moved out of its place so that it is not shared.
    fn take(&mut self, slot: usize) -> Result<Value<'v>, Error> {
        match self.scope.get_mut(slot) {
            Some(place) => match std::mem::replace(place, Slot::Ready(Ok(Value::Null))) {
                Slot::Ready(value) => value,
                Slot::Lazy(node) => self.eval(node),
            },
            None => Err(Error::NoSuchAttribute(format!("#{slot}"))),
        }
    }

    fn fold(&mut self, fold: &'p Fold) -> Result<Value<'v>, Error> {
        if fold.lazy {
            self.scope.truncate(fold.slot);
            self.scope.push(Slot::Lazy(&fold.init));
            let value = self.eval(&fold.result);
            self.scope.truncate(fold.slot);
            return value;
        }
        let range = self.eval(&fold.range)?;
        let init = self.eval(&fold.init);
        self.scope.truncate(fold.slot);
        self.scope.push(Slot::Ready(init));
        let value = self.rounds(fold, &range).and_then(|()| {
            self.scope.truncate(fold.slot + 1);
            self.eval(&fold.result)
        });
        self.scope.truncate(fold.slot);
        value
    }

    fn rounds(&mut self, fold: &'p Fold, range: &Value<'v>) -> Result<(), Error> {
        match range {
            Value::List(list) => {
                for index in 0..list.len() {
                    let item = list.get_within(index, &mut self.context.fuel);
                    let item = item.ok_or(Error::NoSuchOverload)??;
                    let first = match fold.two {
                        true => Value::Int(i64::try_from(index).unwrap_or(i64::MAX)),
                        false => item.clone(),
                    };
                    if !self.one_round(fold, first, fold.two.then_some(item))? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for key in map.keys() {
                    let value = match fold.two {
                        true => {
                            let bytes = key.text_bytes().saturating_add(map.read_bytes(&key));
                            self.context.fuel.read(bytes)?;
                            Some(map.get(&key).ok_or(Error::NoSuchOverload)??)
                        }
                        false => None,
                    };
                    if !self.one_round(fold, key, value)? {
                        break;
                    }
                }
            }
            Value::Object(object) => {
                self.context.fuel.take(object.n_declared() as u64)?;
                for key in object.keys() {
                    let value = match fold.two {
                        true => {
                            self.context.fuel.read(object.read_bytes(&key))?;
                            Some(object.get(&key).ok_or(Error::NoSuchOverload)??)
                        }
                        false => None,
                    };
                    if !self.one_round(fold, key.into(), value)? {
                        break;
                    }
                }
            }
            _ => {
                return Err(Error::message(format!(
                    "got '{}', expected iterable type",
                    range.type_name()
                )));
            }
        }
        Ok(())
    }

    /// One round of a loop; `false` if it ends.
    fn one_round(
        &mut self,
        fold: &'p Fold,
        first: Value<'v>,
        second: Option<Value<'v>>,
    ) -> Result<bool, Error> {
        self.scope.truncate(fold.slot + 1);
        self.scope.push(Slot::Ready(Ok(first)));
        if let Some(second) = second {
            self.scope.push(Slot::Ready(Ok(second)));
        }
        if let Some(condition) = &fold.condition {
            match self.eval(condition) {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Ok(false),
                Err(error) if error.is_final() => return Err(error),
                _ => {}
            }
        }
        let next = self.eval(&fold.step);
        match &next {
            // Without a condition nothing absorbs it any more.
            Err(error) if error.is_final() || fold.condition.is_none() => {
                return Err(error.clone());
            }
            _ => {}
        }
        if let Some(place) = self.scope.get_mut(fold.slot) {
            *place = Slot::Ready(next);
        }
        self.context.round()?;
        Ok(true)
    }
}

/// Whether the first is of a type of Kubernetes' own, which is compared with none but its own.
fn is_incomparable([first, second]: &[Value<'_>; 2]) -> bool {
    let Value::Opaque(first) = first else { return false };
    match second {
        Value::Null => false,
        Value::Opaque(second) => first.type_of() != second.type_of(),
        _ => true,
    }
}

fn not_optional_entry(key: &Value<'_>, value: &Value<'_>) -> Error {
    Error::message(format!(
        "cannot initialize optional entry '{}' from non-optional value {}",
        crate::library::display(key),
        crate::library::display(value),
    ))
}
