//! Rules in CEL: whether they compile, and what they cost at most.

use crate::crd::build;
use crate::node::{ListType, Shape, View};
use crate::rules::{Compilation, compile, declare};
use serde_json::Value;
use setpoint_cel::check::Checked;
use setpoint_cel::decl::DeclType;
use setpoint_cel::estimate::estimate;
use setpoint_object::encode::to_bytes;
use setpoint_object::field::{Error, ErrorKind, Errors, Path};

/// The most that a rule may cost by estimate, times how often it may run for one object.
///
/// 10,000,000, as in Kubernetes.
const RULE_COST_MAX: u64 = 10_000_000;
/// The most that all rules of a schema may cost so.
///
/// 100,000,000, as in Kubernetes.
const SCHEMA_COST_MAX: u64 = 100_000_000;
/// The name of the type of `self` in messages. Kubernetes has a number by chance in it.
const SELF_TYPE: &str = "selfType0";
/// How many of the most expensive expressions are named.
const EXPENSIVE_MAX: usize = 4;

/// Checks the rules of a schema that is valid otherwise; those with errors at or below their node
/// (from `before` on) are left out.
pub(super) fn validate(schema: &Value, path: &Path, before: usize, errors: &mut Errors) {
    if !super::schema::has_rules(schema) {
        return;
    }
    let built = build::type_schema(schema);
    let mut wrong: Vec<_> = errors[before..].iter().map(|error| error.path.text()).collect();
    wrong.sort_unstable();
    let mut found = Found { errors, wrong, total: 0, expensive: Vec::new() };
    let place = Place { root: true, decl: None, cardinality: Some(1), uncorrelated: None };
    found.node(built.view(), path, "self", place);
    let Found { total, expensive, .. } = found;
    if total > SCHEMA_COST_MAX {
        for (path, _) in expensive {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(Error::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(Error::forbidden(path.clone(), too_costly(what, total, SCHEMA_COST_MAX)));
    }
}

struct Found<'e> {
    errors: &'e mut Errors,
    /// Where the schema is wrong otherwise, sorted.
    wrong: Vec<String>,
    total: u64,
    /// The most expensive expressions, the worst first.
    expensive: Vec<(Path, u64)>,
}

/// Where a node stands.
struct Place<'p> {
    root: bool,
    /// How expressions see it, if that is known from above.
    decl: Option<DeclType>,
    /// How often it may be there in one object; none without bounds.
    cardinality: Option<u64>,
    /// The uppermost list whose elements cannot be matched with old ones.
    uncorrelated: Option<&'p Path>,
}

