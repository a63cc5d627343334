//! RoleBindings and ClusterRoleBindings.
use crate::kind::at::{At, check};
use crate::kind::{
    Fill, FormerVersion, Grants, Kind, Members, MetadataChecks, NameRule, Needs, Report, text,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::name;
use setpoint_object::time::Timestamp;

/// RoleBinding.
pub(in crate::kind) static KIND: Kind = binding("RoleBinding");

/// ClusterRoleBinding.
pub(in crate::kind) static CLUSTER: Kind = binding("ClusterRoleBinding");

const FORMERS: &[FormerVersion] = &[FormerVersion::retired("v1beta1")];

const fn binding(kind: &'static str) -> Kind {
    Kind {
        changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
        names: NameRule::WholeSegment,
        create_on_update: true,
        default,
        validate,
        validate_change,
        needs: Needs { grants: Some(Grants::Role), ..Needs::NONE },
        cells: Some(cells),
        rules: "role, subjects; immutable role",
        formers: FORMERS,
        ..Kind::plain(RBAC, kind)
    }
}

/// The group of roles, users and groups.
const RBAC: &str = "rbac.authorization.k8s.io";

/// RoleBinding, ClusterRoleBinding.
fn default(object: &mut Members, _version: &str) {
    if let Some(role) = object.object("roleRef")
        && role.text("apiGroup").is_empty()
    {
        role.insert("apiGroup".to_owned(), Value::from(RBAC));
    }
    for subject in object.each("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.absent("apiGroup", RBAC);
        }
    }
}

fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    let is_namespaced = text(object, "kind") == KIND.kind;
    check(object, old, errors, |at| {
        let role = at.get("roleRef");
        role.get("apiGroup").choice(&[RBAC]);
        let kinds: &[&str] =
            if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        role.get("kind").choice(kinds);
        role.get("name").named(name::path_segment);
        for subject in at.each("subjects") {
            validate_subject(&subject, is_namespaced);
        }
    });
}
/// The role never changes.
fn validate_change(object: &Value, old: Option<&Value>, errors: &mut Report) {
    if old.is_some_and(|old| old["roleRef"] != object["roleRef"]) {
        check(object, None, errors, |at| {
            let role = at.get("roleRef");
            // Kubernetes' internal type, which is what is shown, has no names of JSON.
            let shown = json!({
                "APIGroup": role.text_of("apiGroup"),
                "Kind": role.text_of("kind"),
                "Name": role.text_of("name"),
            });
            role.invalid_as(&shown, "cannot change roleRef");
        });
    }
}

fn validate_subject(at: &At<'_, '_>, is_namespaced: bool) {
    let (name, group) = (at.get("name"), at.get("apiGroup"));
    name.need();
    match at.text_of("kind") {
        "ServiceAccount" => {
            name.named_if_set(name::dns1123_subdomain);
            if !group.text().is_empty() {
                group.unsupported(&[""]);
            }
            if !is_namespaced {
                at.get("namespace").need();
            }
        }
        "User" | "Group" => group.choice(&[RBAC]),
        _ => at.get("kind").choice(&["ServiceAccount", "User", "Group"]),
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let names: Vec<String> = cell::list(object, "subjects")
            .iter()
            .filter(|subject| cell::text(subject, "kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", cell::text(subject, "namespace"), cell::text(subject, "name"))
                }
                _ => cell::text(subject, "name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    vec![
        cell::name(object),
        format!("{}/{}", cell::text(object, "roleRef.kind"), cell::text(object, "roleRef.name"))
            .into(),
        cell::age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
