//! Rules in CEL: `x-kubernetes-validations` (spec: crd §6).
//!
//! # Theory
//!
//! A node's rules see the node as `self`, with the types that its schema declares. They are checked
//! when the definition is written (`crd::validate`), together with what they cost at most.
//! [`Rules`] are the compiled ones of a schema, made when an object is first validated, a part of
//! its document and freed with it. Nodes that are the same share their rules.
//!
//! [`check`] evaluates them after all other validations, unless one of those stands in the way
//! ([`crate::validate::blocks_rules`]).
//!
//! | on update |  |
//! |---|---|
//! | a rule that mentions `oldSelf` | runs if the old object has a value there, or if it says `optionalOldSelf` |
//! | an old value | is found through properties, keys of maps and the keys of lists of type `map` |
//! | a rule that fails for an unchanged value | is a warning, unless it mentions `oldSelf` |
//!
//! Each expression may cost [`EXPRESSION_COST_MAX`], all for one object [`OBJECT_COST_MAX`]. What
//! the evaluator counts bounds time as well, so rules belong on a thread that may be held up.

mod compile;
mod declare;
mod evaluate;
#[cfg(test)]
mod tests;

pub(crate) use compile::{Compilation, compile};
pub(crate) use declare::declare;
pub use declare::object_type;
pub(crate) use evaluate::evaluate;
pub use setpoint_cel::eval::{EXPRESSION_COST_MAX, OBJECT_COST_MAX};

use crate::node::{NodeId, Shape, TypeSchema, View};
use crate::validate::blocks_rules;
use compile::Rule;
use serde_json::Value;
use setpoint_cel::decl::DeclType;
use setpoint_cel::eval::PATTERN_BYTES_MAX;
use setpoint_cel::pattern::Budget;
use setpoint_object::field::{Error, Path};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Evaluates the rules of a schema for an object, whose other errors are in `errors`: adds what
/// they say. `old` is the stored object on update. `earlier`: errors that the caller reports before
/// those, of the metadata. They stand in the way of rules as any other error does.
///
/// Returns texts of warnings: failed rules of values that are as they were.
pub fn check(
    schema: &TypeSchema,
    object: &Value,
    old: Option<&Value>,
    earlier: &[Error],
    errors: &mut Vec<Error>,
) -> Vec<String> {
    if !schema.has_rules() {
        return Vec::new();
    }
    if earlier.iter().chain(errors.iter()).any(blocks_rules) {
        errors.push(Error::invalid(
            Path::root(),
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ));
        return Vec::new();
    }
    let mut budget = OBJECT_COST_MAX;
    let run =
        evaluate(schema.rules(), schema.view(), object, old, true, &Path::root(), &mut budget);
    errors.extend(run.errors);
    run.warnings
}

/// The compiled rules of a schema.
#[derive(Debug, Default)]
pub struct Rules {
    /// The nodes that have rules at or below them, with those at them.
    nodes: HashMap<NodeId, NodeRules>,
}

/// The rules of one node.
#[derive(Debug, Default)]
struct NodeRules {
    /// How expressions see the node; none when there are no rules at it, or when they cannot.
    decl: Option<DeclType>,
    rules: Vec<Rule>,
}

impl Rules {
    /// Compiles the rules at and below a node; `root` if it is the root of a resource.
    pub(crate) fn new(view: View<'_>, root: bool) -> Self {
        let mut builder = Builder {
            rules: Rules::default(),
            without: HashSet::new(),
            patterns: Arc::new(Budget::new(PATTERN_BYTES_MAX)),
        };
        builder.node(view, root, "self");
        builder.rules
    }

    fn at(&self, view: &View<'_>) -> Option<&NodeRules> {
        self.nodes.get(&view.id())
    }
}

struct Builder {
    rules: Rules,
    /// Nodes that have no rules at or below them.
    without: HashSet<NodeId>,
    /// The budget of the rules' constant patterns.
    patterns: Arc<Budget>,
}

impl Builder {
    /// Adds a node. Returns whether there are rules at or below it.
    fn node(&mut self, view: View<'_>, root: bool, name: &str) -> bool {
        let id = view.id();
        if self.rules.nodes.contains_key(&id) {
            return true;
        }
        if self.without.contains(&id) {
            return false;
        }
        let mut below = false;
        let mut child = |view: View<'_>, step: &str| {
            if is_visible(view) {
                below |= self.node(view, view.embedded_resource, &format!("{name}.{step}"));
            }
        };
        if let Some(id) = view.additional {
            child(view.at(id), "@elem");
        }
        for property in view.declared() {
            child(view.at(property.id), &property.name);
        }
        if let Some(items) = view.items() {
            child(items, "@idx");
        }
        let written = view.node().validation.as_deref().map_or(&[][..], |v| v.rules.as_slice());
        let mut found = NodeRules::default();
        if !written.is_empty() {
            found.decl = declare(view, root, name);
            if let Some(decl) = &found.decl {
                found.rules = written
                    .iter()
                    .filter_map(|rule| Rule::new(rule, view, decl, &self.patterns))
                    .collect();
            }
        }
        if below || !found.rules.is_empty() {
            self.rules.nodes.insert(id, found);
            return true;
        }
        self.without.insert(id);
        false
    }
}

/// Whether expressions see a node.
fn is_visible(view: View<'_>) -> bool {
    match view.shape {
        Shape::Any => false,
        Shape::Array => view.items().is_some_and(is_visible),
        Shape::Object => view.additional.is_none_or(|id| is_visible(view.at(id))),
        _ => true,
    }
}

/// The word for a node's type in messages; empty for a number or a text.
pub(crate) fn type_word(shape: Shape) -> &'static str {
    match shape {
        Shape::Object => "object",
        Shape::Array => "array",
        Shape::String => "string",
        Shape::Integer => "integer",
        Shape::Number => "number",
        Shape::Boolean => "boolean",
        Shape::IntOrString | Shape::Any => "",
    }
}
