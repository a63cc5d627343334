//! The objects of a type that a source returns.
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_object::skim::{Skim, scalar};

/// The objects of a type that are cached (FAC-2).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Selection {
    /// Only objects of this namespace; `None` is all of them.
    pub namespace: Option<String>,
    /// A label selector in the query form.
    pub labels: String,
    /// A field selector in the query form.
    pub fields: String,
    /// A shard selector (KEP-5866), see [`ClientSource::shard`](super::ClientSource::shard); empty
    /// is all.
    pub shard: String,
}

impl Selection {
    /// Whether it selects all objects of its namespace, except for the shard.
    pub fn is_whole(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether labels and fields of this object, as JSON, match. Ignores the shard and invalid
    /// selectors.
    ///
    /// A field is a path in the object. An absent one is an empty text, `false` or `0`, whichever
    /// matches: that depends on its type. Servers also have fields that are not paths; these count
    /// as absent.
    pub fn matches(&self, object: &[u8]) -> bool {
        let by_fields = FieldSelector::parse(&self.fields).ok().is_none_or(|selector| {
            selector.terms().iter().all(|term| {
                let path: Vec<&str> = term.path.split('.').collect();
                let matches = |value: &str| (value == &*term.value) != term.negated;
                match scalar(object, &path) {
                    Some(value) => matches(&value),
                    None => ["", "false", "0"].into_iter().any(matches),
                }
            })
        });
        let by_labels = || {
            let Ok(selector) = Selector::parse(&self.labels) else { return true };
            let Ok(skim) = Skim::of(object) else { return true };
            selector.matches(|key| skim.label(key))
        };
        by_fields && (self.labels.is_empty() || by_labels())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_matches_by_its_labels_and_by_its_fields() {
        let object =
            br#"{"metadata":{"name":"a","labels":{"app":"web"}},"spec":{"nodeName":"n1"}}"#;
        for (labels, fields, expected) in [
            ("", "", true),
            ("app=web", "", true),
            ("app=db", "", false),
            ("!app", "", false),
            ("app in (web,db)", "spec.nodeName=n1", true),
            ("", "spec.nodeName=n2", false),
            ("", "metadata.name!=a", false),
            ("", "status.phase=", true),
            ("", "status.phase=Running", false),
            ("", "spec.unschedulable=false", true),
            ("", "spec.unschedulable=true", false),
            ("", "spec.unschedulable!=true", true),
            ("", "status.replicas=0", true),
            ("", "status.replicas!=0", true),
            ("no selector (", "", true),
        ] {
            let selection =
                Selection { labels: labels.into(), fields: fields.into(), ..Selection::default() };
            assert_eq!(selection.matches(object), expected, "{labels:?} {fields:?}");
        }
    }
}
