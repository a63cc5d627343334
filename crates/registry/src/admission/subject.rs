//! What webhooks and policies see of a request: `AdmissionReview` (spec: admission §4.1).
use super::matching::{self, Matched};
use super::{Operation, Review};
use crate::catalog::Resource;
use crate::convert;
use crate::scale::{paths, put_at, scale_of, scale_with};
use crate::stored::tree;
use crate::subresource::Subresource;
use crate::verb::Verb;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionKind, encode};
use setpoint_schema::INLINE_BYTES_MAX;
use setpoint_schema::encode::to_bytes;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The name of the object of a request: the one that it came with, whatever hooks have made of it.
/// `object` is the object to store, with a generated name if it has one already.
pub(super) fn name<'r>(review: &Review<'r>, object: Option<&'r Value>) -> &'r str {
    if review.attributes.verb == Verb::DeleteCollection {
        return "";
    }
    match (review.operation, review.subresource, object) {
        (Operation::Create, None, Some(object)) if review.generates => object.name(),
        _ => review.name,
    }
}

/// The kind of the objects in reviews of a request, in the version of a row.
pub(super) fn kind(review: &Review<'_>, row: &Resource) -> GroupVersionKind {
    let subresource = review.subresource.and_then(|subresource| row.subresource(subresource));
    subresource.map_or_else(|| row.gvk.clone(), |subresource| subresource.gvk.clone())
}
/// Whether reviews of a request have objects of the resource's own kind, which has versions. Others
/// have a Scale, an Eviction, options.
pub(super) fn is_own_kind(review: &Review<'_>) -> bool {
    kind(review, review.resource).group_kind() == review.resource.group_kind()
}
/// Whether reviews of a request have a Scale instead of the object.
pub(super) fn is_scale(review: &Review<'_>) -> bool {
    review.subresource == Some(&Subresource::Scale)
}

/// A tree in the version of a row.
///
/// # Errors
///
/// Those of the conversion.
pub(super) async fn in_version<'t>(
    review: &Review<'_>,
    row: &Resource,
    object: &'t Value,
) -> Result<Cow<'t, Value>, ApiError> {
    if object["apiVersion"] == *row.group_version().to_string() {
        return Ok(Cow::Borrowed(object));
    }
    match review.inner.converter_to(row) {
        Some(converter) => {
            let shown = converter.show(row, &to_bytes(object)).await?;
            if shown.len() > INLINE_BYTES_MAX {
                review.thread.leave().await;
            }
            tree(&shown)
        }
        // As the request reads it; a conversion to the version of a rule drops nothing more.
        None => {
            let own = convert::to_served(review.resource, object.clone())?;
            convert::to_version(row, own)
        }
    }
    .map(Cow::Owned)
}

async fn optional_in_version<'t>(
    review: &Review<'_>,
    row: &Resource,
    object: Option<&'t Value>,
) -> Result<Option<Cow<'t, Value>>, ApiError> {
    match object {
        Some(object) => in_version(review, row, object).await.map(Some),
        None => Ok(None),
    }
}

/// The Scale of an object. A custom resource may lack the replicas that its definition names.
pub(super) fn scale(row: &Resource, object: &Value) -> Value {
    scale_of(row, object).unwrap_or_else(|_| scale_with(object, 0))
}
/// The Scale of a write as mutating hooks see it: what was sent, with the replicas of `object`,
/// which others may have changed.
pub(super) fn mutable_scale(review: &Review<'_>, object: &Value) -> Value {
    let present = scale(review.resource, object);
    let Some(scales) = &review.scales else { return present };
    let mut sent = scales.new.clone();
    if sent.namespace().is_empty() {
        sent.set_meta("namespace", review.namespace.into());
    }
    sent["spec"] = present["spec"].clone();
    with_status(sent)
}
/// A Scale whose status says how many there are, also none.
fn with_status(mut scale: Value) -> Value {
    if scale["status"].is_null() {
        scale["status"] = json!({"replicas": 0});
    }
    scale
}
/// Takes the replicas of a changed Scale to its object.
///
/// # Errors
///
/// The object has no Scale.
pub(super) fn put_scale(
    row: &Resource,
    object: &mut Value,
    before: &Value,
    after: &Value,
) -> Result<(), ApiError> {
    let replicas = |scale: &Value| scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas(after) != replicas(before) {
        put_at(object, &paths(row)?.spec_replicas, replicas(after).into());
    }
    Ok(())
}
async fn optional_scale<'t>(
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<Option<Cow<'t, Value>>, ApiError> {
    let Some(object) = object else { return Ok(None) };
    let object = in_version(review, review.resource, object).await?;
    Ok(Some(Cow::Owned(scale(review.resource, &object))))
}

