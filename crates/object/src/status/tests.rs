use super::*;
use crate::field::Path;
use serde_json::json;

fn configmaps() -> GroupResource {
    GroupResource { group: "".into(), resource: "configmaps".into() }
}
fn deployments() -> GroupResource {
    GroupResource { group: "apps".into(), resource: "deployments".into() }
}
fn check(error: ApiError, json: &str) {
    assert_eq!(String::from_utf8_lossy(&error.to_json()), json);
    let read: Status = serde_json::from_slice(&error.to_json()).unwrap();
    assert_eq!(read, *error.0);
}

#[test]
fn failures_equal_those_of_the_api_byte_for_byte() {
    check(
        ApiError::not_found(&configmaps(), "x"),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"configmaps"},"code":404}"#,
    );
    check(
        ApiError::stale(&deployments(), "d"),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on deployments.apps \"d\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"d","group":"apps","kind":"deployments"},"code":409}"#,
    );
    check(
        ApiError::no_route(),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
    );
    check(
        ApiError::unclassified("resourceVersion should not be set on objects to be created"),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"resourceVersion should not be set on objects to be created","code":500}"#,
    );
    check(
        ApiError::too_large_resource_version(9, 3),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 9, current: 3","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
    );
    check(
        ApiError::internal("boom"),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: boom","reason":"InternalError","details":{"causes":[{"message":"boom"}]},"code":500}"#,
    );
}

#[test]
fn forbidden_names_the_known_parts() {
    let text = |resource: &GroupResource, name| ApiError::forbidden(resource, name, "no").0.message;
    assert_eq!(text(&deployments(), "d"), r#"deployments.apps "d" is forbidden: no"#);
    assert_eq!(text(&configmaps(), ""), "configmaps is forbidden: no");
    let nothing = GroupResource { group: "".into(), resource: "".into() };
    let error = ApiError::forbidden(&nothing, "", r#"User "u" cannot get path "/metrics""#);
    assert_eq!(error.0.message, r#"forbidden: User "u" cannot get path "/metrics""#);
    assert_eq!(error.0.details, Some(Details::default()));
}

#[test]
fn invalid_has_a_cause_per_error_and_texts_once() {
    let kind = GroupKind { group: "".into(), kind: "ConfigMap".into() };
    let a = field::Error::invalid(Path::new("data").key("k"), &json!("x"), "bad");
    let b = field::Error::required(Path::root(), "");
    let error = ApiError::invalid(&kind, "n", &[a.clone(), b, a]);
    assert_eq!(
        error.0.message,
        r#"ConfigMap "n" is invalid: [data[k]: Invalid value: "x": bad, <nil>: Required value]"#
    );
    let details = error.0.details.unwrap();
    assert_eq!(details.causes.len(), 3);
    assert_eq!(details.causes[0].message, r#"Invalid value: "x": bad"#);
    assert_eq!((details.causes[1].field.as_str(), details.kind.as_str()), ("<nil>", "ConfigMap"));
    let nameless = GroupKind { group: "".into(), kind: "".into() };
    let patch = field::Error::required(Path::new("patch"), "");
    assert_eq!(
        ApiError::invalid(&nameless, "", &[patch]).0.message,
        r#" "" is invalid: patch: Required value"#
    );
}

#[test]
fn reasons_keep_their_names() {
    assert_eq!(ApiError::expired("x").reason(), Reason::Expired);
    assert_eq!(ApiError::unclassified("x").reason(), Reason::Unknown);
    assert_eq!((ApiError::too_large(3).code(), ApiError::unauthorized().code()), (413, 401));
}

#[test]
fn invalid_shows_as_many_errors_as_fit() {
    let kind = GroupKind { group: "".into(), kind: "Pod".into() };
    let path = "p".repeat(1_000);
    let errors = vec![field::Error::required(field::Path::new(path), "name it"); 100_000];
    let error = ApiError::invalid(&kind, "x", &errors);
    assert!(error.0.message.ends_with(" more"), "{}", error.0.message.len());
    assert!(error.to_json().len() < 4 * ERRORS_BYTES_MAX);
    let error = ApiError::invalid(&kind, "x", &errors[..1]);
    assert!(error.0.message.ends_with("Required value: name it"), "{}", error.0.message);
}
