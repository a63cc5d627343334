//! What a webhook answers, read as the reference's client reads it: in JSON or YAML, whatever its
//! content type says, and by its type. Errors have Go's words.
use serde_json::{Map, Value};
use setpoint_object::UNVERSIONED_KINDS;
use setpoint_object::field::quote;
use setpoint_schema::builtin::Review;
use setpoint_schema::decode::{self, Format, TypeMeta};

/// Longer answers are JSON: reading YAML takes far longer.
const YAML_BYTES_MAX: usize = 64 * 1024;
/// Where the reference makes the types that answers have: its texts say so.
const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:71";
/// The versions that webhooks may speak.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Reads an answer that should be of a version. Members that are null are left out.
///
/// # Errors
///
/// It is no text of a document, of another type, or a member has a wrong type.
pub(crate) fn read(bytes: &[u8], review: Review, version: &str) -> Result<Value, String> {
    let untyped = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let is_json = bytes.trim_ascii_start().starts_with(b"{") || bytes.len() > YAML_BYTES_MAX;
    let format = if is_json { Format::Json } else { Format::Yaml };
    let mut decoded = decode::parse_typed(bytes, format).map_err(|error| match format {
        Format::Yaml => error.0,
        _ => untyped(error.0),
    })?;
    if decoded.value.is_null() {
        return Ok(Value::Object(Map::new()));
    }
    let TypeMeta { api_version, kind } = decoded.type_meta(bytes, format).map_err(untyped)?;
    if api_version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {api_version}"));
    }
    let found = found_version(review, version, &api_version, &kind)?;
    let schema = review.schema(found);
    let to = review.kind();
    decoded.merge_repeated(&schema, bytes, format);
    decode::conform(&schema, to, &mut decoded.value, &mut Vec::new()).map_err(|error| {
        decode::conform_error(&schema, to, bytes, format).unwrap_or(error).to_string()
    })?;
    match found == version {
        true => Ok(decoded.value),
        false => Err(format!("converting ({found}.{to}) to ({version}.{to}): unknown conversion")),
    }
}

/// The version of an answer. What it leaves out is as it should be.
fn found_version<'v>(
    review: Review,
    version: &'v str,
    api_version: &str,
    kind: &str,
) -> Result<&'v str, String> {
    let (group, found) = match api_version.rsplit_once('/') {
        _ if api_version.is_empty() || api_version == "/" => (review.group(), version),
        Some((group, "")) if group == review.group() => (group, version),
        Some((group, found)) => (group, found),
        None => ("", api_version),
    };
    if UNVERSIONED_KINDS.contains(&kind) {
        let to = review.kind();
        return Err(format!("converting (v1.{kind}) to ({version}.{to}): unknown conversion"));
    }
    let known = VERSIONS.into_iter().find(|known| *known == found && group == review.group());
    match known {
        Some(known) if kind.is_empty() || kind == review.kind() => Ok(known),
        _ => {
            let of = if group.is_empty() { found.to_owned() } else { format!("{group}/{found}") };
            let (kind, of) = (if kind.is_empty() { review.kind() } else { kind }, quote(&of));
            Err(format!(
                "no kind {} is registered for version {of} in scheme {SCHEME:?}",
                quote(kind)
            ))
        }
    }
}
