//! What is damaged in a file, and how a damaged object is kept.
//!
//! A damaged object becomes a value that says so ([`DAMAGED_PREFIX`]): nobody can create another
//! object of its name, and whoever asks for it is told what happened. [`salvage`](super::salvage)
//! makes a file with such values.

use redb::{ReadTransaction, ReadableTable, TableDefinition};
use std::fmt;

use super::{
    error::Fault,
    layout::{KEYS, Place},
};
use crate::contract::*;

/// How the value of a damaged object begins; the rest says what happened to it. No object begins
/// so, and [`is_sealed`] knows it.
pub const DAMAGED_PREFIX: &[u8] = b"k8s:enc:damaged:v1:";
/// How many damaged objects a message names. The count is always whole.
pub const DAMAGED_NAMED_MAX: usize = 1000;
/// The damaged objects of a file, with the revision at which each became so.
pub(super) const DAMAGED: TableDefinition<'_, &[u8], u64> = TableDefinition::new("damaged");

/// What [`DiskStore::open`](super::DiskStore::open) does with a file in which objects are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// Refuses it, and says which.
    #[default]
    Refuse,
    /// Moves it aside, and serves what can be read of it. A get of a damaged object is
    /// [`StoreError::Unreadable`]; a range or a feed gives it as [`SEALED_PREFIX`] says.
    Serve,
}

/// What is damaged in a file, and what is not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Damage {
    /// Keys of objects that cannot be read, with the reason; at most [`DAMAGED_NAMED_MAX`].
    pub objects: Vec<(String, String)>,
    /// How many there are.
    pub n_objects: u64,
    /// How many more rows are lost whose keys are not known.
    pub n_unnamed: u64,
    /// Only a former state of the file can be found: the newest commits are missing.
    pub is_older: bool,
    /// How many objects can be read.
    pub n_readable: u64,
    /// In which tables pages are damaged; `head` is the file's first page.
    pub tables: Vec<String>,
}

impl Damage {
    pub(super) fn add(&mut self, key: &[u8], what: &str) {
        self.n_objects += 1;
        if self.objects.len() < DAMAGED_NAMED_MAX {
            self.objects.push((String::from_utf8_lossy(key).into_owned(), what.to_owned()));
        }
    }
}

pub(super) fn name_all(tables: &[String]) -> String {
    let tables: Vec<_> = tables.iter().map(|table| format!("`{table}`")).collect();
    tables.join(", ")
}

/// One line: what is damaged and how much of it.
impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tables.is_empty() {
            let tables = name_all(&self.tables);
            write!(f, "pages of {tables} do not match their checksums; ")?;
        }
        let n_all = self.n_objects + self.n_readable;
        match &self.objects[..] {
            [] => write!(f, "all {n_all} objects can be read")?,
            [(key, _), rest @ ..] => {
                write!(f, "{} of {n_all} objects cannot be read: {key}", self.n_objects)?;
                if let [(second, _), ..] = rest {
                    write!(f, ", {second}")?;
                }
                if self.n_objects > 2 {
                    write!(f, " and {} more", self.n_objects - 2)?;
                }
            }
        }
        if self.n_unnamed > 0 {
            write!(f, "; up to {} more are lost with their names", self.n_unnamed)?;
        }
        if self.is_older {
            write!(f, "; the newest commits are lost: what is left is a former state of the file")?;
        }
        Ok(())
    }
}

/// The damaged objects that a store has since it was made of a damaged file, and that nobody has
/// written since.
pub(super) fn marked(snapshot: &ReadTransaction) -> Result<Option<Damage>, Fault> {
    let table = match snapshot.open_table(DAMAGED) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let keys = snapshot.open_table(KEYS)?;
    let mut damage = Damage::default();
    for row in table.iter()? {
        let (key, since) = row?;
        let place = keys.get(key.value())?.map(|row| Place::of(row.value()));
        if place.is_some_and(|place| place.at.0 == since.value() && !place.is_deleted()) {
            damage.add(key.value(), "it was damaged before");
        }
    }
    if damage.n_objects == 0 {
        return Ok(None);
    }
    for row in keys.iter()? {
        damage.n_readable += u64::from(!Place::of(row?.1.value()).is_deleted());
    }
    damage.n_readable -= damage.n_objects;
    Ok(Some(damage))
}

/// What a value says about the damage of its object; `None` for a value that is one.
pub(super) fn mark(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.strip_prefix(DAMAGED_PREFIX)?).ok()
}

/// Refuses an object that is damaged.
pub(super) fn check_mark(entry: &KeyValue) -> Result<(), StoreError> {
    let Some(what) = mark(&entry.value) else { return Ok(()) };
    Err(StoreError::Unreadable {
        key: String::from_utf8_lossy(&entry.key).into_owned(),
        reason: format!("it was damaged in the data file: {what}"),
    })
}
