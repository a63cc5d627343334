//! Damage in a file, and the values that mark damaged objects.
//!
//! A damaged object becomes a value that marks it ([`DAMAGED_PREFIX`]). So no client can create
//! another object of its name, and a get reports the damage. [`salvage`](super::salvage) creates
//! files with such values.

use redb::{ReadTransaction, ReadableTable, TableDefinition};
use std::fmt;

use super::{
    error::Fault,
    journal,
    layout::{KEYS, Place},
};
use crate::contract::*;

/// Prefix of a damaged object's value; the rest describes the damage. No object starts with it, and
/// [`is_sealed`] recognizes it.
pub const DAMAGED_PREFIX: &[u8] = b"k8s:enc:damaged:v1:";
/// Maximum number of damaged objects that a message names. The count is always complete.
pub const DAMAGED_NAMED_MAX: usize = 1000;
/// The damaged objects of a file, each with the revision at which it was marked.
pub(super) const DAMAGED: TableDefinition<'_, &[u8], u64> = TableDefinition::new("damaged");

/// How [`DiskStore::open`](super::DiskStore::open) treats a file with damaged objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// Fails and names them.
    #[default]
    Refuse,
    /// Moves the file aside and serves what can be read. A get of a damaged object is
    /// [`StoreError::Unreadable`]. Ranges and feeds return it as described at [`SEALED_PREFIX`].
    Serve,
}

/// Which parts of a file are damaged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Damage {
    /// Keys of objects that cannot be read, with the reason; at most [`DAMAGED_NAMED_MAX`].
    pub objects: Vec<(String, String)>,
    /// Number of damaged objects.
    pub n_objects: u64,
    /// Number of further lost rows whose keys are unknown.
    pub n_unnamed: u64,
    /// Whether only an older state of the file was found: the newest commits are missing.
    pub is_older: bool,
    /// Why the newest commits are lost, if the journal is missing, is not the store's, or is
    /// damaged: follows its name.
    pub journal: Option<String>,
    /// Number of readable objects.
    pub n_readable: u64,
    /// Tables with damaged pages. `head` is the file's first page.
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

/// One line with the kind and the extent of the damage.
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
            write!(
                f,
                "; the newest commits are lost: what can be read is a former state of the file"
            )?;
        }
        if let Some(what) = &self.journal {
            write!(f, "; {} {what}", journal::FILE)?;
        }
        Ok(())
    }
}

/// The objects that were marked as damaged when the store was salvaged, and not written since, with
/// what this opening has found.
pub(super) fn marked(
    snapshot: &ReadTransaction,
    found: Option<Damage>,
) -> Result<Option<Damage>, Fault> {
    let keys = snapshot.open_table(KEYS)?;
    let (is_found, mut damage) = (found.is_some(), found.unwrap_or_default());
    (damage.objects, damage.n_objects, damage.n_readable) = (Vec::new(), 0, 0);
    match snapshot.open_table(DAMAGED) {
        Ok(table) => {
            for row in table.iter()? {
                let (key, since) = row?;
                let place = keys.get(key.value())?.map(|row| Place::of(row.value()));
                if place.is_some_and(|place| place.at.0 == since.value() && !place.is_deleted()) {
                    damage.add(key.value(), "it was damaged before");
                }
            }
        }
        Err(redb::TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(error.into()),
    }
    if damage.n_objects == 0 && !is_found {
        return Ok(None);
    }
    for row in keys.iter()? {
        damage.n_readable += u64::from(!Place::of(row?.1.value()).is_deleted());
    }
    damage.n_readable -= damage.n_objects;
    Ok(Some(damage))
}

/// The description of the damage in a damaged object's value. `None` for other values.
pub(super) fn mark(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.strip_prefix(DAMAGED_PREFIX)?).ok()
}

/// Returns an error if the object is damaged.
pub(super) fn check_mark(entry: &KeyValue) -> Result<(), StoreError> {
    let Some(what) = mark(&entry.value) else { return Ok(()) };
    Err(StoreError::Unreadable {
        key: String::from_utf8_lossy(&entry.key).into_owned(),
        fault: ReadFault::Transform,
        reason: format!("it was damaged in the data file: {what}"),
    })
}
