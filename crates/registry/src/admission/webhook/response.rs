//! A hook's answer (spec: admission §4.1).
use super::configuration::Hook;
use super::{ANNOTATION_BYTES_MAX, Failure, WARNING_CHARS_MAX};
use crate::admission::Review;
use crate::admission::subject::Subject;
use crate::figures::{Call, OPERATIONS, Outcome};
use crate::webhook::{self, WebhookError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use setpoint_object::status::Status;
use setpoint_object::{ApiError, Reason, bounded};
use setpoint_schema::INLINE_BYTES_MAX;
use setpoint_schema::builtin;
use setpoint_schema::decode::base64_fault;
use setpoint_schema::patch;
use setpoint_spans::{Span, SpanKind};
use std::collections::BTreeMap;
use tokio::time::Instant;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    api_version: Option<String>,
    kind: Option<String>,
    response: Option<Response>,
}
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: Option<String>,
    #[serde(default)]
    allowed: bool,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

/// Maximum bytes of a patch: 3 MiB, as of a body.
const PATCH_BYTES_MAX: usize = 3 << 20;
/// Maximum number of warnings, and of annotations, of an answer that are looked at. A request has
/// far fewer.
const NOTES_MAX: usize = 1_000;
/// Maximum number of causes of a refusal; further ones are left out.
const CAUSES_MAX: usize = 1_000;
/// Maximum bytes of a refusal's message, and of the text of a failure, which may repeat what the
/// answer has. Longer ones are cut.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of each text of a cause; longer ones are cut.
const CAUSE_BYTES_MAX: usize = 1 << 10;

/// The operations of a patch.
#[derive(Debug, Default)]
pub(super) struct Patch {
    pub(super) operations: Vec<Value>,
    /// Of its text.
    pub(super) n_bytes: usize,
}

/// What an answer says.
struct Judgement {
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
    patch: Result<Patch, Failure>,
}

/// Calls a hook. Returns its patch; an empty one for a validating hook.
///
/// # Errors
///
/// See [`Failure`].
pub(super) async fn call(
    hook: &Hook,
    review: &Review<'_>,
    subject: &Subject<'_>,
    is_mutating: bool,
) -> Result<Patch, Failure> {
    let begun = Instant::now();
    let answer = post(hook, review, subject, is_mutating).await.map_err(|failure| match failure {
        Failure::Call(text) => Failure::Call(bounded::text(text, TEXT_BYTES_MAX)),
        refused => refused,
    });
    let outcome = match &answer {
        Ok(_) => Outcome::Allowed,
        Err(Failure::Call(_)) if hook.fails_open => Outcome::Ignored,
        Err(Failure::Call(_)) => Outcome::Failed,
        Err(Failure::Refused(error)) => Outcome::Refused(error.code()),
    };
    let (name, operation) = (hook.name.clone(), OPERATIONS[review.operation as usize]);
    let call = Call { name, operation, is_mutating, outcome };
    review.inner.figures.webhooks.called(call, begun.elapsed());
    answer
}

async fn post(
    hook: &Hook,
    review: &Review<'_>,
    subject: &Subject<'_>,
    is_mutating: bool,
) -> Result<Patch, Failure> {
    if review.dry_run && !hook.takes_dry_runs {
        let text = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(Failure::Refused(ApiError::bad_request(text)));
    }
    let uid = review.inner.uid();
    let sent = subject.review(hook.review_version, &uid, review.revision);
    let span = span(hook, review, &uid, is_mutating);
    let caller = span.as_ref().map(Span::context);
    // The hook is told how long the request still waits for it.
    let left = review.attributes.deadline.map(|deadline| deadline - Instant::now());
    let timeout = left.map_or(hook.timeout, |left| hook.timeout.min(left));
    let answer = hook.client.call(sent, timeout, caller).await.map_err(|error| {
        Failure::Call(match error {
            WebhookError::Config(text) => format!("could not get REST client: {text}"),
            WebhookError::Call(text) => format!("failed to call webhook: {text}"),
        })
    })?;
    let (name, version) = (hook.name.clone(), hook.review_version);
    let judgement = match answer.len() > INLINE_BYTES_MAX {
        false => judge(&answer, &name, version, &uid, is_mutating),
        true => {
            let there = async move { judge(&answer, &name, version, &uid, is_mutating) };
            review.inner.threads.run(there).await.map_err(Failure::Refused)?
        }
    };
    let Judgement { warnings, annotations, patch } = judgement?;
    for (key, value) in annotations {
        review.annotate(key, value);
    }
    for warning in warnings {
        review.warn(warning);
    }
    patch
}

