//! Table columns: how a kind's rows are printed (spec: api-server §3.1, crd §9).
//!
//! A built-in kind's headings come from the facts table, and its cells from a printer, a function
//! in the kind's module. Kinds without a printer show name and creation time. A custom resource's
//! headings and JSONPaths come from its definition. Cells are computed from the object's tree and
//! the given present time; nothing here reads a clock.

pub(crate) mod age;
pub mod cell;
mod custom;
#[cfg(test)]
mod tests;

use serde_json::Value;
use setpoint_object::jsonpath::JsonPath;
use setpoint_object::time::Timestamp;
use std::sync::LazyLock;

pub use age::{age_of, human_duration};

/// Computes the cells of one object, in heading order.
pub type Printer = fn(&Value, Timestamp) -> Vec<Value>;

/// Column headings and the source of cells.
#[derive(Debug, Clone)]
pub struct Columns {
    /// Headings.
    pub definitions: Vec<ColumnDefinition>,
    /// The source of cells.
    pub cells: Cells,
}
/// The source of cells.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cells {
    /// A printer of a built-in kind: (object, now) → cells in heading order.
    Builtin(Printer),
    /// Name and creation time as written: of built-in kinds without a printer.
    Plain,
    /// The name, then JSONPaths; the cells of a path that does not parse are empty.
    Paths(Vec<JsonPath>),
}
/// One heading, as in a Table's `columnDefinitions`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ColumnDefinition {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub ty: String,
    /// `name` for the column with the object's name, or the format in the definition.
    pub format: String,
    /// Description of the column; empty for built-in kinds.
    pub description: String,
    /// 0: always shown; greater: shown with `-o wide`.
    pub priority: i32,
}
impl ColumnDefinition {
    /// A heading that is always shown and has no description.
    pub fn new(name: &str, ty: &str, format: &str) -> Self {
        Self {
            name: name.to_owned(),
            ty: ty.to_owned(),
            format: format.to_owned(),
            description: String::new(),
            priority: 0,
        }
    }
}

impl Columns {
    /// The columns of a built-in kind; `Name` and `Created At` when it has no printer.
    pub fn built_in(headings: &[setpoint_facts::Column], printer: Option<Printer>) -> Self {
        let definitions = headings.iter().map(|column| ColumnDefinition {
            priority: i32::from(column.priority),
            ..ColumnDefinition::new(column.name, column.ty, column.format)
        });
        Self::printed(definitions.collect(), printer)
    }
    /// Headings and the printer of their cells; `Name` and `Created At` when either is missing.
    pub fn printed(definitions: Vec<ColumnDefinition>, printer: Option<Printer>) -> Self {
        match printer {
            Some(printer) if !definitions.is_empty() => {
                Self { definitions, cells: Cells::Builtin(printer) }
            }
            _ => Self {
                definitions: vec![
                    ColumnDefinition::new("Name", "string", "name"),
                    ColumnDefinition::new("Created At", "date", ""),
                ],
                cells: Cells::Plain,
            },
        }
    }
    /// The columns of a custom resource version, from `additionalPrinterColumns` (may be null).
    pub fn custom(columns: &Value) -> Self {
        custom::columns(columns)
    }
    /// The columns of the `scale` subresource. Those of a custom resource have the types that its
    /// own columns have.
    pub fn of_scale(is_custom: bool) -> &'static Self {
        static SCALES: LazyLock<[Columns; 2]> = LazyLock::new(|| {
            [("", "string"), ("name", "date")].map(|(name, age)| Columns {
                definitions: vec![
                    ColumnDefinition::new("Name", "string", name),
                    ColumnDefinition::new("Desired", "integer", ""),
                    ColumnDefinition::new("Available", "integer", ""),
                    ColumnDefinition::new("Age", age, ""),
                ],
                cells: Cells::Builtin(scale),
            })
        });
        let [built_in, custom] = &*SCALES;
        if is_custom { custom } else { built_in }
    }
    /// The cells of one object, one per heading.
    pub fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.cells {
            Cells::Builtin(printer) => printer(object, now),
            Cells::Plain => {
                vec![cell::name(object), cell::text(object, "metadata.creationTimestamp").into()]
            }
            Cells::Paths(paths) => custom::row(&self.definitions, paths, object, now),
        }
    }
}

fn scale(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::int(object, "spec.replicas").into(),
        cell::int(object, "status.replicas").into(),
        cell::age(object, now),
    ]
}
