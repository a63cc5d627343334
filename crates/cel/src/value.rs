//! Values of expressions.
//!
//! A [`Value`] is small and cheap to clone. Lists, maps and objects of an API object are views of
//! its JSON tree through a [`DeclType`]: nothing is copied until an expression computes something
//! new.

mod json;
mod list;
mod map;
mod time;

use std::any::Any;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value as Json;

use crate::decl::DeclType;
use crate::eval::Error;
use crate::types::Type;

pub use list::List;
pub use map::{Key, Map, Object};
pub use time::{Civil, Duration, OutOfRange, Timestamp, UnknownZone};

/// A value.
#[derive(Clone, Debug)]
pub enum Value<'v> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// A text.
    String(Str<'v>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A length of time.
    Duration(Duration),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(List<'v>),
    /// A map.
    Map(Map<'v>),
    /// An object with declared fields.
    Object(Object<'v>),
    /// A type.
    Type(Type),
    /// A value that may be absent.
    Optional(Option<Arc<Value<'v>>>),
    /// A value of a library.
    Opaque(Arc<dyn Opaque>),
}

/// Steps that an evaluation may still spend on going through values.
///
/// Costs are Kubernetes': they are counted when a function returns, and many calls cost one however
/// long their operands are. This bounds what happens in fact: comparing lists of lists, looking for
/// each element of a list in another, and every text that is read, hashed or copied.
#[derive(Clone, Debug)]
pub struct Fuel(u64);

/// How many bytes of a text are read in one step.
const BYTES_PER_STEP: usize = 32;

impl Fuel {
    /// So many steps.
    pub fn new(steps: u64) -> Self {
        Self(steps)
    }

    /// Spends steps.
    ///
    /// # Errors
    ///
    /// [`Error::CostLimit`]: there are not so many left.
    pub fn take(&mut self, steps: u64) -> Result<(), Error> {
        self.0 = self.0.checked_sub(steps).ok_or(Error::CostLimit)?;
        Ok(())
    }

    /// Spends the steps for reading so many bytes.
    ///
    /// # Errors
    ///
    /// As [`Fuel::take`].
    pub fn read(&mut self, bytes: usize) -> Result<(), Error> {
        self.take((bytes / BYTES_PER_STEP) as u64)
    }

    /// How many steps are left.
    pub(crate) fn left(&self) -> u64 {
        self.0
    }
}

/// A value whose type is a library's: it is only passed around and compared outside of it.
pub trait Opaque: fmt::Debug + Send + Sync + 'static {
    /// The type, one of the constants of [`Type`] or [`Type::Opaque`].
    fn type_of(&self) -> Type;
    /// Whether both are the same value.
    fn equals(&self, other: &dyn Opaque) -> bool;
    /// The value itself, for the library that made it.
    fn as_any(&self) -> &dyn Any;
    /// The size that costs are counted by; 1 unless the value has a size of its own.
    fn size(&self) -> u64 {
        1
    }
    /// How many bytes of text it has, each of which a function may go through.
    fn text_bytes(&self) -> usize {
        0
    }
    /// Whether it is the type's zero value, which `optional.ofNonZeroValue` leaves out.
    fn is_zero(&self) -> bool {
        false
    }
}

/// A text: borrowed from a tree, or shared.
#[derive(Clone)]
pub enum Str<'v> {
    /// Part of a tree.
    Borrowed(&'v str),
    /// A constant or a result.
    Shared(Arc<str>),
}

impl Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Str::Borrowed(text) => text,
            Str::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<'v> Str<'v> {
    /// The text with a reference count of its own.
    pub fn shared(&self) -> Arc<str> {
        match self {
            Str::Borrowed(text) => Arc::from(*text),
            Str::Shared(text) => text.clone(),
        }
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Value::String(Str::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::String(Str::Shared(text.into()))
    }
}

impl<'v> From<Vec<Value<'v>>> for Value<'v> {
    fn from(items: Vec<Value<'v>>) -> Self {
        Value::List(List::new(items))
    }
}

impl<'v> From<IndexMap<Key, Value<'v>>> for Value<'v> {
    fn from(entries: IndexMap<Key, Value<'v>>) -> Self {
        Value::Map(Map::new(entries))
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl<'v> Value<'v> {
    /// A view of a tree through its declared type.
    ///
    /// # Errors
    ///
    /// A tree that does not have the type: schema validation should have found it before.
    pub fn json(tree: &'v Json, decl: &'v DeclType) -> Result<Value<'v>, Error> {
        json::view(tree, decl)
    }

    /// A view of a tree without a declared type.
    pub fn dynamic(tree: &'v Json) -> Value<'v> {
        json::dynamic(tree)
    }

    /// The value as JSON, if it has such a form. Integers of 64 bits stay numbers. A value that
    /// takes more than 64 MiB has none: values share their parts, and JSON does not.
    pub fn to_json(&self) -> Option<Json> {
        json::to_json(self, &mut json::Room::default())
    }

    /// A value of a library.
    pub fn opaque(value: impl Opaque) -> Value<'v> {
        Value::Opaque(Arc::new(value))
    }

    /// A present optional.
    pub fn some(value: Value<'v>) -> Value<'v> {
        Value::Optional(Some(Arc::new(value)))
    }

    /// An absent optional.
    pub const NONE: Value<'static> = Value::Optional(None);

    /// A library's value, if it is one of type `T`.
    pub fn downcast<T: Opaque>(&self) -> Option<&T> {
        match self {
            Value::Opaque(value) => value.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// The value's type as it runs: elements of lists and maps are dynamic, an object is a map.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) | Value::Object(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Type(_) => Type::Type(None),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Opaque(value) => value.type_of(),
        }
    }

    /// The name `type(x)` shows.
    pub fn type_name(&self) -> Cow<'static, str> {
        self.type_of().name()
    }

    /// The size costs are counted by: characters, bytes, elements, entries; 1 for everything else.
    pub fn size(&self) -> u64 {
        match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            Value::Object(object) => object.len() as u64,
            Value::Optional(Some(value)) => value.size(),
            Value::Opaque(value) => value.size(),
            _ => 1,
        }
    }

    /// How many bytes of text a function may go through, or copy, without looking into parts.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Opaque(value) => value.text_bytes(),
            _ => 0,
        }
    }

    /// The smaller of two sizes. A text that is surely longer than the other one is not counted.
    pub(crate) fn smaller_size(&self, other: &Self) -> u64 {
        /// The most bytes of a character.
        const CHARACTER_BYTES: usize = 4;
        match (self, other) {
            (Value::String(a), Value::String(b)) => {
                let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
                let size = short.chars().count();
                let is_longer = long.len() / CHARACTER_BYTES >= size;
                if is_longer { size as u64 } else { size.min(long.chars().count()) as u64 }
            }
            (Value::String(text), other) | (other, Value::String(text)) => {
                let size = other.size();
                let is_longer = (text.len() / CHARACTER_BYTES) as u64 >= size;
                if is_longer { size } else { size.min(text.chars().count() as u64) }
            }
            _ => self.size().min(other.size()),
        }
    }

    /// Whether it is its type's zero value: `0`, `""`, `[]`, `null`.
    pub fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(value) => *value == 0,
            Value::Uint(value) => *value == 0,
            Value::Double(value) => *value == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Duration(duration) => duration.nanos() == 0,
            Value::Timestamp(time) => *time == Timestamp::ZERO,
            Value::List(list) => list.is_zero(),
            Value::Map(map) => map.is_zero(),
            // cel-go does not ask these, also not absent optional values and empty objects.
            Value::Object(_) | Value::Type(_) | Value::Optional(_) => false,
            Value::Opaque(value) => value.is_zero(),
        }
    }

    /// Whether both are equal: numbers by value across their types, everything else only within
    /// one.
    ///
    /// # Errors
    ///
    /// The fuel is used up: values that are large, or share parts many times over.
    pub fn equals(&self, other: &Value<'v>, fuel: &mut Fuel) -> Result<bool, Error> {
        fuel.take(1)?;
        Ok(match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
            ) => self.compare_numbers(other) == Some(Ordering::Equal),
            (Value::String(a), Value::String(b)) => {
                // Those of another length are not compared.
                fuel.read(if a.len() == b.len() { a.len() } else { 0 })?;
                **a == **b
            }
            (Value::Bytes(a), Value::Bytes(b)) => {
                fuel.read(if a.len() == b.len() { a.len() } else { 0 })?;
                a == b
            }
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::List(a), Value::List(b)) => a.equals(b, fuel)?,
            (Value::Map(a), Value::Map(b)) => a.equals(b, fuel)?,
            (Value::Object(a), Value::Object(b)) => a.equals(b, fuel)?,
            (Value::Object(a), Value::Map(b)) | (Value::Map(b), Value::Object(a)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                fuel.take(a.n_declared() as u64)?;
                for key in a.keys() {
                    if !equal_options(a.get(&key), b.get_str(&key), fuel)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Type(a), Value::Type(b)) => a.name() == b.name(),
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b, fuel)?,
                _ => false,
            },
            (Value::Opaque(a), Value::Opaque(b)) => {
                fuel.read(a.text_bytes().min(b.text_bytes()))?;
                a.equals(&**b)
            }
            _ => false,
        })
    }

    /// The order of two values, if they have one: numbers across their types, texts, bytes,
    /// booleans, times.
    ///
    /// # Errors
    ///
    /// NaN, and values without an order.
    pub fn compare(&self, other: &Value<'_>) -> Result<Ordering, Error> {
        Ok(match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
            ) => self
                .compare_numbers(other)
                .ok_or(Error::Message("NaN values cannot be ordered".into()))?,
            (Value::String(a), Value::String(b)) => (**a).cmp(&**b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
            (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
            _ => return Err(Error::NoSuchOverload),
        })
    }

    /// The order of two numbers; `None` if one is NaN or no number.
    fn compare_numbers(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
            (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Value::Double(a), Value::Int(b)) => {
                compare_double(*a, (*b).into(), -(2f64.powi(63)), 2f64.powi(63))
            }
            (Value::Double(a), Value::Uint(b)) => {
                compare_double(*a, (*b).into(), 0.0, 2f64.powi(64))
            }
            (Value::Int(_) | Value::Uint(_), Value::Double(_)) => {
                other.compare_numbers(self).map(Ordering::reverse)
            }
            _ => None,
        }
    }
}

/// Whether two parts are equal, or both absent.
fn equal_options<'v>(
    a: Option<Result<Value<'v>, Error>>,
    b: Option<Result<Value<'v>, Error>>,
    fuel: &mut Fuel,
) -> Result<bool, Error> {
    match (a, b) {
        (None, None) => Ok(true),
        (Some(a), Some(b)) => a?.equals(&b?, fuel),
        _ => Ok(false),
    }
}

/// Compares a double with an integer as cel-go does: within the integer's range as doubles.
fn compare_double(a: f64, b: i128, least: f64, largest: f64) -> Option<Ordering> {
    if a < least {
        return Some(Ordering::Less);
    }
    if a > largest {
        return Some(Ordering::Greater);
    }
    a.partial_cmp(&(b as f64))
}
