//! FlowSchemas.
use crate::kind::at::{At, check, same_in_all};
use crate::kind::{
    Fill, FormerVersion, Kind, Members, MetadataCheck, MetadataChecks, Report, StatusMeta,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::name;
use setpoint_object::time::Timestamp;

/// FlowSchema.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
    default,
    validate,
    validate_status,
    cells: Some(cells),
    row_order: Some(precedence),
    rules: "precedence, subjects, rules, the fixed specs of the mandatory ones",
    formers: &[
        FormerVersion::retired("v1beta1"),
        FormerVersion::retired("v1beta2"),
        FormerVersion::retired("v1beta3"),
    ],
    ..Kind::with_status("flowcontrol.apiserver.k8s.io", "FlowSchema", StatusMeta::Nothing, "{}")
};

/// FlowSchema. Zero counts as missing.
fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0) == 0 {
        spec.insert("matchingPrecedence".to_owned(), 1000.into());
    }
}

/// Tables show the schemas in the order in which requests are matched.
fn precedence(schema: &Value) -> i64 {
    cell::int(schema, "spec.matchingPrecedence")
}

/// The highest precedence number.
const PRECEDENCE_MAX: i64 = 10_000;
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// Validates a schema: who and what it applies to.
fn validate(schema: &Value, old: Option<&Value>, errors: &mut Report) {
    check(schema, old, errors, |at| {
        let spec = at.get("spec");
        let precedence = spec.get("matchingPrecedence");
        match spec.int_of("matchingPrecedence") {
            n if n <= 0 => precedence.invalid_as(&n.into(), "must be a positive value"),
            n if n > PRECEDENCE_MAX => {
                precedence.invalid(format!("must not be greater than {PRECEDENCE_MAX}"));
            }
            1 if at.text_of("metadata.name") != "exempt" => {
                precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1")
            }
            _ => {}
        }
        if let Some(method) = spec.given("distinguisherMethod") {
            let kind = method.get("type");
            if !["ByNamespace", "ByUser"].contains(&kind.text()) {
                kind.with(method.value).unsupported(&["ByNamespace", "ByUser"]);
            }
        }
        let level = spec.get("priorityLevelConfiguration.name");
        if level.need_for("must reference a priority level") {
            level.faults(name::dns1123_subdomain(level.text()));
        }
        for rule in spec.each("rules") {
            validate_rule(&rule);
        }
        let name = at.text_of("metadata.name");
        if mandatory(name).is_some_and(|fixed| !same_in_all(spec.value, &fixed)) {
            spec.invalid(format!("spec of '{name}' must equal the fixed value"));
        }
    });
}
/// The spec that a schema of this name has, if it is one of the two that every server has.
fn mandatory(name: &str) -> Option<Value> {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let everything = |subjects: Value| {
        json!([{
            "subjects": subjects,
            "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
                "namespaces": ["*"],
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }])
    };
    match name {
        "exempt" => Some(json!({
            "priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 1,
            "rules": everything(json!([group("system:masters")])),
        })),
        "catch-all" => Some(json!({
            "priorityLevelConfiguration": {"name": "catch-all"},
            "matchingPrecedence": 10_000,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": everything(
                json!([group("system:unauthenticated"), group("system:authenticated")])
            ),
        })),
        _ => None,
    }
}
fn validate_status(schema: &Value, old: Option<&Value>, errors: &mut Report) {
    check(schema, old, errors, |at| conditions(&at.get("status")));
}
/// Conditions: each type once.
pub(super) fn conditions(status: &At<'_, '_>) {
    let mut seen = std::collections::HashSet::new();
    for condition in status.each("conditions") {
        let kind = condition.get("type");
        if !seen.insert(kind.text()) {
            kind.duplicate_of(kind.text());
        }
        kind.need();
    }
}

