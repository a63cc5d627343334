//! CEL as Kubernetes has it: in rules of custom resources, admission policies, match conditions,
//! mappings of claims and selectors of devices.
//!
//! # Theory
//!
//! An expression is read once and run often:
//!
//! ```text
//! text ─ parse ─▶ Ast ─ check ─▶ Checked ─┬─ estimate ─▶ the most that it may cost
//!            macros become loops          └─ Program::new ─▶ Program ─ evaluate ─▶ Value, what it has cost
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | [`types`], [`decl`] | types of expressions, and how expressions see a JSON tree of a schema |
//! | [`library`] | one table of functions: a row is an overload with its types, its cost and how it is computed |
//! | [`mod@parse`], [`macros`], [`ast`] | from text to a tree without macros |
//! | [`mod@check`], [`issue`] | types and references of all nodes, or faults in cel-go's words with their places |
//! | [`estimate`] | the most that an expression costs, from the bounds of the schema |
//! | [`formats`] | formats of texts that expressions share with schemas |
//! | [`device`] | the environment of expressions that select devices |
//! | [`eval`], [`value`], [`budget`] | running a program within a limit of costs, over trees that are not copied |
//!
//! The checker, the estimate and the evaluator read the same rows, so a function is added in one
//! place. Costs are cel-go's and Kubernetes' in both readings: stored definitions depend on them.
//!
//! Every expression is bounded: its text and how deep it nests when it is read, its steps and what
//! it allocates when it runs. Nothing here does I/O or reads a clock.
//!
//! This crate knows nothing of resources, HTTP or storage.

pub mod ast;
pub mod budget;
pub mod check;
pub mod decl;
pub mod device;
pub mod escape;
pub mod estimate;
pub mod eval;
pub mod formats;
pub mod issue;
pub mod library;
pub mod macros;
pub mod parse;
pub mod pattern;
pub mod types;
pub mod value;

pub use check::{Checked, Env, check};
pub use eval::{Context, Error, Program, Variables};
pub use macros::Macros;
pub use parse::parse;
pub use types::Type;
pub use value::Value;
