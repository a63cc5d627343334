//! Admission policies and their bindings, validating and mutating.
use super::{name_warnings, policy_binding, policy_spec, refuse_reserved};
use crate::kind::{
    Fill, FormerVersion, Kind, Members, MetadataCheck, MetadataChecks, Needs, Reads, StatusMeta,
    StatusRule, versions,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::label::go_text;
use setpoint_object::time::Timestamp;

/// ValidatingAdmissionPolicy.
pub(in crate::kind) static VALIDATING: Kind = Kind {
    default,
    validate: |object, old, errors| {
        policy_spec::validating(object, errors);
        refuse_reserved(object, old, errors);
    },
    validate_status: policy_spec::validate_status,
    // Expressions in CEL are compiled.
    validates_slowly: true,
    status_warnings: name_warnings,
    needs: Needs { reads: Some(Reads::ParamKind), ..Needs::NONE },
    cells: Some(validating),
    rules: "params, matches, conditions, variables, validations, audit annotations; `status`",
    status: Some(StatusRule {
        checks: MetadataChecks::NONE,
        ..StatusRule::new(StatusMeta::Identity, "{}")
    }),
    formers: &[FormerVersion::retired("v1beta1")],
    ..either_kind(super::VALIDATING_POLICY)
};

/// What Kubernetes stores of the mutating kinds, because 1.35 had no `v1`.
const MUTATING_FORMERS: &[FormerVersion] = &[FormerVersion::stored_until(36, "v1beta1")];

/// MutatingAdmissionPolicy.
pub(in crate::kind) static MUTATING: Kind = Kind {
    default,
    validate: |object, old, errors| {
        policy_spec::mutating(object, errors);
        refuse_reserved(object, old, errors);
    },
    validates_slowly: true,
    needs: Needs { reads: Some(Reads::ParamKind), ..Needs::NONE },
    cells: Some(mutating),
    rules: "params, matches, conditions, variables, mutations",
    ..mutating_kind(super::MUTATING_POLICY)
};

/// ValidatingAdmissionPolicyBinding.
pub(in crate::kind) static VALIDATING_BINDING: Kind = Kind {
    default: default_binding,
    validate: |object, old, errors| {
        policy_binding::validating(object, errors);
        refuse_reserved(object, old, errors);
    },
    needs: of_binding("validatingadmissionpolicies"),
    cells: Some(binding),
    rules: "policy, params, matches, actions",
    formers: &[FormerVersion::retired("v1beta1")],
    ..either_kind("ValidatingAdmissionPolicyBinding")
};

/// MutatingAdmissionPolicyBinding.
pub(in crate::kind) static MUTATING_BINDING: Kind = Kind {
    default: default_binding,
    validate: |object, old, errors| {
        policy_binding::mutating(object, errors);
        refuse_reserved(object, old, errors);
    },
    needs: of_binding("mutatingadmissionpolicies"),
    cells: Some(binding),
    rules: "policy, params, matches",
    ..mutating_kind("MutatingAdmissionPolicyBinding")
};

/// What policies and bindings have in common.
const fn either_kind(kind: &'static str) -> Kind {
    Kind {
        changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
        qualified_finalizers: false,
        unconditional_update: false,
        warnings: name_warnings,
        update_warnings: |object, _| name_warnings(object),
        ..Kind::plain("admissionregistration.k8s.io", kind)
    }
}

/// What the mutating kinds have in common.
const fn mutating_kind(kind: &'static str) -> Kind {
    Kind {
        storage: Some(("admissionregistration.k8s.io", "v1")),
        convert: Some(versions::SAME_MEMBERS),
        formers: MUTATING_FORMERS,
        ..either_kind(kind)
    }
}

/// What a binding needs, by the resource of its policies.
const fn of_binding(policies: &'static str) -> Needs {
    Needs { reads: Some(Reads::Params { policies }), ..Needs::NONE }
}

/// ValidatingAdmissionPolicy, MutatingAdmissionPolicy.
fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("failurePolicy", "Fail");
    if let Some(constraints) = spec.object("matchConstraints") {
        match_resources(constraints);
    }
}

fn default_binding(object: &mut Members, _version: &str) {
    if let Some(resources) = object.object("spec").and_then(|spec| spec.object("matchResources")) {
        match_resources(resources);
    }
}

fn match_resources(resources: &mut Members) {
    resources.absent("matchPolicy", "Equivalent");
    resources.absent("namespaceSelector", json!({}));
    resources.absent("objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        resources.each(list).for_each(|rule| rule.absent("scope", "*"));
    }
}

fn validating(object: &Value, now: Timestamp) -> Vec<Value> {
    policy(object, "spec.validations", now)
}

fn mutating(object: &Value, now: Timestamp) -> Vec<Value> {
    policy(object, "spec.mutations", now)
}

fn policy(object: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let kind = cell::at(object, "spec.paramKind");
    let kind = match kind.is_null() {
        true => cell::UNSET.to_owned(),
        false => format!("{}/{}", cell::text(kind, "apiVersion"), cell::text(kind, "kind")),
    };
    vec![cell::name(object), cell::len(object, rules).into(), kind.into(), cell::age(object, now)]
}

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let reference = cell::at(object, "spec.paramRef");
    let shown = match (cell::text(reference, "namespace"), cell::text(reference, "name")) {
        (_, "") if cell::has(reference, "selector") => go_text(cell::at(reference, "selector")),
        (_, "") => cell::UNSET.to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![
        cell::name(object),
        cell::text(object, "spec.policyName").into(),
        shown.into(),
        cell::age(object, now),
    ]
}
