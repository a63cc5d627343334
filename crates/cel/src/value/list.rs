//! Lists.

use std::borrow::Cow;
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

    /// The element at `index`, and the fuel for making it of its text.
    pub(crate) fn get_within(
        &self,
        index: usize,
        fuel: &mut Fuel,
    ) -> Option<Result<Value<'v>, Error>> {
        match fuel.read(self.read_bytes(index)) {
            Ok(()) => self.get(index),
            Err(spent) => Some(Err(spent)),
        }
    }

    /// How many bytes are read to make an element's value.
    pub(crate) fn read_bytes(&self, index: usize) -> usize {
        match &self.items {
            Items::Values(_) => 0,
            Items::Json { items, decl } => {
                items.get(index).map_or(0, |tree| json::read_bytes(tree, decl))
            }
        }
    }

    /// All elements, and the fuel for making them of their texts.
    fn to_vec_within(&self, fuel: &mut Fuel) -> Result<Vec<Value<'v>>, Error> {
        for index in 0..self.len() {
            fuel.read(self.read_bytes(index))?;
        }
        self.to_vec()
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
        for index in 0..self.len() {
            let Some(item) = self.get_within(index, fuel) else { break };
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
        let mut items = self.to_vec_within(fuel)?;
        let others = other.to_vec_within(fuel)?;
        match self.kind {
            None | Some(ListType::Atomic) => items.extend(others),
            Some(ListType::Set) => {
                for value in others {
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
                for value in others {
                    let mut found = None;
                    for (index, item) in items.iter().enumerate() {
                        if same_keys(item, &value, keys, fuel)? {
                            found = Some(index);
                            break;
                        }
                    }
                    match found.and_then(|index| items.get_mut(index)) {
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
                for index in 0..self.len() {
                    let parts = (self.get_within(index, fuel), other.get_within(index, fuel));
                    let (Some(a), Some(b)) = parts else { break };
                    if !a?.equals(&b?, fuel)? {
                        return Ok(false);
                    }
                }
            }
            Some(ListType::Set) => {
                for b in other.to_vec_within(fuel)? {
                    if !self.contains(&b, fuel)? {
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
                        if same_keys(&a, &b, keys, fuel)? {
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
fn same_keys(
    a: &Value<'_>,
    b: &Value<'_>,
    keys: &[String],
    fuel: &mut Fuel,
) -> Result<bool, Error> {
    fuel.take(1)?;
    for key in keys {
        let same = match (json_field(a, key), json_field(b, key)) {
            (None, None) => true,
            (Some(a), Some(b)) => json::equals(&a, &b, fuel)?,
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The field of an element by its name in JSON.
fn json_field<'v>(value: &Value<'v>, key: &str) -> Option<Cow<'v, Json>> {
    match value {
        Value::Object(object) => object.map.get(key).map(Cow::Borrowed),
        Value::Map(map) => match map.tree(key) {
            Some(tree) => Some(Cow::Borrowed(tree)),
            None => map.get_str(key)?.ok()?.to_json().map(Cow::Owned),
        },
        _ => None,
    }
}
