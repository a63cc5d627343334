use super::*;
use setpoint_registry::PropagationPolicy;

fn message<T: std::fmt::Debug>(result: Result<T, ApiError>) -> (u16, String) {
    let error = result.unwrap_err();
    (error.code(), error.0.message)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, ApiError>, code: u16, text: &str) {
    assert_eq!(message(result), (code, text.to_owned()));
}

#[test]
fn dry_run_is_all_or_nothing() {
    assert!(write(&Query::parse("dryRun=All"), "CreateOptions").unwrap().dry_run);
    assert!(!write(&Query::parse(""), "CreateOptions").unwrap().dry_run);
    refused(
        write(&Query::parse("dryRun=foo"), "CreateOptions"),
        422,
        r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["foo"]: supported values: "All""#,
    );
    refused(
        write(&Query::parse("dryRun="), "UpdateOptions"),
        422,
        r#"UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: [""]: supported values: "All""#,
    );
}

#[test]
fn field_manager_is_short_and_printable() {
    let long = format!("fieldManager={}", "a".repeat(129));
    refused(
        write(&Query::parse(&long), "CreateOptions"),
        422,
        r#"CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes"#,
    );
    refused(
        write(&Query::parse("fieldManager=%00"), "CreateOptions"),
        422,
        r#"CreateOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value: "\x00": invalid character U+0000 (at position 0)"#,
    );
    refused(
        write(&Query::parse("fieldManager=a%E2%80%8B"), "CreateOptions"),
        422,
        r#"CreateOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value: "a\u200b": invalid character U+200B (at position 1)"#,
    );
}

#[test]
fn field_validation_defaults_to_warn() {
    let of = |text: &str| write(&Query::parse(text), "CreateOptions").map(|o| o.field_validation);
    assert_eq!(of("").unwrap(), FieldValidation::Warn);
    assert_eq!(of("fieldValidation=").unwrap(), FieldValidation::Warn);
    assert_eq!(of("fieldValidation=Strict").unwrap(), FieldValidation::Strict);
    refused(
        of("fieldValidation=x"),
        422,
        r#"CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn""#,
    );
}

#[test]
fn apply_needs_a_field_manager_and_only_apply_may_be_forced() {
    refused(
        patch(&Query::parse(""), PatchType::Apply),
        422,
        r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
    );
    refused(
        patch(&Query::parse("force=false"), PatchType::Merge),
        422,
        r#"PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch"#,
    );
    let options = patch(&Query::parse("fieldManager=me&force="), PatchType::Apply).unwrap();
    assert_eq!((options.force, options.field_manager.as_str()), (Some(true), "me"));
}

#[test]
fn list_options_are_read_and_refused() {
    let options = list(
        &Query::parse("limit=-5&timeoutSeconds=-1&allowWatchBookmarks=&resourceVersion=3"),
        FeatureGates::default(),
    )
    .unwrap();
    assert_eq!(options.limit, 0);
    assert_eq!(options.timeout, Some(Duration::ZERO));
    assert!(options.allow_bookmarks);
    assert_eq!(
        list(&Query::parse("timeoutSeconds=0"), FeatureGates::default()).unwrap().timeout,
        None
    );
    refused(
        list(&Query::parse("timeoutSeconds=foo"), FeatureGates::default()),
        400,
        r#"strconv.ParseInt: parsing "foo": invalid syntax"#,
    );
    refused(
        list(&Query::parse("resourceVersionMatch=Foo"), FeatureGates::default()),
        422,
        r#"ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""]"#,
    );
    // A deletecollection with the parameter `watch`, too.
    refused(
        list(&Query::parse("watch=1&resourceVersionMatch=Exact"), FeatureGates::default()),
        422,
        r#"ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]"#,
    );
}

fn delete_with(query: &str, body: &str) -> Result<DeleteOptions, ApiError> {
    delete(&Query::parse(query), body.as_bytes(), Format::Json, true)
}