/// The objects of a request as hooks of one version get them.
#[derive(Debug)]
pub(super) struct Subject<'r> {
    pub(super) kind: GroupVersionKind,
    /// The members of the review's request without its uid and objects. Conditions see it too.
    pub(super) request: Value,
    pub(super) object: Option<Cow<'r, Value>>,
    pub(super) old: Option<Cow<'r, Value>>,
    /// The revision that `object` is shown with; 0: it is shown with the version that it has.
    pub(super) revision: u64,
    encoded: OnceLock<[Bytes; 2]>,
}
impl<'r> Subject<'r> {
    /// In the version of `matched`. `object` and the review's stored object may have any version.
    /// Mutating hooks (`is_mutating`) see the resourceVersion that was sent, others that of the
    /// stored object.
    ///
    /// # Errors
    ///
    /// Those of the conversion.
    pub(super) async fn new(
        review: &Review<'r>,
        matched: &Matched,
        object: Option<&'r Value>,
        is_mutating: bool,
    ) -> Result<Self, ApiError> {
        let row = match matched {
            Matched::Request => review.resource,
            Matched::Equivalent(row) => row,
        };
        let request = request(review, row, name(review, object));
        let (kind, encoded) = (kind(review, row), OnceLock::new());
        let (object, old) = if is_own_kind(review) {
            let object = optional_in_version(review, row, object).await?;
            (object, optional_in_version(review, row, review.old).await?)
        } else if is_scale(review) {
            let object = match object {
                Some(scale) if scale["kind"] == *kind.kind => Some(Cow::Borrowed(scale)),
                object => optional_scale(review, object).await?,
            };
            let old = match &review.scales {
                Some(scales) if is_mutating => Some(Cow::Owned(with_status(scales.old.clone()))),
                _ => optional_scale(review, review.old).await?,
            };
            (object, old)
        } else {
            (object.map(Cow::Borrowed), None)
        };
        let has_version =
            |object: &Cow<'_, Value>| is_mutating || !object.resource_version().is_empty();
        // Stored objects have no resourceVersion.
        let revision = if object.as_ref().is_some_and(has_version) { 0 } else { review.revision };
        Ok(Self { kind, request, object, old, revision, encoded })
    }
    /// The review for a hook.
    pub(super) fn review(&self, version: &str, uid: &str, revision: u64) -> Bytes {
        let [object, old] = self.encoded.get_or_init(|| {
            let encode = |tree: &Option<Cow<'_, Value>>, revision: u64| match tree {
                None => Bytes::from_static(b"null"),
                Some(tree) if revision == 0 || !tree["metadata"].is_object() => to_bytes(tree),
                Some(tree) => encode::with_resource_version(&to_bytes(tree), revision),
            };
            [encode(&self.object, self.revision), encode(&self.old, revision)]
        });
        let mut bytes = Vec::with_capacity(object.len() + old.len() + 2048);
        let head = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/{version}","request":{{"uid":"{uid}","object":"#
        );
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(object);
        bytes.extend_from_slice(br#","oldObject":"#);
        bytes.extend_from_slice(old);
        bytes.push(b',');
        // The rest of the request's members, without the opening brace.
        bytes.extend_from_slice(&to_bytes(&self.request)[1..]);
        bytes.push(b'}');
        bytes.into()
    }
}

/// See [`Subject::request`].
fn request(review: &Review<'_>, row: &Resource, name: &str) -> Value {
    let shown = |kind: GroupVersionKind| json!({"group": *kind.group, "version": *kind.version, "kind": *kind.kind});
    let resource = |row: &Resource| {
        let gvk = &row.gvk;
        json!({"group": *gvk.group, "version": *gvk.version, "resource": *row.resource})
    };
    let mut request = json!({
        "kind": shown(kind(review, row)),
        "resource": resource(row),
        "requestKind": shown(kind(review, review.resource)),
        "requestResource": resource(review.resource),
        "operation": matching::word(review.operation),
        "userInfo": review.attributes.identity.user_info(),
        "dryRun": review.dry_run,
        "options": review.options(),
    });
    let mut optional = |member: &str, text: &str| {
        if !text.is_empty() {
            request[member] = text.into();
        }
    };
    let subresource = review.subresource.map_or("", Subresource::as_str);
    optional("subResource", subresource);
    optional("requestSubResource", subresource);
    optional("name", name);
    optional("namespace", matching::namespace(review, name));
    request
}
