//! Roles and ClusterRoles.
use crate::kind::at::{At, check};
use crate::kind::{FormerVersion, Grants, Kind, MetadataChecks, NameRule, Needs, Report, text};
use serde_json::Value;

/// Role.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    names: NameRule::WholeSegment,
    create_on_update: true,
    validate,
    needs: Needs { grants: Some(Grants::Rules), ..Needs::NONE },
    rules: "rules",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("rbac.authorization.k8s.io", "Role")
};

/// ClusterRole.
pub(in crate::kind) static CLUSTER: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    names: NameRule::WholeSegment,
    create_on_update: true,
    validate,
    needs: Needs { grants: Some(Grants::Rules), ..Needs::NONE },
    rules: "rules, aggregation",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("rbac.authorization.k8s.io", "ClusterRole")
};

fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    let is_namespaced = text(object, "kind") == KIND.kind;
    check(object, old, errors, |at| {
        for rule in at.each("rules") {
            validate_rule(&rule, is_namespaced);
        }
        if let Some(aggregation) = at.given("aggregationRule") {
            let selectors = aggregation.get("clusterRoleSelectors");
            selectors.need_for(
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            );
            for selector in selectors.items() {
                let before = selector.n_errors();
                selector.selector();
                // Nothing can be selected by it.
                if selector.n_errors() > before {
                    selector.invalid_as(&Value::Null, "invalid label selector.");
                }
            }
        }
    });
}

fn validate_rule(at: &At<'_, '_>, is_namespaced: bool) {
    at.get("verbs").need_for("verbs must contain at least one value");
    let urls = at.get("nonResourceURLs");
    if urls.len() > 0 {
        if is_namespaced {
            urls.invalid("namespaced rules cannot apply to non-resource URLs");
        }
        let members = ["apiGroups", "resources", "resourceNames"];
        if members.iter().any(|member| !at.list_of(member).is_empty()) {
            urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    at.get("apiGroups").need_for("resource rules must supply at least one api group");
    at.get("resources").need_for("resource rules must supply at least one resource");
}
