//! Labels and what selects nodes by them.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// The label with a node's own name.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// Labels by key.
pub(crate) type Labels = BTreeMap<String, String>;

/// The map of strings at a member of an object.
pub(crate) fn strings(map: &Value) -> Labels {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The items of a list; none if it is not a list.
pub(crate) fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The items of a list that have a type's shape.
pub(crate) fn list_of<T: DeserializeOwned>(list: &Value) -> Vec<T> {
    items(list).iter().filter_map(|item| T::deserialize(item).ok()).collect()
}

/// A text; empty if it is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Terms of which one must match a node: `NodeSelector`.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeSelector(Vec<NodeSelectorTerm>);

/// One term: all its requirements must hold. Without requirements it matches no node.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeSelectorTerm {
    expressions: Vec<Requirement>,
    names: Vec<Requirement>,
}

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    /// Unknown: matches nothing.
    Unknown,
}

impl NodeSelector {
    /// Reads a `NodeSelector`; `None` if there is none.
    pub(crate) fn read(selector: &Value) -> Option<Self> {
        let terms = selector.get("nodeSelectorTerms")?.as_array()?;
        Some(Self(terms.iter().map(NodeSelectorTerm::read).collect()))
    }

    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.0.iter().any(|term| term.matches(name, labels))
    }

    /// The values of the label [`HOSTNAME`] that it allows; `None` if it does not limit them.
    pub(crate) fn hosts(&self) -> Option<Vec<&str>> {
        let is_host =
            |one: &&Requirement| one.key == HOSTNAME && matches!(one.operator, Operator::In);
        let mut hosts = Vec::new();
        for term in &self.0 {
            let required = term.expressions.iter().find(is_host)?;
            hosts.extend(required.values.iter().map(String::as_str));
        }
        Some(hosts)
    }
}

impl NodeSelectorTerm {
    pub(crate) fn read(term: &Value) -> Self {
        let read = |member: &str| items(&term[member]).iter().map(Requirement::read).collect();
        Self { expressions: read("matchExpressions"), names: read("matchFields") }
    }

    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        let of_field = |requirement: &Requirement| {
            requirement.key == "metadata.name" && requirement.matches(Some(name))
        };
        !(self.expressions.is_empty() && self.names.is_empty())
            && self.expressions.iter().all(|requirement| {
                requirement.matches(labels.get(&requirement.key).map(String::as_str))
            })
            && self.names.iter().all(of_field)
    }
}

impl Requirement {
    fn read(value: &Value) -> Self {
        let operator = match text(&value["operator"]) {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => Operator::Unknown,
        };
        let values = items(&value["values"]).iter().map(|value| text(value).to_owned()).collect();
        Self { key: text(&value["key"]).to_owned(), operator, values }
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let is_among = |label: &str| self.values.iter().any(|value| value == label);
        let compares = |holds: fn(&i64, &i64) -> bool| {
            let wanted = self.values.first().and_then(|value| value.parse::<i64>().ok());
            let found = label.and_then(|label| label.parse().ok());
            found.zip(wanted).is_some_and(|(found, wanted)| holds(&found, &wanted))
        };
        match self.operator {
            Operator::In => label.is_some_and(is_among),
            Operator::NotIn => !label.is_some_and(is_among),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Gt => compares(i64::gt),
            Operator::Lt => compares(i64::lt),
            Operator::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_term_of_a_node_selector_is_enough_and_an_empty_one_matches_nothing() {
        let labels = strings(&json!({"zone": "a", "size": "7"}));
        let matches = |terms: Value| {
            let selector = json!({"nodeSelectorTerms": terms});
            NodeSelector::read(&selector).unwrap().matches("n1", &labels)
        };
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (term, is_match) in [
            (expression("zone", "In", &["a", "b"]), true),
            (expression("zone", "NotIn", &["a"]), false),
            (expression("none", "NotIn", &["a"]), true),
            (expression("none", "Exists", &[]), false),
            (expression("none", "DoesNotExist", &[]), true),
            (expression("size", "Gt", &["6"]), true),
            (expression("size", "Lt", &["7"]), false),
            (json!({}), false),
            (
                json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}),
                true,
            ),
        ] {
            assert_eq!(matches(json!([term])), is_match, "{term}");
        }
        assert!(matches(json!([{}, expression("zone", "Exists", &[])])));
        assert!(!matches(json!([])));
    }
}
