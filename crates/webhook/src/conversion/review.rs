//! The wire format of `ConversionReview`.

use super::Conversions;
use super::kind::unwritable;
use crate::Refusal;
use crate::review::{Envelope, Form, Version, nullable, slice};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use setpoint_object::{GroupKind, GroupVersion, Skim};
use tokio::task::yield_now;

/// Bytes of objects after which other tasks have their turn: a review may have all objects of a
/// kind.
const SLICE_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(rename = "desiredAPIVersion", default, deserialize_with = "nullable")]
    desired_api_version: String,
    #[serde(borrow, default, deserialize_with = "nullable")]
    objects: Vec<&'a RawValue>,
}

/// Converts all objects of a review, or none.
pub(crate) async fn convert(
    conversions: &Conversions,
    envelope: &Envelope<'_>,
    body: &Bytes,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    let unreadable = |error| Refusal::errored(400, format!("decode the request: {error}"));
    let request: Request<'_> = envelope.request().map_err(unreadable)?;
    let desired = GroupVersion::parse(&request.desired_api_version).ok_or_else(|| {
        let desired = &request.desired_api_version;
        Refusal::errored(400, format!("desiredAPIVersion {desired:?} is not a valid apiVersion"))
    })?;
    let (mut converted, mut n_bytes) = (Vec::with_capacity(request.objects.len()), 0);
    for (at, raw) in request.objects.iter().enumerate() {
        let one = convert_one(conversions, &slice(body, raw), &desired).map_err(|refusal| {
            let mut status = refusal.into_status();
            status.message = format!("object {at}: {}", status.message);
            Refusal::status_of(*status)
        });
        converted.push(one?);
        n_bytes += raw.get().len();
        if n_bytes >= SLICE_BYTES {
            n_bytes = 0;
            yield_now().await;
        }
    }
    Ok(converted)
}

fn convert_one(
    conversions: &Conversions,
    text: &Bytes,
    desired: &GroupVersion,
) -> Result<Box<RawValue>, Refusal> {
    let wrong = |message: String| Refusal::errored(400, message);
    let skim = Skim::of(text).map_err(|error| wrong(format!("decode the object: {error}")))?;
    let own = GroupVersion::parse(&skim.api_version)
        .ok_or_else(|| wrong(format!("{:?} is not a valid apiVersion", skim.api_version)))?;
    let kind = GroupKind { group: own.group.clone(), kind: (*skim.kind).into() };
    if own.group != desired.group {
        return Err(wrong(format!("{kind} cannot be converted to another group: {desired}")));
    }
    if own == *desired {
        return Err(wrong(format!("{kind} is already in version {desired}")));
    }
    let converter = conversions
        .get(&kind)
        .ok_or_else(|| wrong(format!("no conversion is registered for {kind}")))?;
    let mut converted = converter.convert(text, &own.version, &desired.version)?;
    let members = converted
        .as_object_mut()
        .ok_or_else(|| wrong(format!("the conversion of {kind} did not return an object")))?;
    members.insert("apiVersion".to_owned(), desired.to_string().into());
    members.insert("kind".to_owned(), (*skim.kind).into());
    // Checked here because the API server's error would not name the function at fault.
    for (field, before) in
        [("name", &skim.name), ("namespace", &skim.namespace), ("uid", &skim.uid)]
    {
        let after = converted["metadata"][field].as_str().unwrap_or_default();
        if after != &**before {
            return Err(wrong(format!(
                "the conversion of {kind} changed metadata.{field} from {before:?} to {after:?}"
            )));
        }
    }
    // Encoded at once: a tree takes several times the memory.
    to_raw_value(&converted).map_err(unwritable)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    converted_objects: &'a [Box<RawValue>],
    result: Outcome<'a>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

/// Serializes the review with this outcome.
pub(crate) fn write(
    version: Version,
    uid: &str,
    outcome: &Result<Vec<Box<RawValue>>, Refusal>,
) -> Bytes {
    let (converted_objects, status, message) = match outcome {
        Ok(objects) => (objects.as_slice(), "Success", ""),
        Err(refusal) => (&[][..], "Failure", refusal.status().message.as_str()),
    };
    let response = Response { uid, converted_objects, result: Outcome { status, message } };
    let api_version = Form::CONVERSION.api_version(version);
    let review = Review { kind: Form::CONVERSION.kind, api_version, response };
    // Cannot fail: every key is a string and every number is finite.
    serde_json::to_vec(&review).unwrap_or_default().into()
}