#[test]
fn delete_body_replaces_the_query() {
    let options = delete_with(
        "gracePeriodSeconds=5&propagationPolicy=foo&resourceVersion=1",
        r#"{"kind":"DeleteOptions","apiVersion":"apps/v1","propagationPolicy":"Orphan","preconditions":{"uid":"u"},"extra":1}"#,
    )
    .unwrap();
    assert_eq!(options.grace_period_seconds, None);
    assert_eq!(options.propagation, Some(PropagationPolicy::Orphan));
    assert_eq!(options.uid.as_deref(), Some("u"));
    assert_eq!(options.resource_version, None);
    let options = delete_with("uid=u&resourceVersion=5", "").unwrap();
    assert_eq!(options.uid.as_deref(), Some("u"));
    assert_eq!(options.resource_version.as_deref(), Some("5"));
    let options = delete_with("uid=&resourceVersion=", "").unwrap();
    assert_eq!((options.uid, options.resource_version), (None, None));
    let options = delete_with("gracePeriodSeconds=5&orphanDependents=false", "").unwrap();
    assert_eq!(options.grace_period_seconds, Some(5));
    assert_eq!(options.orphan_dependents, Some(false));
    let options = delete_with("uid=u&resourceVersion=7", "").unwrap();
    assert_eq!(options.uid.as_deref(), Some("u"));
    assert_eq!(options.resource_version.as_deref(), Some("7"));
    let options = delete_with("uid=&resourceVersion=", "").unwrap();
    assert_eq!((options.uid, options.resource_version), (None, None));
    let options = delete_with("uid=u&resourceVersion=7", "{}").unwrap();
    assert_eq!((options.uid, options.resource_version), (None, None));
}