fn validate_rule(at: &At<'_, '_>) {
    let subjects = at.get("subjects");
    subjects.need_for("subjects must contain at least one value");
    for subject in subjects.items() {
        validate_subject(&subject);
    }
    if at.list_of("resourceRules").is_empty() && at.list_of("nonResourceRules").is_empty() {
        at.required("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for rule in at.each("resourceRules") {
        verbs(&rule);
        list(&rule, "apiGroups", "resource rules must supply at least one api group", "api groups");
        list(&rule, "resources", "resource rules must supply at least one resource", "resources");
        let namespaces = rule.get("namespaces");
        if namespaces.len() == 0 {
            if !rule.is("clusterScope") {
                namespaces.required(
                    "resource rules that are not cluster scoped must supply at least one namespace",
                );
            }
        } else if !alone(&namespaces, "namespaces") {
            for namespace in namespaces.items() {
                for fault in name::dns1123_label(namespace.text()) {
                    namespace.invalid(format!(
                        "each member of this list must be '*' or a DNS-1123 label; {fault}"
                    ));
                }
            }
        }
    }
    for rule in at.each("nonResourceRules") {
        verbs(&rule);
        let urls = rule.get("nonResourceURLs");
        if urls.need_for("nonResourceURLs must contain at least one value")
            && !alone(&urls, "non-resource URLs")
        {
            urls.items().for_each(|url| validate_url(&url));
        }
    }
}
/// Whether `*` is in a list. It has to be the only item.
fn alone(at: &At<'_, '_>, noun: &str) -> bool {
    let has_star = at.list().iter().any(|item| item == "*");
    if has_star && at.len() > 1 {
        at.invalid(format!("if '*' is present, must not specify other {noun}"));
    }
    has_star
}
fn list(rule: &At<'_, '_>, member: &str, needed: &str, noun: &str) {
    let at = rule.get(member);
    if at.need_for(needed) {
        alone(&at, noun);
    }
}
fn verbs(rule: &At<'_, '_>) {
    let at = rule.get("verbs");
    if at.need_for("verbs must contain at least one value")
        && !alone(&at, "verbs")
        && !rule.texts_of("verbs").all(|verb| VERBS.contains(&verb))
    {
        at.unsupported(&VERBS);
    }
}
fn validate_url(at: &At<'_, '_>) {
    let url = at.text();
    let message = match url {
        "" => "must not be empty",
        "/" => return,
        _ if !url.starts_with('/') => "must start with slash",
        _ if url.contains(' ') => "must not contain white-space",
        _ if url.contains("//") => "must not contain double slash",
        _ if url.matches('*').count() > usize::from(url.ends_with("/*")) => {
            "wildcard can only do suffix matching"
        }
        _ => return,
    };
    at.invalid(message);
}

fn validate_subject(at: &At<'_, '_>) {
    const KINDS: [(&str, &str); 3] =
        [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
    let kind = at.text_of("kind");
    let Some((_, own)) = KINDS.into_iter().find(|(name, _)| *name == kind) else {
        return at.get("kind").choice(&KINDS.map(|(name, _)| name));
    };
    match at.given(own) {
        None => at.get(own).required(&format!("{own} is required when subject kind is '{kind}'")),
        Some(subject) if own == "serviceAccount" => {
            let name = subject.get("name");
            if name.need() && name.text() != "*" {
                name.faults(name::dns1123_subdomain(name.text()));
            }
            let namespace = subject.get("namespace");
            if namespace.need_for("must specify namespace for service account") {
                namespace.faults(name::dns1123_label(namespace.text()));
            }
        }
        Some(subject) => {
            subject.get("name").need();
        }
    }
    let [group, account, user] = KINDS;
    for (name, member) in [account, user, group] {
        if member != own && at.has(member) {
            at.get(member)
                .forbidden(format!("{member} is forbidden when subject kind is not '{name}'"));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let dangling = cell::condition(object, "status.conditions", "Dangling");
    vec![
        cell::name(object),
        cell::text(object, "spec.priorityLevelConfiguration.name").into(),
        cell::int(object, "spec.matchingPrecedence").into(),
        cell::text_or(object, "spec.distinguisherMethod.type", cell::NONE).into(),
        cell::age(object, now),
        dangling.map_or("?", |found| cell::text(found, "status")).into(),
    ]
}
