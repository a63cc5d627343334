//! Scopes: which objects a quota is about.
use serde_json::Value;

/// One term of a quota's scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// `PriorityClass`, `Terminating`, ….
    pub scope: String,
    /// `Exists`, `DoesNotExist`, `In`, `NotIn`.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    pub values: Vec<String>,
}

impl Term {
    /// A term in JSON: `scopeName`, `operator`, `values`.
    pub fn of(term: &Value) -> Self {
        let text = |member: &str| term[member].as_str().unwrap_or_default().to_owned();
        let values = term["values"].as_array().into_iter().flatten();
        Self {
            scope: text("scopeName"),
            operator: text("operator"),
            values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }
    /// The terms of a quota: `spec.scopes` and `spec.scopeSelector`.
    pub fn all(quota: &Value) -> Vec<Self> {
        let spec = &quota["spec"];
        let plain = spec["scopes"].as_array().into_iter().flatten();
        let plain = plain.filter_map(Value::as_str).map(|scope| Self {
            scope: scope.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let terms = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
        plain.chain(terms.map(Self::of)).collect()
    }
    fn selects<'v>(&self, mut present: impl Iterator<Item = &'v str>) -> bool {
        match self.operator.as_str() {
            "Exists" => present.next().is_some(),
            "DoesNotExist" => present.next().is_none(),
            "In" => present.any(|value| self.values.iter().any(|known| known == value)),
            "NotIn" => !present.any(|value| self.values.iter().any(|known| known == value)),
            _ => false,
        }
    }
}

/// The scopes that one object is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes {
    /// Pods have every scope but that of claims.
    is_pod: bool,
    is_claim: bool,
    is_terminating: bool,
    is_best_effort: bool,
    priority_class: String,
    has_cross_namespace_affinity: bool,
    /// The requested, present and next class of a claim.
    attributes_classes: Vec<String>,
}

impl Scopes {
    /// The scopes of an object of a resource of the core group. Objects of other resources are in
    /// no scope.
    pub fn of(resource: &str, object: &Value) -> Self {
        let spec = &object["spec"];
        match resource {
            "pods" => Self {
                is_pod: true,
                is_terminating: spec["activeDeadlineSeconds"].as_i64().is_some_and(|s| s >= 0),
                is_best_effort: crate::qos::of(object) == "BestEffort",
                priority_class: spec["priorityClassName"].as_str().unwrap_or_default().to_owned(),
                has_cross_namespace_affinity: has_cross_namespace_affinity(&spec["affinity"]),
                ..Self::default()
            },
            "persistentvolumeclaims" => Self {
                is_claim: true,
                attributes_classes: [
                    &spec["volumeAttributesClassName"],
                    &object["status"]["currentVolumeAttributesClassName"],
                    &object["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
                ]
                .into_iter()
                .filter_map(Value::as_str)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
                ..Self::default()
            },
            _ => Self::default(),
        }
    }
    /// Whether the object is in the scope of a term.
    pub fn is_in(&self, term: &Term) -> bool {
        if self.is_claim {
            let present = self.attributes_classes.iter().map(String::as_str);
            return term.scope == "VolumeAttributesClass" && term.selects(present);
        }
        if !self.is_pod {
            return false;
        }
        match term.scope.as_str() {
            "Terminating" => self.is_terminating,
            "NotTerminating" => !self.is_terminating,
            "BestEffort" => self.is_best_effort,
            "NotBestEffort" => !self.is_best_effort,
            "CrossNamespacePodAffinity" => self.has_cross_namespace_affinity,
            "PriorityClass" => {
                let class = Some(self.priority_class.as_str()).filter(|class| !class.is_empty());
                term.selects(class.into_iter())
            }
            _ => false,
        }
    }
}
/// Whether a term of the affinity to pods names other namespaces.
fn has_cross_namespace_affinity(affinity: &Value) -> bool {
    let names = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|names| !names.is_empty())
            || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|side| {
        let list = |member: &str| affinity[side][member].as_array().into_iter().flatten();
        list("requiredDuringSchedulingIgnoredDuringExecution").any(names)
            || list("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|weighted| names(&weighted["podAffinityTerm"]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_in(object: &Value, resource: &str, term: Value) -> bool {
        Scopes::of(resource, object).is_in(&Term::of(&term))
    }
    fn exists(scope: &str) -> Value {
        json!({"scopeName": scope, "operator": "Exists"})
    }

    #[test]
    fn pods_are_in_scopes() {
        let plain = json!({"spec": {"containers": [{}]}});
        let full = json!({"spec": {
            "activeDeadlineSeconds": 0, "priorityClassName": "high",
            "containers": [{"resources": {"limits": {"cpu": "1"}}}],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["a"]}]}},
        }});
        for (scope, of_plain, of_full) in [
            ("Terminating", false, true),
            ("NotTerminating", true, false),
            ("BestEffort", true, false),
            ("NotBestEffort", false, true),
            ("PriorityClass", false, true),
            ("CrossNamespacePodAffinity", false, true),
            ("VolumeAttributesClass", false, false),
        ] {
            assert_eq!(is_in(&plain, "pods", exists(scope)), of_plain, "{scope}");
            assert_eq!(is_in(&full, "pods", exists(scope)), of_full, "{scope}");
            assert!(!is_in(&full, "secrets", exists(scope)), "{scope}");
        }
        let among = |operator: &str, values: [&str; 1]| json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        assert!(is_in(&full, "pods", among("In", ["high"])));
        assert!(!is_in(&full, "pods", among("In", ["low"])));
        assert!(is_in(&full, "pods", among("NotIn", ["low"])));
        assert!(is_in(&plain, "pods", among("NotIn", ["low"])));
        assert!(is_in(
            &plain,
            "pods",
            json!({"scopeName": "PriorityClass", "operator": "DoesNotExist"})
        ));
    }

    #[test]
    fn claims_are_in_the_scope_of_their_attributes_class() {
        let claim = json!({"spec": {"volumeAttributesClassName": "gold"}});
        let term = |operator: &str| json!({"scopeName": "VolumeAttributesClass", "operator": operator, "values": ["gold"]});
        assert!(is_in(&claim, "persistentvolumeclaims", term("In")));
        assert!(!is_in(&json!({}), "persistentvolumeclaims", term("In")));
        assert!(is_in(&json!({}), "persistentvolumeclaims", term("NotIn")));
    }
}