/// What an answer says. Takes time in its length.
fn judge(
    answer: &[u8],
    hook: &str,
    version: &'static str,
    uid: &str,
    is_mutating: bool,
) -> Result<Judgement, Failure> {
    let answer = read(answer, version)
        .map_err(|error| Failure::Call(format!("failed to call webhook: {error}")))?;
    let invalid =
        |text: String| Failure::Call(format!("received invalid webhook response: {text}"));
    let response = verify(answer, version, uid)?;
    let Response { allowed, status, patch, patch_type, audit_annotations, warnings, .. } = response;
    let patch = patch.filter(|patch| !patch.is_empty());
    // Of v1beta1, a patch is a JSON patch, and that of a validating webhook is ignored.
    let is_checked = version == "v1";
    if is_checked && let Some(text) = misplaced(is_mutating, &patch, patch_type.as_deref()) {
        return Err(invalid(text.to_owned()));
    }
    let (patch, patch_type) = (patch.filter(|_| is_mutating), patch_type.filter(|_| is_checked));
    let warnings = warnings.unwrap_or_default().into_iter().take(NOTES_MAX);
    let annotations = audit_annotations.unwrap_or_default().into_iter();
    Ok(Judgement {
        warnings: warnings
            .map(|warning| warning.chars().take(WARNING_CHARS_MAX).collect())
            .collect(),
        annotations: annotations
            .map(|(key, value)| (format!("{hook}/{key}"), value))
            .filter(|(key, _)| setpoint_object::name::qualified_name(key).is_empty())
            .map(|(key, value)| (key, bounded::text(value, ANNOTATION_BYTES_MAX)))
            .take(NOTES_MAX)
            .collect(),
        patch: match allowed {
            true => patch
                .map_or_else(|| Ok(Patch::default()), |patch| operations(hook, &patch, patch_type)),
            false => Err(Failure::Refused(refusal(hook, status))),
        },
    })
}

/// The operations of a patch in base64.
fn operations(hook: &str, patch: &str, patch_type: Option<String>) -> Result<Patch, Failure> {
    if patch.len() / 4 * 3 > PATCH_BYTES_MAX {
        // As a patch that does not apply: without it, the object is not what the hook wants.
        return Err(Failure::Refused(ApiError::internal(format_args!(
            "the patch of admission webhook {hook:?} is larger than {PATCH_BYTES_MAX} bytes"
        ))));
    }
    let patch = STANDARD.decode(patch).map_err(|error| {
        Failure::Call(format!("failed to call webhook: {}", base64_fault(patch, &error)))
    })?;
    let operations = patch::operations(&patch).map_err(|error| {
        Failure::Call(format!("received undecodable patch in webhook response: {error}"))
    })?;
    // Nobody asks for the type of a patch without operations.
    match patch_type.filter(|kind| kind != "JSONPatch" && !operations.is_empty()) {
        Some(other) => Err(Failure::Call(format!("unsupported patch type {other:?}"))),
        None => Ok(Patch { operations, n_bytes: patch.len() }),
    }
}

/// Reads an answer. A code is any number of 32 bits: a refusal that could not be read would let the
/// request pass if the hook fails open.
fn read(bytes: &[u8], version: &str) -> Result<Answer, String> {
    let mut answer = webhook::read(bytes, builtin::Review::Admission, version)?;
    if let Some(code) = answer.pointer_mut("/response/status/code")
        && let Some(number) = code.as_i64().and_then(|code| i32::try_from(code).ok())
        && u16::try_from(number).is_err()
    {
        *code = if number < 0 { 400 } else { 500 }.into();
    }
    serde_json::from_value(answer).map_err(|error| format!("json: {error}"))
}

/// What is wrong with a patch and its type.
fn misplaced(
    is_mutating: bool,
    patch: &Option<String>,
    patch_type: Option<&str>,
) -> Option<&'static str> {
    match (is_mutating, patch, patch_type) {
        (false, Some(_), _) => Some("validating webhook may not return response.patch"),
        (false, None, Some(_)) => Some("validating webhook may not return response.patchType"),
        (true, Some(_), None) => Some("webhook returned response.patch but not response.patchType"),
        (true, None, Some(_)) => Some("webhook returned response.patchType but not response.patch"),
        (true, Some(_), Some("")) => Some(r#"webhook returned invalid response.patchType of """#),
        _ => None,
    }
}