#[test]
fn read_errors_are_ignored_with_the_feature_gate_and_without_other_options() {
    const IGNORE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let (query, body) = (format!("{IGNORE}=true"), format!(r#"{{"{IGNORE}":true}}"#));
    for (query, body) in [(&*query, ""), ("", &*body)] {
        assert!(delete_with(query, body).unwrap().ignore_store_read_error);
        let off = delete(&Query::parse(query), body.as_bytes(), Format::Json, false).unwrap();
        assert!(!off.ignore_store_read_error);
    }
    let others = "dryRun=All&propagationPolicy=Orphan&gracePeriodSeconds=0&uid=u";
    let mistakes: Vec<String> =
        ["dryRun", "propagationPolicy", "gracePeriodSeconds", "preconditions"]
            .iter()
            .map(|other| {
                format!("{IGNORE}: Invalid value: true: cannot be set together with .{other}")
            })
            .collect();
    let text = format!("DeleteOptions.meta.k8s.io \"\" is invalid: [{}]", mistakes.join(", "));
    refused(delete_with(&format!("{query}&{others}"), ""), 422, &text);
    let text = format!(
        "json: cannot unmarshal string into Go struct field DeleteOptions.{IGNORE} of type bool"
    );
    refused(delete_with("", &format!(r#"{{"{IGNORE}":"true"}}"#)), 400, &text);
}

#[test]
fn bad_delete_options_are_refused() {
    refused(
        delete_with("propagationPolicy=foo", ""),
        422,
        r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "foo": supported values: "Foreground", "Background", "Orphan", "nil""#,
    );
    refused(
        delete_with("propagationPolicy=Orphan&orphanDependents=true", ""),
        422,
        r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set"#,
    );
    refused(
        delete_with("gracePeriodSeconds=x", ""),
        400,
        r#"strconv.ParseInt: parsing "x": invalid syntax"#,
    );
    refused(
        delete_with("", "{"),
        400,
        "couldn't get version/kind; json parse error: unexpected end of JSON input",
    );
    refused(
        delete(&Query::parse(""), b"{}", Format::Protobuf, true),
        400,
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
    );
    let struct_text = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    for (body, shape) in [("[]", "array"), (r#""x""#, "string"), ("1", "number"), ("true", "bool")]
    {
        let text = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {shape} into Go value of type {struct_text}"
        );
        refused(delete_with("", body), 400, &text);
    }
    let register = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
    let unregistered = |version: &str| {
        format!(r#"no kind "Foo" is registered for version "{version}" in scheme "{register}""#)
    };
    let wrong = "json: cannot unmarshal";
    for (body, text) in [
        (r#"{"kind":"Foo","apiVersion":"v1"}"#, unregistered("v1")),
        (r#"{"kind":"Foo"}"#, unregistered("meta.k8s.io/v1")),
        (
            r#"{"kind":"Status","apiVersion":"v9"}"#,
            "converting (v1.Status) to (v1.DeleteOptions): unknown conversion".to_owned(),
        ),
        (r#"{"apiVersion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c".to_owned()),
        (
            r#"{"apiVersion":"apps/"}"#,
            r#"Object 'apiVersion' is missing in '{"apiVersion":"apps/"}'"#.to_owned(),
        ),
        (
            r#"{"kind":1}"#,
            format!(
                "couldn't get version/kind; json parse error: {wrong} number into Go struct field .kind of type string"
            ),
        ),
        (
            r#"{"preconditions":[]}"#,
            format!(
                "{wrong} array into Go struct field DeleteOptions.preconditions of type v1.Preconditions"
            ),
        ),
        (
            r#"{"preconditions":{"uid":1}}"#,
            format!(
                "{wrong} number into Go struct field Preconditions.preconditions.uid of type types.UID"
            ),
        ),
        (
            r#"{"gracePeriodSeconds":1.5}"#,
            format!(
                "{wrong} number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
            ),
        ),
        (
            r#"{"propagationPolicy":1}"#,
            format!(
                "{wrong} number into Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation"
            ),
        ),
        // The first in the text, not by name.
        (
            r#"{"orphanDependents":1,"dryRun":{}}"#,
            format!(
                "{wrong} number into Go struct field DeleteOptions.orphanDependents of type bool"
            ),
        ),
        // One that is there twice, too.
        (
            r#"{"orphanDependents":1,"orphanDependents":true}"#,
            format!(
                "{wrong} number into Go struct field DeleteOptions.orphanDependents of type bool"
            ),
        ),
        (
            r#"{"kind":"Table","Kind":"CreateOptions"}"#,
            "converting (v1.CreateOptions) to (v1.DeleteOptions): unknown conversion".to_owned(),
        ),
        (
            r#"{"kind":"Table"}"#,
            "converting (v1.Table) to (v1.DeleteOptions): unknown conversion".to_owned(),
        ),
        (
            r#"{"kind":"Foo","apiVersion":"__internal"}"#,
            format!(
                r#"no kind "Foo" is registered for the internal version of group "" in scheme "{register}""#
            ),
        ),
        (
            r#"{"kind":true,"apiVersion":1}"#,
            format!(
                "couldn't get version/kind; json parse error: {wrong} bool into Go struct field .kind of type string"
            ),
        ),
    ] {
        refused(delete_with("", body), 400, &text);
    }
}

#[test]
fn the_first_wrong_member_of_yaml_is_the_first_by_name() {
    let body = br#"{"orphanDependents":1,"dryRun":{}}"#;
    refused(
        delete(&Query::parse(""), body, Format::Yaml, true),
        400,
        "json: cannot unmarshal object into Go struct field DeleteOptions.dryRun of type []string",
    );
}

#[test]
fn preconditions_that_are_there_twice_are_merged() {
    let body = r#"{"preconditions":{"uid":"a"},"preconditions":{"resourceVersion":"1"},"x":1e400}"#;
    let options = delete_with("", body).unwrap();
    assert_eq!(options.uid.as_deref(), Some("a"));
    assert_eq!(options.resource_version.as_deref(), Some("1"));
}

#[test]
fn empty_precondition_of_a_delete_body_is_one() {
    let options = delete_with("", r#"{"preconditions":{"uid":"","resourceVersion":""}}"#).unwrap();
    assert_eq!(options.uid.as_deref(), Some(""));
    assert_eq!(options.resource_version.as_deref(), Some(""));
}

#[test]
fn delete_body_may_have_any_version_or_no_members() {
    for body in [
        "null",
        "{}",
        r#"{"kind":null,"preconditions":null}"#,
        r#"{"apiVersion":"v9","kind":"DeleteOptions"}"#,
        r#"{"apiVersion":"/"}"#,
        r#"{"apiVersion":"nope.io/v1"}"#,
    ] {
        let options = delete_with("dryRun=All", body).unwrap();
        assert!(!options.dry_run, "{body}: the query is not read");
    }
}