impl Found<'_> {
    fn node(&mut self, view: View<'_>, path: &Path, name: &str, place: Place<'_>) {
        let written = view.node().validation.as_deref().map_or(&[][..], |v| v.rules.as_slice());
        let decl = match (&place.decl, written.is_empty()) {
            (None, false) => declare(view, place.root || view.embedded_resource, name),
            _ => place.decl.clone(),
        };
        let below = cardinality_below(view).zip(place.cardinality);
        let below = below.map(|(factor, cardinality)| factor.saturating_mul(cardinality));
        let child = |decl: Option<&DeclType>, uncorrelated| Place {
            root: false,
            decl: decl.cloned(),
            cardinality: below,
            uncorrelated,
        };
        if let Some(values) = view.additional {
            let place = child(decl.as_ref().and_then(DeclType::element), place.uncorrelated);
            let path = path.child("additionalProperties");
            self.node(view.at(values), &path, &format!("{name}.@elem"), place);
        }
        for declared in &view.node().properties {
            let property = &*declared.name;
            let place = child(decl.as_ref().and_then(|d| d.field(property)), place.uncorrelated);
            let path = path.child("properties").key(property);
            self.node(view.at(declared.id), &path, &format!("{name}.{property}"), place);
        }
        if let Some(items) = view.items() {
            let is_correlated = matches!(view.node().list_type, ListType::Map(_));
            let uncorrelated = place.uncorrelated.or((!is_correlated).then_some(path));
            let place = child(decl.as_ref().and_then(DeclType::element), uncorrelated);
            self.node(items, &path.child("items"), &format!("{name}.@idx"), place);
        }
        if written.is_empty() || self.is_wrong(path) {
            return;
        }
        let path = path.child("x-kubernetes-validations");
        match decl {
            Some(decl) => {
                for (index, rule) in written.iter().enumerate() {
                    self.rule(rule, &path.index(index), &decl, &place);
                }
            }
            None => self.errors.push(Error::internal(
                path,
                "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations",
            )),
        }
    }

    /// Whether the schema is wrong at or below a node.
    fn is_wrong(&self, path: &Path) -> bool {
        !self.wrong.is_empty() && has_at_or_below(&self.wrong, &path.text())
    }

    fn rule(&mut self, rule: &Value, path: &Path, decl: &DeclType, place: &Place<'_>) {
        let mut compilation = compile(rule, decl);
        if compilation.has_fault() {
            // Messages name types after the node of the rule, wherever that is.
            compilation = compile(rule, &decl.named(SELF_TYPE));
        }
        let Compilation { rule: compiled, message, uses_old } = compilation;
        let times = place.cardinality.unwrap_or_else(|| decl.cardinality_max());
        if let Some(compiled) = compiled {
            self.expression(compiled, rule, path.child("rule"), decl, times, "estimated rule cost");
        }
        if let Some(message) = message {
            let what = "estimated messageExpression cost";
            self.expression(message, rule, path.child("messageExpression"), decl, 1, what);
        }
        if uses_old {
            if let Some(list) = place.uncorrelated {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                let text = super::text(rule, "rule");
                self.errors.push(Error::invalid(path.child("rule"), &text.into(), detail));
            }
        } else if let Some(optional) = rule.get("optionalOldSelf").filter(|o| o.is_boolean()) {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(Error::invalid(path.child("optionalOldSelf"), optional, detail));
        }
    }

    fn expression(
        &mut self,
        compiled: Result<Checked, String>,
        rule: &Value,
        path: Path,
        decl: &DeclType,
        times: u64,
        what: &str,
    ) {
        match compiled {
            Ok(checked) => {
                let cost = estimate(&checked, decl).max.saturating_mul(times);
                if cost > RULE_COST_MAX {
                    let detail = too_costly(what, cost, RULE_COST_MAX);
                    self.errors.push(Error::forbidden(path.clone(), detail));
                }
                self.observe(path, cost);
            }
            Err(detail) => self.errors.push(Error {
                kind: ErrorKind::Invalid,
                path,
                shown: Some(shown(rule)),
                detail,
            }),
        }
    }

    fn observe(&mut self, path: Path, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_COST_MAX / 100 {
            self.expensive.push((path, cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(EXPENSIVE_MAX);
        }
    }
}

/// Whether a path, or one below it, is among `sorted`. A search: a definition may have ten thousand
/// errors and as many rules.
fn has_at_or_below(sorted: &[String], path: &str) -> bool {
    // Paths with a common start are neighbors. Between a node's own path and those below it may be
    // paths of other nodes.
    let first = |start: &str| {
        let at = sorted.partition_point(|known| known.as_str() < start);
        sorted.get(at).filter(|known| known.starts_with(start))
    };
    first(path).is_some_and(|known| known == path)
        || first(&format!("{path}.")).is_some()
        || first(&format!("{path}[")).is_some()
}

/// How often children of a node are in it at most; none without bounds.
fn cardinality_below(view: View<'_>) -> Option<u64> {
    let validation = view.node().validation.as_deref();
    let is_map = view.additional.is_some()
        || view.additional_any
        || validation.is_some_and(|v| v.additional_forbidden);
    match view.shape {
        Shape::Object if is_map => validation.and_then(|v| v.max_properties),
        Shape::Array => validation.and_then(|v| v.max_items),
        _ => Some(1),
    }
}

fn too_costly(what: &str, cost: u64, max: u64) -> String {
    let factor = cost as f64 / max as f64;
    let factor = match factor {
        f if f > 100.0 => "more than 100x".to_owned(),
        f if f < 1.5 => format!("{f:.6}x"),
        f => format!("{f:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// A rule as the API server's internal form prints it.
fn shown(rule: &Value) -> String {
    let members = [
        ("Rule", "rule", Value::from("")),
        ("Message", "message", Value::from("")),
        ("MessageExpression", "messageExpression", Value::from("")),
        ("Reason", "reason", Value::Null),
        ("FieldPath", "fieldPath", Value::from("")),
        ("OptionalOldSelf", "optionalOldSelf", Value::Null),
    ];
    let members: Vec<String> = members
        .into_iter()
        .map(|(name, wire, absent)| {
            let value = rule.get(wire).filter(|value| !value.is_null()).unwrap_or(&absent);
            format!("\"{name}\":{}", String::from_utf8_lossy(&to_bytes(value)))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

#[cfg(test)]
mod tests {
    use super::has_at_or_below;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn paths_at_or_below_a_node_are_found(
            mut sorted in proptest::collection::vec("[ab.\\[\\]-]{0,4}", 0..6),
            path in "[ab.\\[\\]-]{0,3}",
        ) {
            sorted.sort_unstable();
            let is_below = |known: &String| {
                let rest = known.strip_prefix(&path);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            prop_assert_eq!(has_at_or_below(&sorted, &path), sorted.iter().any(is_below));
        }
    }
}