/// The span of a call.
fn span(hook: &Hook, review: &Review<'_>, uid: &str, is_mutating: bool) -> Option<Span> {
    let name = if is_mutating { "Call mutating webhook" } else { "Call validating webhook" };
    let span = review.attributes.trace.as_ref()?.child(name).kind(SpanKind::Client);
    span.set_text("configuration", &hook.configuration);
    span.set_text("webhook", &hook.name);
    let row = review.resource;
    let (group, version) = (&row.gvk.group, &row.gvk.version);
    span.set("resource", format!("{group}/{version}, Resource={}", row.resource));
    span.set_text("subresource", review.attributes.subresource().map_or("", |s| s.as_str()));
    span.set("operation", OPERATIONS[review.operation as usize]);
    span.set_text("UID", uid);
    Some(span)
}

/// The response of an answer to this review.
fn verify(answer: Answer, version: &str, uid: &str) -> Result<Response, Failure> {
    let (found, kind) = (answer.api_version.unwrap_or_default(), answer.kind.unwrap_or_default());
    let expected = format!("admission.k8s.io/{version}");
    let invalid =
        |text: String| Failure::Call(format!("received invalid webhook response: {text}"));
    let Some(response) = answer.response else {
        return Err(invalid("webhook response was absent".to_owned()));
    };
    // Servers of v1beta1 need repeat neither the uid nor the type.
    if version == "v1" {
        let got = response.uid.as_deref().unwrap_or_default();
        if got != uid {
            return Err(invalid(format!("expected response.uid={uid:?}, got {got:?}")));
        }
        if kind.is_empty() || found.is_empty() {
            let found = if found.contains('/') { found } else { format!("/{found}") };
            return Err(invalid(format!(
                "expected webhook response of {expected}, Kind=AdmissionReview, got {found}, Kind={kind}"
            )));
        }
    }
    Ok(response)
}

