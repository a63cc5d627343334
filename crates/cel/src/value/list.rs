//! Lists.

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Fuel, Value, json};
use crate::decl::{DeclType, ListType};
use crate::eval::Error;

/// A list.
#[derive(Clone, Debug)]
pub struct List<'v> {
    items: Items<'v>,
    /// How the list compares and adds, if not element by element.
    kind: Option<&'v ListType>,
}

#[derive(Clone, Debug)]
enum Items<'v> {
    Values(Arc<Vec<Value<'v>>>),
    Json { items: &'v [Json], decl: &'v DeclType },
}

impl<'v> List<'v> {
    /// A list of values.
    pub fn new(items: Vec<Value<'v>>) -> Self {
        Self { items: Items::Values(Arc::new(items)), kind: None }
    }

    /// A list of a tree.
    pub(crate) fn json(items: &'v [Json], decl: &'v DeclType, kind: &'v ListType) -> Self {
        let kind = (*kind != ListType::Atomic).then_some(kind);
        Self { items: Items::Json { items, decl }, kind }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Values(items) => items.len(),
            Items::Json { items, .. } => items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is the empty list of an expression. cel-go does not ask the lists of trees.
    pub(crate) fn is_zero(&self) -> bool {
        matches!(&self.items, Items::Values(items) if items.is_empty())
    }

    /// The element at `index`; `None` beyond the end.
    pub fn get(&self, index: usize) -> Option<Result<Value<'v>, Error>> {
        match &self.items {
            Items::Values(items) => items.get(index).cloned().map(Ok),
            Items::Json { items, decl } => items.get(index).map(|tree| json::view(tree, decl)),
        }
    }

    /// All elements.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'v>, Error>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// All elements as values.
    ///
    /// # Errors
    ///
    /// An element of a tree that does not have its declared type.
    pub fn to_vec(&self) -> Result<Vec<Value<'v>>, Error> {
        match &self.items {
            Items::Values(items) => Ok(items.as_ref().clone()),
            Items::Json { .. } => self.iter().collect(),
        }
    }

    /// Appends in place if the list is not shared.
    pub(crate) fn push(&mut self, value: Value<'v>) -> Result<(), Error> {
        match &mut self.items {
            Items::Values(items) => Arc::make_mut(items).push(value),
            Items::Json { .. } => {
                let mut items = self.to_vec()?;
                items.push(value);
                self.items = Items::Values(Arc::new(items));
            }
        }
        Ok(())
    }

    /// Whether an equal element is in the list.
    ///
    /// # Errors
    ///
    /// As [`List::to_vec`] and [`Value::equals`].
    pub fn contains(&self, value: &Value<'v>, fuel: &mut Fuel) -> Result<bool, Error> {
        for item in self.iter() {
            if item?.equals(value, fuel)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The sum of two lists, by the rules of the left one's kind.
    ///
    /// # Errors
    ///
    /// As [`List::to_vec`] and [`Value::equals`].
    pub fn concat(&self, other: &List<'v>, fuel: &mut Fuel) -> Result<List<'v>, Error> {
        let mut items = self.to_vec()?;
        match self.kind {
            None | Some(ListType::Atomic) => items.extend(other.to_vec()?),
            Some(ListType::Set) => {
                for value in other.iter() {
                    let value = value?;
                    let mut found = false;
                    for item in &items {
                        found = found || item.equals(&value, fuel)?;
                    }
                    if !found {
                        items.push(value);
                    }
                }
            }
            Some(ListType::Map(keys)) => {
                for value in other.iter() {
                    let value = value?;
                    fuel.take(items.len() as u64)?;
                    match items.iter_mut().find(|item| same_keys(item, &value, keys)) {
                        Some(item) => *item = value,
                        None => items.push(value),
                    }
                }
            }
        }
        Ok(List { items: Items::Values(Arc::new(items)), kind: self.kind })
    }

    pub(super) fn equals(&self, other: &List<'v>, fuel: &mut Fuel) -> Result<bool, Error> {
        if self.len() != other.len() {
            return Ok(false);
        }
        match self.kind {
            None | Some(ListType::Atomic) => {
                for (a, b) in self.iter().zip(other.iter()) {
                    if !a?.equals(&b?, fuel)? {
                        return Ok(false);
                    }
                }
            }
            Some(ListType::Set) => {
                for b in other.iter() {
                    if !self.contains(&b?, fuel)? {
                        return Ok(false);
                    }
                }
            }
            Some(ListType::Map(keys)) => {
                for b in other.iter() {
                    let b = b?;
                    let mut found = false;
                    for a in self.iter() {
                        let a = a?;
                        fuel.take(1)?;
                        if same_keys(&a, &b, keys) {
                            found = a.equals(&b, fuel)?;
                            break;
                        }
                    }
                    if !found {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

/// Whether two elements of a list map have the same keys.
fn same_keys(a: &Value<'_>, b: &Value<'_>, keys: &[String]) -> bool {
    keys.iter().all(|key| match (json_field(a, key), json_field(b, key)) {
        (None, None) => true,
        (Some(a), Some(b)) => a == b,
        _ => false,
    })
}

/// The field of an element by its name in JSON.
fn json_field(value: &Value<'_>, key: &str) -> Option<Json> {
    match value {
        Value::Object(object) => object.map.get(key).cloned(),
        Value::Map(map) => map.get_str(key)?.ok()?.to_json(),
        _ => None,
    }
}