/// The error of a refused request: the hook's status with a code of 400 at least.
fn refusal(hook: &str, status: Option<Status>) -> ApiError {
    let denied = format!("admission webhook {hook:?} denied the request");
    let Some(mut status) = status else {
        let mut error =
            ApiError::new(400, Reason::Unknown, format!("{denied} without explanation"));
        error.0.reason = String::new();
        return error;
    };
    status.code = Some(status.code.filter(|code| *code >= 400).unwrap_or(400));
    if status.status.is_empty() || status.status == "Success" {
        status.status = "Failure".to_owned();
    }
    status.message = match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    for text in [&mut status.message, &mut status.reason] {
        *text = bounded::text(std::mem::take(text), TEXT_BYTES_MAX);
    }
    if let Some(details) = &mut status.details {
        details.causes.truncate(CAUSES_MAX);
        for cause in &mut details.causes {
            for text in [&mut cause.reason, &mut cause.message, &mut cause.field] {
                *text = bounded::text(std::mem::take(text), CAUSE_BYTES_MAX);
            }
        }
    }
    ApiError(Box::new(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusals_have_the_status_of_the_hook() {
        let check = |status: Value| {
            let status = serde_json::from_value(status).unwrap();
            let error = refusal("n.a.b", status).0;
            (error.code.unwrap_or_default(), error.reason, error.message, error.status)
        };
        let denied = "admission webhook \"n.a.b\" denied the request";
        let failure = || "Failure".to_owned();
        assert_eq!(
            check(json!({"code": 422, "reason": "Invalid", "message": "no"})),
            (422, "Invalid".to_owned(), format!("{denied}: no"), failure())
        );
        assert_eq!(
            check(json!({"code": 200, "status": "Success", "reason": "Why"})),
            (400, "Why".to_owned(), format!("{denied}: Why"), failure())
        );
        for status in [json!(null), json!({})] {
            let text = format!("{denied} without explanation");
            assert_eq!(check(status), (400, String::new(), text, failure()));
        }
    }

    #[test]
    fn a_refusal_has_as_many_causes_as_a_client_can_read() {
        let cause = json!({"field": "f", "message": "m".repeat(5000), "reason": "r"});
        let status =
            json!({"message": "é".repeat(100_000), "details": {"causes": vec![cause; 5000]}});
        let error = refusal("n.a.b", serde_json::from_value(status).unwrap()).0;
        let causes = &error.details.as_ref().unwrap().causes;
        assert_eq!((causes.len(), causes[0].message.len()), (CAUSES_MAX, CAUSE_BYTES_MAX));
        assert!(error.message.len() <= TEXT_BYTES_MAX, "{}", error.message.len());
    }

    #[test]
    fn a_patch_is_no_longer_than_a_body() {
        let long = "A".repeat(PATCH_BYTES_MAX / 3 * 4 + 8);
        let Err(Failure::Refused(error)) = operations("n.a.b", &long, None) else {
            panic!("it is accepted, or the policy decides")
        };
        let text = error.to_string();
        assert!(text.ends_with("\"n.a.b\" is larger than 3145728 bytes"), "{text}");
    }

    #[test]
    fn members_that_are_null_and_odd_codes_are_no_reason_to_let_a_refusal_pass() {
        let refused = |status: Value| {
            let response = json!({"uid": "u", "allowed": null, "warnings": [null, "w"],
                "auditAnnotations": null, "status": status});
            let review = json!({"kind": "AdmissionReview", "response": response});
            let response = read(review.to_string().as_bytes(), "v1").unwrap().response.unwrap();
            assert!(!response.allowed);
            assert_eq!(response.warnings.unwrap(), ["", "w"]);
            refusal("n.a.b", response.status).0
        };
        let denied = "admission webhook \"n.a.b\" denied the request: no";
        for (code, shown) in [(-5, 400), (0, 400), (403, 403), (70_000, 500)] {
            let error = refused(json!({"code": code, "message": "no", "reason": null,
                "metadata": null, "details": {"name": null, "causes": null}}));
            assert_eq!((error.code, &*error.message), (Some(shown), denied), "{code}");
        }
        assert!(read(br#"{"response":{"status":{"code":"403"}}}"#, "v1").is_err());
    }

    #[test]
    fn answers_must_be_reviews_of_the_version_with_the_uid() {
        let check = |answer: Value| match verify(serde_json::from_value(answer).unwrap(), "v1", "u")
        {
            Ok(_) => String::new(),
            Err(Failure::Call(text)) => text,
            Err(Failure::Refused(error)) => error.to_string(),
        };
        let version = "admission.k8s.io/v1";
        let ok = json!({"uid": "u", "allowed": true});
        let review = |response: Value| json!({"kind": "AdmissionReview", "apiVersion": version, "response": response});
        assert_eq!(check(review(ok.clone())), "");
        assert_eq!(
            check(review(json!({"allowed": true}))),
            "received invalid webhook response: expected response.uid=\"u\", got \"\""
        );
        assert_eq!(
            check(review(Value::Null)),
            "received invalid webhook response: webhook response was absent"
        );
        assert_eq!(
            check(json!({"kind": "AdmissionReview", "response": ok})),
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=AdmissionReview"
        );
    }

    /// As kube-apiserver 1.36 says it.
    #[test]
    fn answers_that_cannot_be_read_have_the_words_of_go() {
        let error = |answer: &str| read(answer.as_bytes(), "v1").err().unwrap_or_default();
        let of = |member: &str| error(&format!(r#"{{"response": {{{member}}}}}"#));
        let field = "into Go struct field AdmissionResponse.response";
        for (member, expected) in [
            (r#""allowed": "yes""#, format!("string {field}.allowed of type bool")),
            (r#""patch": 5"#, format!("number {field}.patch of type []uint8")),
            (r#""uid": true"#, format!("bool {field}.uid of type types.UID")),
            (r#""warnings": {}"#, format!("object {field}.warnings of type []string")),
        ] {
            assert_eq!(of(member), format!("json: cannot unmarshal {expected}"));
        }
        for (answer, expected) in [
            (
                r#"{"kind":"Pod","apiVersion":"v1"}"#,
                "no kind \"Pod\" is registered for version \"v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"",
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1"}"#,
                "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
            ),
            (r#"{"apiVersion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c"),
            (
                r#"{"kind":"AdmissionReview"} x"#,
                "couldn't get version/kind; json parse error: invalid character 'x' after top-level value",
            ),
            (
                r#"{"response":{"patch":1,"allowed":true,"uid":2}}"#,
                "json: cannot unmarshal number into Go struct field AdmissionResponse.response.patch of type []uint8",
            ),
        ] {
            assert_eq!(error(answer), expected);
        }
        for (answer, found) in [("hello", "string"), ("[]", "array")] {
            let start = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string"
            );
            assert!(error(answer).starts_with(&start), "{}", error(answer));
        }
        assert!(read(b"null", "v1").is_ok_and(|answer| answer.response.is_none()));
        let yaml = read(b"kind: AdmissionReview\nresponse:\n  allowed: true\n", "v1").unwrap();
        assert!(yaml.response.is_some_and(|response| response.allowed));
    }
}
